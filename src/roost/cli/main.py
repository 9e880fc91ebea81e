"""`roost`: the command line."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from roost._version import VERSION
from roost.cli.agents import agents, card
from roost.cli.audit import audit
from roost.cli.backup import backup, restore
from roost.cli.config import config
from roost.cli.conform import conform
from roost.cli.errors import CommandFailed
from roost.cli.evidence import app as evidence
from roost.cli.group import DefaultGroup, ShowGroup
from roost.cli.keys import app as keys
from roost.cli.mcp import app as mcp
from roost.cli.new import new
from roost.cli.output import plain
from roost.cli.prune import prune
from roost.cli.push import app as push
from roost.cli.secret import secret
from roost.cli.send import send
from roost.cli.settings import with_settings
from roost.cli.store import WHERE
from roost.cli.tasks import cancel, tasks
from roost.cli.token import app as token
from roost.cli.verify import verify
from roost.cli.watch import watch

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Hosts a fleet of agents behind one A2A 1.0 door.",
)


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=lambda v: _version(v), help="Show the release.")
    ] = False,
) -> None:
    """Hosts a fleet of agents behind one A2A 1.0 door."""


def _version(wanted: bool) -> None:
    if wanted:
        print(f"roost {VERSION}")
        raise typer.Exit


def _serve(
    paths: Annotated[list[str], typer.Argument(help="A .py file, a folder of them, or module:attribute.")],
    reload: Annotated[bool, typer.Option("--reload", help="Restart when a file changes.")] = False,
    **flags: Any,
) -> None:
    """Serve agents until stopped."""
    from roost.cli.serve import serve  # with a web server that no other command needs

    serve(paths, flags, reload=reload)


serve_command = with_settings(_serve)
app.command("serve")(serve_command)

tasks_app = typer.Typer(cls=DefaultGroup, help="List tasks, the one that changed last first; or prune them.")
tasks_app.command("list")(tasks)
tasks_app.command("prune")(with_settings(prune, WHERE))

card_app = typer.Typer(cls=ShowGroup, help="Show an agent's card, or verify the signatures of any card.")
card_app.command("show")(card)
card_app.command("verify")(verify)

for command in (agents, send, watch, cancel, conform, new, config, secret):
    app.command()(command)
app.command("audit")(with_settings(audit, WHERE))
for command in (backup, restore):
    app.command(command.__name__)(with_settings(command, WHERE))
app.add_typer(tasks_app, name="tasks")
app.add_typer(card_app, name="card")
app.add_typer(token, name="token")
app.add_typer(keys, name="keys")
app.add_typer(push, name="push")
app.add_typer(mcp, name="mcp")
app.add_typer(evidence, name="evidence")


def main() -> None:
    try:
        app(prog_name="roost")
    except CommandFailed as error:
        print(f"roost: {plain(str(error))}", file=sys.stderr)
        sys.exit(error.code)
    except UnicodeEncodeError:
        print("roost: the arguments must be UTF-8", file=sys.stderr)
        sys.exit(2)
