"""Members of a bundle while they are made: in files, not in memory, and in few of them."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from hashlib import sha256
from typing import IO, TYPE_CHECKING, NamedTuple

from roost.evidence import bundle
from roost.evidence.bundle import BundleMember, header, padding

if TYPE_CHECKING:
    from _hashlib import HASH

COPY = 1 << 20
LEVEL = 1
"""Of compression: beyond it a bundle takes longer and is hardly smaller."""


class BundlePart:
    """A member that is being written, from some place of a file on."""

    def __init__(self, name: str, file: IO[bytes]) -> None:
        self.name = name
        self.file = file
        self.start = file.tell()
        self.digest = sha256()
        self.size = 0

    def add(self, data: bytes) -> None:
        self.file.write(data)
        self.digest.update(data)
        self.size += len(data)

    def line(self, data: bytes) -> None:
        self.add(data + b"\n")

    def member(self) -> BundleMember:
        return BundleMember(self.name, self.digest.hexdigest(), self.size)

    def pieces(self) -> Iterator[bytes]:
        self.file.seek(self.start)
        left = self.size
        while left:
            piece = self.file.read(min(left, COPY))
            left -= len(piece)
            yield piece


class Mark(NamedTuple):
    """How far the events were written."""

    size: int
    digest: HASH
    parts: int


class Parts:
    """The members with lines have a file each; all others are written at once, one after the other into one more."""

    def __init__(self) -> None:
        self.files = ExitStack()
        self.rest = self._file()
        self.by_name = {name: BundlePart(name, self._file()) for name in bundle.LINES}

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, *_: object) -> None:
        self.files.close()

    def __getitem__(self, name: str) -> BundlePart:
        return self.by_name[name]

    def put(self, name: str, data: bytes) -> None:
        part = self.by_name[name] = BundlePart(name, self.rest)
        part.add(data)

    def mark(self) -> Mark:
        events = self.by_name[bundle.EVENTS]
        return Mark(events.size, events.digest.copy(), len(self.by_name))

    def cut(self, mark: Mark) -> None:
        """What came since is gone."""
        events = self.by_name[bundle.EVENTS]
        events.size, events.digest = mark.size, mark.digest
        events.file.seek(mark.size)
        events.file.truncate()
        for name in list(self.by_name)[mark.parts :]:
            del self.by_name[name]

    def in_order(self) -> list[BundlePart]:
        return sorted(self.by_name.values(), key=lambda part: bundle.order(part.name))

    def write(self, out: IO[bytes], manifest: bytes, signed: bytes) -> None:
        with gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0, compresslevel=LEVEL) as packed:
            for name, data in ((bundle.MANIFEST, manifest), (bundle.SIGNATURE, signed)):
                packed.write(header(name, len(data)) + data + padding(len(data)))
            for part in self.in_order():
                packed.write(header(part.name, part.size))
                for piece in part.pieces():
                    packed.write(piece)
                packed.write(padding(part.size))
            packed.write(bundle.END)

    def _file(self) -> IO[bytes]:
        return self.files.enter_context(tempfile.TemporaryFile(buffering=COPY))
