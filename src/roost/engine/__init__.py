"""The engine defines tasks and runs them."""
