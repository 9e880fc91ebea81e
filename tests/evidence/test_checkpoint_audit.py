"""An auditor who holds a checkpoint detects every later edit of the journal that bypasses the host."""

from __future__ import annotations

import base64
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from roost.engine.store_types import Append
from roost.evidence.checkpoint import Statement
from roost.evidence.checkpoint_audit import Audit, audit
from roost.identity.keys import EVIDENCE
from roost.protocol.entries import NO_CHAIN, Entry, link
from roost.stores.sqlite_tasks import decode_segment
from tests.evidence.journals import Written, checkpoint, edit, keyring, offline, opened
from tests.processes import roost

Change = Callable[[sqlite3.Connection, list[str]], None]


async def audited(folder: Path, held: Statement) -> Audit:
    async with offline(folder) as store:
        keys = [msgspec.json.decode(key.public) for key in (await store.read_identities(0)).keys]
        return await audit(store, held, keys)


def entries(connection: sqlite3.Connection, task: str) -> list[Entry]:
    rows = connection.execute("SELECT entries FROM segments WHERE task_id = ? ORDER BY last_seq, last_sub", (task,))
    return [entry for (blob,) in rows for entry in decode_segment(blob)]


def rewrite(connection: sqlite3.Connection, task: str, kept: list[Entry]) -> None:
    """Store all entries in one segment."""
    connection.execute("DELETE FROM segments WHERE task_id = ?", (task,))
    connection.execute(
        "INSERT INTO segments VALUES (?, ?, ?, 1, ?, NULL, NULL)",
        (task, kept[-1].seq, kept[-1].sub, msgspec.msgpack.encode(kept)),
    )


def relinked(kept: list[Entry]) -> list[Entry]:
    """Recompute the chain, as an attacker does who knows how it is computed."""
    chain, made = NO_CHAIN, []
    for entry in kept:
        chain = link(chain, *entry[:6])
        made.append(entry._replace(chain=chain))
    return made


def changed(place: int, relink: bool, **fields: Any) -> Change:
    def change(connection: sqlite3.Connection, tasks: list[str]) -> None:
        kept = entries(connection, tasks[1])
        kept[place] = kept[place]._replace(**fields)
        rewrite(connection, tasks[1], relinked(kept) if relink else kept)

    return change


def removed(connection: sqlite3.Connection, tasks: list[str]) -> None:
    kept = entries(connection, tasks[1])
    rewrite(connection, tasks[1], kept[:2] + kept[3:])


def removed_and_renumbered(connection: sqlite3.Connection, tasks: list[str]) -> None:
    kept = entries(connection, tasks[1])
    kept = kept[:2] + [entry._replace(seq=entry.seq - 1) for entry in kept[3:]]
    rewrite(connection, tasks[1], relinked(kept))


def inserted(connection: sqlite3.Connection, tasks: list[str]) -> None:
    kept = entries(connection, tasks[1])
    kept = [*kept[:2], kept[2], *(entry._replace(seq=entry.seq + 1) for entry in kept[2:])]
    rewrite(connection, tasks[1], relinked(kept))


def truncated(connection: sqlite3.Connection, tasks: list[str]) -> None:
    rewrite(connection, tasks[1], entries(connection, tasks[1])[:-1])


def task_removed(connection: sqlite3.Connection, tasks: list[str]) -> None:
    connection.execute("DELETE FROM segments WHERE task_id = ?", (tasks[1],))
    connection.execute("DELETE FROM tasks WHERE id = ?", (tasks[1],))


def tasks_swapped(connection: sqlite3.Connection, tasks: list[str]) -> None:
    for old, new in ((tasks[1], "x"), (tasks[2], tasks[1]), ("x", tasks[2])):
        connection.execute("UPDATE segments SET task_id = ? WHERE task_id = ?", (new, old))


def given_to_another(connection: sqlite3.Connection, tasks: list[str]) -> None:
    connection.execute("INSERT INTO scopes (tenant, owner, agent) VALUES ('other', 'other', 'hello')")
    connection.execute("UPDATE tasks SET scope = last_insert_rowid() WHERE id = ?", (tasks[1],))


def before_the_beginning(connection: sqlite3.Connection, tasks: list[str]) -> None:
    """Insert a step that never ran. A host that recovers the task reads it, whatever its position."""
    step = entries(connection, tasks[1])[-1]._replace(seq=1, sub=7, kind="s", data=b'{"name":"pay"}', chain=bytes(32))
    blob = msgspec.msgpack.encode([step])
    connection.execute("INSERT INTO segments VALUES (?, -5, 0, 1, ?, NULL, NULL)", (tasks[1], blob))


def hidden(connection: sqlite3.Connection, tasks: list[str]) -> None:
    """Hide the steps from a host that looks for them."""
    connection.execute("UPDATE segments SET internal = 0 WHERE task_id = ?", (tasks[1],))


def rubbish(connection: sqlite3.Connection, tasks: list[str]) -> None:
    connection.execute("UPDATE segments SET entries = x'00ff' WHERE task_id = ?", (tasks[1],))


EDITS: dict[str, tuple[Change, str, int | None]] = {
    "bytes": (changed(2, False, data=b"{}"), "the hash chain is broken: the entry was changed", 2),
    "bytes, relinked": (changed(2, True, data=b"{}"), "has another chain: this entry, or one before it", None),
    "time": (changed(1, False, time=1), "the hash chain is broken", 1),
    "time, relinked": (changed(1, True, time=1), "has another chain", None),
    "kind": (changed(2, False, kind="a"), "the hash chain is broken", 2),
    "ordinal": (changed(2, False, ordinal=77), "the hash chain is broken", 2),
    "chain": (changed(2, False, chain=bytes(32)), "the hash chain is broken", 2),
    "entry removed": (removed, "an entry before this one is missing, or this one is out of order", None),
    "entry removed, relinked": (removed_and_renumbered, "the entry is gone, but checkpoint 1 has it", None),
    "entry inserted, relinked": (inserted, "has another chain", None),
    "tail cut off": (truncated, "the entry is gone, but checkpoint 1 has it", None),
    "task removed": (task_removed, "the task and its tombstone are gone, but checkpoint 1 has the task", None),
    "tasks swapped": (tasks_swapped, "has another chain", None),
    "owner": (given_to_another, "the tenant, owner or agent is not that of checkpoint 1", None),
    "rubbish": (rubbish, "cannot be read", None),
    "before the beginning": (before_the_beginning, "the segment stored as -5.0 does not match its entries", None),
    "steps hidden": (hidden, "does not match its entries", None),
}


@pytest.mark.parametrize("name", EDITS)
async def test_an_edit_of_a_task_is_reported(journal: Written, name: str) -> None:
    held = await checkpoint(journal.folder)
    assert (await audited(journal.folder, held)).sound
    change, expected, seq = EDITS[name]
    edit(journal.folder, lambda connection: change(connection, journal.tasks))
    found = await audited(journal.folder, held)
    assert [fault.task for fault in found.faults if expected in fault.what], [fault.text() for fault in found.faults]
    blamed = {fault.task for fault in found.faults}
    assert journal.tasks[1] in blamed
    assert blamed <= {journal.tasks[1], *([journal.tasks[2]] if "swapped" in name else []), ""}
    if seq is not None:
        assert found.faults[0].seq == seq


def signed(protected: str) -> str:
    """Return SQL that stores a statement with this protected header."""
    empty = '"count":0,"format":"roost-checkpoint-1","number":2,"time":"x"'
    digests = f'"previous":"{"0" * 64}","root":"{"0" * 64}"'
    signature = f'"signature":{{"protected":"{protected}","signature":"x"}}'
    return f"UPDATE checkpoints SET statement = '{{\"checkpoint\":{{{empty},{digests}}},{signature}}}' WHERE number = 2"


NO_ALG = base64.urlsafe_b64encode(b'{"alg":[],"kid":"x","typ":"application/vnd.roost.checkpoint+jws"}').decode()

CHECKPOINT_EDITS: dict[str, tuple[str, str]] = {
    "its statement": (
        """UPDATE checkpoints SET statement = replace(CAST(statement AS TEXT), '"count":5', '"count":4')
        WHERE number = 1""",
        "checkpoint 1: the signature is not valid",
    ),
    "rubbish": ("UPDATE checkpoints SET statement = 'x' WHERE number = 2", "checkpoint 2: not a checkpoint"),
    "the first is gone": ("DELETE FROM checkpoints WHERE number = 1", "checkpoint 1: the checkpoint is missing"),
    "all are gone": ("DELETE FROM checkpoints", "checkpoint 1: the checkpoint that you hold is missing"),
    "a leaf": ("UPDATE leaves SET seq = seq + 1 WHERE task_id = :task", "checkpoint 1: the leaves were changed"),
    "a leaf is gone": ("DELETE FROM leaves WHERE task_id = :task", "checkpoint 1: the leaves were changed"),
    "a leaf too many": (
        "INSERT INTO leaves SELECT 'zzz', number, seq, sub, chain, scope FROM leaves WHERE task_id = :task",
        "checkpoint 1: the leaves were changed",
    ),
    "its time": (
        "UPDATE checkpoints SET time = time + 86400000 WHERE number = 2",
        "checkpoint 2: the store has another time for it",
    ),
    "no time": ("UPDATE checkpoints SET time = 1 << 62", "checkpoint 2: the store has another time for it"),
    "a number that is too large": (
        f"""UPDATE checkpoints SET statement = replace(CAST(statement AS TEXT), '"number":2', '"number":{2**60}')
        WHERE number = 2""",
        "checkpoint 2: not a checkpoint: a number",
    ),
    "a header that is no base64": (signed("\u00e9"), "checkpoint 2: the signature is not valid"),
    "a header with an invalid alg": (signed(NO_ALG.rstrip("=")), "checkpoint 2: the signature is not valid"),
    "a leaf's number": (f"UPDATE leaves SET seq = {2**60} WHERE task_id = :task", "checkpoint 1: a leaf cannot"),
    "a leaf's text": ("UPDATE leaves SET seq = 'x' WHERE task_id = :task", "checkpoint 1: a leaf cannot"),
    "a leaf's task": (
        "UPDATE leaves SET task_id = CAST(task_id AS BLOB) WHERE task_id = :task",
        "checkpoint 1: a leaf cannot",
    ),
    "another number": ("UPDATE checkpoints SET number = 3 WHERE number = 2", "checkpoint 2: the checkpoint is missing"),
}


@pytest.mark.parametrize("name", CHECKPOINT_EDITS)
async def test_an_edit_of_the_checkpoints_is_reported(journal: Written, name: str) -> None:
    held = await checkpoint(journal.folder)
    await checkpoint(journal.folder)
    sql, expected = CHECKPOINT_EDITS[name]
    edit(
        journal.folder, lambda connection: connection.execute(sql, {"task": journal.tasks[1]} if ":task" in sql else {})
    )
    texts = [fault.text() for fault in (await audited(journal.folder, held)).faults]
    assert any(text.startswith(expected) for text in texts), texts


async def test_a_checkpoint_of_another_journal_is_not_found_in_this_one(journal: Written, tmp_path: Path) -> None:
    held = await checkpoint(journal.folder)
    other = tmp_path / "other"
    other.mkdir()
    await checkpoint(other)
    texts = [fault.text() for fault in (await audited(other, held)).faults]
    assert any("the checkpoint is not the one that you hold" in text for text in texts)


async def test_new_entries_are_no_edit_and_pruned_tasks_are_reported_as_pruned(
    journal: Written, tmp_path: Path
) -> None:
    held = await checkpoint(journal.folder)
    file = tmp_path / "held.json"
    file.write_bytes(held.line() + b"\n")
    assert roost("tasks", "prune", "--keep", "2", "--agent", "hello", "--data", journal.folder).returncode == 0
    second = await checkpoint(journal.folder)
    assert second.count == 0  # the tombstone has what the leaf has
    async with opened(journal.folder) as store:
        more = (await store.read_entries(journal.tasks[3], -1, 100, wire=False))[-1]
        stored = await store.read_task(journal.tasks[3])
        place = (more.seq + 1, 0, "a", b"{}", more.time, 9)
        new = Entry(*place, link(more.chain, *place))
        assert await store.commit([Append(journal.tasks[3], stored.head.fence, [new])]) == [None]
    found = await audited(journal.folder, held)
    assert found.sound, [fault.text() for fault in found.faults]
    assert [(pruned.task, pruned.proven) for pruned in found.pruned] == [(journal.tasks[0], True)]
    assert found.newer == 1
    third = await checkpoint(journal.folder)
    assert (third.number, third.count) == (3, 1)
    done = roost("evidence", "audit", "--since", file, "--data", journal.folder)
    assert done.returncode == 0, done.stdout
    for text in (f"task {journal.tasks[0]}: pruned after entry", "not anchored", "not detectable", "no edit found"):
        assert text in done.stdout
    assert "3 checkpoints, 5 tasks in them" in done.stdout


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("DELETE FROM tombstones", "the task and its tombstone are gone"),
        ("UPDATE tombstones SET chain = zeroblob(32)", "the tombstone does not match the task in checkpoint 1"),
        ("UPDATE tombstones SET seq = 1", "the tombstone does not match the task in checkpoint 1"),
        ("UPDATE tombstones SET seq = 'x'", "the records of the task cannot be read"),
        ("UPDATE tombstones SET chain = 'x'", "the records of the task cannot be read"),
        ("UPDATE tombstones SET state = 99", "the records of the task cannot be read"),
    ],
)
async def test_an_edit_of_a_tombstone_is_reported(journal: Written, sql: str, expected: str) -> None:
    held = await checkpoint(journal.folder)
    assert roost("tasks", "prune", "--keep", "2", "--agent", "hello", "--data", journal.folder).returncode == 0
    edit(journal.folder, lambda connection: connection.execute(sql))
    [fault] = (await audited(journal.folder, held)).faults
    assert (expected in fault.what, fault.task) == (True, journal.tasks[0])


async def test_a_task_that_is_pruned_while_it_is_read_is_no_edit(
    journal: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = await checkpoint(journal.folder)
    async with offline(journal.folder) as store:
        keys = [msgspec.json.decode(key.public) for key in (await store.read_identities(0)).keys]
        read = store.read_segments

        async def pruned_first(task_id: str, after: Any, limit: int) -> Any:
            await store.prune("hello", None, 0, 10)
            return await read(task_id, after, limit)

        monkeypatch.setattr(store, "read_segments", pruned_first)
        found = await audit(store, held, keys)
    assert found.sound, [fault.text() for fault in found.faults]
    assert [(pruned.task, pruned.proven) for pruned in found.pruned] == [(task, True) for task in journal.tasks[:3]]


async def test_the_commands(journal: Written, tmp_path: Path) -> None:
    file, keys = tmp_path / "held.json", tmp_path / "keys.json"
    where = ("--data", journal.folder)
    done = roost("evidence", "checkpoint", "--out", file, *where)
    assert (done.returncode, done.stdout) == (0, f"{file} holds checkpoint 1\n")
    assert len(file.read_bytes()) < 700
    printed = roost("evidence", "checkpoint", *where)
    assert json.loads(printed.stdout)["checkpoint"]["number"] == 2
    listed = json.loads(roost("evidence", "checkpoints", "--json", *where).stdout)["items"]
    assert [item["checkpoint"]["number"] for item in listed] == [2, 1]
    async with opened(journal.folder) as store:
        found = [key for key in (await store.read_identities(0)).keys if key.agent == "@evidence"]
    keys.write_bytes(b'{"keys":[%b]}' % found[0].public)
    done = roost("evidence", "audit", "--since", file, "--trust", keys, *where)
    assert (done.returncode, "keys that you gave" in done.stdout) == (0, True)
    edit(journal.folder, lambda connection: truncated(connection, journal.tasks))
    done = roost("evidence", "audit", "--since", file, "--json", *where)
    report = json.loads(done.stdout)
    assert (done.returncode, report["outcome"], report["anchored"]) == (1, "edited", False)
    assert report["faults"][0]["task"] == journal.tasks[1]
    assert len(report["cannot_detect"]) >= 4
    done = roost("evidence", "audit", "--since", keys, *where)
    assert (done.returncode, "not a checkpoint" in done.stderr) == (2, True)
    done = roost("evidence", "export", journal.tasks[0], "--out", tmp_path, *where)
    assert (done.returncode, done.stderr.strip().endswith("it is a directory")) == (1, True), done.stderr


async def test_an_unknown_key_is_neither_an_edit_nor_a_proof(journal: Written, tmp_path: Path) -> None:
    files = tmp_path / "first.json", tmp_path / "second.json"
    sets = tmp_path / "old.json", tmp_path / "new.json"
    for place in range(2):
        files[place].write_bytes((await checkpoint(journal.folder)).line())
        async with opened(journal.folder) as store:
            ring = keyring(store, journal.folder)
            sets[place].write_bytes(b'{"keys":[%b]}' % (await ring.evidence_keys())[0].public)
            if not place:
                await ring.rotate(EVIDENCE, 0)

    def audit_with(held: int, trust: int) -> tuple[int, str]:
        words = ("evidence", "audit", "--since", files[held], "--trust", sets[trust], "--data", journal.folder)
        done = roost(*words)
        return done.returncode, done.stdout + done.stderr

    code, text = audit_with(0, 0)
    assert (code, "cannot be judged: checkpoint 2: the key" in text, "edited" in text) == (2, True, False), text
    code, text = audit_with(0, 1)
    assert (code, "no key that you gave has signed" in text) == (2, True), text
    assert audit_with(1, 1)[0] == 0  # it has the digest of the first, whoever signed that


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from roost.stores.sqlite import OfflineStore

async def main():
    store = OfflineStore(Path(sys.argv[1]))

    async def seal(last, leaves):
        assert [leaf async for leaf in leaves]
        os.kill(os.getpid(), signal.SIGKILL)

    await store.make_checkpoint(seal)

asyncio.run(main())
"""


async def test_a_killed_process_leaves_no_checkpoint_and_the_next_one_is_complete(journal: Written) -> None:
    command = [sys.executable, "-c", KILLED, str(journal.folder)]
    done = subprocess.run(command, check=False, env={**os.environ})
    assert done.returncode == -signal.SIGKILL
    async with opened(journal.folder) as store:
        assert await store.read_checkpoints(0, 10) == []
        assert await store.walk_leaves(("", 0), 10) == []
    held = await checkpoint(journal.folder)
    assert (held.number, held.count) == (1, 5)
    assert (await audited(journal.folder, held)).sound
