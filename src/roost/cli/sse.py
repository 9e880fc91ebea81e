"""Server-sent events, from the bytes of a response."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class ServerSentEvent(NamedTuple):
    id: int | None
    data: bytes


def frames(chunks: Iterable[bytes]) -> Iterator[ServerSentEvent]:
    """Every complete event; one that the connection cut off is not an event."""
    number: int | None = None
    data: list[bytes] = []
    for line in _lines(chunks):
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not line:
            if data:
                yield ServerSentEvent(number, b"\n".join(data))
            number, data = None, []
        elif name == b"data":
            data.append(value)
        elif name == b"id" and value.isdigit():
            number = int(value)


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Split at line feeds only: str.splitlines, which httpx uses, also splits at U+2028 and others inside JSON."""
    begun: list[bytes] = []
    for chunk in chunks:
        head, *rest = chunk.split(b"\n")
        begun.append(head)
        for piece in rest:
            yield b"".join(begun).removesuffix(b"\r")
            begun = [piece]
