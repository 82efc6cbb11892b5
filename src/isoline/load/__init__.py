"""The AIPerf adapter: its command line, its supervision and its exports."""
