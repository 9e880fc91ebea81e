"""`roost conform` as a user has it, and its page in the docs."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from roost.conform.check import LEVELS, every
from roost.conform.hints import NO_PAUSE
from roost.conform.outcome import Outcome
from roost.conform.restart import restarting
from roost.conform.runner import judge
from roost.conform.target import ConformOptions
from tests.conform.conftest import Conform
from tests.processes import ROOT, roost

TIMEOUT_S = 20
TOKENS = ("--token", "token-a", "--token-b", "token-b", "--timeout", TIMEOUT_S)
QUICK = ("--only", "get.*", "--only", "auth.*")


def test_a_sound_host_ends_with_0_and_all_reports_are_written(broken: str, tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    formats = ("--report-format", "markdown,junit,json,html", "--report-out", folder)
    done = roost("conform", "--executor-url", f"{broken}/none/both", *TOKENS, *QUICK, *formats)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed  get.task [JSONRPC] (section 3.1.3)" in done.stdout
    assert "skipped get.across [JSONRPC]" in done.stdout
    assert re.search(r": 0 failed, 0 error, \d+ passed, \d+ skipped\n$", done.stdout)
    assert sorted(file.name for file in folder.iterdir()) == [f"conform.{end}" for end in ("html", "json", "md", "xml")]
    suite = ElementTree.parse(folder / "conform.xml").getroot()
    assert (suite.get("failures"), suite.get("errors")) == ("0", "0")
    assert "token-a" not in "".join(file.read_text() for file in folder.iterdir())


def test_a_fault_ends_with_1_and_says_all_about_it(conform: Conform, broken: str, tmp_path: Path) -> None:
    out = tmp_path / "reports" / "mine"
    more = ("--skip", "auth.challenge", "--report-format", "json", "--report-out", out)
    done = conform(f"{broken}/other-get/rest", *TOKENS, *QUICK, *more)
    assert done.code == 1
    lines = done.stdout.splitlines()
    (at,) = [number for number, line in enumerate(lines) if line.startswith("failed")]
    assert lines[at].startswith("failed  auth.other-read [HTTP+JSON] (section 13.1) Another caller cannot read a task")
    assert lines[at + 1].strip().startswith("expected: GetTask by another caller returns TASK_NOT_FOUND")
    assert lines[at + 2].strip().startswith("observed: HTTP 200")
    found = json.loads(out.with_suffix(".json").read_text())
    assert found["exitCode"] == 1
    assert "auth.challenge" not in [one["id"] for one in found["results"]]


def test_json_alone_on_stdout_and_another_report_in_a_new_folder(conform: Conform, broken: str, tmp_path: Path) -> None:
    more = ("--json", "--report-format", "markdown", "--report-out", f"{tmp_path}/new/")
    done = conform(f"{broken}/none/rest", *TOKENS, "--only", "card.*", *more)
    assert json.loads(done.stdout)["exitCode"] == done.code == 0
    assert (tmp_path / "new" / "conform.md").read_text().startswith("# Conformance of tck")


@pytest.mark.parametrize(
    ("formats", "out", "written"),
    [
        ("", "x.report.md", ["x.report.md"]),
        ("markdown", "x.report.md", ["x.report.md"]),
        ("markdown,junit", "x.report.md", ["x.report.md", "x.report.xml"]),
        ("html,json", "new/x.json", ["new/x.html", "new/x.json"]),
        ("", "x.json", ["x.json"]),
        ("", "x", ["x.md"]),
        ("junit", "x", ["x.xml"]),
        ("junit", "v1.2", ["v1.2.xml"]),
        ("junit", "new/", ["new/conform.xml"]),
        ("junit,json", "new", ["new/conform.json", "new/conform.xml"]),
        ("junit", "there.md", ["there.md/conform.xml"]),
    ],
)
def test_where_reports_go(
    conform: Conform, broken: str, tmp_path: Path, formats: str, out: str, written: list[str]
) -> None:
    """`there.md` is a folder already."""
    (tmp_path / "there.md").mkdir()
    chosen = ("--report-format", formats) if formats else ()
    done = conform(f"{broken}/none/rest", *TOKENS, "--only", "card.json", *chosen, "--report-out", f"{tmp_path}/{out}")
    assert done.code == 0
    assert sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.*") if file.is_file()) == written


def test_without_a_token_only_the_card_and_access_are_judged(conform: Conform, broken: str) -> None:
    done = conform(f"{broken}/none/rest", "--timeout", TIMEOUT_S)
    assert done.code == 2, done.stdout
    assert "the host requires a credential: give --token" in done.stdout
    assert {line.split()[1].partition(".")[0] for line in done.stdout.splitlines() if line.startswith("passed")} == {
        "card",
        "signatures",
        "auth",
    }


def test_a_host_that_does_not_declare_that_it_asks_for_a_token(broken: str) -> None:
    options = ConformOptions(f"{broken}/card-undeclared/rest", timeout=TIMEOUT_S, only=["first.*", "get.*"])
    report = asyncio.run(judge(options))
    assert report.code == 2
    assert [one.reason for one in report.of(Outcome.ERROR)] == ["the host requires a credential: give --token"]


def test_a_host_that_limits_its_callers_cannot_be_judged_and_has_not_failed(broken: str) -> None:
    options = ConformOptions(f"{broken}/limited/both", token="token-a", timeout=TIMEOUT_S, only=["send.*", "stream.*"])
    report = asyncio.run(judge(options))
    assert report.code == 2
    assert report.of(Outcome.FAILED) == []


def test_a_host_elsewhere_is_given_no_webhook_that_it_cannot_reach(broken: str) -> None:
    elsewhere = broken.replace("127.0.0.1", "0.0.0.0")
    options = ConformOptions(f"{elsewhere}/elsewhere/rest", token="token-a", timeout=TIMEOUT_S, only=["push.delivered"])
    report = asyncio.run(judge(options))
    assert "the host is not on this machine: give --receiver" in report.results[-1].reason


async def test_a_restart_command_that_takes_too_long_is_an_error(broken: str) -> None:
    with pytest.raises(OSError, match="took longer than"):
        await restarting("sleep 300", f"{broken}/none/rest", 0.1)()


async def test_a_restart_command_that_is_given_up_is_ended_with_all_that_it_started(
    broken: str, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    command = f"sleep 300 & echo $! > {pid}.new; mv {pid}.new {pid}; wait"
    restart = asyncio.ensure_future(restarting(command, f"{broken}/none/rest", TIMEOUT_S)())
    async with asyncio.timeout(TIMEOUT_S):
        while not pid.exists():
            await asyncio.sleep(0.01)
        restart.cancel()
        with pytest.raises(asyncio.CancelledError):
            await restart
        while alive(int(pid.read_text())):
            await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def test_hints_say_what_an_agent_does(conform: Conform, broken: str, tmp_path: Path) -> None:
    plain = conform(f"{broken}/none/rest", *TOKENS, "--profile", "plain", "--only", "send.answered")
    assert NO_PAUSE in plain.stdout
    assert plain.code == 2
    hints = tmp_path / "hints.json"
    hints.write_text('{"pause": {"messageId": "tck-input-required"}}')
    told = conform(f"{broken}/none/rest", *TOKENS, "--agent-hints", hints, "--only", "send.answered")
    assert "passed  send.answered" in told.stdout
    assert told.code == 0


def test_a_restart_command_that_fails_is_no_fault_of_the_host(conform: Conform, broken: str) -> None:
    command = f"{sys.executable} -c 'raise SystemExit(3)'"
    done = conform(f"{broken}/none/rest", *TOKENS, "--restart", command, "--only", "durability.kept")
    assert done.code == 2
    assert "the host could not be started again" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no URL was given"),
        (("http://a:b@host/",), "must not contain a password"),
        (("ftp://host/",), "cannot call 'ftp://host/'"),
        (("http://host", "--report-format", "pdf"), "unknown report format 'pdf'"),
        (("http://host", "--report-format", "html,json"), "give --report-out"),
        (("http://host", "--report-format", "html", "--json"), "give --report-out"),
        (("http://host", "--report-format", "json,junit", "--report-out", "x.md"), "x.md names a markdown report"),
        (("http://host", "--report-format", "json", "--report-out", "x.md"), "x.md names a markdown report"),
        (("http://host:99999",), "invalid URL"),
        (("http://host", "--agent-hints", sys.executable), "--agent-hints: invalid hints"),
        (("http://host", "--profile", "nobody"), "unknown --profile 'nobody': use plain, tck"),
        (("http://host", "--level", "may"), "unknown --level 'may': use must, should, beyond"),
        (("http://host", "--agent-hints", "{"), "--agent-hints: invalid hints"),
        (("http://host", "--agent-hints", "/no/such/file"), "cannot read /no/such/file"),
        (("http://host", "--token", "a\nb"), "characters that an HTTP header cannot carry"),
    ],
)
def test_wrong_usage_ends_with_2(conform: Conform, words: tuple[str, ...], said: str) -> None:
    done = conform(*words)
    assert done.code == 2
    assert said in done.stderr


def test_the_list_has_every_check(conform: Conform) -> None:
    done = conform("--list")
    assert done.code == 0
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == [check.id for check in every()]


def test_the_docs_have_every_check_and_no_other() -> None:
    page = (ROOT / "docs" / "conform.md").read_text()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("| `")
    ]
    written = [row for row in rows if row[-2] in LEVELS]
    ours = [[f"`{one.id}`", one.title, one.section, one.level, f"`{one.also}`" if one.also else ""] for one in every()]
    assert written == ours
