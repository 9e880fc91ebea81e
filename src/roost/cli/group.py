"""A command that is also a group: what is none of its commands goes to the first of them."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

HELP = ("--help", "-h")


class DefaultGroup(TyperGroup):
    """`roost tasks hello` is `roost tasks list hello`."""

    default = "list"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in HELP and args[0] not in self.commands):
            args = [self.default, *args]
        return super().parse_args(ctx, args)


class ShowGroup(DefaultGroup):
    """`roost card hello` is `roost card show hello`."""

    default = "show"
