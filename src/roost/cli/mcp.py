"""`roost mcp serve`: the host's tools for a client of MCP that starts its servers itself."""

from __future__ import annotations

import asyncio
import signal

import typer

from roost.cli.client import async_client
from roost.cli.errors import CommandFailed
from roost.cli.options import DEFAULT_URL, Tenant, Token, Url

app = typer.Typer(no_args_is_help=True, help="The agents of a running host, as tools for a client of MCP.")


@app.callback()
def group() -> None:
    """Without it a group of one command is that command."""


@app.command()
def serve(url: Url = DEFAULT_URL, token: Token = "", tenant: Tenant = "") -> None:
    """Speak MCP on stdin and stdout, until stdin ends, for a running host."""
    try:
        from roost.cli.mcp_proxy import serve as serve_streams  # an extra, and slow to load
    except ModuleNotFoundError as error:
        raise CommandFailed(f"this needs {error.name}: pip install 'roost[mcp]'") from None
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a thread that waits for stdin would have to be waited for
    try:
        asyncio.run(serve_streams(async_client(url, token, tenant), url))
    except* BrokenPipeError:
        raise CommandFailed("the client closed its end") from None
