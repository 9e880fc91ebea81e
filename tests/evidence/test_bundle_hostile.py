"""Hostile bundles, which no export writes: each is refused with the reason, in bounded memory, and writes nothing."""

from __future__ import annotations

import base64
import gzip
import json
import subprocess
import sys
import tarfile
import tracemalloc
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from roost.engine.store_types import Append, NewTask, Scope, TaskHead
from roost.evidence import bundle
from roost.evidence.bundle import BundleLimits
from roost.evidence.export import Source, export
from roost.evidence.export_selection import Selection
from roost.evidence.keys import MANIFEST, signature
from roost.evidence.verify import verify
from roost.evidence.verify_reader import BundleUnreadable
from roost.protocol.canonical import jcs
from roost.protocol.entries import ARTIFACT, MESSAGE, NO_CHAIN, Entry, link
from roost.protocol.types import TaskState
from tests.evidence.journals import (
    Written,
    checkpoint,
    exported,
    keyring,
    members,
    opened,
    packed,
    tarred,
    with_digests,
)
from tests.processes import ROOT, roost

ALL = Selection(since_ms=0)


def texts(data: bytes, folder: Path, **more: Any) -> str:
    file = folder / "bundle.tar.gz"
    file.write_bytes(data)
    verdict = verify(file, **more)
    assert not verdict.valid
    return "\n".join(fault.text() for fault in verdict.faults)


def added(tar: bytes, name: str, data: bytes = b"", **fields: Any) -> bytes:
    """Append one more member, as tarfile writes it."""
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), 0o644
    for field, value in fields.items():
        setattr(info, field, value)
    block = info.tobuf(tarfile.USTAR_FORMAT)
    return tar[: -len(bundle.END)] + block + data + bundle.padding(len(data)) + bundle.END


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        ("../escape", {}, "a bundle has no member '../escape'"),
        ("/etc/passwd", {}, "a bundle has no member '/etc/passwd'"),
        ("cards/../../x.json", {}, "a bundle has no member"),
        ("cards/a/b.json", {}, "a bundle has no member"),
        ("raw/x", {}, "a bundle has no member 'raw/x'"),
        ("more.txt", {}, "a bundle has no member 'more.txt'"),
        ("cards/x.json", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}, "not a regular file"),
        ("cards/x.json", {"type": tarfile.LNKTYPE, "linkname": "manifest.json"}, "not a regular file"),
        ("cards/x.json", {"type": tarfile.CHRTYPE, "devmajor": 1}, "not a regular file"),
        ("cards/x.json", {"type": tarfile.DIRTYPE}, "not a regular file"),
        ("raw/" + "0" * 64, {"uid": 7}, "the tar header has a wrong uid"),
        ("raw/" + "0" * 64, {"mtime": 7}, "the tar header has a wrong time"),
        ("raw/" + "0" * 64, {"mode": 0o777}, "the tar header has a wrong mode"),
        ("raw/" + "0" * 64, {"uname": "root"}, "the tar header has a wrong checksum"),
        ("raw/" + "0" * 64, {}, "the manifest has no further member at this position"),
        ("events.ndjson", {}, "the member occurs twice"),
        ("manifest.json", {}, "the member must come before events.ndjson"),
    ],
)
async def test_an_unexpected_member_is_refused(
    journal: Written, tmp_path: Path, name: str, fields: dict[str, Any], expected: str
) -> None:
    tar = gzip.decompress(await exported(journal.folder, ALL))
    assert expected in texts(packed(added(tar, name, **fields)), tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"data", "bundle.tar.gz"}


async def test_truncated_and_extended_bundles_are_refused(journal: Written, tmp_path: Path) -> None:
    data = await exported(journal.folder, ALL)
    tar = gzip.decompress(data)
    for end in (12, len(data) // 2, len(data) - 9, len(data) - 1):
        assert "truncated" in texts(data[:end], tmp_path), end
    for end in (100, len(tar) // 2, len(tar) - 1536, len(tar) - 512, len(tar) - 1):
        assert "truncated" in texts(packed(tar[:end]), tmp_path), end
    assert "after the end of the compressed data" in texts(data + b"x", tmp_path)
    assert "after the end of the compressed data" in texts(data + data, tmp_path)
    assert "after the end of the archive" in texts(packed(tar + b"x" * 512), tmp_path)
    assert "expected a second empty block" in texts(packed(tar[:-512] + b"x" * 512), tmp_path)
    assert "expected the first bytes" in texts(b"", tmp_path)
    assert "expected the first bytes" in texts(b"PK\x03\x04 a zip", tmp_path)
    assert "expected the first bytes" in texts(gzip.compress(tar), tmp_path)
    assert "the compressed data is damaged" in texts(data[:-5] + bytes([data[-5] ^ 1]) + data[-4:], tmp_path)
    for changed in (data[:-8], data[:-8] + bytes(8), data + data, packed(tar + tar)):
        (tmp_path / "bundle.tar.gz").write_bytes(changed)
        command = [sys.executable, ROOT / "docs" / "verify_bundle.py", tmp_path / "bundle.tar.gz"]
        assert subprocess.run(command, capture_output=True, check=False).returncode == 1
    last = len(tar) - len(bundle.END) - 1
    assert tar[last] == 0
    assert "events.ndjson: expected zeros after the member" in texts(
        packed(tar[:last] + b"x" + tar[last + 1 :]), tmp_path
    )


async def test_ambiguous_json_is_refused(journal: Written, tmp_path: Path) -> None:
    found = members(await exported(journal.folder, ALL))
    manifest = found["manifest.json"]
    for name, old, new, expected in (
        ("manifest.json", b'{"counts"', b'{"format":"x","counts"', "an object has 'format' twice"),
        ("manifest.json", b'{"counts"', b'{ "counts"', "not canonical JSON"),
        ("manifest.json", b'"profile":"v2"', b'"profile":2', "Expected `str`"),
        ("events.ndjson", b'{"chain"', b'{"chain":"x","chain"', "line 1: not canonical JSON (RFC 8785), or a name"),
        ("events.ndjson", b'{"chain"', b"[" * 65 + b'{"chain"', "line 1: nested deeper than 64 levels"),
        ("tasks.ndjson", b'{"agent"', b'{"agent":"x","agent"', "line 1: not canonical JSON (RFC 8785), or a name"),
        ("events.ndjson", b'{"chain"', b'\xff{"chain"', "line 1: not JSON"),
    ):
        changed = {**found, name: found[name].replace(old, new, 1)}
        changed = changed if name == "manifest.json" else with_digests(changed)
        assert expected in texts(packed(tarred(changed)), tmp_path), (name, new)
    assert found["manifest.json"] == manifest


async def test_invalid_content_is_reported(journal: Written, tmp_path: Path) -> None:
    await checkpoint(journal.folder)
    found = members(await exported(journal.folder, ALL))
    first = json.loads(found["tasks.ndjson"].splitlines()[0])
    del first["tenant"]
    header = base64.urlsafe_b64encode(b'{"alg":[],"kid":"x","typ":"%b"}' % MANIFEST.encode()).decode().rstrip("=")
    for name, content, expected in (
        ("tasks.ndjson", jcs(first) + b"\n", "tasks.ndjson, line 1: not a task"),
        ("manifest.json.sig", '{"protected":"\u00e9","signature":"x"}'.encode(), "is not a JSON object in base64url"),
        ("manifest.json.sig", jcs({"protected": header, "signature": "x"}), "the protected header has alg []"),
        ("manifest.json.sig", b'{"protected":[],"signature":{}}', "an object of two strings"),
        ("checkpoints.ndjson", found["checkpoints.ndjson"] * 2, "checkpoint 1 does not follow the one before it"),
    ):
        assert expected in texts(packed(tarred({**found, name: content})), tmp_path), name


async def test_a_copied_checkpoint_does_not_prove_forged_tasks(journal: Written, tmp_path: Path) -> None:
    held = await checkpoint(journal.folder)
    genuine = await exported(journal.folder, ALL)
    file, line = tmp_path / "bundle.tar.gz", tmp_path / "held.json"
    file.write_bytes(genuine)
    verdict = verify(file, held=held)
    assert (verdict.valid, verdict.unjudged, verdict.checkpoint, verdict.proven) == (True, "", 1, 5)
    forger = tmp_path / "forger"
    await fill(forger, 1, 3)
    found = members(await exported(forger, ALL))
    found["checkpoints.ndjson"] = held.line() + b"\n"
    keys = [key for one in (found, members(genuine)) for key in json.loads(one["keys/jwks.json"])["keys"]]
    found["keys/jwks.json"] = jcs({"keys": keys})
    manifest = json.loads(found["manifest.json"])
    manifest["counts"]["checkpoints"] = 1
    for one in manifest["members"]:
        one["sha256"], one["size"] = sha256(found[one["name"]]).hexdigest(), len(found[one["name"]])
    found["manifest.json"] = jcs(manifest)
    async with opened(forger) as store:
        found["manifest.json.sig"] = jcs(await signature(keyring(store, forger), found["manifest.json"], MANIFEST))
    file.write_bytes(packed(tarred(found)))
    line.write_bytes(held.line())
    done = roost("evidence", "verify", file, "--checkpoint", line)
    assert (done.returncode, "agrees" in done.stdout) == (2, False), done.stdout
    assert "checkpoint 1, which you hold, proves none of the bundle's tasks" in done.stdout
    file.write_bytes(genuine)
    verdict = verify(file, held=await checkpoint(journal.folder))
    assert (verdict.valid, verdict.unjudged) == (True, "checkpoint 2, which you hold, is not in the bundle")


@pytest.mark.parametrize("name", ["manifest.json.sig", "keys/jwks.json", "events.ndjson", "tasks.ndjson"])
async def test_a_missing_member_is_reported(journal: Written, tmp_path: Path, name: str) -> None:
    found = members(await exported(journal.folder, ALL))
    del found[name]
    assert name in texts(packed(tarred(found)), tmp_path)


async def test_an_unreadable_bundle_is_not_judged(journal: Written, tmp_path: Path) -> None:
    data = await exported(journal.folder, ALL)
    found = members(data)
    file = tmp_path / "bundle.tar.gz"

    def why(content: bytes, **limits: int) -> str:
        file.write_bytes(content)
        with pytest.raises(BundleUnreadable) as raised:
            verify(file, BundleLimits(**limits))
        return str(raised.value)

    assert "raise --max-bytes" in why(data, size=100)
    assert "raise --max-events" in why(data, events=3)
    assert "a line of more than" in why(
        packed(tarred(with_digests({**found, "events.ndjson": b'"%b"\n' % (b"x" * (1 << 20))})))
    )
    newer = {**found, "manifest.json": found["manifest.json"].replace(b"roost-evidence-1", b"roost-evidence-2")}
    assert "the format is 'roost-evidence-2'" in why(packed(tarred(newer)))
    with pytest.raises(BundleUnreadable, match="cannot read"):
        verify(tmp_path / "nothing")
    file.write_bytes(data)
    for words, code in (
        ((file, "--max-events", "3"), 2),
        ((file, "--trust", tmp_path / "nothing"), 2),
    ):
        assert roost("evidence", "verify", *words).returncode == code, words


async def test_a_decompression_bomb_is_refused(journal: Written, tmp_path: Path) -> None:
    cards = {"hello": bytes(64 << 20)}
    (tmp_path / "bundle.tar.gz").write_bytes(await exported(journal.folder, ALL, cards=cards))
    tracemalloc.start()
    try:
        with pytest.raises(BundleUnreadable, match="expands to more than 50 times its size: raise --max-ratio"):
            verify(tmp_path / "bundle.tar.gz", BundleLimits(ratio=50))
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert verify(tmp_path / "bundle.tar.gz", BundleLimits(ratio=2000)).valid


async def test_lines_with_invalid_signatures_are_not_kept_in_memory(journal: Written, tmp_path: Path) -> None:
    await checkpoint(journal.folder)
    found = members(await exported(journal.folder, ALL))
    statement = json.loads(found["checkpoints.ndjson"])
    statements = []
    for number in range(1, 601):
        statement["checkpoint"]["number"], statement["signature"] = number, [hex(item) for item in range(450)]
        statements.append(jcs(statement) + b"\n")
    entry = json.loads(found["events.ndjson"].splitlines()[0])
    entry["raw"] = {"sha256": "0" * 64, "size": 1, "where": "member"}
    entry["event"]["data"] = {"x": [hex(number) for number in range(20_000)]}
    for name, content in (("checkpoints.ndjson", b"".join(statements)), ("events.ndjson", (jcs(entry) + b"\n") * 20)):
        (tmp_path / "bundle.tar.gz").write_bytes(packed(tarred({**found, name: content})))
        tracemalloc.start()
        try:
            assert not verify(tmp_path / "bundle.tar.gz").valid
            assert tracemalloc.get_traced_memory()[1] < 10 << 20, name
        finally:
            tracemalloc.stop()


def chained(task: str, count: int, size: int = 0) -> list[Entry]:
    made: list[Entry] = []
    chain = NO_CHAIN
    for place in range(count):
        seq, sub, kind = (place, 0, ARTIFACT) if place else (0, 1, MESSAGE)
        parts = [{"text": f"piece {place}" + "x" * size}]
        artifact = {"taskId": task, "contextId": "c", "artifact": {"artifactId": "a", "parts": parts}}
        message = {"messageId": "m", "role": "ROLE_USER", "parts": parts}
        value: Any = {"artifactUpdate": artifact} if place else {"message": message}
        data = jcs(value)
        chain = link(chain, seq, sub, kind, data, 1_700_000_000_000_000 + place, place)
        made.append(Entry(seq, sub, kind, data, 1_700_000_000_000_000 + place, place, chain))
    return made


async def fill(folder: Path, tasks: int, entries: int, size: int = 0) -> None:
    async with opened(folder) as store:
        for number in range(tasks):
            name = f"task-{number:06}"
            new = NewTask(name, Scope("t", "o", "agent"), "c", 1_700_000_000_000_000)
            head = TaskHead(TaskState.COMPLETED, 1000, None, 1, False)
            assert await store.commit([Append(name, 1, chained(name, entries, size), new, head)]) == [None]


async def peaks(folder: Path, out: Path) -> tuple[int, int]:
    """Return the peak memory of an export and of a verification, in bytes."""
    async with opened(folder) as store:
        ring = keyring(store, folder)
        await ring.evidence_keys()
        tracemalloc.start()
        try:
            with out.open("wb") as file:
                await export(Source(store, ring), ALL, file)
            export_peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.reset_peak()
            verdict = verify(out)
            assert verdict.valid, verdict.faults
            return export_peak, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


async def test_ten_times_the_events_need_no_more_memory(tmp_path: Path) -> None:
    measured = []
    for tasks in (5, 50):
        folder = tmp_path / str(tasks)
        await fill(folder, tasks, 100)
        measured.append(await peaks(folder, tmp_path / "bundle.tar.gz"))
    for small, large in zip(*measured, strict=True):
        assert large < small * 1.3 + (1 << 20)


async def test_an_entry_that_is_too_long_for_a_line_has_a_member_of_its_own(tmp_path: Path) -> None:
    await fill(tmp_path / "data", 2, 3, size=(1 << 20) + 7)
    data = await exported(tmp_path / "data", ALL)
    found = members(data)
    raws = [name for name in found if name.startswith("raw/")]
    assert len(raws) == 5  # the first entries of both are the same bytes
    file = tmp_path / "bundle.tar.gz"
    file.write_bytes(data)
    verdict = verify(file)
    assert verdict.valid, [fault.text() for fault in verdict.faults]
    changed = {**found, raws[0]: found[raws[0]].replace(b"xxxx", b"xyxx", 1)}
    faults = texts(packed(tarred(with_digests(changed))), tmp_path)
    assert f"{raws[0]}: the content does not match the name" in faults
    assert "the hash chain is broken" in faults
