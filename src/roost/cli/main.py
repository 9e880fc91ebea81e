"""`roost`: the command line."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from roost._version import VERSION
from roost.cli.agents import agents, card
from roost.cli.config import config
from roost.cli.errors import Failed
from roost.cli.new import new
from roost.cli.output import plain
from roost.cli.send import send
from roost.cli.tasks import cancel, tasks
from roost.cli.watch import watch
from roost.settings import DOCS

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


@app.command("serve")
def serve_command(
    paths: Annotated[list[str], typer.Argument(help="A .py file, a folder of them, or module:attribute.")],
    host: Annotated[str | None, typer.Option(help=DOCS["host"])] = None,
    port: Annotated[int | None, typer.Option(help=DOCS["port"])] = None,
    data: Annotated[str | None, typer.Option(help=DOCS["data"])] = None,
    memory: Annotated[bool | None, typer.Option("--memory", help=DOCS["memory"])] = None,
    root: Annotated[str | None, typer.Option(help=DOCS["root"])] = None,
    public_url: Annotated[str | None, typer.Option(help=DOCS["public_url"])] = None,
    trusted_proxy: Annotated[str | None, typer.Option(help=DOCS["trusted_proxy"])] = None,
    max_body: Annotated[int | None, typer.Option(help=DOCS["max_body"])] = None,
    log_level: Annotated[str | None, typer.Option(help=DOCS["log_level"])] = None,
    log_format: Annotated[str | None, typer.Option(help=DOCS["log_format"])] = None,
    drain_s: Annotated[float | None, typer.Option(help=DOCS["drain_s"])] = None,
    reload: Annotated[bool, typer.Option("--reload", help="Restart when a file changes.")] = False,
) -> None:
    """Serve agents until stopped."""
    from roost.cli.serve import serve  # with a web server that no other command needs

    flags = {
        "host": host,
        "port": port,
        "data": data,
        "memory": memory,
        "root": root,
        "public_url": public_url,
        "trusted_proxy": trusted_proxy,
        "max_body": max_body,
        "log_level": log_level,
        "log_format": log_format,
        "drain_s": drain_s,
    }
    serve(paths, flags, reload=reload)


for command in (agents, card, send, tasks, watch, cancel, new, config):
    app.command()(command)


def main() -> None:
    try:
        app(prog_name="roost")
    except Failed as error:
        print(f"roost: {plain(str(error))}", file=sys.stderr)
        sys.exit(error.code)
    except UnicodeEncodeError:
        print("roost: the arguments must be UTF-8", file=sys.stderr)
        sys.exit(2)
