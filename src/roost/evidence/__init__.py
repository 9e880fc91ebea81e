"""Evidence of what happened that anyone can check: canonical events, signed bundles and their verification."""
