"""A host whose disk waits or refuses when the test says so."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.processes import Server, running
from tests.waiting import eventually

HERE = Path(__file__).parent
AGENTS = HERE / "agents.py"


class Disk:
    """`folder` is $SYNCGATE: files in it tell syncgate.c, and the agents, what to do."""

    def __init__(self, folder: Path, library: Path) -> None:
        self.folder = folder
        self.library = library
        folder.mkdir()

    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.library), "SYNCGATE": str(self.folder)}

    def tell(self, name: str) -> None:
        (self.folder / name).touch()

    def untell(self, name: str) -> None:
        (self.folder / name).unlink()

    def said(self, name: str) -> bool:
        return (self.folder / name).exists()

    def close_gate(self) -> None:
        (self.folder / "blocked").unlink(missing_ok=True)
        self.tell("gate")

    def wait_for(self, name: str) -> None:
        eventually(lambda: self.said(name), name)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """syncgate.c, compiled."""
    if not sys.platform.startswith("linux"):
        pytest.skip("the faulty file layer is an LD_PRELOAD library")
    if shutil.which("cc"):
        compiler = ["cc"]
    elif importlib.util.find_spec("ziglang"):
        compiler = [sys.executable, "-m", "ziglang", "cc"]
    else:
        pytest.skip("there is no C compiler for the faulty file layer: neither cc nor ziglang")
    made = tmp_path_factory.mktemp("syncgate") / "syncgate.so"
    subprocess.run(
        [*compiler, "-Wall", "-Werror", "-shared", "-fPIC", "-o", made, HERE / "syncgate.c", "-ldl"], check=True
    )
    return made


@pytest.fixture
def disk(tmp_path: Path, library: Path) -> Disk:
    return Disk(tmp_path / "disk", library)


@pytest.fixture
def start(tmp_path: Path, disk: Disk) -> Callable[[], AbstractContextManager[Server]]:
    """Starts the host, as often as it has to be, on the same data."""
    return lambda: running(AGENTS, data=tmp_path / "data", env=disk.environment())


@pytest.fixture
def server(start: Callable[[], AbstractContextManager[Server]], disk: Disk) -> Iterator[Server]:
    with start() as made:
        yield made
        for told in ("gate", "fail"):
            (disk.folder / told).unlink(missing_ok=True)
        disk.tell("go")
