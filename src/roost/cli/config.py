"""`roost config`: every setting, its value, and where that came from."""

from __future__ import annotations

from roost.cli.errors import CommandFailed
from roost.cli.options import Json
from roost.cli.output import json_line, table
from roost.protocol.codec import encode
from roost.settings import DOCS, SettingError, Sourced, read, shown


def config(as_json: Json = False) -> None:
    """Show what `roost serve` would run with here: each setting, its value, and where that came from."""
    try:
        found = read({})
    except SettingError as error:
        raise CommandFailed(str(error)) from error
    if as_json:
        json_line(encode({item.name: _described(item) for item in found}))
    else:
        rows = [(item.name, _shown(item), item.source, DOCS[item.name]) for item in found]
        table(("SETTING", "VALUE", "FROM", "WHAT IT IS"), rows)


def _described(item: Sourced) -> dict[str, object]:
    return {"value": shown(item), "source": item.source, "doc": DOCS[item.name]}


def _shown(item: Sourced) -> str:
    if isinstance(item.value, bool):
        return "true" if item.value else "false"
    return str(shown(item)) if item.value != "" else '""'
