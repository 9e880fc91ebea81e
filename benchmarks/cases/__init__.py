"""One module for each group of numbers."""
