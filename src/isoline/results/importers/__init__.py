"""Readers of foreign result formats, AIPerf included."""
