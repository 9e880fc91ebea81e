"""Injects faults into hosts under load and checks that no client notices: `python -m chaos`. Not shipped."""
