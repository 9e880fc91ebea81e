"""Verifies events.ndjson against tasks.ndjson, line by line: order, hash chain, content hashes and envelopes."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from roost.evidence import bundle
from roost.evidence.bundle import Manifest
from roost.evidence.events import NAMES, PRODUCER, SOURCE, TYPE, EvidenceEvent, rfc3339, run_id
from roost.evidence.faults import CHANGED, OUT_OF_ORDER, Faults, shorten
from roost.evidence.json_input import MAX_EXACT
from roost.evidence.raw import JSON
from roost.protocol.canonical import is_canonical
from roost.protocol.entries import NO_CHAIN, link

_decode = msgspec.json.Decoder().decode

ENTRY = {"chain", "event", "kind", "ordinal", "raw", "seq", "sub", "task", "time"}
NUMBERS = ("seq", "sub", "time", "ordinal")
POSITION = ("chain", "kind", *NUMBERS)
TASK = {"agent", "chain", "context", "created", "entries", "scope", "seq", "sub", "task"}
ENVELOPE = {
    "assaycontenthash",
    "assayproducer",
    "assayproducerversion",
    "assayrunid",
    "assayseq",
    "datacontenttype",
    "id",
    "source",
    "specversion",
    "subject",
    "time",
    "type",
}


def read_line(line: bytes) -> Any:
    """Parse a line, which must be canonical JSON. Raises ValueError with a message that says what is wrong."""
    if bundle.too_deep(line):
        raise ValueError(f"nested deeper than {bundle.MAX_DEPTH} levels")
    try:
        value = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not is_canonical(value, line):
        raise ValueError("not canonical JSON (RFC 8785), or a name occurs twice")
    return value


class PendingEntry:
    """An entry whose bytes are in a later member of their own. Keeps nothing that can be long."""

    def __init__(self, before: bytes, entry: dict[str, Any], line: int) -> None:
        numbers = (entry["seq"], entry["sub"], entry["time"], entry["ordinal"])
        self.hash = sha256(b"%b%b %d %d %d %d\n" % (before, entry["kind"].encode(), *numbers))
        """The hash of `link`, up to the bytes of the entry."""
        self.chain = bytes.fromhex(entry["chain"])
        self.location = {"task": shorten(entry["task"]), "seq": entry["seq"], "sub": entry["sub"]}
        self.line = line


class ProvenHead(NamedTuple):
    """The head of a task that a proof shows."""

    position: tuple[int, int]
    """The seq and sub of the entry."""
    chain: str
    scope: str


class EventVerifier:
    """`tasks` are the lines of tasks.ndjson, and `proven_heads` the heads that proofs show, by task id."""

    def __init__(
        self,
        manifest: Manifest,
        faults: Faults,
        tasks: Iterator[bytes],
        proven_heads: dict[str, ProvenHead],
    ) -> None:
        self.manifest = manifest
        self.faults = faults
        self.tasks = tasks
        self.proven_heads = proven_heads
        self.task: dict[str, Any] | None = None
        self.task_line = 0
        self.run_root = sha256()
        self.run_id = ""
        self.line = self.without_event = self.entries = 0
        self.chain, self.position = NO_CHAIN, (0, 0)
        self.pending: dict[str, list[PendingEntry]] = {}
        """The pending entries by the digest of their bytes."""

    def add(self, line: bytes) -> None:
        self.line += 1
        try:
            entry = read_line(line)
        except ValueError as error:
            self._fault(str(error))
            return
        if not _is_entry(entry):
            self._fault("not an entry: a field is missing, unknown or of a wrong type")
            return
        if self.task is None or entry["task"] != self.task["task"]:
            self._end_task()
            self._next_task(entry)
        self._check_position(entry)
        self._check_link(entry)
        self._check_event(entry, line)
        self.chain, self.position = bytes.fromhex(entry["chain"]), (entry["seq"], entry["sub"])
        self.entries += 1

    def end(self) -> None:
        self._end_task()
        for line in self.tasks:
            self.task_line += 1
            task = _read_task(line)
            name = task["task"] if task else ""
            self.faults.add(bundle.TASKS, "the entries of the task are missing", line=self.task_line, task=name)
        for task_id in self.proven_heads:
            self.faults.add(bundle.PROOFS, "the proven entry is not in the bundle", task=task_id)
        expected, found = self.manifest.roots.run_root, f"sha256:{self.run_root.hexdigest()}"
        if expected != found:
            self.faults.add(bundle.EVENTS, "the run root differs", expected=expected, found=found)
        if self.without_event != self.manifest.counts.without_event:
            self._fault(
                "the number of entries without an event differs",
                expected=self.manifest.counts.without_event,
                found=self.without_event,
            )

    def _next_task(self, entry: dict[str, Any]) -> None:
        self.chain, self.position, self.entries = NO_CHAIN, (0, 0), 0
        self.run_id = run_id("task", entry["task"])
        line = next(self.tasks, None)
        self.task_line += 1
        task = None if line is None else _read_task(line)
        if task is None or task["task"] != entry["task"]:
            expected = "no more" if line is None else task["task"] if task else "a task"
            self._fault("the task of the entry is not the next one", entry, expected=expected, found=entry["task"])
        self.task = {"task": entry["task"]} if task is None else {**task, "task": entry["task"]}

    def _end_task(self) -> None:
        task = self.task
        self.task = None
        if task is None or "chain" not in task:
            return
        expected = (task["seq"], task["sub"], task["chain"], task["entries"])
        found = (*self.position, self.chain.hex(), self.entries)
        if expected != found:
            self.faults.add(
                bundle.TASKS,
                "the head of the task does not match its entries",
                line=self.task_line,
                task=task["task"],
                expected=expected,
                found=found,
            )

    def _check_position(self, entry: dict[str, Any]) -> None:
        seq, sub = self.position
        if (entry["seq"], entry["sub"]) not in ((seq, sub + 1), (seq + 1, 0)):
            self._fault(
                OUT_OF_ORDER,
                entry,
                expected=f"{seq + 1} or {seq}.{sub + 1}",
                found=f"{entry['seq']}.{entry['sub']}",
            )

    def _check_link(self, entry: dict[str, Any]) -> None:
        raw = entry["raw"]
        proven = self.proven_heads.get(entry["task"])
        if proven is not None and proven.position == (entry["seq"], entry["sub"]):
            del self.proven_heads[entry["task"]]
            if proven.chain != entry["chain"]:
                self._fault("the checkpoint has another chain", entry, expected=proven.chain, found=entry["chain"])
            scope = None if self.task is None else self.task.get("scope")
            if proven.scope != scope:
                self._fault("the checkpoint has another scope", entry, expected=proven.scope, found=scope)
        if isinstance(raw, dict) and "sha256" in raw:
            redacted = bool(self.manifest.redacted)
            if raw["where"] != ("redacted" if redacted else "member"):
                self._fault("the bytes of the entry are not in the bundle", entry)
            elif not redacted:
                self.pending.setdefault(raw["sha256"], []).append(PendingEntry(self.chain, entry, self.line))
            return
        data = bytes.fromhex(raw["hex"]) if isinstance(raw, dict) else raw.encode()
        chain = link(self.chain, entry["seq"], entry["sub"], entry["kind"], data, entry["time"], entry["ordinal"])
        if chain.hex() != entry["chain"]:
            self._fault(CHANGED, entry, expected=chain.hex(), found=entry["chain"])

    def _check_event(self, entry: dict[str, Any], line: bytes) -> None:
        event = entry["event"]
        if event is None:
            self.without_event += 1
            return
        self.run_root.update(str(event.get("assaycontenthash")).encode() + b"\n")
        written, data = _event_and_data(line)
        kind = TYPE + NAMES.get(entry["kind"], "unknown")
        rebuilt = EvidenceEvent(kind, entry["task"], self.run_id, self.entries, rfc3339(entry["time"]), data)
        if "data" in event:
            self._check_data(entry, event["data"])
            if rebuilt.line() == written:
                return
        self._check_envelope(entry, event, rebuilt)

    def _check_envelope(self, entry: dict[str, Any], event: dict[str, Any], rebuilt: EvidenceEvent) -> None:
        """Compare field by field, because this release would write the event differently."""
        expected = {
            "assayproducer": PRODUCER,
            "assayproducerversion": self.manifest.producer.version,
            "assayrunid": rebuilt.run,
            "assayseq": rebuilt.seq,
            "datacontenttype": JSON,
            "id": rebuilt.id,
            "source": SOURCE,
            "specversion": "1.0",
            "subject": rebuilt.subject,
            "time": rebuilt.time,
            "type": rebuilt.type,
        }
        if "data" in event:
            expected["assaycontenthash"] = rebuilt.content_hash
        for name, value in expected.items():
            if event.get(name) != value:
                self._fault(f"the event has a wrong {name}", entry, expected=str(value), found=str(event.get(name)))
        if event.keys() - {"data"} != ENVELOPE:
            members = ", ".join(sorted((event.keys() - {"data"}) ^ ENVELOPE))
            self._fault("the event has missing or unknown members", entry, found=members)

    def _check_data(self, entry: dict[str, Any], data: Any) -> None:
        found = data.get("entry") if isinstance(data, dict) else None
        expected = {name: entry[name] for name in POSITION}
        if found != expected:
            self._fault("the event is about another entry", entry, expected=str(expected), found=str(found))
        raw = data.get("raw") if isinstance(data, dict) else None
        if isinstance(entry["raw"], str) and isinstance(raw, dict):
            digest = sha256(entry["raw"].encode()).hexdigest()
            if raw.get("sha256") != digest:
                self._fault("the event is about other bytes", entry, expected=str(raw.get("sha256")), found=digest)

    def _fault(self, what: str, entry: dict[str, Any] | None = None, **details: Any) -> None:
        at = {} if entry is None else {"task": entry["task"], "seq": entry["seq"], "sub": entry["sub"]}
        self.faults.add(bundle.EVENTS, what, line=self.line, **at, **details)


_EVENT_START = len(b'{"chain":"') + 64 + len(b'","event":')


def _event_and_data(line: bytes) -> tuple[bytes, bytes]:
    """Return the event in a canonical line, and its data.

    Quotes within strings are escaped, so that the patterns match only members.
    """
    event = line[_EVENT_START : line.rfind(b',"kind":')]
    start, stop = event.find(b',"data":'), event.rfind(b',"datacontenttype":')
    return event, event[start + len(b',"data":') : stop] if start >= 0 else b""


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and entry.keys() == ENTRY
        and _is_number(entry["seq"])
        and _is_number(entry["sub"])
        and _is_number(entry["time"])
        and _is_number(entry["ordinal"])
        and isinstance(entry["kind"], str)
        and isinstance(entry["task"], str)
        and is_digest(entry["chain"])
        and (entry["event"] is None or isinstance(entry["event"], dict))
        and (isinstance(entry["raw"], str) or _is_raw(entry["raw"]))
    )


def _is_raw(raw: Any) -> bool:
    if not isinstance(raw, dict):
        return False
    if raw.keys() == {"hex"}:
        return isinstance(raw["hex"], str) and _is_hex(raw["hex"])
    return (
        raw.keys() == {"sha256", "size", "where"}
        and is_digest(raw["sha256"])
        and type(raw["size"]) is int
        and raw["where"] in ("redacted", "member")
    )


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_EXACT


def is_digest(text: Any) -> bool:
    return isinstance(text, str) and len(text) == 64 and _is_hex(text)


def _is_hex(text: str) -> bool:
    return not text.strip("0123456789abcdef") and len(text) % 2 == 0


def _read_task(line: bytes) -> dict[str, Any] | None:
    """Return the task in a line of tasks.ndjson, or None if the line is invalid. It has been reported then."""
    try:
        task = read_line(line)
    except ValueError:
        return None
    fits = isinstance(task, dict) and task.keys() >= TASK and isinstance(task["task"], str) and is_digest(task["chain"])
    return task if fits else None
