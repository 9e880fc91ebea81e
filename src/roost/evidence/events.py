"""Events of the profile v2: a CloudEvents 1.0 envelope around canonical data. Builds them from journal entries, too.

    EvidenceEvent.data    canonical bytes (RFC 8785) of what happened: content in A2A 1.0 form, references, claims,
                          what was not mapped, what we added, and the digest of the raw input
    EvidenceEvent.line()  canonical bytes of the whole event: one line of events.ndjson

The content hash covers specversion, type, datacontenttype, subject and data, as in the adapter's own profile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from json.encoder import encode_basestring
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from roost._version import VERSION
from roost.engine.store_types import NewTask
from roost.evidence.claims import NO_DISCOVERY, NO_HANDOFF, NO_SIGNATURE, Claims, handoff, reference
from roost.evidence.errors import measurement
from roost.evidence.json_input import large_numbers_as_text
from roost.evidence.pointers import NamedPointers
from roost.evidence.raw import Raw
from roost.protocol import entries as kinds
from roost.protocol.canonical import NotCanonical, jcs, quick_jcs, read_json
from roost.protocol.codec import encode
from roost.protocol.entries import Entry

SOURCE = "urn:roost:evidence:v2"
PRODUCER = "roost"
TYPE = "roost.a2a.v2."

MAX_ID = 256
"""Characters of an upstream id in a run id. A longer id is replaced by its digest."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

NAMES = {
    kinds.STATUS: "status",
    kinds.ARTIFACT: "artifact",
    kinds.MESSAGE: "message",
    kinds.STEP: "step",
    kinds.ATTEMPT: "attempt",
    kinds.REPLY: "reply",
}
_MEMBERS = {kinds.MESSAGE: "received", kinds.STEP: "step", kinds.ATTEMPT: "attempt", kinds.REPLY: "message"}
"""The name of an internal entry's record in the content. A wire entry is a StreamResponse, which has its own names."""


class EvidenceEvent(NamedTuple):
    type: str
    subject: str
    run: str
    """The run id. It contains no colon, so that `id` can be split."""
    seq: int
    """The position in the run, from 0 without gaps."""
    time: str | None
    """RFC 3339. None if the input has no time."""
    data: bytes
    """Canonical JSON."""

    @property
    def id(self) -> str:
        return f"{self.run}:{self.seq}"

    @property
    def content_hash(self) -> str:
        return "sha256:" + self._hash()

    def line(self) -> bytes:
        """Return the event as canonical JSON, without a line end. The members are in the order of RFC 8785."""
        run = cached_json_string(self.run)
        return (
            b'{"assaycontenthash":"sha256:%b",%b"assayrunid":%b,"assayseq":%d,"data":%b,'
            b'"datacontenttype":"application/json","id":%b:%d",%b"subject":%b,%b"type":%b}'
        ) % (
            self._hash().encode(),
            _PRODUCER_MEMBERS,
            run,
            self.seq,
            self.data,
            run[:-1],
            self.seq,
            _SOURCE_MEMBERS,
            cached_json_string(self.subject),
            b"" if self.time is None else b'"time":%b,' % json_string(self.time),
            cached_json_string(self.type),
        )

    def _hash(self) -> str:
        hashed = b'{"data":%b,"datacontenttype":"application/json","specversion":"1.0","subject":%b,"type":%b}'
        return sha256(hashed % (self.data, cached_json_string(self.subject), cached_json_string(self.type))).hexdigest()


def run_id(kind: str, value: str) -> str:
    """Return `task-<id>` or the like. A run id contains no colon, and different ids have different run ids."""
    quoted = quote(value, safe="")
    return f"{kind}-{quoted}" if len(quoted) <= MAX_ID else f"{kind}sha256-{sha256(value.encode()).hexdigest()}"


class Data(NamedTuple):
    """The parts of an event's `data`. Only `content` may be large."""

    document: str
    version: str
    """The version of A2A."""
    version_source: str
    refs: Mapping[str, Mapping[str, Any]]
    content: Any
    claims: Claims
    synthetic: NamedPointers
    """Values of the event that the input does not have."""
    unmapped: NamedPointers
    """Values of the input that the content does not have."""
    raw: Raw

    def canonical(self) -> bytes:
        """Return the data as RFC 8785 writes it, assembled from its parts in the order of their names.

        Numbers from 2**53 on become text and are listed as synthetic.
        """
        content = _form(self.content, self.synthetic)
        return _DATA % (
            content,
            _claim_json(self.claims.discovery),
            cached_json_string(self.document),
            b"",
            _claim_json(self.claims.handoff),
            cached_json_string(self.version),
            cached_json_string(self.version_source),
            cached_json_string(self.raw.media_type),
            self.raw.sha256.encode(),
            self.raw.size_bytes,
            _refs_json(self.refs),
            _claim_json(self.claims.signature),
            _pointers_json(self.synthetic),
            _pointers_json(self.unmapped),
        )


_DATA = (
    b'{"content":%b,"discovery":%b,"document":%b,%b"handoff":%b,"profile":"v2",'
    b'"protocol":{"name":"a2a","version":%b,"version_source":%b},'
    b'"raw":{"media_type":%b,"sha256":"%b","size_bytes":%d},"refs":{%b},"signature":%b,'
    b'"synthetic":%b,"unmapped":%b}'
)


def json_string(value: str) -> bytes:
    """Return a string as RFC 8785 writes it."""
    return encode_basestring(value).encode()


_cached_json_string = lru_cache(1024)(json_string)


def cached_json_string(value: str) -> bytes:
    """Return `json_string(value)`, from a cache if the value is short. Meant for values that recur."""
    return _cached_json_string(value) if len(value) <= MAX_ID else json_string(value)


def _claim_json(value: Mapping[str, Any]) -> bytes:
    """Encode a claim. The most common claims are encoded once, at import."""
    return _common_claims.get(id(value)) or jcs(value)


def _form(content: Any, synthetic: NamedPointers) -> bytes:
    return quick_jcs(content) or jcs(large_numbers_as_text(content, "/data/content", synthetic))


def _pointers_json(found: NamedPointers) -> bytes:
    return jcs(found.plain()) if found.count else _NO_POINTERS


def _ref_json(name: str, ref: Mapping[str, Any]) -> bytes:
    return b'"%b":{"id":%b,"synthetic":%b,"visible":%b}' % (
        name.encode(),
        cached_json_string(ref["id"]),
        _BOOL[ref["synthetic"]],
        _BOOL[ref["visible"]],
    )


def _refs_json(refs: Mapping[str, Mapping[str, Any]]) -> bytes:
    return b",".join(_ref_json(name, ref) for name, ref in sorted(refs.items()))


_BOOL = (b"false", b"true")
_NO_POINTERS = jcs(NamedPointers().plain())
_PRODUCER_MEMBERS = b'"assayproducer":%b,"assayproducerversion":%b,' % (json_string(PRODUCER), json_string(VERSION))
_SOURCE_MEMBERS = b'"source":%b,"specversion":"1.0",' % json_string(SOURCE)
_common_claims = {id(value): jcs(value) for value in (NO_HANDOFF, NO_DISCOVERY, NO_SIGNATURE)}


def journal_events(task: NewTask, entries: Iterable[Entry], first: int = 0) -> Iterator[EvidenceEvent]:
    """Yield an event for each entry of a task's journal, in order. Holds one event at a time.

    `first` is the position of the first entry: how many entries of the task precede it. Raises EvidenceError for an
    entry that no host writes.
    """
    builder = EventBuilder(task)
    return (builder.event(entry, seq) for seq, entry in enumerate(entries, first))


class EventBuilder:
    """Builds the events of one task's entries. The parts that all of them share are encoded once."""

    def __init__(self, task: NewTask) -> None:
        self.task = task
        self.run = run_id("task", task.id)
        self.agent_ref = _ref_json("agent", reference(task.scope.agent))
        self.context_ref = _ref_json("context", reference(task.context_id))
        self.task_ref = _ref_json("task", reference(task.id))

    def event(self, entry: Entry, seq: int) -> EvidenceEvent:
        """`seq` is the position in the run: how many entries of the task precede this one."""
        task = self.task
        data = self._data(entry)
        return EvidenceEvent(TYPE + NAMES[entry.kind], task.id, self.run, seq, _entry_time(task, entry), data)

    def _data(self, entry: Entry) -> bytes:
        content = _content(self.task, entry)
        claim = NO_HANDOFF
        refs: tuple[bytes, ...] = (self.agent_ref, self.context_ref, self.task_ref)
        if entry.kind == kinds.ARTIFACT:
            artifact = _ref_json("artifact", reference(content["artifactUpdate"]["artifact"]["artifactId"]))
            refs = (self.agent_ref, artifact, self.context_ref, self.task_ref)
        elif entry.kind in (kinds.MESSAGE, kinds.REPLY):
            record = content[_MEMBERS[entry.kind]]
            message = record["message"] if entry.kind == kinds.MESSAGE else record
            claim = handoff(message, record.get("metadata"))
            message_ref = _ref_json("message", reference(message["messageId"]))
            refs = (self.agent_ref, self.context_ref, message_ref, self.task_ref)
        synthetic = NamedPointers()
        written = _form(content, synthetic)
        position = b'"entry":{"chain":"%b","kind":%b,"ordinal":%d,"seq":%d,"sub":%d,"time":%d},' % (
            entry.chain.hex().encode(),
            cached_json_string(entry.kind),
            entry.ordinal,
            entry.seq,
            entry.sub,
            entry.time,
        )
        return _DATA % (
            written,
            _claim_json(NO_DISCOVERY),
            b'"journal-entry"',
            position,
            _claim_json(claim),
            b'"1.0"',
            b'"journal"',
            b'"application/json"',
            sha256(entry.data).hexdigest().encode(),
            len(entry.data),
            b",".join(refs),
            _claim_json(NO_SIGNATURE),
            _pointers_json(synthetic),
            _NO_POINTERS,
        )


def rfc3339(us: int) -> str:
    """Write a time that is given in microseconds since 1970."""
    second, rest = divmod(us, 1_000_000)
    return f"{_second(second)}.{rest:06d}Z"


def _entry_time(task: NewTask, entry: Entry) -> str:
    try:
        return rfc3339(entry.time)
    except OverflowError:
        raise measurement(f"{_describe(task, entry)}: {entry.time} is not a valid time") from None


def _describe(task: NewTask, entry: Entry) -> str:
    return f"task {task.id}, entry {entry.seq}.{entry.sub}"


@lru_cache(64)
def _second(second: int) -> str:
    return (_EPOCH + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S")


def _content(task: NewTask, entry: Entry) -> dict[str, Any]:
    where = _describe(task, entry)
    if entry.kind not in NAMES:
        raise measurement(f"{where}: unknown kind {entry.kind!r}")
    try:
        value = msgspec.json.decode(entry.data)
        if encode(value) != entry.data:  # no host writes it so: perhaps a name occurs twice
            value = read_json(entry.data)
    except (msgspec.DecodeError, NotCanonical, UnicodeDecodeError, RecursionError) as error:
        raise measurement(f"{where}: {error}") from None
    content = {_MEMBERS[entry.kind]: value} if entry.kind in _MEMBERS else value
    if not _has_expected_shape(entry.kind, content):
        raise measurement(f"{where}: the content does not fit an entry of kind {entry.kind!r}")
    return content


def _has_expected_shape(kind: str, content: Any) -> bool:
    try:
        match kind:
            case kinds.STATUS:
                return isinstance(content["statusUpdate"]["status"]["state"], str)
            case kinds.ARTIFACT:
                return isinstance(content["artifactUpdate"]["artifact"]["artifactId"], str)
            case kinds.MESSAGE:
                return isinstance(content["received"]["message"]["messageId"], str)
            case kinds.REPLY:
                return isinstance(content["message"]["messageId"], str)
            case _:
                return isinstance(content[_MEMBERS[kind]], dict)
    except (KeyError, TypeError):
        return False
