"""A tiny round of the benchmarks: every peer does its work and has its figures. No figure is judged."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import msgspec
import pytest
from benchmarks import checks, report, servers
from benchmarks.__main__ import CASES, main
from benchmarks.bench import WrongAnswer
from benchmarks.beside import Comparison
from benchmarks.hostile import __main__ as hostile
from benchmarks.hostile.case import outcome
from benchmarks.hostile.host import LOAD, PROBES
from benchmarks.hostile.report import HostileReport
from benchmarks.hostile.senders import Response
from benchmarks.report import Report
from benchmarks.wire import Requests

from tests.processes import ROOT

SDK, TUNED, EXPRESS = "a2a-sdk", "a2a-sdk tuned", "@a2a-js/sdk"
PEERS = {
    "send": {
        "Roost, SQLite",
        *(f"{peer}, {store}" for peer in (SDK, TUNED, EXPRESS) for store in ("in memory", "SQLite")),
        "no engine",
        "the load generator",
    },
    "stream": {
        "Roost, SQLite",
        *(f"{peer}, in memory" for peer in (SDK, TUNED, EXPRESS)),
        f"{EXPRESS}, SQLite",
    },
    "access": {"Roost", "Roost, SQLite", "Roost, SQLite, with a token", "no engine"},
    "grpc": {"Roost, SQLite", f"{SDK}, in memory", f"{TUNED}, in memory"},
    "latency": {"Roost, SQLite", f"{SDK}, in memory"},
    "cost": {"100 chunks", "10,000 chunks"},
    "listing": {"Roost"},
    "paused": {"Roost, empty store", "Roost, full store"},
    "restart": {"Roost"},
    "evidence": {"rfc8785", "msgspec where it is proven equal"},
}
ROWS = {
    "send": 7,
    "stream": 4,
    "access": 3,
    "grpc": 4,
    "latency": 1,
    "cost": 1,
    "listing": 2,
    "paused": 2,
    "restart": 1,
    "evidence": 6,
}
"""How many measures with a bar or a ratio each case reports."""
TOO_LONG = {"subscribers", "replicas", "cluster"}
"""These cases wait for fixed times or need several hosts on PostgreSQL; `python -m benchmarks --quick` runs them."""


def test_every_case_is_tried_or_too_long() -> None:
    assert PEERS.keys() == ROWS.keys() == CASES.keys() - TOO_LONG


@pytest.mark.parametrize("case", PEERS)
def test_every_peer_of_a_case_has_figures(case: str, tmp_path: Path) -> None:
    assert main(["--only", case, "--quick", "--seconds", "0.1", "--out", str(tmp_path)]) == 0
    made = msgspec.json.decode((tmp_path / "benchmarks.json").read_bytes(), type=Report)
    assert not made.failures
    assert {series.subject for series in made.series} == PEERS[case]
    assert len(made.rows) == ROWS[case]
    text = (tmp_path / "benchmarks.md").read_text()
    assert all(f"| {row.measure}" in text for row in made.rows)


def test_a_checkout_beside_itself_has_figures_of_both(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--only", "send", "--only", "large", "--quick", "--rounds", "2", "--seconds", "0.1"]
    assert main(["--beside", str(ROOT), *options]) == 0
    table = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    sends = ("message:send", "message:send of 1 MB")
    measures = [f"| {measure}" for send in sends for measure in (send, f"{send}, CPU time")]
    assert [row[0] for row in table[2:]] == measures
    assert all(row[5] == "none: 2 of 7 rounds |" for row in table[2:])


def test_a_hostile_request_has_an_outcome_and_waits(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    hostile.main(["--only", "REST: an agent of", "--baseline", "0.5", "--json", str(figures)])
    made = msgspec.json.decode(figures.read_bytes(), type=HostileReport)
    [found] = made.found
    assert found.expected, found.outcome
    assert (found.case, found.door, found.failures) == ("an agent of 30 KB", "REST", 0)
    assert found.before_mb > 0
    assert made.baselines[0].waits.keys() == {*PROBES, *(f"load {name}" for name in LOAD)}
    assert all(waits.answers for waits in made.baselines[0].waits.values())


def test_every_hostile_case_has_a_name_of_its_own() -> None:
    names = [(case.door, case.name) for case in hostile.all_cases()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        ("200", b'{"task":{}}', "accepted"),
        ("400", b'{"error":{"code":400,"message":"too many parts"}}', "refused 400: too many parts"),
        ("200", b'{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}', "refused -32602: no"),
        ("200", b'event: message\ndata: {"result":{"isError":true,"content":[]}}\n', "refused 400: []"),
        ("413", b'{"status":413,"detail":"large"}', "refused 413: large"),
        ("RESOURCE_EXHAUSTED", b"large", "refused RESOURCE_EXHAUSTED: large"),
    ],
)
def test_the_outcome_of_a_hostile_request_is_read_at_every_door(status: str, body: bytes, expected: str) -> None:
    assert outcome(Response(status, body)) == expected


def test_a_server_that_does_other_work_is_not_measured(tmp_path: Path) -> None:
    with servers.stub(tmp_path) as server, pytest.raises(WrongAnswer, match=r"stub returns .*output in 1 parts"):
        checks.does_the_work(server)


def test_every_message_has_a_uuid_of_its_own() -> None:
    requests = Requests(1, "/message:send", "1")
    bodies = [json.loads(requests.next().partition(b"\r\n\r\n")[2]) for _ in range(1000)]
    ids = {UUID(body["message"]["messageId"]) for body in bodies}
    assert len(ids) == 1000
    assert {each.version for each in ids} == {4}


@pytest.mark.parametrize(
    ("unit", "here", "there", "gain", "verdict"),
    [
        ("/s", [200.0, 220.0, 240.0], [100.0, 110.0, 120.0], 2.0, "better"),
        ("/s", [100.0, 110.0, 120.0], [200.0, 220.0, 240.0], 0.5, "worse"),
        ("ms", [100.0, 110.0, 120.0], [200.0, 220.0, 240.0], 2.0, "better"),
        ("us", [200.0, 220.0, 240.0], [100.0, 110.0, 120.0], 0.5, "worse"),
        ("/s", [90.0, 100.0, 130.0], [100.0, 100.0, 100.0], 1.0, "undecided"),
    ],
)
def test_a_difference_inside_the_spread_is_undecided(
    unit: str, here: list[float], there: list[float], gain: float, verdict: str
) -> None:
    compared = Comparison("measure", unit, here, there)
    assert (compared.gain, compared.verdict) == (gain, verdict)


def test_the_docs_say_how_to_run_the_benchmarks() -> None:
    assert report.HOW_TO in (ROOT / "docs" / "benchmarks.md").read_text()
