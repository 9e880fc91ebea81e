"""The cases, one module for each group of measures."""
