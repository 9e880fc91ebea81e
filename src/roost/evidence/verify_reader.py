"""Reads a bundle's container with suspicion: a little at a time, and only what an export would have written."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import IO, NamedTuple

from roost.evidence import bundle
from roost.evidence.bundle import BLOCK, BundleLimits

PIECE = 64 * 1024
FREE = 4 << 20
"""Bytes that may come out before the ratio counts."""

_FIELDS = (
    ("name", 0, 100),
    ("mode", 100, 108),
    ("uid", 108, 116),
    ("gid", 116, 124),
    ("size", 124, 136),
    ("time", 136, 148),
    ("checksum", 148, 156),
    ("type", 156, 157),
    ("link", 157, 257),
    ("magic", 257, 265),
    ("user", 265, 297),
    ("group", 297, 329),
    ("device", 329, 345),
    ("prefix", 345, 500),
    ("padding", 500, 512),
)


class Broken(Exception):
    """It is no sound container, or was damaged; `at` is the member."""

    def __init__(self, at: str, message: str) -> None:
        super().__init__(message)
        self.at = at


class BundleUnreadable(Exception):
    """It cannot be judged; the message says why."""


class Unpacked:
    """The bytes of a gzip file, as they are asked for."""

    def __init__(self, file: IO[bytes], limits: BundleLimits) -> None:
        self.file = file
        self.limits = limits
        self.inflate = zlib.decompressobj(31)
        self.came = self.gave = 0
        self.buffer = bytearray()
        head = file.read(len(bundle.GZIP_HEAD))
        if head != bundle.GZIP_HEAD:
            raise Broken("gzip", f"expected the first bytes {bundle.GZIP_HEAD.hex()}, found {head.hex() or 'nothing'}")
        self._feed(head)

    def exactly(self, size: int, at: str) -> bytes:
        """So many bytes, few at a time: the caller knows that it wants them in memory."""
        while len(self.buffer) < size and self._more(at):
            pass
        if len(self.buffer) < size:
            raise Broken(at, "it is truncated: the bundle ends here")
        found = bytes(self.buffer[:size])
        del self.buffer[:size]
        return found

    def end(self) -> None:
        """Nothing comes after the tar, and nothing after the gzip."""
        while self._more("gzip"):
            if self.buffer:
                break
        if self.buffer:
            raise Broken("tar", "there is something after the end of the archive")
        if self.inflate.unused_data or self.file.read(1):
            raise Broken("gzip", "there is something after the end of the compressed data")

    def _more(self, at: str) -> bool:
        """False at the end of the compressed data."""
        if self.inflate.eof:
            return False
        piece = self.inflate.unconsumed_tail or self.file.read(PIECE)
        if not piece:
            raise Broken(at, "it is truncated: the compressed data ends here")
        self._feed(piece)
        return True

    def _feed(self, piece: bytes) -> None:
        try:
            made = self.inflate.decompress(piece, PIECE)
        except zlib.error as error:
            raise Broken("gzip", f"the compressed data is damaged after {self.gave} bytes: {error}") from None
        self.came += len(piece) - len(self.inflate.unconsumed_tail)
        self.gave += len(made)
        if self.gave > FREE + self.limits.ratio * self.came:
            raise BundleUnreadable(
                f"it expands to more than {self.limits.ratio} times its size: raise --max-ratio if that is meant"
            )
        self.buffer += made


class ReadMember(NamedTuple):
    name: str
    size: int
    pieces: Iterator[bytes]
    """To be read to the end before the next member."""


def members(unpacked: Unpacked) -> Iterator[ReadMember]:
    last: tuple[int, str] = (-1, "")
    while True:
        block = unpacked.exactly(BLOCK, "tar")
        if block == bytes(BLOCK):
            if unpacked.exactly(BLOCK, "tar") != bytes(BLOCK):
                raise Broken("tar", "expected a second empty block at the end, found something else")
            unpacked.end()
            return
        name, size = _checked(block)
        if bundle.order(name) <= last:
            again = "a second time" if bundle.order(name) == last else f"after {last[1]}"
            raise Broken(name, f"it is there {again}")
        last = bundle.order(name)
        yield ReadMember(name, size, _pieces(unpacked, name, size))
        rest = -size % BLOCK
        if unpacked.exactly(rest, name) != bytes(rest):
            raise Broken(name, "expected zeros after it, up to a whole block")


def _checked(block: bytes) -> tuple[str, int]:
    name = block[:100].rstrip(b"\0").decode("ascii", "replace")
    prefix = block[345:500].rstrip(b"\0").decode("ascii", "replace")
    name = f"{prefix}/{name}" if prefix else name
    if block[156:157] != b"0":
        raise Broken(name[:100], f"it is no plain file: its type is {block[156:157]!r}")
    if not bundle.known(name):
        raise Broken(name[:100], f"a bundle has no member {name!r}")
    digits = block[124:135]
    size = int(digits, 8) if digits.isdigit() and b"8" not in digits and b"9" not in digits else -1
    expected = bundle.header(name, max(size, 0))
    for field, start, stop in _FIELDS:
        if block[start:stop] != expected[start:stop] or size < 0:
            what = f"its header has another {field}: expected {expected[start:stop]!r}, found {block[start:stop]!r}"
            raise Broken(name, what)
    return name, size


def _pieces(unpacked: Unpacked, name: str, size: int) -> Iterator[bytes]:
    while size:
        piece = unpacked.exactly(min(size, PIECE), name)
        size -= len(piece)
        yield piece


def lines(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Without their ends. Unjudged for one that is too long."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        if any(len(line) > bundle.MAX_LINE for line in whole) or len(rest) > bundle.MAX_LINE:
            raise BundleUnreadable(f"{name} has a line of more than {bundle.MAX_LINE} bytes")
        yield from whole
    if rest:
        raise Broken(name, "its last line has no end")
