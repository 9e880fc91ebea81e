"""Which agents are served, and the cards that say so."""
