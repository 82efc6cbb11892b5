"""What a run is and was told, on disk: runs, journal, controls, outcome, and the views of them."""
