"""Requests that are made to cost others something, against a host under normal load: `python -m benchmarks.hostile`."""
