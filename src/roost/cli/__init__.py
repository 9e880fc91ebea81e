"""The commands. Most are clients of a running host; some work on the store itself."""
