"""Starting, watching and stopping servers, and everything a machine must give back."""
