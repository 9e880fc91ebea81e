"""Does harm to hosts under load and checks that no client can tell: `python -m chaos`. Not shipped."""
