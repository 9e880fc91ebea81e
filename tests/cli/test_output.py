"""The commands print foreign text so that a terminal shows it, and neither obeys it nor hides a part of it."""

from __future__ import annotations

import json
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.cli.output import escaped, one_line, plain, references
from tests.processes import Server, roost, running

VISIBLE = {*map(chr, (*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD))}
"""Marks before numbers and the like, which are of the category Cf and have a glyph."""
EVIL = "".join(
    character
    for character in map(chr, range(sys.maxunicode + 1))
    if unicodedata.category(character) in ("Cc", "Cf") and character not in VISIBLE
)
AGENT = """
from roost import Agent

agent = Agent("evil", description="a\\u202eb\\u200bc\\u009bd", name="e\\u2066v\\u200fil")


@agent.on_message
async def answer(task):
    yield "x\\u009b31m\\u202ey\\u200bz\\u2028\\x7f"
"""


def test_text_shows_every_character_that_a_terminal_obeys_or_hides() -> None:
    for character in EVIL:
        if character not in "\t\n":
            assert plain(f"a{character}b") == f"a<U+{ord(character):04X}>b"
            assert one_line(f"a{character}b") == f"a<U+{ord(character):04X}>b"
    assert plain("a\tb\nc\r\nd") == "a\tb\nc\nd"
    assert one_line("a\tb\nc\r\nd") == "a b c d"


def test_text_leaves_alone_what_is_seen() -> None:
    flag, family = "\U0001f3f3\ufe0f\u200d\U0001f308", "\U0001f468\U0001f3fd\u200d\U0001f469\u200d\U0001f467"
    persian, hindi = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0915\u094d\u200d\u0937"
    for text in ("".join(VISIBLE), flag, family, persian, hindi, "Größe, 東京, שלום, ✅\ufe0f"):
        assert plain(text) == text


@pytest.mark.parametrize("joiner", ["\u200c", "\u200d"])
def test_a_joiner_that_joins_nothing_is_shown(joiner: str) -> None:
    for text in (f"ro{joiner}ot", f"{joiner}ab", f"\u0430{joiner}\u0431", f"\u06cc{joiner}{joiner}\u06cc"):
        assert joiner not in plain(text).replace(f"\u06cc{joiner}", "")
        assert f"<U+{ord(joiner):04X}>" in plain(text)


def test_json_keeps_its_values_and_has_no_such_character() -> None:
    value = {EVIL: [EVIL, "\u2028\u2029", '\U0001f468\u200d\U0001f469 \\ " \\u202e'], "\x7f": 1}
    made = escaped(json.dumps(value, ensure_ascii=False))
    assert json.loads(made) == value
    assert not {*EVIL, "\u2028", "\u2029"} & {*made}


def test_markup_keeps_its_text_and_has_no_such_character() -> None:
    made = references(f"<p>{EVIL}</p>")
    assert not {*EVIL} - {*"\t\n"} & {*made}
    assert "&#x202e;" in made


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    file: Path = tmp_path_factory.mktemp("evil") / "evil.py"
    file.write_text(AGENT)
    with running(file) as server:
        yield server


@pytest.mark.parametrize(
    "words",
    [
        ("agents",),
        ("agents", "--json"),
        ("card", "evil"),
        ("card", "evil", "--json"),
        ("send", "evil", "hi", "--json"),
        ("tasks", "--json"),
        ("tasks",),
        ("conform", "--report-format", "markdown", "--only", "card"),
        ("conform", "--report-format", "html", "--only", "card"),
        ("conform", "--report-format", "junit", "--only", "card"),
        ("conform", "--json", "--only", "card"),
    ],
    ids=" ".join,
)
def test_no_command_prints_what_an_agent_hides(host: Server, words: tuple[str, ...]) -> None:
    done = roost(*words, *((host.url,) if words[0] == "conform" else ()), url=host.url)
    assert done.stdout, done.stderr
    assert not {*EVIL} - {*"\t\n"} & {*done.stdout + done.stderr}
    if "--json" in words:
        for line in done.stdout.splitlines() if words[0] != "conform" else [done.stdout]:
            json.loads(line)
    if words == ("send", "evil", "hi", "--json"):
        assert r"x\u009b31m\u202ey\u200bz\u2028\u007f" in done.stdout
    if words == ("agents",):
        assert "a<U+202E>b<U+200B>c<U+009B>d" in done.stdout


def test_an_artifact_that_is_piped_keeps_its_bytes(host: Server) -> None:
    done: subprocess.CompletedProcess[str] = roost("send", "evil", "hi", url=host.url)
    assert done.stdout == "x\x9b31m\u202ey\u200bz\u2028\x7f\n"
