"""Bundles: the same journal gives the same bytes, and every change to a bundle is detected."""

from __future__ import annotations

import io
import json
import resource
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from roost.cli.evidence_bundles import EVENTS, SIZE, _to_raise
from roost.engine.ports import Store
from roost.evidence import bundle
from roost.evidence.bundle import BundleLimits, Counts
from roost.evidence.checkpoint import make, read_statement
from roost.evidence.export import ExportTooLarge, Source, TaskChanged, export
from roost.evidence.export_selection import NothingFound, Selection
from roost.evidence.verify import verify
from roost.identity.card_verification import read_jwks
from roost.protocol.canonical import jcs
from roost.protocol.entries import Entry
from tests.evidence.journals import (
    ADMIN_SECRET,
    Written,
    checkpoint,
    edit,
    exported,
    keyring,
    members,
    opened,
    packed,
    tarred,
    with_digests,
    write,
)
from tests.processes import ROOT, Server, roost

SCRIPT = ROOT / "docs" / "verify_bundle.py"
ALL = Selection(since_ms=0)


def judged(data: bytes, folder: Path, **more: Any) -> Any:
    file = folder / "bundle.tar.gz"
    file.write_bytes(data)
    return verify(file, **more)


def script(file: Path, *more: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, file, *more], capture_output=True, text=True, check=False)


# Content


async def test_the_same_journal_gives_the_same_bytes(journal: Written, tmp_path: Path) -> None:
    await checkpoint(journal.folder)
    first = await exported(journal.folder, ALL)
    assert await exported(journal.folder, ALL) == first
    out = tmp_path / "cli.tar.gz"
    done = roost("evidence", "export", "--since", "1970-01-01", "--data", journal.folder, "--out", out)
    assert done.returncode == 0, done.stderr
    assert out.read_bytes() == first
    assert "5 tasks" in done.stdout
    async with opened(journal.folder) as store:
        [line] = await store.read_audit(None, 1)
    assert (line.line.action, line.line.target) == ("evidence.export", "since 1970-01-01T00:00:00.000000Z")


async def test_a_bundle_has_every_entry_and_is_valid_but_not_anchored(journal: Written, tmp_path: Path) -> None:
    statement = await checkpoint(journal.folder)
    data = await exported(journal.folder, Selection(tuple(journal.tasks[:4])))
    verdict = judged(data, tmp_path)
    assert verdict.valid, [fault.text() for fault in verdict.faults]
    assert (verdict.counts.tasks, verdict.counts.proofs, verdict.counts.checkpoints) == (4, 4, 1)
    found = members(data)
    entries = [json.loads(line) for line in found["events.ndjson"].splitlines()]
    assert len(entries) == verdict.counts.events > 16
    assert {entry["task"] for entry in entries} == {*journal.tasks[:4]}
    assert all(entry["event"]["data"]["profile"] == "v2" for entry in entries)
    keys = tmp_path / "jwks.json"
    keys.write_bytes(found["keys/jwks.json"])
    file = tmp_path / "bundle.tar.gz"
    plain = roost("evidence", "verify", file)
    assert plain.returncode == 0
    assert f"signed by {verdict.signed_by}, not anchored" in plain.stdout
    assert "trust" not in plain.stdout
    held = tmp_path / "held.json"
    held.write_bytes(statement.line())
    done = roost("evidence", "verify", file, "--trust", keys, "--checkpoint", held, "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["outcome"], report["anchored"], report["checkpoint"]) == (0, "valid", True, 1)
    assert script(file).stdout == f"valid: 4 tasks, signed by {verdict.signed_by}, not anchored\n"
    assert script(file, keys).stdout == f"valid: 4 tasks, signed by {verdict.signed_by}, a key that you gave\n"


async def test_a_bundle_signed_by_another_key_is_not_anchored(journal: Written, tmp_path: Path) -> None:
    data = await exported(journal.folder, ALL)
    other = tmp_path / "other"
    other.mkdir()
    (other / "secret.key").write_bytes((journal.folder / "secret.key").read_bytes())
    (other / "secret.key").chmod(0o600)
    await checkpoint(other)
    async with opened(other) as store:
        [key] = (await store.read_identities(0)).keys
    verdict = judged(data, tmp_path, trust=[json.loads(key.public)])
    assert (verdict.valid, verdict.anchored) == (False, False)
    assert verdict.signed_by
    assert "none of the keys that you gave signed the manifest" in verdict.faults[0].text()


async def test_a_redacted_bundle_has_no_content_and_the_same_run_root(journal: Written, tmp_path: Path) -> None:
    data = await exported(journal.folder, ALL._replace(redact=True))
    whole, found = members(await exported(journal.folder, ALL)), members(data)
    for content in (b"number 1", "\u00fcber".encode(), b"three", b"ROLE_USER", b'"owner"', b'"tenant"'):
        assert any(content in member for member in whole.values()), content
        assert not any(content in member for name, member in found.items() if name != "manifest.json"), content
    roots = [json.loads(one["manifest.json"])["roots"]["run_root"] for one in (whole, found)]
    assert roots[0] == roots[1]
    verdict = judged(data, tmp_path)
    assert verdict.valid, [fault.text() for fault in verdict.faults]
    assert verdict.redacted == bundle.REDACTED
    done = roost("evidence", "verify", tmp_path / "bundle.tar.gz")
    assert "redacted: links cannot be computed without the content" in done.stdout
    assert script(tmp_path / "bundle.tar.gz").returncode == 0


async def test_since_takes_whole_tasks_that_changed_and_tombstones(journal: Written, tmp_path: Path) -> None:
    statement = await checkpoint(journal.folder)
    with pytest.raises(NothingFound, match="there is no task 'nothing'"):
        await exported(journal.folder, Selection(("nothing",)))
    done = roost("tasks", "prune", "--keep", "2", "--agent", "hello", "--data", journal.folder)
    assert done.returncode == 0, done.stderr
    await checkpoint(journal.folder)
    data = await exported(journal.folder, Selection(since_checkpoint=statement.number))
    none = members(data)
    assert none["events.ndjson"] == none["tombstones.ndjson"] == b""
    assert judged(data, tmp_path, held=statement).valid
    assert none["checkpoints.ndjson"].splitlines()[0] == statement.line()
    theirs = members(await exported(journal.folder, ALL._replace(tenants=("another",))))
    assert theirs["tasks.ndjson"] == theirs["tombstones.ndjson"] == b""
    with pytest.raises(NothingFound):
        await exported(journal.folder, Selection((journal.tasks[0],), tenants=("another",)))
    some = members(await exported(journal.folder, Selection(since_ms=0, agent="hello")))
    assert len(some["tasks.ndjson"].splitlines()) == 2
    [tombstone] = map(json.loads, some["tombstones.ndjson"].splitlines())
    assert tombstone["task"] == journal.tasks[0]
    verdict = judged(await exported(journal.folder, Selection((journal.tasks[0],))), tmp_path)
    assert (verdict.valid, verdict.counts.tombstones, verdict.counts.tasks) == (True, 1, 0)


class Disturbed:
    """A store that calls `happens` after the first page of a task."""

    def __init__(self, store: Store, happens: Callable[[str], Awaitable[object]], hide: int = 0) -> None:
        self.store = store
        self.happens = happens
        self.hide = hide

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def read_entries(self, task_id: str, after: int, limit: int, **more: Any) -> list[Entry]:
        found = await self.store.read_entries(task_id, after, limit, **more)
        if after == -1:
            await self.happens(task_id)
        return found[: len(found) - self.hide] if len(found) < limit else found


async def disturbed(folder: Path, selection: Selection, happens: Any, hide: int = 0) -> bytes:
    out = io.BytesIO()
    async with opened(folder) as store:
        source = Source(cast("Store", Disturbed(store, partial(happens, store), hide)), keyring(store, folder))
        await export(source, selection, out)
    return out.getvalue()


async def test_a_task_that_is_pruned_while_it_is_read_is_exported_as_a_tombstone_only(
    journal: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roost.evidence.export.FIRST_PAGE", 2)

    async def prune(store: Store, task_id: str) -> None:
        if task_id == journal.tasks[1]:
            await store.prune("hello", None, 0, 100)

    for selection, tombstones in ((ALL, 3), (Selection((journal.tasks[1], journal.tasks[3])), 1)):
        folder = tmp_path / f"copy-{tombstones}"
        shutil.copytree(journal.folder, folder)
        data = await disturbed(folder, selection, prune)
        verdict, found = judged(data, tmp_path), members(data)
        assert verdict.valid, [fault.text() for fault in verdict.faults]
        assert verdict.counts.tombstones == tombstones
        assert journal.tasks[1].encode() not in found["tasks.ndjson"] + found["events.ndjson"]
        assert journal.tasks[3].encode() in found["tasks.ndjson"]


async def test_a_task_that_loses_entries_while_it_is_read_is_an_error(
    journal: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roost.evidence.export.FIRST_PAGE", 2)

    async def remove(store: Store, task_id: str) -> None:
        edit(journal.folder, lambda connection: connection.execute("DELETE FROM segments WHERE task_id = ?", [task_id]))

    with pytest.raises(TaskChanged, match=journal.tasks[1]):
        await disturbed(journal.folder, Selection((journal.tasks[1],)), remove)


async def test_a_checkpoint_made_after_the_last_entry_was_read_is_not_used_for_a_proof(
    journal: Written, tmp_path: Path
) -> None:
    async def make_checkpoint(store: Store, task_id: str) -> None:
        await make(store, keyring(store, journal.folder))

    data = await disturbed(journal.folder, Selection((journal.tasks[1],)), make_checkpoint, hide=1)
    verdict = judged(data, tmp_path)
    assert verdict.valid, [fault.text() for fault in verdict.faults]
    assert (verdict.counts.proofs, verdict.counts.checkpoints) == (0, 1)


def test_export_names_the_options_that_verify_needs() -> None:
    assert _to_raise(SIZE, Counts(events=EVENTS)) == []
    assert _to_raise(SIZE + 1, None) == [f"--max-bytes {SIZE + 1}"]
    assert _to_raise(1, Counts(tombstones=EVENTS + 1)) == [f"--max-events {EVENTS + 1}"]


async def test_more_than_the_limit_is_refused(journal: Written) -> None:
    with pytest.raises(ExportTooLarge, match="more than 3 entries"):
        await exported(journal.folder, ALL, limits=BundleLimits(events=3))


# Through a host


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served") / "data"


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[tuple[Server, list[str]]]:
    yield from write(folder)


def request_bundle(server: Server, secret: str = ADMIN_SECRET, tenant: str = "", **query: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {secret}", **({"X-Tenant-Id": tenant} if tenant else {})}
    return httpx.get(f"{server.url}/api/v2/admin/evidence", params=query, headers=headers, timeout=30)


def test_a_host_exports_a_bundle_with_the_cards_and_records_it_in_the_audit_log(
    served: tuple[Server, list[str]], tmp_path: Path
) -> None:
    server, ids = served
    out = tmp_path / "remote.tar.gz"
    words = ("evidence", "export", ids[0], ids[3], "--url", server.url, "--out", out)
    done = roost(*words, env={"ROOST_TOKEN": ADMIN_SECRET})
    assert done.returncode == 0, done.stderr
    assert out.read_bytes() == request_bundle(server, task=f"{ids[0]},{ids[3]}").content
    found = members(out.read_bytes())
    card = f"{server.url}/agents/hello/.well-known/agent-card.json"
    assert found["cards/hello.json"] == httpx.get(card, headers={"A2A-Version": "1.0"}).content
    assert "cards/stream.json" in found
    keys = httpx.get(f"{server.url}/.well-known/evidence-jwks.json")
    assert keys.headers["content-type"] == "application/jwk-set+json"
    assert verify(out, trust=read_jwks(keys.content)).anchored
    headers = {"Authorization": f"Bearer {ADMIN_SECRET}"}
    log = httpx.get(f"{server.url}/api/v2/admin/audit", headers=headers).json()["items"]
    assert [line["target"] for line in log if line["action"] == "evidence.export"] == [f"{ids[0]} {ids[3]}"] * 2
    assert request_bundle(server, since="1970-01-01", agent="ask", redact="true").status_code == 200
    log = httpx.get(f"{server.url}/api/v2/admin/audit", headers=headers).json()["items"]
    assert log[0]["target"] == "redacted agent ask since 1970-01-01T00:00:00.000000Z"


def send_as(server: Server, tenant: str) -> str:
    message = {"messageId": tenant, "role": "ROLE_USER", "parts": [{"text": f"for {tenant}"}]}
    headers = {"A2A-Version": "1.0", "X-Tenant-Id": tenant}
    answer = httpx.post(f"{server.url}/agents/hello/message:send", json={"message": message}, headers=headers)
    found: str = answer.json()["task"]["id"]
    return found


def auditor(server: Server, *tenants: str) -> str:
    body = {"name": "-".join(tenants), "scopes": ["audit"], "tenants": tenants}
    headers = {"Authorization": f"Bearer {ADMIN_SECRET}"}
    secret: str = httpx.post(f"{server.url}/api/v2/admin/tokens", json=body, headers=headers).json()["token"]
    return secret


def test_an_auditor_exports_the_tasks_of_its_tenants_and_no_others(served: tuple[Server, list[str]]) -> None:
    server, ids = served
    acme, globex = send_as(server, "acme"), send_as(server, "globex")
    one, two = auditor(server, "acme"), auditor(server, "acme", "globex")

    def taken(answer: httpx.Response) -> set[str]:
        assert answer.status_code == 200, answer.text
        return {json.loads(line)["task"] for line in members(answer.content)["tasks.ndjson"].splitlines()}

    hidden, nothing = request_bundle(server, one, task=globex), request_bundle(server, one, task="nothing")
    assert hidden.status_code == nothing.status_code == 404
    assert hidden.json()["detail"] == nothing.json()["detail"].replace("nothing", globex)
    assert request_bundle(server, one, task=f"{acme},{globex}").status_code == 404
    assert request_bundle(server, one, "globex", task=globex).status_code == 403
    assert request_bundle(server, two, "acme", task=globex).status_code == 404
    assert taken(request_bundle(server, two, task=globex)) == {globex}

    answer = request_bundle(server, one, since="1970-01-01")
    assert taken(answer) == {acme}
    assert {name for name in members(answer.content) if name.startswith("cards/")} == {"cards/hello.json"}
    assert globex.encode() not in b"".join(members(answer.content).values())
    assert taken(request_bundle(server, two, since="1970-01-01")) == {acme, globex}
    assert taken(request_bundle(server, since="1970-01-01")) == {*ids, acme, globex}
    assert taken(request_bundle(server, tenant="globex", since="1970-01-01")) == {globex}


@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ({}, 400, "task"),
        ({"task": "x", "since": "1"}, 400, "task"),
        ({"since": "yesterday"}, 400, "since"),
        ({"since": "1", "redact": "maybe"}, 400, "redact"),
        ({"since": "1", "limit": "3"}, 400, "limit"),
        ({"task": "nothing"}, 404, None),
        ({"task": ["a", "b"]}, 400, "task"),
        ({"task": "a", "agent": "hello"}, 400, "agent"),
        ({"since": "1970-01-01", "agent": "nobody"}, 400, "agent"),
        ({"since": "999"}, 400, "since"),
    ],
)
def test_a_host_names_the_wrong_field_of_a_request(
    served: tuple[Server, list[str]], query: dict[str, Any], status: int, field: str | None
) -> None:
    answer = request_bundle(served[0], **query)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert [error["field"] for error in answer.json().get("errors", [])] == ([field] if field else [])


def test_the_command_shows_the_error_of_the_host(served: tuple[Server, list[str]], tmp_path: Path) -> None:
    server, _ = served
    out = tmp_path / "b.tar.gz"
    done = roost("evidence", "export", "nothing", "--url", server.url, "--token", ADMIN_SECRET, "--out", out)
    assert (done.returncode, out.exists()) == (1, False)
    assert "there is no task 'nothing'" in done.stderr
    done = roost("evidence", "export", "x", "--url", server.url, "--token", "another-token-that-is-long", "--out", out)
    assert done.returncode == 1
    assert [file.name for file in tmp_path.iterdir()] == []
    assert roost("evidence", "export", "--out", out).returncode == 2
    assert roost("evidence", "export", "x", "--agent", "hello", "--out", out).returncode == 2


def test_a_checkpoint_that_is_held_must_be_the_one_of_the_host(
    served: tuple[Server, list[str]], folder: Path, tmp_path: Path
) -> None:
    server, _ = served
    held, out = tmp_path / "held.json", tmp_path / "b.tar.gz"
    assert roost("evidence", "checkpoint", "--data", folder, "--out", held).returncode == 0
    words = ("evidence", "export", "--since", held, "--url", server.url, "--token", ADMIN_SECRET, "--out", out)
    done = roost(*words)
    assert done.returncode == 0, done.stderr
    assert verify(out, held=read_statement(held.read_bytes().strip())).valid
    statement = json.loads(held.read_bytes())
    held.write_bytes(jcs({**statement, "checkpoint": {**statement["checkpoint"], "root": "0" * 64}}))
    done = roost(*words)
    assert done.returncode == 1
    assert "checkpoint 1 is not the one that you hold" in done.stderr


def test_long_entries_need_no_file_each_and_a_client_that_does_not_read_blocks_nobody(
    served: tuple[Server, list[str]], tmp_path: Path
) -> None:
    server, _ = served
    ids = [server.send("hello", secrets.token_hex(1 << 20))["id"] for _ in range(4)]
    path = f"/api/v2/admin/evidence?task={','.join(ids)}"
    lines = (f"GET {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {ADMIN_SECRET}", "", "")
    pid = server.process.pid
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    with socket.socket() as idle:
        idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        idle.connect(("127.0.0.1", server.port))
        idle.sendall("\r\n".join(lines).encode())
        assert idle.recv(12) == b"HTTP/1.1 200"
        highest = max(int(file.name) for file in Path(f"/proc/{pid}/fd").iterdir())
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest + 12, hard))
        try:
            answer = request_bundle(server, task=",".join(ids))
        finally:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
    assert answer.status_code == 200, answer.text
    verdict = judged(answer.content, tmp_path)
    assert (verdict.valid, verdict.counts.tasks) == (True, 4)
    assert verdict.counts.raw >= 8


# Tampering


async def test_any_changed_byte_of_any_member_is_detected(journal: Written, tmp_path: Path) -> None:
    await checkpoint(journal.folder)
    roost("tasks", "prune", "--keep", "2", "--agent", "hello", "--data", journal.folder)
    data = await exported(journal.folder, ALL, cards={"hello": b'{"name":"hello"}', "stream": b"{}"})
    found = members(data)
    assert judged(packed(tarred(found)), tmp_path).valid
    assert packed(tarred(found)) == data
    file = tmp_path / "bundle.tar.gz"
    scripted = 0
    for name, content in found.items():
        assert content, name
        for at in sorted({*range(0, len(content), max(1, len(content) // 40)), len(content) - 1}):
            changed = bytearray(content)
            changed[at] ^= 1 << (at % 7)
            verdict = judged(packed(tarred({**found, name: bytes(changed)})), tmp_path)
            assert not verdict.valid, (name, at)
            blamed = {fault.member for fault in verdict.faults}
            named = {name, "manifest.json.sig"} if name == "manifest.json" else {name}
            assert blamed & named, (name, at, [fault.text() for fault in verdict.faults])
            if at % 3 == 0 and scripted < 30:
                scripted += 1
                assert script(file).returncode == 1, (name, at)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda entry: entry.update(raw=entry["raw"].replace("number 1", "number 7")), "the hash chain is broken"),
        (lambda entry: entry.update(time=entry["time"] + 1), "the hash chain is broken"),
        (lambda entry: entry.update(ordinal=entry["ordinal"] + 1), "the hash chain is broken"),
        (lambda entry: entry["event"]["data"]["content"].update(more=1), "the event has a wrong assaycontenthash"),
        (lambda entry: entry["event"].update(time="2001-01-01T00:00:00.000000Z"), "the event has a wrong time"),
        (lambda entry: entry["event"].update(more=1), "the event has missing or unknown members"),
        (lambda entry: entry.update(seq=5), "an entry before this one is missing, or this one is out of order"),
        (lambda entry: entry.update(more=1), "not an entry"),
        (lambda entry: entry.update(chain="0" * 64), "the hash chain is broken"),
    ],
)
async def test_a_changed_entry_is_reported_even_if_every_digest_was_recomputed(
    journal: Written, tmp_path: Path, change: Any, expected: str
) -> None:
    found = members(await exported(journal.folder, Selection((journal.tasks[1],))))
    first, *rest = found["events.ndjson"].splitlines()
    entry = json.loads(first)
    change(entry)
    found["events.ndjson"] = b"\n".join([jcs(entry), *rest, b""])
    verdict = judged(packed(tarred(with_digests(found))), tmp_path)
    texts = [fault.text() for fault in verdict.faults]
    assert not verdict.valid
    assert any("manifest.json.sig: the signature does not match" in text for text in texts)
    assert any("events.ndjson, line 1" in text and expected in text for text in texts), texts
    if "chain is broken" in expected:
        where = f"events.ndjson, line 1, task {journal.tasks[1]}, entry 0.1: the hash chain is broken: the entry was"
        assert any(text.startswith(where) and "expected" in text for text in texts)


async def test_missing_and_extra_lines_are_reported(journal: Written, tmp_path: Path) -> None:
    found = members(await exported(journal.folder, ALL))
    lines = found["events.ndjson"].splitlines(keepends=True)
    for kept, expected in (
        (lines[:-1], "the head of the task does not match its entries"),
        (lines[:1] + lines[2:], "out of order"),
    ):
        changed = with_digests({**found, "events.ndjson": b"".join(kept)})
        texts = [fault.text() for fault in judged(packed(tarred(changed)), tmp_path).faults]
        assert any(expected in text for text in texts), texts
    tasks = found["tasks.ndjson"].splitlines(keepends=True)
    changed = with_digests({**found, "tasks.ndjson": b"".join(tasks[1:])})
    texts = [fault.text() for fault in judged(packed(tarred(changed)), tmp_path).faults]
    assert any("the task of the entry is not the next one" in text for text in texts), texts
    assert any("tasks.ndjson: the Merkle root differs" in text for text in texts), texts
