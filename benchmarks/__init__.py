"""Measures Roost beside other A2A servers in one run: see `python -m benchmarks --help`."""
