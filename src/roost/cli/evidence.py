"""`roost evidence`: what was visible, as events that anyone can check."""

from __future__ import annotations

import typer

from roost.cli.evidence_bundles import export, verify
from roost.cli.evidence_checkpoints import audit, checkpoint, checkpoints
from roost.cli.evidence_convert import convert
from roost.cli.keys import KEY_SETTINGS
from roost.cli.settings import with_settings
from roost.cli.store import WHERE

app = typer.Typer(no_args_is_help=True, help="What was visible, as events that anyone can check.")


@app.callback()
def group() -> None:
    """Without it a group of one command is that command."""


app.command("convert")(convert)
app.command("export")(with_settings(export, KEY_SETTINGS))
app.command("verify")(verify)
app.command("checkpoint")(with_settings(checkpoint, KEY_SETTINGS))
app.command("checkpoints")(with_settings(checkpoints, WHERE))
app.command("audit")(with_settings(audit, WHERE))
