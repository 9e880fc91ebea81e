"""The programs of docs/clients.md print what the page says, as they stand there but for the host's address."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cards.javascript import NODE, installed
from tests.doors.serving import healthy
from tests.grpc.wire import GRPC
from tests.processes import FLEET, ROOT, Server, environment
from tests.waiting import PATIENCE_S

PAGE = (ROOT / "docs" / "clients.md").read_text()
PROGRAM = re.compile(
    r"^## (?P<title>[^\n]+)\n(?:(?!^## ).)*?^```(?P<language>python|js)\n(?P<code>.*?)^```$", re.M | re.S
)
SAID = re.compile(r"^ *(?:#|//) (.*)$", re.M)
HOST = "http://127.0.0.1:8080"


class Program(NamedTuple):
    title: str
    language: str
    code: str


PROGRAMS = [Program(**found.groupdict()) for found in PROGRAM.finditer(PAGE)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with healthy(FLEET, data=tmp_path_factory.mktemp("data"), args=GRPC) as host:
        yield host


def test_every_program_of_the_page_is_found() -> None:
    assert len(PROGRAMS) == PAGE.count("```python") + PAGE.count("```js") == 6


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.title)
def test_a_program_prints_what_the_page_says(program: Program, server: Server, tmp_path: Path) -> None:
    assert HOST in program.code
    script = tmp_path / ("program.mjs" if program.language == "js" else "program.py")
    script.write_text(program.code.replace(HOST, server.url))
    if program.language == "js":
        (tmp_path / "node_modules").symlink_to(installed() / "node_modules")
    command = [NODE if program.language == "js" else sys.executable, script]
    ran = subprocess.run(
        command, capture_output=True, text=True, env=environment(), timeout=PATIENCE_S, cwd=tmp_path, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == SAID.findall(program.code)
