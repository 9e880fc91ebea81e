"""Identity: who calls, what they may do and how much; tokens, JWTs, signing keys, quotas and the audit log."""
