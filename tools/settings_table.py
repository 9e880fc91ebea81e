"""Writes the table of settings in docs/settings.md: python -m tools.settings_table"""

from __future__ import annotations

import re
from pathlib import Path

from roost.settings import SETTINGS, Setting

FILE = Path(__file__).parents[1] / "docs" / "settings.md"
HEAD = "| in roost.toml | flag | variable | default | values | |\n|---|---|---|---|---|---|\n"
TABLE = re.compile(re.escape(HEAD) + r"(\|.*\n)*")


def table() -> str:
    return HEAD + "".join(map(_row, SETTINGS.values()))


def _row(setting: Setting) -> str:
    default = str(setting.default).lower() if isinstance(setting.default, bool) else str(setting.default)
    variables = ", ".join(_code(name) for name in (setting.variable, setting.alias) if name)
    cells = (_code(setting.name), _code(setting.flag), variables, _code(default), setting.expected, setting.sentence)
    return f"| {' | '.join(cells)} |\n"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


if __name__ == "__main__":
    FILE.write_text(TABLE.sub(lambda _: table(), FILE.read_text()))
