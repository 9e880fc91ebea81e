"""What can be hosted."""
