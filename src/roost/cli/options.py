"""The options that client commands share, and the form of commands that they suggest to the user."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

DEFAULT_URL = "http://127.0.0.1:8080"

Url = Annotated[
    str,
    typer.Option(
        "--url", envvar="ROOST_URL", metavar="URL", help="The host to call: http(s)://host[:port] or unix:PATH."
    ),
]
Token = Annotated[
    str,
    typer.Option(
        "--token",
        envvar="ROOST_TOKEN",
        metavar="TOKEN",
        show_default=False,
        help="The credential, sent as a bearer token.",
    ),
]
Tenant = Annotated[
    str,
    typer.Option(
        "--tenant",
        envvar="ROOST_TENANT",
        metavar="TENANT",
        show_default=False,
        help="The tenant, if the caller has several.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and nothing else there.")]
OfAgent = Annotated[
    str,
    typer.Option(
        "--agent", metavar="AGENT", show_default=False, help="The agent that has the task. Found automatically."
    ),
]


def command(url: str, *words: str) -> str:
    """A command that the user can type, for the same host. It never contains the token."""
    place = () if url == DEFAULT_URL else ("--url", url)
    return f"`{shlex.join(('roost', *words, *place))}`"
