"""Our own host passes all checks of what it declares: as a real process, with tokens, gRPC and a crash."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, redirect_stdout
from io import StringIO
from pathlib import Path

import msgspec
import pytest

from roost.cli.main import main
from roost.conform.grpc_client import place
from roost.conform.hints import NO_SLOW
from roost.conform.outcome import ConformReport, Outcome
from roost.conform.runner import judge
from roost.conform.target import ConformOptions
from tests.conform.conftest import Conform
from tests.doors.serving import free_port
from tests.processes import FLEET, Server, running

TIMEOUT_S = 10.0
NOT_THERE = {
    "card.extended",
    "card.extended-private",
    "stream.undeclared",
    "subscribe.undeclared",
    "push.undeclared",
    "ext.required",
    "hitl.prompt",
    "runtime.keys",
    "terminal.attach",
    "v1.sunset",
    "version.old",
}
"""Checks of what the host, or its agent `tck`, does not declare."""
JUDGED_ELSEWHERE = re.compile("compared with|which version.old judges")


class Own:
    """A host that can crash and start again at the same URL."""

    def __init__(self, data: Path, stack: ExitStack) -> None:
        self.data = data
        self.stack = stack
        self.port, self.grpc = free_port(), free_port()
        self.server: Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/agents/tck"

    def start(self) -> None:
        args = ("--grpc", f"127.0.0.1:{self.grpc}", "--push-allow-hosts", "127.0.0.1,example.com", "--drain-s", "0")
        self.server = self.stack.enter_context(running(FLEET, data=self.data, port=self.port, args=args))

    async def restart(self) -> None:
        assert self.server is not None
        self.server.kill()
        await asyncio.to_thread(self.start)


def token(data: Path, name: str, *more: str) -> str:
    """Make a token with `roost token create`, in this process."""
    with redirect_stdout(StringIO()) as said, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["roost", "token", "create", name, "--data", str(data), *more])
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 0
    return said.getvalue().split()[-1]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ConformReport, ...]]:
    data = tmp_path_factory.mktemp("data")
    tokens = token(data, "one"), token(data, "other"), token(data, "third", "--tenant", "acme")
    with ExitStack() as stack:
        own = Own(data, stack)
        own.start()
        options = ConformOptions(own.url, token=tokens[0], token_b=tokens[1], timeout=TIMEOUT_S, restart=own.restart)
        only = ["send", "stream", "resume", "push"]
        plain = ConformOptions(own.url.replace("/tck", "/ask"), token=tokens[0], timeout=TIMEOUT_S, only=only)
        acme = ConformOptions(own.url, token=tokens[2], timeout=TIMEOUT_S, only=["tenants", "send.answer"])
        of_acme = msgspec.structs.replace(acme, tenant_id="acme")
        whole = asyncio.run(judge(options))
        yield whole, *asyncio.run(judged(plain, acme, of_acme))


async def judged(*options: ConformOptions) -> list[ConformReport]:
    return await asyncio.gather(*map(judge, options))


@pytest.fixture
def report(reports: tuple[ConformReport, ...]) -> ConformReport:
    return reports[0]


def test_all_pass(report: ConformReport) -> None:
    bad = [*report.of(Outcome.FAILED), *report.of(Outcome.ERROR)]
    assert [(one.name, one.expected, one.observed, one.reason) for one in bad] == []
    assert report.code == 0


def test_it_was_judged_on_every_binding(report: ConformReport) -> None:
    assert report.bindings == ["JSONRPC", "HTTP+JSON", "GRPC"]
    assert report.profile == "tck"
    for binding in report.bindings:
        assert len([one for one in report.of(Outcome.PASSED) if one.binding == binding]) > 40


def test_nothing_was_skipped_but_what_it_does_not_declare(report: ConformReport) -> None:
    skipped = {one.id for one in report.of(Outcome.SKIPPED) if not JUDGED_ELSEWHERE.search(one.reason)}
    assert skipped <= NOT_THERE, skipped - NOT_THERE


def test_an_agent_of_which_nothing_is_known_is_judged_by_what_it_does(reports: tuple[ConformReport, ...]) -> None:
    """This agent asks for input, whatever it is sent."""
    report = reports[1]
    bad = [*report.of(Outcome.FAILED), *report.of(Outcome.ERROR)]
    assert [(one.name, one.expected, one.observed, one.reason) for one in bad] == []
    assert report.profile == "plain"
    waits = [one.reason for one in report.results if one.id == "send.non-blocking"]
    assert set(waits) == {NO_SLOW}


def test_a_tenant_that_the_caller_is_not_of_is_no_fault(reports: tuple[ConformReport, ...]) -> None:
    _, _, unsaid, said = reports
    assert unsaid.code == said.code == 0
    echoed = [[one for one in report.results if one.id == "tenants.echo"] for report in (unsaid, said)]
    assert {one.reason for one in echoed[0]} == {"the caller does not belong to the tenant default: give --tenant-id"}
    assert {one.outcome for one in echoed[1]} == {Outcome.PASSED}


@pytest.mark.parametrize(
    "url", ["grpc.example.com:443", "https://grpc.example.com:443/a2a", "dns:///grpc.example.com:443"]
)
def test_grpc_is_called_at_the_host_of_a_url(url: str) -> None:
    assert place(url) == "grpc.example.com:443"


def test_a_fleet_is_no_agent_and_is_not_judged(conform: Conform) -> None:
    with running(FLEET) as host:
        done = conform(host.url)
    assert done.code == 2
    assert "is the card of a fleet, and no agent: give the URL of one of its agents" in done.stderr
