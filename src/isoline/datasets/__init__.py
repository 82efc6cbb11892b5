"""What the load replays: fixed-length and trace datasets, and their digests."""
