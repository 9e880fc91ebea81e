"""The documentation names only files that exist, and docstrings are sentences."""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "roost"
BASES = (ROOT, ROOT / "src", PACKAGE)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ARCHITECTURE = ROOT / "docs" / "architecture.md"

MODULE = re.compile(r"`((?:\w+/)+\w+\.py)`")
"""A path such as `engine/intake.py`, relative to the repository, to src or to the package."""
ROOM = re.compile(r"`(\w+/)`")
"""A folder such as `engine/`, below the package."""
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#]+)")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_python_file_that_a_page_names_exists(page: Path) -> None:
    paths = set(MODULE.findall(page.read_text()))
    assert sorted(path for path in paths if not any((base / path).exists() for base in BASES)) == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    links = set(LINK.findall(page.read_text()))
    assert sorted(link for link in links if not (page.parent / link).exists()) == []


def test_the_architecture_names_every_room_and_no_other() -> None:
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    assert {found.rstrip("/") for found in ROOM.findall(ARCHITECTURE.read_text())} == rooms


FRAGMENT = re.compile(r"\s*(As|By|For|From|Of|What|Which|Whose) ")
"""The first word of a docstring that is not a sentence, and needs the code to be understood."""
CODE = ("src", "tests", "chaos", "benchmarks", "tools", "examples")


def parsed(path: Path) -> ast.Module:
    """Parse a module. CPython 3.11 fails if a garbage collection in between parses something too."""
    gc.disable()
    try:
        return ast.parse(path.read_text())
    finally:
        gc.enable()


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield all docstrings with their lines, those of attributes included."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def test_no_docstring_is_a_fragment() -> None:
    modules = [path for folder in CODE for path in sorted((ROOT / folder).rglob("*.py"))]
    fragments = [
        f"{name(path)}:{line} {text}" for path in modules for line, text in docstrings(path) if FRAGMENT.match(text)
    ]
    assert fragments == []
