"""`roost conform` as a user has it, and its page in the docs."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.cli.main import main
from roost.conform.check import LEVELS, every
from roost.conform.hints import Hint, Hints
from roost.conform.outcome import Outcome
from roost.conform.restart import restarting
from roost.conform.runner import judge
from roost.conform.target import Options
from tests.conform.serving import served
from tests.processes import ROOT, roost
from tests.waiting import until

TOKENS = ("--token", "token-a", "--token-b", "token-b", "--timeout", "5")
QUICK = ("--only", "get.*", "--only", "auth.*")


@pytest.fixture(scope="module")
def broken() -> Iterator[str]:
    with served("tests.conform.doors") as (url, _):
        yield url


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


def test_a_fault_ends_with_1_and_says_all_about_it(broken: str, tmp_path: Path) -> None:
    out = tmp_path / "reports" / "mine"
    more = ("--skip", "auth.challenge", "--report-format", "json", "--report-out", out)
    done = roost("conform", f"{broken}/other-get/rest", *TOKENS, *QUICK, *more)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    (at,) = [number for number, line in enumerate(lines) if line.startswith("failed")]
    assert lines[at].startswith(
        "failed  auth.other-read [HTTP+JSON] (section 13.1) A task of somebody else does not exist"
    )
    assert lines[at + 1].strip().startswith("expected: GetTask of somebody else's task is refused with TASK_NOT_FOUND")
    assert lines[at + 2].strip().startswith("observed: HTTP 200")
    found = json.loads(out.with_suffix(".json").read_text())
    assert found["exitCode"] == 1
    assert "auth.challenge" not in [one["id"] for one in found["results"]]


def test_json_alone_on_stdout_and_another_report_in_a_new_folder(broken: str, tmp_path: Path) -> None:
    more = ("--json", "--report-format", "markdown", "--report-out", f"{tmp_path}/new/")
    done = roost("conform", f"{broken}/none/rest", *TOKENS, "--only", "card.*", *more)
    assert json.loads(done.stdout)["exitCode"] == done.returncode == 0
    assert (tmp_path / "new" / "conform.md").read_text().startswith("# Conformance of tck")


def test_without_a_token_only_the_card_and_access_are_judged(broken: str) -> None:
    done = roost("conform", f"{broken}/none/rest", "--timeout", "5")
    assert done.returncode == 2, done.stdout
    assert "the host asks for a credential: give --token" in done.stdout
    assert {line.split()[1].partition(".")[0] for line in done.stdout.splitlines() if line.startswith("passed")} == {
        "card",
        "signatures",
        "auth",
    }


def test_a_host_that_does_not_declare_that_it_asks_for_a_token(broken: str) -> None:
    options = Options(f"{broken}/card-undeclared/rest", timeout=5, only=["first.*", "get.*"])
    report = asyncio.run(judge(options))
    assert report.code == 2
    assert [one.reason for one in report.of(Outcome.ERROR)] == ["the host asks for a credential: give --token"]


def test_a_host_that_limits_its_callers_cannot_be_judged_and_has_not_failed(broken: str) -> None:
    options = Options(f"{broken}/limited/both", token="token-a", timeout=5, only=["send.*", "stream.*"])
    report = asyncio.run(judge(options))
    assert report.code == 2
    assert report.of(Outcome.FAILED) == []


@pytest.mark.parametrize(("binding", "code"), [("rpc", 0), ("rest", 1)])
def test_a_stream_may_stay_open_where_a_task_waits_but_on_http(broken: str, binding: str, code: int) -> None:
    hints = Hints(plain=Hint("tck-input-required"))
    options = Options(f"{broken}/paused-open/{binding}", token="token-a", hints=hints, timeout=1, only=["stream.end"])
    assert asyncio.run(judge(options)).code == code


def test_a_host_elsewhere_is_given_no_webhook_that_it_cannot_reach(broken: str) -> None:
    elsewhere = broken.replace("127.0.0.1", "0.0.0.0")
    options = Options(f"{elsewhere}/elsewhere/rest", token="token-a", timeout=5, only=["push.delivered"])
    report = asyncio.run(judge(options))
    assert "the host is not on this machine: give --receiver" in report.results[-1].reason


async def test_a_restart_command_that_does_not_end_is_ended(broken: str, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    restart = restarting(f"sleep 300 & echo $! > {pid}.new; mv {pid}.new {pid}; wait", f"{broken}/none/rest", 0.5)
    with pytest.raises(OSError, match="took longer than"):
        await restart()
    begun = int(pid.read_text())
    await until(lambda: not alive(begun))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def test_hints_say_what_an_agent_does(broken: str, tmp_path: Path) -> None:
    plain = roost("conform", f"{broken}/none/rest", *TOKENS, "--profile", "plain", "--only", "send.answered")
    assert "nobody says how to make this agent ask for input" in plain.stdout
    assert plain.returncode == 2
    hints = tmp_path / "hints.json"
    hints.write_text('{"pause": {"messageId": "tck-input-required"}}')
    told = roost("conform", f"{broken}/none/rest", *TOKENS, "--agent-hints", hints, "--only", "send.answered")
    assert "passed  send.answered" in told.stdout
    assert told.returncode == 0


def test_a_restart_command_that_fails_is_no_fault_of_the_host(broken: str) -> None:
    command = f"{sys.executable} -c 'raise SystemExit(3)'"
    done = roost("conform", f"{broken}/none/rest", *TOKENS, "--restart", command, "--only", "durability.kept")
    assert done.returncode == 2
    assert "the host could not be started again" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "whom should it judge?"),
        (("http://a:b@host/",), "must not hold a password"),
        (("ftp://host/",), "is not a URL that could be called"),
        (("http://host", "--report-format", "pdf"), "'pdf' is no format of a report"),
        (("http://host", "--report-format", "html,json"), "give --report-out"),
        (("http://host", "--report-format", "html", "--json"), "give --report-out"),
        (("http://host:99999",), "is not a URL"),
        (("http://host", "--agent-hints", sys.executable), "these are no hints"),
        (("http://host", "--profile", "nobody"), "--profile is one of"),
        (("http://host", "--level", "may"), "--level is"),
        (("http://host", "--agent-hints", "{"), "these are no hints"),
        (("http://host", "--agent-hints", "/no/such/file"), "cannot read /no/such/file"),
        (("http://host", "--token", "a\nb"), "characters that a header cannot carry"),
    ],
)
def test_wrong_usage_ends_with_2(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["roost", "conform", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_the_list_has_every_check() -> None:
    done = roost("conform", "--list")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == [check.id for check in every()]


def test_the_docs_have_every_check_and_no_other() -> None:
    page = (ROOT / "docs" / "conform.md").read_text()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("| `")
    ]
    written = [row for row in rows if row[-2] in LEVELS]
    ours = [[f"`{one.id}`", one.title, one.section, one.level, f"`{one.also}`" if one.also else ""] for one in every()]
    assert written == ours
