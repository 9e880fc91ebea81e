"""The JavaScript SDK: installed once into a cache, and one process of it for all tests."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tools import npm
from tools.npm import NODE

from tests.processes import ROOT

SOURCE = ROOT / "tests" / "js"


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
    """Return the folder that has the pinned packages."""
    return npm.installed(SOURCE)
