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

_HIDDEN = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls; tabs and newlines are text
    r"\xad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # direction and width
    r"\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # layout of hieroglyphs, shorthand and music
    r"\U000e0001\U000e0020-\U000e007f"  # tags, which can carry a whole invisible text
)
"""A character class of everything that a terminal obeys or does not show, but for the marks before Arabic numbers and
the like, which are of Unicode's category Cf and have a glyph."""
_EMOJI = r"[\u2190-\u2bff\ufe0f\U0001f000-\U0001faff]"
_JOINING = r"[\u0600-\u0dff]"
_JOINED = rf"(?<={_EMOJI})\u200d(?={_EMOJI}|\Z)|(?<={_JOINING})[\u200c\u200d](?={_JOINING}|\Z)"
"""A joiner where it belongs: inside an emoji, and in scripts such as Persian and Hindi that cannot be written without.
Elsewhere it hides in a word, as U+FEFF does everywhere: that is a mark of files, and no text needs it."""
_UNSEEN = re.compile(rf"{_JOINED}|([{_HIDDEN}])")
_ESCAPED = re.compile(rf"[{_HIDDEN}\u2028\u2029]")  # to many programs the last two end a line

PIPE_WIDTH = 10_000
"""The width of a table for a program, so that nothing is cut or folded."""


def plain(text: str) -> str:
    """Show what a terminal would obey or hide, such as <U+202E>: an agent could manipulate what the user sees."""
    return _UNSEEN.sub(lambda found: found[0] if found[1] is None else _named(found[0]), text.replace("\r\n", "\n"))


def _named(character: str) -> str:
    return f"<U+{ord(character):04X}>"


def escaped(text: str) -> str:
    """Escape the same characters as JSON does. The values of a JSON text stay what they are."""
    return _ESCAPED.sub(lambda found: _escape(found[0]), text)


def _escape(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def references(text: str) -> str:
    """Escape the same characters as XML and HTML do."""
    return _ESCAPED.sub(lambda found: f"&#x{ord(found[0]):x};", text)


def one_line(text: str) -> str:
    return " ".join(plain(text).split())


def note(text: str) -> None:
    """Print a note for the user on stderr, dimmed, so that it is not mistaken for output."""
    text = plain(text)
    styled = sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")
    print(f"\x1b[2m{text}\x1b[0m" if styled else text, file=sys.stderr, flush=True)


def json_line(body: bytes) -> None:
    """Print JSON in such a way that a terminal only shows it."""
    text = body.decode("utf-8", "replace").replace("\r", " ")  # between values, where it is no more than a space
    sys.stdout.buffer.write(escaped(text).encode() + b"\n")
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
