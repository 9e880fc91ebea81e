"""Events of the profile v2: a CloudEvents 1.0 envelope around canonical data, and the journal told in such events.

    Event.data    canonical bytes (RFC 8785) of what happened: content in A2A 1.0 form, references, claims,
                  what was not mapped, what was put there by us, and the digest of the raw input
    Event.line()  canonical bytes of the whole event: one line of events.ndjson

The content hash is over specversion, type, datacontenttype, subject and data, as in the adapter's own profile.
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
from roost.engine.ports import NewTask
from roost.evidence.claims import NO_DISCOVERY, NO_HANDOFF, NO_SIGNATURE, Claims, handoff, reference
from roost.evidence.errors import measurement
from roost.evidence.numbers import mended
from roost.evidence.pointers import NamedPointers
from roost.protocol import entries as kinds
from roost.protocol.canonical import NotCanonical, jcs, quick_jcs, read_json
from roost.protocol.codec import encode
from roost.protocol.entries import Entry

SOURCE = "urn:roost:evidence:v2"
PRODUCER = "roost"
TYPE = "roost.a2a.v2."
JSON = "application/json"

LONGEST_ID = 256
"""Characters of an upstream id in a run id; a longer one goes in as its digest."""

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
"""What the record of an internal entry is called in the content; a wire entry is a StreamResponse and has its own."""


class EvidenceEvent(NamedTuple):
    type: str
    subject: str
    run: str
    """Without a colon, so that `id` can be taken apart."""
    seq: int
    """From 0, without gaps, in each run."""
    time: str | None
    """RFC 3339; None where the input tells none."""
    data: bytes
    """Canonical."""

    @property
    def id(self) -> str:
        return f"{self.run}:{self.seq}"

    @property
    def content_hash(self) -> str:
        return "sha256:" + self._hash()

    def line(self) -> bytes:
        """The event as canonical JSON, without a line end. Members are in the order of RFC 8785."""
        run = word(self.run)
        return (
            b'{"assaycontenthash":"sha256:%b",%b"assayrunid":%b,"assayseq":%d,"data":%b,'
            b'"datacontenttype":"application/json","id":%b:%d",%b"subject":%b,%b"type":%b}'
        ) % (
            self._hash().encode(),
            _PRODUCED,
            run,
            self.seq,
            self.data,
            run[:-1],
            self.seq,
            _SOURCED,
            word(self.subject),
            b"" if self.time is None else b'"time":%b,' % text(self.time),
            word(self.type),
        )

    def _hash(self) -> str:
        hashed = b'{"data":%b,"datacontenttype":"application/json","specversion":"1.0","subject":%b,"type":%b}'
        return sha256(hashed % (self.data, word(self.subject), word(self.type))).hexdigest()


class Raw(NamedTuple):
    """The input's bytes, by digest."""

    sha256: str
    """Bare hex."""
    size_bytes: int
    media_type: str


def raw_of(payload: bytes, media_type: str = JSON) -> Raw:
    return Raw(sha256(payload).hexdigest(), len(payload), media_type)


def run_id(kind: str, value: str) -> str:
    """`task-<id>` and the like: no colon, and no two ids alike."""
    quoted = quote(value, safe="")
    return f"{kind}-{quoted}" if len(quoted) <= LONGEST_ID else f"{kind}sha256-{sha256(value.encode()).hexdigest()}"


class Data(NamedTuple):
    """What an event's `data` says; `content` is the only part that may be large."""

    document: str
    version: str
    """Of A2A."""
    version_source: str
    refs: Mapping[str, Mapping[str, Any]]
    content: Any
    claims: Claims
    synthetic: NamedPointers
    """What was put there by us."""
    unmapped: NamedPointers
    """What is in the input and not in the content."""
    raw: Raw

    def canonical(self) -> bytes:
        """RFC 8785, put together from parts in the order of their names.

        Numbers from 2**53 on become text, and are named as synthetic.
        """
        content = _form(self.content, self.synthetic)
        return _DATA % (
            content,
            _small(self.claims.discovery),
            word(self.document),
            b"",
            _small(self.claims.handoff),
            word(self.version),
            word(self.version_source),
            word(self.raw.media_type),
            self.raw.sha256.encode(),
            self.raw.size_bytes,
            _refs(self.refs),
            _small(self.claims.signature),
            _named(self.synthetic),
            _named(self.unmapped),
        )


_DATA = (
    b'{"content":%b,"discovery":%b,"document":%b,%b"handoff":%b,"profile":"v2",'
    b'"protocol":{"name":"a2a","version":%b,"version_source":%b},'
    b'"raw":{"media_type":%b,"sha256":"%b","size_bytes":%d},"refs":{%b},"signature":%b,'
    b'"synthetic":%b,"unmapped":%b}'
)


def text(value: str) -> bytes:
    """A string as RFC 8785 writes it."""
    return encode_basestring(value).encode()


_word = lru_cache(1024)(text)


def word(value: str) -> bytes:
    """`text` of what comes again and again, if it is short."""
    return _word(value) if len(value) <= LONGEST_ID else text(value)


def _small(value: Mapping[str, Any]) -> bytes:
    """The usual claims are encoded once."""
    return _usual.get(id(value)) or jcs(value)


def _form(content: Any, synthetic: NamedPointers) -> bytes:
    return quick_jcs(content) or jcs(mended(content, "/data/content", synthetic))


def _named(found: NamedPointers) -> bytes:
    return jcs(found.plain()) if found.count else _NONE


def _ref(name: str, ref: Mapping[str, Any]) -> bytes:
    return b'"%b":{"id":%b,"synthetic":%b,"visible":%b}' % (
        name.encode(),
        word(ref["id"]),
        _BOOL[ref["synthetic"]],
        _BOOL[ref["visible"]],
    )


def _refs(refs: Mapping[str, Mapping[str, Any]]) -> bytes:
    return b",".join(_ref(name, ref) for name, ref in sorted(refs.items()))


_BOOL = (b"false", b"true")
_NONE = jcs(NamedPointers().plain())
_PRODUCED = b'"assayproducer":%b,"assayproducerversion":%b,' % (text(PRODUCER), text(VERSION))
_SOURCED = b'"source":%b,"specversion":"1.0",' % text(SOURCE)
_usual = {id(value): jcs(value) for value in (NO_HANDOFF, NO_DISCOVERY, NO_SIGNATURE)}


def journal_events(task: NewTask, entries: Iterable[Entry], first: int = 0) -> Iterator[EvidenceEvent]:
    """Each entry of a task's journal as an event, in their order; holds one at a time.

    `first` is the sequence number of the first of them: how many entries of the task were told before.
    EvidenceError for an entry that is not as a host writes it.
    """
    teller = EventBuilder(task)
    return (teller.event(entry, seq) for seq, entry in enumerate(entries, first))


class EventBuilder:
    """Tells the entries of one task: what they have in common is written once."""

    def __init__(self, task: NewTask) -> None:
        self.task = task
        self.run = run_id("task", task.id)
        self.agent = _ref("agent", reference(task.scope.agent))
        self.context = _ref("context", reference(task.context_id))
        self.named = _ref("task", reference(task.id))

    def event(self, entry: Entry, seq: int) -> EvidenceEvent:
        """`seq`: how many entries of the task were told before it."""
        task = self.task
        data = self._data(entry)
        return EvidenceEvent(TYPE + NAMES[entry.kind], task.id, self.run, seq, _entry_time(task, entry), data)

    def _data(self, entry: Entry) -> bytes:
        content = _content(self.task, entry)
        told = NO_HANDOFF
        refs: tuple[bytes, ...] = (self.agent, self.context, self.named)
        if entry.kind == kinds.ARTIFACT:
            artifact = _ref("artifact", reference(content["artifactUpdate"]["artifact"]["artifactId"]))
            refs = (self.agent, artifact, self.context, self.named)
        elif entry.kind in (kinds.MESSAGE, kinds.REPLY):
            record = content[_MEMBERS[entry.kind]]
            message = record["message"] if entry.kind == kinds.MESSAGE else record
            told = handoff(message, record.get("metadata"))
            refs = (self.agent, self.context, _ref("message", reference(message["messageId"])), self.named)
        synthetic = NamedPointers()
        form = _form(content, synthetic)
        where = b'"entry":{"chain":"%b","kind":%b,"ordinal":%d,"seq":%d,"sub":%d,"time":%d},' % (
            entry.chain.hex().encode(),
            word(entry.kind),
            entry.ordinal,
            entry.seq,
            entry.sub,
            entry.time,
        )
        return _DATA % (
            form,
            _small(NO_DISCOVERY),
            b'"journal-entry"',
            where,
            _small(told),
            b'"1.0"',
            b'"journal"',
            b'"application/json"',
            sha256(entry.data).hexdigest().encode(),
            len(entry.data),
            b",".join(refs),
            _small(NO_SIGNATURE),
            _named(synthetic),
            _NONE,
        )


def rfc3339(us: int) -> str:
    """Microseconds since 1970."""
    second, rest = divmod(us, 1_000_000)
    return f"{_second(second)}.{rest:06d}Z"


def _entry_time(task: NewTask, entry: Entry) -> str:
    try:
        return rfc3339(entry.time)
    except OverflowError:
        raise measurement(f"{_where(task, entry)}: {entry.time} is no time") from None


def _where(task: NewTask, entry: Entry) -> str:
    return f"task {task.id}, entry {entry.seq}.{entry.sub}"


@lru_cache(64)
def _second(second: int) -> str:
    return (_EPOCH + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S")


def _content(task: NewTask, entry: Entry) -> dict[str, Any]:
    where = _where(task, entry)
    if entry.kind not in NAMES:
        raise measurement(f"{where}: unknown kind {entry.kind!r}")
    try:
        value = msgspec.json.decode(entry.data)
        if encode(value) != entry.data:  # not as a host writes it: perhaps a name is there twice
            value = read_json(entry.data)
    except (msgspec.DecodeError, NotCanonical, UnicodeDecodeError, RecursionError) as error:
        raise measurement(f"{where}: {error}") from None
    content = {_MEMBERS[entry.kind]: value} if entry.kind in _MEMBERS else value
    if not _fits(entry.kind, content):
        raise measurement(f"{where}: it is not what an entry of kind {entry.kind!r} holds")
    return content


def _fits(kind: str, content: Any) -> bool:
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
