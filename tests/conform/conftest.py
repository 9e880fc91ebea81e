"""One broken host for all tests of a worker, and `roost conform` in this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from roost.cli.main import main
from tests.conform.serving import served


class Done(NamedTuple):
    code: object
    stdout: str
    stderr: str


Conform = Callable[..., Done]


@pytest.fixture(scope="session")
def broken() -> Iterator[str]:
    """The URL of the broken host. Its faults are at paths of their own, so that they do not disturb each other."""
    with served("tests.conform.doors") as (url, _):
        yield url


@pytest.fixture
def conform(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Conform:
    """Run `roost conform` to its end."""
    for name in [name for name in os.environ if name.startswith("ROOST_")]:
        monkeypatch.delenv(name)

    def run(*words: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["roost", "conform", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        return Done(ended.value.code, *capsys.readouterr())

    return run
