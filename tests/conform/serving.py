"""Runs a module that serves a host to judge, in its own process."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.server import ROOT, STOP_S, environment

SERVES = re.compile(r"Serves at (http\S+)")


@contextmanager
def served(module: str, *args: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start a module, and yield its URL and its process when it has printed the URL on stderr."""
    command = [sys.executable, "-m", module, *args]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment(), cwd=ROOT)
    assert process.stderr is not None
    try:
        said = []
        for line in process.stderr:
            said.append(line)
            if found := SERVES.search(line):
                yield found.group(1), process
                return
        raise AssertionError("".join(said))
    finally:
        process.kill()
        process.wait(STOP_S)
        process.stderr.close()
