"""Everything that is needed to turn settings into a running host."""
