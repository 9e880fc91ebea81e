"""Raw input, kept by its digest: a folder with one file for each SHA-256."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from roost.evidence.errors import ErrorKind, EvidenceError
from roost.evidence.events import Raw, raw_of

Keep = Callable[[bytes, str], Raw]
"""Called with the payload and its media type before anything is parsed. `raw_of` keeps nothing but the digest."""


class RawStore:
    """A file is there whole or not at all; the same bytes are kept once."""

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
            raise EvidenceError(ErrorKind.INFRASTRUCTURE, f"cannot keep the raw payload: {reason}") from None
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
