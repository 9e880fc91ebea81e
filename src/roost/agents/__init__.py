"""The runtimes: what calls an agent, behind the port `Turn` (engine/turn.py)."""
