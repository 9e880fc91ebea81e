"""Reads the container of an untrusted bundle: in small pieces, and only bytes that an export would have written."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import IO, NamedTuple

from roost.evidence import bundle
from roost.evidence.bundle import BLOCK, BundleLimits

PIECE = 64 * 1024
RATIO_FREE = 4 << 20
"""Uncompressed bytes before the limit on the compression ratio applies."""

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


class BundleDamaged(Exception):
    """The container is malformed. `at` is the member."""

    def __init__(self, at: str, message: str) -> None:
        super().__init__(message)
        self.at = at


class BundleUnreadable(Exception):
    """The bundle cannot be judged. The message says why."""


class GzipReader:
    """Decompresses a gzip file on demand."""

    def __init__(self, file: IO[bytes], limits: BundleLimits) -> None:
        self.file = file
        self.limits = limits
        self.inflate = zlib.decompressobj(31)
        self.bytes_in = self.bytes_out = 0
        self.buffer = bytearray()
        head = file.read(len(bundle.GZIP_HEAD))
        if head != bundle.GZIP_HEAD:
            found = head.hex() or "nothing"
            raise BundleDamaged("gzip", f"expected the first bytes {bundle.GZIP_HEAD.hex()}, found {found}")
        self._feed(head)

    def read_exactly(self, size: int, at: str) -> bytes:
        """Return `size` bytes. They are held in memory, so the caller bounds the size."""
        while len(self.buffer) < size and self._read_more(at):
            pass
        if len(self.buffer) < size:
            raise BundleDamaged(at, "truncated: the bundle ends here")
        found = bytes(self.buffer[:size])
        del self.buffer[:size]
        return found

    def check_end(self) -> None:
        """Check that nothing follows the archive, and nothing the compressed data."""
        while self._read_more("gzip"):
            if self.buffer:
                break
        if self.buffer:
            raise BundleDamaged("tar", "there is data after the end of the archive")
        if self.inflate.unused_data or self.file.read(1):
            raise BundleDamaged("gzip", "there is data after the end of the compressed data")

    def _read_more(self, at: str) -> bool:
        """Return False at the end of the compressed data."""
        if self.inflate.eof:
            return False
        piece = self.inflate.unconsumed_tail or self.file.read(PIECE)
        if not piece:
            raise BundleDamaged(at, "truncated: the compressed data ends here")
        self._feed(piece)
        return True

    def _feed(self, piece: bytes) -> None:
        try:
            output = self.inflate.decompress(piece, PIECE)
        except zlib.error as error:
            raise BundleDamaged(
                "gzip", f"the compressed data is damaged after {self.bytes_out} bytes: {error}"
            ) from None
        self.bytes_in += len(piece) - len(self.inflate.unconsumed_tail)
        self.bytes_out += len(output)
        if self.bytes_out > RATIO_FREE + self.limits.ratio * self.bytes_in:
            raise BundleUnreadable(
                f"it expands to more than {self.limits.ratio} times its size: raise --max-ratio to accept it"
            )
        self.buffer += output


class ReadMember(NamedTuple):
    name: str
    size: int
    pieces: Iterator[bytes]
    """Must be read to the end before the next member."""


def members(reader: GzipReader) -> Iterator[ReadMember]:
    last: tuple[int, str] = (-1, "")
    while True:
        block = reader.read_exactly(BLOCK, "tar")
        if block == bytes(BLOCK):
            if reader.read_exactly(BLOCK, "tar") != bytes(BLOCK):
                raise BundleDamaged("tar", "expected a second empty block at the end, found other data")
            reader.check_end()
            return
        name, size = _parse_header(block)
        if bundle.order(name) <= last:
            what = "the member occurs twice" if bundle.order(name) == last else f"the member must come before {last[1]}"
            raise BundleDamaged(name, what)
        last = bundle.order(name)
        yield ReadMember(name, size, _pieces(reader, name, size))
        rest = -size % BLOCK
        if reader.read_exactly(rest, name) != bytes(rest):
            raise BundleDamaged(name, "expected zeros after the member, up to a whole block")


def _parse_header(block: bytes) -> tuple[str, int]:
    name = block[:100].rstrip(b"\0").decode("ascii", "replace")
    prefix = block[345:500].rstrip(b"\0").decode("ascii", "replace")
    name = f"{prefix}/{name}" if prefix else name
    if block[156:157] != b"0":
        raise BundleDamaged(name[:100], f"not a regular file: the type is {block[156:157]!r}")
    if not bundle.known(name):
        raise BundleDamaged(name[:100], f"a bundle has no member {name!r}")
    digits = block[124:135]
    size = int(digits, 8) if digits.isdigit() and b"8" not in digits and b"9" not in digits else -1
    expected = bundle.header(name, max(size, 0))
    for field, start, stop in _FIELDS:
        if block[start:stop] != expected[start:stop] or size < 0:
            what = f"the tar header has a wrong {field}: expected {expected[start:stop]!r}, found {block[start:stop]!r}"
            raise BundleDamaged(name, what)
    return name, size


def _pieces(reader: GzipReader, name: str, size: int) -> Iterator[bytes]:
    while size:
        piece = reader.read_exactly(min(size, PIECE), name)
        size -= len(piece)
        yield piece


def lines(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Yield the lines without their ends. Raises BundleUnreadable for a line that is too long."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        if any(len(line) > bundle.MAX_LINE for line in whole) or len(rest) > bundle.MAX_LINE:
            raise BundleUnreadable(f"{name} has a line of more than {bundle.MAX_LINE} bytes")
        yield from whole
    if rest:
        raise BundleDamaged(name, "the last line has no line end")
