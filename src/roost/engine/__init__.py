"""What a task is and how it runs."""
