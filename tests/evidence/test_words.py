"""Every statement about evidence is limited to visibility: what was seen, and nothing about its effect."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import ROOT

FILES = [
    *sorted((ROOT / "docs").glob("evidence*.md")),
    *sorted((ROOT / "src" / "roost" / "evidence").glob("*.py")),
    *sorted((ROOT / "src" / "roost" / "cli").glob("evidence*.py")),
]

SUBJECT = r"hand-?offs?|delegations?|delegated|routes?|transfers?"
CLAIM = (
    r"verified|validated?|valid|authori[sz]ed|allowed|permitted|approved|complete[dsn]?|completeness|trusted|trustworthy|"
    r"success(?:ful|fully)?|succeed(?:s|ed)?|correct(?:ly|ness)?|resolved|confirmed|guaranteed|legitimate|proven|proves|"
    r"confidence"
)
DENIAL = re.compile(r"\b(?:no|not|never|none|nothing|nobody|neither|nor|without|cannot)\b|n't\b", re.IGNORECASE)

MARKETING = [
    rf"\b(?:{CLAIM})\s+(?:a2a\s+)?(?:{SUBJECT})\b",
    rf"\b(?:{SUBJECT})\s+(?:(?:is|are|was|were|has|have|been|and)\s+)*(?:{CLAIM})\b",
    r"\bchain of (?:trust|delegation)\b",
]
"""The freeze: no "A2A delegation verified", no "route resolved"."""
ABSENCE = re.compile(
    r"\b(?:no|without|free of|free from|clean of)\s+(?:any\s+)?(?:personal data|pii|secrets|personal information)\b",
    re.IGNORECASE,
)


def texts(path: Path) -> Iterator[str]:
    """Yield the text that a person reads: a document, or the comments, docstrings and messages of a program."""
    source = path.read_text()
    if path.suffix != ".py":
        yield re.sub(r"```.*?```", "", source, flags=re.DOTALL)
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def sentences(text: str) -> list[str]:
    pieces = re.split(r"(?<=[.!?:;])\s+|\n\s*\n|\n(?=[-|#])|\|", text)
    return [" ".join(piece.split()) for piece in pieces]


def overstated(text: str) -> list[str]:
    found = []
    for sentence in sentences(text):
        about = re.search(rf"\b(?:{SUBJECT})\b", sentence, re.IGNORECASE)
        claims = re.search(rf"\b(?:{CLAIM})\b", sentence, re.IGNORECASE)
        marketing = any(re.search(pattern, sentence, re.IGNORECASE) for pattern in MARKETING)
        if (marketing or (about and claims)) and not DENIAL.search(sentence):
            found.append(sentence)
        if ABSENCE.search(sentence):
            found.append(sentence)
    return found


def test_the_files_to_check_exist():
    assert {path.name for path in FILES} >= {"evidence.md", "adapter.py", "claims.py", "wire.py", "evidence_convert.py"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_text_claims_more_than_visibility(path):
    assert [sentence for text in texts(path) for sentence in overstated(text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "A2A delegation verified",
        "The route is resolved.",
        "It shows that the handoff was authorised.",
        "A complete delegation chain",
        "The handoff reached the correct target",
        "Bundles have no personal data.",
        "Events are free of secrets",
    ],
)
def test_claims_that_the_freeze_forbids_are_detected(text):
    assert overstated(text)


@pytest.mark.parametrize(
    "text",
    [
        "None of these fields means that a handoff was valid.",
        "A handoff is visible.",
        "The bundle's signature is valid.",
    ],
)
def test_statements_about_visibility_are_allowed(text):
    assert not overstated(text)


def test_the_docs_state_what_the_claims_do_not_mean():
    words = " ".join((ROOT / "docs" / "evidence.md").read_text().split())
    assert "None of these fields means that a handoff was valid, authorised, complete, trusted or successful" in words
