"""The log's forms: a line of text is one record, whatever is in it."""

from __future__ import annotations

import json
import logging
import sys

from roost.cli.logs import JSONFormatter, TextFormatter
from tests.cli.test_output import EVIL

FORGED = "12:00:00 info    roost is yours"


class _Failed(Exception):
    """An error whose text, notes and causes are foreign."""


def record(message: str, *args: object) -> logging.LogRecord:
    try:
        try:
            raise KeyError(f"a key\n{FORGED}")
        except KeyError as error:
            failed = _Failed(f"no\n{FORGED}\r{EVIL}")
            failed.add_note(f"a note\n{FORGED}\u2028{FORGED}")
            raise failed from error
    except _Failed:
        made = logging.LogRecord("roost.doors", logging.ERROR, __file__, 1, message, args, sys.exc_info())
    made.agent = f"evil\n{FORGED}"
    return made


def test_a_line_of_text_is_a_record_or_is_marked_as_part_of_its_traceback() -> None:
    lines = TextFormatter().format(record("%s failed", f"/agents/\n{FORGED}\x1b[2J{EVIL}")).splitlines()
    first, *trace = lines
    assert rf"/agents/\n{FORGED}\u001b[2J" in first
    assert rf"[agent=evil\n{FORGED}]" in first
    assert all(line.startswith("  | ") for line in trace)
    assert rf"  | {FORGED}\u2028{FORGED}" in trace, "a traceback keeps its lines"
    assert "  | Traceback (most recent call last):" in trace
    assert not {*EVIL, "\u2028"} & {*"".join(lines)}


def test_a_line_of_json_says_the_same_and_a_terminal_only_shows_it() -> None:
    line = JSONFormatter().format(record("%s", f"/agents/\n{EVIL}"))
    assert not {*EVIL} & {*line}
    said = json.loads(line)
    assert said["message"] == f"/agents/\n{EVIL}"
    assert EVIL in said["exception"]
