"""A class name stands for one idea in the whole package."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from tests.test_docs import parsed

PACKAGE = Path(__file__).parents[1] / "src" / "roost"

ALLOWED: dict[str, str] = {}
"""Names that may have several definitions, and why."""


def test_no_class_name_is_defined_in_two_modules() -> None:
    modules: defaultdict[str, set[str]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                modules[node.name.lstrip("_")].add(str(path.relative_to(PACKAGE)))
    shared = {name: sorted(paths) for name, paths in modules.items() if len(paths) > 1}
    assert {name: paths for name, paths in shared.items() if name not in ALLOWED} == {}
