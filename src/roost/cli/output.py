"""Output: what goes to stdout, what goes to stderr, and what must not reach a terminal."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from roost.protocol.codec import encode
from roost.protocol.types import Part, TaskState

if TYPE_CHECKING:
    from roost.cli.client import ReceivedEvent

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

PIPE_WIDTH = 10_000
"""The width of a table for a program, so that nothing is cut or folded."""


def plain(text: str) -> str:
    """Remove control characters, with which an agent could manipulate the user's terminal."""
    return _CONTROL.sub("", text)


def one_line(text: str) -> str:
    return " ".join(plain(text).split())


def note(text: str) -> None:
    """Print a note for the user on stderr, dimmed, so that it is not mistaken for output."""
    text = plain(text)
    styled = sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")
    print(f"\x1b[2m{text}\x1b[0m" if styled else text, file=sys.stderr, flush=True)


def json_line(body: bytes) -> None:
    sys.stdout.buffer.write(body + b"\n")
    sys.stdout.buffer.flush()


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, cut: bool = False) -> None:
    """Print a table. On a narrow terminal the last column is folded, or cut."""
    from rich.console import Console  # slow to import, and most commands print no table
    from rich.table import Table
    from rich.text import Text

    def cell(text: str) -> Text:
        return Text(one_line(text))

    shown = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns[:-1]:
        shown.add_column(column, no_wrap=True)
    shown.add_column(columns[-1])
    for *cells, last in rows:
        shown.add_row(*map(cell, cells), Text(one_line(last), no_wrap=cut, overflow="ellipsis"))
    Console(width=None if sys.stdout.isatty() else PIPE_WIDTH).print(shown)


def word(state: TaskState) -> str:
    """A state as people write it, such as input-required."""
    return state.removeprefix("TASK_STATE_").lower().replace("_", "-")


def text_of(parts: Iterable[Part], *, line_start: bool = True) -> str:
    """The parts as text. A part that is not text gets lines of its own."""
    text = ""
    for part in parts:
        if isinstance(part.text, str):
            text += part.text
        else:
            at_start = text.endswith("\n") if text else line_start
            text += ("" if at_start else "\n") + _described(part) + "\n"
    return text


def _described(part: Part) -> str:
    if isinstance(part.raw, bytes):
        kind = part.media_type or "application/octet-stream"
        return f"[{part.filename or 'file'}: {kind}, {len(part.raw)} bytes]"
    if isinstance(part.url, str):
        return f"[{part.filename or 'file'}: {part.url}]"
    return msgspec.json.format(encode(part.data), indent=2).decode()


class Lines:
    """Shows a stream to programs: each StreamResponse on a line of its own, as the host sent it."""

    def show(self, event: ReceivedEvent) -> None:
        json_line(event.data)

    def note(self, text: str) -> None:
        note(text)

    def end(self) -> None:
        return None
