"""A journal that a real host has written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.evidence.journals import Written, write


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder = tmp_path_factory.mktemp("journal") / "data"
    for _, ids in write(folder):
        found = Written(folder, sorted(ids))
    return found


@pytest.fixture
def journal(written: Written, tmp_path: Path) -> Written:
    """A private copy of the journal, without a host."""
    folder = tmp_path / "data"
    shutil.copytree(written.folder, folder)
    return Written(folder, written.tasks)
