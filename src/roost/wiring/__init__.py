"""Turns settings into the parts of a running host."""
