"""What people decided about results, as reviewed files."""
