"""`roost`: the command line. Only the command that is called is imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from roost._version import VERSION

if TYPE_CHECKING:
    from typer import Typer


class Group(NamedTuple):
    """Commands that share a first word."""

    help: str
    commands: Mapping[str, str]
    default: str = ""
    """The command that runs if none is named: `roost tasks hello` is `roost tasks list hello`."""


COMMANDS: Mapping[str, str | Group] = {
    "serve": "serve:serve",
    "agents": "agents:agents",
    "card": Group(
        "Show an agent's card, or verify the signatures of any card.",
        {"show": "agents:card", "verify": "verify:verify"},
        default="show",
    ),
    "send": "send:send",
    "tasks": Group(
        "List tasks, the most recently changed first, or prune them.",
        {"list": "tasks:tasks", "prune": "prune:prune"},
        default="list",
    ),
    "watch": "watch:watch",
    "cancel": "tasks:cancel",
    "conform": "conform:conform",
    "new": "new:new",
    "config": "settings:config",
    "secret": "keys:secret",
    "token": Group(
        "Create, list and revoke tokens, the credentials of this host's callers.",
        {"create": "token:create", "list": "token:list_tokens", "revoke": "token:revoke"},
    ),
    "keys": Group(
        "List, rotate and retire the keys that sign cards.",
        {"list": "keys:list_keys", "rotate": "keys:rotate", "retire": "keys:retire"},
    ),
    "push": Group("List webhooks, and retry those that fail.", {"list": "push:list_webhooks", "retry": "push:retry"}),
    "audit": "audit:audit",
    "backup": "backup:backup",
    "restore": "backup:restore",
    "mcp": Group("Serve the agents of a running host as tools to an MCP client.", {"serve": "mcp:serve"}),
    "evidence": Group(
        "Convert, export and verify evidence of what happened, and audit the journal.",
        {
            "convert": "evidence_convert:convert",
            "export": "evidence_bundles:export",
            "verify": "evidence_bundles:verify",
            "checkpoint": "evidence_checkpoints:checkpoint",
            "checkpoints": "evidence_checkpoints:checkpoints",
            "audit": "evidence_checkpoints:audit",
        },
    ),
}
"""Each command's module in roost.cli and its function there."""

DASHES = frozenset({"keys:retire"})
"""Commands whose argument may begin with a dash, as a key's id may."""

HELP = ("--help", "-h")


def main() -> None:
    words = sys.argv[1:]
    if words[:1] == ["--version"]:
        print(f"roost {VERSION}")
        return
    from roost.cli.errors import CommandFailed  # it imports typer, which --version does not need
    from roost.cli.output import plain

    words = with_default(words)
    try:
        command_line(words)(words, prog_name="roost")
    except CommandFailed as error:
        print(f"roost: {plain(str(error))}", file=sys.stderr)
        sys.exit(error.code)
    except UnicodeEncodeError:
        print("roost: the arguments must be UTF-8", file=sys.stderr)
        sys.exit(2)


def with_default(words: Sequence[str]) -> list[str]:
    """Insert the default command of a group if the words name none."""
    group = COMMANDS.get(words[0]) if words else None
    if not isinstance(group, Group) or not group.default or set(words[1:2]) & {*group.commands, *HELP}:
        return [*words]
    return [words[0], group.default, *words[1:]]


def command_line(words: Sequence[str]) -> Typer:
    """Build the command that the words name, or all commands of a level if they name none."""
    import typer

    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        help="Hosts a fleet of agents behind one A2A 1.0 door.",
    )

    @app.callback()
    def options(version: bool = typer.Option(False, "--version", help="Show the release.")) -> None:
        """Declare --version for --help; `main` answers it."""

    for name in _named(words[:1], COMMANDS):
        entry = COMMANDS[name]
        if isinstance(entry, str):
            app.command(name)(_function(entry))
            continue
        group = typer.Typer(no_args_is_help=True, help=entry.help)
        group.callback()(lambda: None)  # without it, a group of one command would be that command
        for member in _named(words[1:2], entry.commands):
            place = entry.commands[member]
            group.command(member, context_settings={"ignore_unknown_options": place in DASHES})(_function(place))
        app.add_typer(group, name=name)
    return app


def _named(words: Sequence[str], known: Mapping[str, object]) -> Iterable[str]:
    return words if words and words[0] in known else known


def _function(place: str) -> Callable[..., None]:
    module, _, name = place.partition(":")
    function: Callable[..., None] = getattr(import_module(f"roost.cli.{module}"), name)
    return function
