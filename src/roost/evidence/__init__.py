"""What happened, as events that anyone can check: canonical events, bundles, verification."""
