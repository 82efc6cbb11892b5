"""What an attempt is worth: verdicts, their reasons, and what makes a point official."""
