"""Traffic between the official client and a real host, recorded and converted by the command."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.compat.v0_3 import types as old
from a2a.types import a2a_pb2 as pb

from roost.evidence.events import journal_events
from roost.protocol.entries import NO_CHAIN, link
from roost.stores.sqlite import OfflineStore
from tests.evidence.packets import HERE, packet
from tests.processes import FLEET, Server, environment, roost, roost_command, running

CARD = "/agents/stream/.well-known/agent-card.json"


class Recorded(NamedTuple):
    data: Path
    """The data folder of the host."""
    bodies: list[bytes]
    """Requests, responses, and each event of a stream."""
    card: bytes
    keys: bytes
    task: str


class Recorder(httpx.AsyncHTTPTransport):
    """Records every body."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies: list[bytes] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await super().handle_async_request(request)
        if request.method != "POST":
            return answer
        self.bodies.append(await request.aread())
        if "event-stream" not in answer.headers["content-type"]:
            self.bodies.append(await answer.aread())
            return answer
        assert isinstance(answer.stream, httpx.AsyncByteStream)
        return httpx.Response(answer.status_code, headers=answer.headers, stream=Tee(answer.stream, self.bodies))


class Tee(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream, bodies: list[bytes]) -> None:
        self.stream = stream
        self.bodies = bodies

    async def __aiter__(self) -> AsyncIterator[bytes]:
        seen = b""
        async for chunk in self.stream:
            seen += chunk
            yield chunk
        self.bodies += [line[5:].strip() for line in seen.splitlines() if line.startswith(b"data:")]

    async def aclose(self) -> None:
        await self.stream.aclose()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    folder = tmp_path_factory.mktemp("traffic")
    with running(FLEET, data=folder / "data") as server:
        yield asyncio.run(_record(server, folder))


async def _record(server: Server, folder: Path) -> Recorded:
    recorder = Recorder()
    task = ""
    async with httpx.AsyncClient(transport=recorder, timeout=30) as http:
        for streaming, binding in ((True, "JSONRPC"), (False, "JSONRPC"), (False, "HTTP+JSON")):
            card = await A2ACardResolver(http, f"{server.url}/agents/stream").get_agent_card()
            chosen = ClientConfig(streaming=streaming, httpx_client=http, supported_protocol_bindings=[binding])
            client = ClientFactory(chosen).create(card)
            message = pb.Message(
                role=pb.ROLE_USER, message_id=f"m-{len(recorder.bodies)}", parts=[pb.Part(text="a b c")]
            )
            if task:
                message.reference_task_ids.append(task)
            async for event in client.send_message(pb.SendMessageRequest(message=message)):
                task = event.task.id or event.status_update.task_id or task
            await client.get_task(pb.GetTaskRequest(id=task))
        served = (await http.get(server.url + CARD)).content
        keys = (await http.get(server.url + "/.well-known/jwks.json")).content
    return Recorded(folder / "data", recorder.bodies, served, keys, task)


def converted(*words: str | Path) -> tuple[int, list[dict[str, Any]]]:
    done = roost("evidence", "convert", *words)
    assert "Traceback" not in done.stderr
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def test_all_traffic_is_converted_and_nothing_is_unmapped(recorded: Recorded, tmp_path: Path) -> None:
    file = tmp_path / "traffic.ndjson"
    file.write_bytes(b"\n".join(recorded.bodies))
    code, events = converted("--profile", "v2", "--keep", tmp_path / "raw", file)
    assert code == 0
    assert len(events) == len(recorded.bodies) > 12
    assert [event["data"]["unmapped"] for event in events] == [{"count": 0, "pointers": []}] * len(events)
    assert {event["data"]["protocol"]["version"] for event in events} == {"1.0"}
    runs: dict[str, list[int]] = defaultdict(list)
    for event in events:
        runs[event["assayrunid"]].append(event["assayseq"])
    assert all(sequence == list(range(len(sequence))) for sequence in runs.values())
    kinds = {event["type"].rpartition(".")[2] for event in events}
    assert kinds == {"message", "task", "status", "artifact", "request"}
    assert [event["data"]["handoff"]["visible"] for event in events if "message" in event["type"]] == [
        False,
        True,
        True,
    ]
    kept = {path.name: path.read_bytes() for path in (tmp_path / "raw").rglob("*") if path.is_file()}
    assert {event["data"]["raw"]["sha256"] for event in events} == set(kept)
    assert set(kept.values()) == set(recorded.bodies)


def test_the_same_traffic_gives_the_same_bytes(recorded: Recorded, tmp_path: Path) -> None:
    file = tmp_path / "traffic.ndjson"
    file.write_bytes(b"\n".join(recorded.bodies))
    first, second = (roost("evidence", "convert", "--profile", "v2", file).stdout for _ in range(2))
    assert first == second


def test_a_fetched_card_is_discovery(recorded: Recorded, tmp_path: Path) -> None:
    card, keys = tmp_path / "card.json", tmp_path / "keys.json"
    card.write_bytes(recorded.card)
    keys.write_bytes(recorded.keys)
    code, (event,) = converted("--profile", "v2", "--jwks", keys, card)
    assert code == 0
    assert event["data"]["discovery"] == {
        "agent_card_visible": True,
        "agent_card_source_kind": "document",
        "extended_card_access_visible": False,
        "signature_material_visible": True,
    }
    signature = event["data"]["signature"]
    assert signature["verified_with"] in {key["kid"] for key in json.loads(recorded.keys)["keys"]}
    assert (signature["present"], signature["anchored"]) == (True, False)
    _, (unkeyed,) = converted("--profile", "v2", card)
    assert unkeyed["data"]["signature"] == {"present": True, "verified_with": None, "anchored": False}


async def test_the_journal_of_that_host_is_converted_entry_by_entry(recorded: Recorded) -> None:
    store = OfflineStore(recorded.data)
    await store.open()
    try:
        stored = await store.read_task(recorded.task)
        assert stored is not None
        entries = await store.read_entries(recorded.task, 0, 1000, wire=False)
    finally:
        await store.close()
    events = [json.loads(event.line()) for event in journal_events(stored.new, entries)]
    assert len(events) == len(entries) >= 6
    chain = NO_CHAIN
    for number, (event, entry) in enumerate(zip(events, entries, strict=True)):
        assert event["id"] == f"task-{recorded.task}:{number}"
        chain = link(chain, entry.seq, entry.sub, entry.kind, entry.data, entry.time, entry.ordinal)
        assert event["data"]["entry"]["chain"] == chain.hex()
    assert events[0]["data"]["handoff"]["source_kind"] == "reference_task_ids"


def test_what_the_sdk_writes_in_0_3_is_converted(tmp_path: Path) -> None:
    part = old.Part(old.TextPart(text="hi", metadata={"n": 1}))
    file_part = old.Part(old.FilePart(file=old.FileWithBytes(bytes="aGk=", mime_type="text/plain", name="hi.txt")))
    message = old.Message(message_id="m", role=old.Role.user, parts=[part, file_part], reference_task_ids=["t-0"])
    status = old.TaskStatus(state=old.TaskState.auth_required, message=message, timestamp="2026-01-01T00:00:00Z")
    task = old.Task(id="t", context_id="c", status=status, history=[message])
    update = old.TaskStatusUpdateEvent(task_id="t", context_id="c", status=status, final=True)
    documents = [
        old.SendMessageRequest(id="1", params=old.MessageSendParams(message=message)),
        old.SendMessageSuccessResponse(id="1", result=task),
        old.SendStreamingMessageSuccessResponse(id="1", result=update),
        old.GetTaskRequest(id=2, params=old.TaskQueryParams(id="t", history_length=1)),
        old.JSONRPCErrorResponse(id=2, error=old.TaskNotFoundError()),
    ]
    file = tmp_path / "old.jsonl"
    file.write_text("\n".join(one.model_dump_json(by_alias=True, exclude_none=True) for one in documents))
    code, events = converted("--profile", "v2", file)
    assert code == 0
    assert [event["type"].rpartition(".")[2] for event in events] == ["message", "task", "status", "request", "error"]
    assert [event["data"]["unmapped"]["count"] for event in events] == [0] * 5
    assert [event["data"]["protocol"]["version"] for event in events] == ["0.3"] * 4 + ["unknown"]
    assert [(event["assayrunid"], event["assayseq"]) for event in events[1:3]] == [("task-t", 0), ("task-t", 1)]
    assert events[0]["data"]["handoff"]["visible"] is True


# The command


def test_packets_are_converted_one_line_each_and_refused_ones_say_why(tmp_path: Path) -> None:
    names = ["a2a_happy_task_requested", "a2a_negative_missing_task_id", "a2a_negative_malformed"]
    files = [HERE / f"{name}.json" for name in names]
    code, (good, missing, malformed) = converted("--keep", tmp_path, *files)
    assert code == 1
    assert good["events"][0]["assayrunid"] == "a2a:task-123"
    assert good["lossiness"]["lossiness_level"] == "none"
    assert missing["error"] == {"kind": "measurement", "message": "missing required field: task.id"}
    assert missing["input"] == str(files[1])
    assert malformed["error"]["kind"] == "measurement"
    kept = {path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert kept == {packet(name) for name in names}
    code, (lenient,) = converted("--lenient", files[1])
    assert code == 0
    assert lenient["lossiness"]["notes"] == ["missing task.id -> substituted unknown-task"]


def test_a_dash_is_stdin() -> None:
    done = subprocess.run(
        roost_command("evidence", "convert", "-"),
        input=packet("a2a_happy_task_requested"),
        capture_output=True,
        env=environment(),
        check=True,
    )
    assert json.loads(done.stdout)["events"][0]["subject"] == "task-123"


def test_given_limits_apply(tmp_path: Path) -> None:
    good = HERE / "a2a_happy_task_requested.json"
    for flag, value in (("--max-payload-bytes", "10"), ("--max-json-depth", "2")):
        code, (line,) = converted(flag, value, good)
        assert code == 1
        assert line["error"]["message"] == f"payload exceeds {flag[2:].replace('-', '_')} ({value})"
    many = tmp_path / "many.ndjson"
    many.write_text(('{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}\n\n') * 5)
    code, lines = converted("--profile", "v2", "--max-events", "2", many)
    assert code == 1
    assert len(lines) == 3
    assert lines[2] == {
        "error": {"kind": "measurement", "message": "input exceeds max_events (2)"},
        "input": str(many),
        "line": 5,
    }


def test_a_line_that_is_too_long_is_refused_and_the_next_one_read(tmp_path: Path) -> None:
    file = tmp_path / "long.ndjson"
    message = '{"messageId":"m","role":"ROLE_USER","parts":[{"text":"%s"}]}'
    file.write_text("\n".join((message % ("x" * 5000), message % "short")))
    code, (long, short) = converted("--profile", "v2", "--max-payload-bytes", "2000", file)
    assert code == 1
    assert (long["error"]["message"], long["line"]) == ("payload exceeds max_payload_bytes (2000)", 1)
    assert short["data"]["content"]["message"]["parts"] == [{"text": "short"}]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["{tmp}/none.json"], "cannot read"),
        (["{tmp}"], "cannot read"),
        (["--profile", "v2", "--a2a-version", "0.2", "{good}"], "unsupported A2A version: 0.2"),
        (["--profile", "v2", "--jwks", "{good}", "{good}"], "it is not a key set"),
        (["--profile", "v2", "--jwks", "{tmp}/none.json", "{good}"], "cannot read"),
        (["--max-events", "2", "{good}"], "are for --profile v2"),
        ([], "Missing argument"),
    ],
)
def test_what_the_command_cannot_do_ends_with_2(words: list[str], error: str, tmp_path: Path) -> None:
    good = str(HERE / "a2a_happy_task_requested.json")
    done = roost("evidence", "convert", *(word.format(tmp=tmp_path, good=good) for word in words))
    assert (done.returncode, done.stdout) == (2, "")
    assert error in done.stderr
    assert "Traceback" not in done.stderr


def test_input_that_cannot_be_stored_is_reported_and_ends_with_2(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, (line,) = converted("--keep", tmp_path / "file", HERE / "a2a_happy_task_requested.json")
    assert code == 2
    assert line["error"]["kind"] == "infrastructure"
