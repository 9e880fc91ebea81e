"""Checks events.ndjson against tasks.ndjson, line by line: order, links, content hashes, what the envelopes say."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from roost.evidence import bundle
from roost.evidence.bundle import Manifest
from roost.evidence.events import JSON, NAMES, PRODUCER, SOURCE, TYPE, EvidenceEvent, rfc3339, run_id
from roost.evidence.verify_faults import Faults, shortened
from roost.protocol.canonical import is_canonical
from roost.protocol.entries import NO_CHAIN, link

_decode = msgspec.json.Decoder().decode

ENTRY = {"chain", "event", "kind", "ordinal", "raw", "seq", "sub", "task", "time"}
NUMBERS = ("seq", "sub", "time", "ordinal")
PLACE = ("chain", "kind", *NUMBERS)
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
BIG = 2**53
OUT_OF_ORDER = "an entry is missing before it, or it is out of order"
CHANGED = "the link does not hold: the entry was changed"


def read_line(line: bytes) -> Any:
    """A line as it must be written; ValueError says what is wrong with it."""
    if bundle.too_deep(line):
        raise ValueError(f"it is nested deeper than {bundle.MAX_DEPTH} levels")
    try:
        value = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not is_canonical(value, line):
        raise ValueError("it is not canonical JSON (RFC 8785), or has a name twice")
    return value


class Later:
    """An entry whose bytes are in a member of their own, which comes later. Keeps nothing that can be long."""

    def __init__(self, before: bytes, entry: dict[str, Any], line: int) -> None:
        numbers = (entry["seq"], entry["sub"], entry["time"], entry["ordinal"])
        self.hash = sha256(b"%b%b %d %d %d %d\n" % (before, entry["kind"].encode(), *numbers))
        """As far as `link` goes before the bytes themselves."""
        self.chain = bytes.fromhex(entry["chain"])
        self.place = {"task": shortened(entry["task"]), "seq": entry["seq"], "sub": entry["sub"]}
        self.line = line


class Proven(NamedTuple):
    """What a proof says of a task."""

    place: tuple[int, int]
    chain: str
    scope: str


class EventVerifier:
    """`tasks` are the lines of tasks.ndjson; `leaves` what proofs say of a task."""

    def __init__(
        self,
        manifest: Manifest,
        faults: Faults,
        tasks: Iterator[bytes],
        leaves: dict[str, Proven],
    ) -> None:
        self.manifest = manifest
        self.faults = faults
        self.tasks = tasks
        self.leaves = leaves
        self.task: dict[str, Any] | None = None
        self.task_line = 0
        self.run = sha256()
        self.run_id = ""
        self.line = self.untold = self.places = 0
        self.before, self.at = NO_CHAIN, (0, 0)
        self.later: dict[str, list[Later]] = {}

    def add(self, line: bytes) -> None:
        self.line += 1
        try:
            entry = read_line(line)
        except ValueError as error:
            self._fault(str(error))
            return
        if not _is_entry(entry):
            self._fault("it is not an entry: a field is missing, too many, or of a wrong kind")
            return
        if self.task is None or entry["task"] != self.task["task"]:
            self._end_task()
            self._next_task(entry)
        self._position(entry)
        self._link(entry)
        self._event(entry, line)
        self.before, self.at = bytes.fromhex(entry["chain"]), (entry["seq"], entry["sub"])
        self.places += 1

    def end(self) -> None:
        self._end_task()
        for line in self.tasks:
            self.task_line += 1
            told = _task(line)
            name = told["task"] if told else ""
            self.faults.add(bundle.TASKS, "its entries are missing", line=self.task_line, task=name)
        for task in self.leaves:
            self.faults.add(bundle.PROOFS, "the entry that it proves is not in the bundle", task=task)
        expected, found = self.manifest.roots.run_root, f"sha256:{self.run.hexdigest()}"
        if expected != found:
            self.faults.add(bundle.EVENTS, "the run root differs", expected=expected, found=found)
        if self.untold != self.manifest.counts.untold:
            self._fault("entries without an event", expected=self.manifest.counts.untold, found=self.untold)

    def _next_task(self, entry: dict[str, Any]) -> None:
        self.before, self.at, self.places = NO_CHAIN, (0, 0), 0
        self.run_id = run_id("task", entry["task"])
        line = next(self.tasks, None)
        self.task_line += 1
        told = None if line is None else _task(line)
        if told is None or told["task"] != entry["task"]:
            expected = "no more" if line is None else told["task"] if told else "a task"
            self._fault("its task does not follow", entry, expected=expected, found=entry["task"])
        self.task = {"task": entry["task"]} if told is None else {**told, "task": entry["task"]}

    def _end_task(self) -> None:
        told = self.task
        self.task = None
        if told is None or "chain" not in told:
            return
        expected = (told["seq"], told["sub"], told["chain"], told["entries"])
        found = (*self.at, self.before.hex(), self.places)
        if expected != found:
            self.faults.add(
                bundle.TASKS,
                "its head is not that of its entries",
                line=self.task_line,
                task=told["task"],
                expected=expected,
                found=found,
            )

    def _position(self, entry: dict[str, Any]) -> None:
        seq, sub = self.at
        if (entry["seq"], entry["sub"]) not in ((seq, sub + 1), (seq + 1, 0)):
            self._fault(
                OUT_OF_ORDER,
                entry,
                expected=f"{seq + 1} or {seq}.{sub + 1}",
                found=f"{entry['seq']}.{entry['sub']}",
            )

    def _link(self, entry: dict[str, Any]) -> None:
        raw = entry["raw"]
        leaf = self.leaves.get(entry["task"])
        if leaf is not None and leaf.place == (entry["seq"], entry["sub"]):
            del self.leaves[entry["task"]]
            if leaf.chain != entry["chain"]:
                self._fault("the checkpoint has another chain", entry, expected=leaf.chain, found=entry["chain"])
            scope = None if self.task is None else self.task.get("scope")
            if leaf.scope != scope:
                self._fault("the checkpoint has another scope", entry, expected=leaf.scope, found=scope)
        if isinstance(raw, dict) and "sha256" in raw:
            redacted = bool(self.manifest.redacted)
            if raw["where"] != ("redacted" if redacted else "member"):
                self._fault("its bytes are not there", entry)
            elif not redacted:
                self.later.setdefault(raw["sha256"], []).append(Later(self.before, entry, self.line))
            return
        data = bytes.fromhex(raw["hex"]) if isinstance(raw, dict) else raw.encode()
        made = link(self.before, entry["seq"], entry["sub"], entry["kind"], data, entry["time"], entry["ordinal"])
        if made.hex() != entry["chain"]:
            self._fault(CHANGED, entry, expected=made.hex(), found=entry["chain"])

    def _event(self, entry: dict[str, Any], line: bytes) -> None:
        event = entry["event"]
        if event is None:
            self.untold += 1
            return
        self.run.update(str(event.get("assaycontenthash")).encode() + b"\n")
        shown, data = _parts(line)
        kind = TYPE + NAMES.get(entry["kind"], "unknown")
        made = EvidenceEvent(kind, entry["task"], self.run_id, self.places, rfc3339(entry["time"]), data)
        if "data" in event:
            self._data(entry, event["data"])
            if made.line() == shown:
                return
        self._envelope(entry, event, made)

    def _envelope(self, entry: dict[str, Any], event: dict[str, Any], made: EvidenceEvent) -> None:
        """Field by field, where the whole is not as this release writes it."""
        expected = {
            "assayproducer": PRODUCER,
            "assayproducerversion": self.manifest.producer.version,
            "assayrunid": made.run,
            "assayseq": made.seq,
            "datacontenttype": JSON,
            "id": made.id,
            "source": SOURCE,
            "specversion": "1.0",
            "subject": made.subject,
            "time": made.time,
            "type": made.type,
        }
        if "data" in event:
            expected["assaycontenthash"] = made.content_hash
        for name, value in expected.items():
            if event.get(name) != value:
                self._fault(f"its event has another {name}", entry, expected=str(value), found=str(event.get(name)))
        if event.keys() - {"data"} != ENVELOPE:
            members = ", ".join(sorted((event.keys() - {"data"}) ^ ENVELOPE))
            self._fault("its event has other members", entry, found=members)

    def _data(self, entry: dict[str, Any], data: Any) -> None:
        said = data.get("entry") if isinstance(data, dict) else None
        place = {name: entry[name] for name in PLACE}
        if said != place:
            self._fault("its event tells of another entry", entry, expected=str(place), found=str(said))
        raw = data.get("raw") if isinstance(data, dict) else None
        if isinstance(entry["raw"], str) and isinstance(raw, dict):
            digest = sha256(entry["raw"].encode()).hexdigest()
            if raw.get("sha256") != digest:
                self._fault("its event is of other bytes", entry, expected=str(raw.get("sha256")), found=digest)

    def _fault(self, what: str, entry: dict[str, Any] | None = None, **more: Any) -> None:
        at = {} if entry is None else {"task": entry["task"], "seq": entry["seq"], "sub": entry["sub"]}
        self.faults.add(bundle.EVENTS, what, line=self.line, **at, **more)


_EVENT_AT = len(b'{"chain":"') + 64 + len(b'","event":')


def _parts(line: bytes) -> tuple[bytes, bytes]:
    """The event in a canonical line, and its data. Quotes within strings are escaped, so the marks are members."""
    event = line[_EVENT_AT : line.rfind(b',"kind":')]
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
    return type(value) is int and 0 <= value < BIG


def is_digest(text: Any) -> bool:
    return isinstance(text, str) and len(text) == 64 and _is_hex(text)


def _is_hex(text: str) -> bool:
    return not text.strip("0123456789abcdef") and len(text) % 2 == 0


def _task(line: bytes) -> dict[str, Any] | None:
    """A line of tasks.ndjson that was read before; None if it is none."""
    try:
        told = read_line(line)
    except ValueError:
        return None
    fits = isinstance(told, dict) and told.keys() >= TASK and isinstance(told["task"], str) and is_digest(told["chain"])
    return told if fits else None
