"""What leaves this machine: the published snapshot, exports, and the places they go to."""
