"""What goes to stdout, what goes to stderr, and what must not reach a terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from roost.cli.client import ReceivedEvent
from roost.protocol.codec import encode
from roost.protocol.types import Part, TaskState

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

PIPE_WIDTH = 10_000
"""Columns where nobody looks: nothing is cut or folded for a program."""


def plain(text: str) -> str:
    """Without the escape sequences by which an agent could write to the user's terminal what it likes."""
    return _CONTROL.sub("", text)


def one_line(text: str) -> str:
    return " ".join(plain(text).split())


def note(text: str) -> None:
    """To the person, beside the output."""
    Console(stderr=True).print(Text(plain(text), style="dim"), soft_wrap=True)


def json_line(body: bytes) -> None:
    sys.stdout.buffer.write(body + b"\n")
    sys.stdout.buffer.flush()


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, cut: bool = False) -> None:
    """Where the terminal is narrow the last column gives way: it is folded, or cut."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns[:-1]:
        shown.add_column(column, no_wrap=True)
    shown.add_column(columns[-1])
    for *cells, last in rows:
        shown.add_row(*map(_cell, cells), Text(one_line(last), no_wrap=cut, overflow="ellipsis"))
    Console(width=None if sys.stdout.isatty() else PIPE_WIDTH).print(shown)


def _cell(text: str) -> Text:
    return Text(one_line(text))


def word(state: TaskState) -> str:
    """A state as people write it: input-required."""
    return state.removeprefix("TASK_STATE_").lower().replace("_", "-")


def text_of(parts: Iterable[Part], *, line_start: bool = True) -> str:
    """Parts as text; what is no text gets lines of its own."""
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
    """A stream for programs: each StreamResponse on a line of its own, as the host sent it."""

    def show(self, event: ReceivedEvent) -> None:
        json_line(event.data)

    def note(self, text: str) -> None:
        note(text)

    def end(self) -> None:
        return None
