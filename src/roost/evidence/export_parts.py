"""The members of a bundle while it is made. They are kept in a few temporary files, not in memory."""

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

COPY_BYTES = 1 << 20
COMPRESSION_LEVEL = 1
"""Higher levels take longer and hardly make a bundle smaller."""


class BundlePart:
    """A member that is being written to a file, from the current position on."""

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
            piece = self.file.read(min(left, COPY_BYTES))
            left -= len(piece)
            yield piece


class Savepoint(NamedTuple):
    """A state of the parts to return to."""

    events_size: int
    events_digest: HASH
    part_count: int


class Parts:
    """Members with lines have a file each. All other members are written whole, one after another, to one more file."""

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

    def savepoint(self) -> Savepoint:
        events = self.by_name[bundle.EVENTS]
        return Savepoint(events.size, events.digest.copy(), len(self.by_name))

    def roll_back(self, savepoint: Savepoint) -> None:
        """Remove all that was written since the savepoint."""
        events = self.by_name[bundle.EVENTS]
        events.size, events.digest = savepoint.events_size, savepoint.events_digest
        events.file.seek(savepoint.events_size)
        events.file.truncate()
        for name in list(self.by_name)[savepoint.part_count :]:
            del self.by_name[name]

    def in_order(self) -> list[BundlePart]:
        return sorted(self.by_name.values(), key=lambda part: bundle.order(part.name))

    def write(self, out: IO[bytes], manifest: bytes, signed: bytes) -> None:
        with gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0, compresslevel=COMPRESSION_LEVEL) as packed:
            for name, data in ((bundle.MANIFEST, manifest), (bundle.SIGNATURE, signed)):
                packed.write(header(name, len(data)) + data + padding(len(data)))
            for part in self.in_order():
                packed.write(header(part.name, part.size))
                for piece in part.pieces():
                    packed.write(piece)
                packed.write(padding(part.size))
            packed.write(bundle.END)

    def _file(self) -> IO[bytes]:
        return self.files.enter_context(tempfile.TemporaryFile(buffering=COPY_BYTES))
