"""The numbers that Roost holds, measured beside the SDK in one run: `python -m benchmarks --help`."""
