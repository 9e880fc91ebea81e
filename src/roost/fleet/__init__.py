"""The agents that are served, and their cards."""
