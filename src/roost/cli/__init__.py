"""The commands; most are clients of a running host."""
