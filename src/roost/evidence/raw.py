"""The bytes of the input, identified by their SHA-256 digest, and a folder that stores them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from roost.evidence.errors import ErrorKind, EvidenceError

JSON = "application/json"


class Raw(NamedTuple):
    """A reference to the bytes of the input."""

    sha256: str
    """The digest in hexadecimal, without a prefix."""
    size_bytes: int
    media_type: str


Keep = Callable[[bytes, str], Raw]
"""Called with the payload and its media type before the payload is parsed. `raw_of` keeps only the digest."""


def raw_of(payload: bytes, media_type: str = JSON) -> Raw:
    return Raw(sha256(payload).hexdigest(), len(payload), media_type)


class RawStore:
    """A folder with one file per digest. A file is complete or absent, and equal payloads share one file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, payload: bytes, media_type: str) -> Raw:
        raw = raw_of(payload, media_type)
        path = self.path(raw.sha256)
        try:
            if not path.exists():
                self._write(path, payload)
        except OSError as error:
            reason = error.strerror or str(error)
            raise EvidenceError(ErrorKind.INFRASTRUCTURE, f"cannot store the raw payload: {reason}") from None
        return raw

    def path(self, sha256: str) -> Path:
        return self.folder / sha256[:2] / sha256

    def _write(self, path: Path, payload: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(payload)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
