"""Events of the profile v2: a CloudEvents 1.0 envelope around canonical data, and the journal told in such events.

    Event.data    canonical bytes (RFC 8785) of what happened: content in A2A 1.0 form, references, claims,
                  what was not mapped, what was put there by us, and the digest of the raw input
    Event.line()  canonical bytes of the whole event: one line of events.ndjson

The content hash is over specversion, type, datacontenttype, subject and data, as in the adapter's own profile.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
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
from roost.evidence.pointers import Named
from roost.protocol import entries as kinds
from roost.protocol.canonical import NotCanonical, jcs, read_json
from roost.protocol.codec import encode
from roost.protocol.entries import Entry

SOURCE = "urn:roost:evidence:v2"
PRODUCER = "roost"
TYPE = "roost.a2a.v2."
JSON = "application/json"

Canonical = Callable[[Any], bytes]

LONGEST_ID = 256
"""Characters of an upstream id in a run id; a longer one goes in as its digest."""

_LONG_NUMBER = re.compile(rb"[:,\[]-?(?:\d{16}|\d[\d.]*e\+)")
"""What may be a number from 2**53 on, or something in a string."""

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


class Event(NamedTuple):
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
        return "sha256:" + sha256(self._hashed()).hexdigest()

    def line(self) -> bytes:
        """The event as canonical JSON, without a line end. Members are in the order of RFC 8785."""
        time = b"" if self.time is None else b'"time":%b,' % text(self.time)
        return (
            b'{"assaycontenthash":%b,"assayproducer":%b,"assayproducerversion":%b,"assayrunid":%b,"assayseq":%d,'
            b'"data":%b,"datacontenttype":"application/json","id":%b,"source":%b,"specversion":"1.0","subject":%b,'
            b'%b"type":%b}'
            % (
                text(self.content_hash),
                word(PRODUCER),
                word(VERSION),
                word(self.run),
                self.seq,
                self.data,
                text(self.id),
                word(SOURCE),
                word(self.subject),
                time,
                word(self.type),
            )
        )

    def _hashed(self) -> bytes:
        return b'{"data":%b,"datacontenttype":"application/json","specversion":"1.0","subject":%b,"type":%b}' % (
            self.data,
            word(self.subject),
            word(self.type),
        )


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
    synthetic: Named
    """What was put there by us."""
    unmapped: Named
    """What is in the input and not in the content."""
    raw: Raw
    entry: bytes = b""
    """Of the journal: canonical."""

    def canonical(self, canonical: Canonical = jcs) -> bytes:
        """RFC 8785, put together from parts in the order of their names.

        Numbers from 2**53 on become text, and are named as synthetic.
        """
        try:
            content = canonical(self.content)
            doubtful = _LONG_NUMBER.search(content) is not None
        except NotCanonical:
            doubtful = True
        if doubtful:
            content = canonical(mended(self.content, "/data/content", self.synthetic))
        refs = b",".join(
            b'"%b":{"id":%b,"synthetic":%b,"visible":%b}'
            % (name.encode(), word(ref["id"]), _BOOL[ref["synthetic"]], _BOOL[ref["visible"]])
            for name, ref in sorted(self.refs.items())
        )
        return (
            b'{"content":%b,"discovery":%b,"document":%b,%b"handoff":%b,"profile":"v2",'
            b'"protocol":{"name":"a2a","version":%b,"version_source":%b},'
            b'"raw":{"media_type":%b,"sha256":%b,"size_bytes":%d},"refs":{%b},"signature":%b,'
            b'"synthetic":%b,"unmapped":%b}'
        ) % (
            content,
            _small(self.claims.discovery),
            word(self.document),
            self.entry and b'"entry":%b,' % self.entry,
            _small(self.claims.handoff),
            word(self.version),
            word(self.version_source),
            word(self.raw.media_type),
            text(self.raw.sha256),
            self.raw.size_bytes,
            refs,
            _small(self.claims.signature),
            _NONE if not self.synthetic.count else jcs(self.synthetic.plain()),
            _NONE if not self.unmapped.count else jcs(self.unmapped.plain()),
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


_BOOL = (b"false", b"true")
_NONE = jcs(Named().plain())
_usual = {id(value): jcs(value) for value in (NO_HANDOFF, NO_DISCOVERY, NO_SIGNATURE)}


def journal_events(
    task: NewTask, entries: Iterable[Entry], first: int = 0, canonical: Canonical = jcs
) -> Iterator[Event]:
    """Each entry of a task's journal as an event, in their order; holds one at a time.

    `first` is the sequence number of the first of them: how many entries of the task were told before. `canonical`
    writes RFC 8785, and raises NotCanonical for what has no such form.
    EvidenceError for an entry that is not as a host writes it.
    """
    run = run_id("task", task.id)
    for seq, entry in enumerate(entries, first):
        yield Event(
            type=TYPE + NAMES.get(entry.kind, "unknown"),
            subject=task.id,
            run=run,
            seq=seq,
            time=_entry_time(task, entry),
            data=_entry_data(task, entry, canonical),
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


def _entry_data(task: NewTask, entry: Entry, canonical: Canonical) -> bytes:
    content = _content(task, entry)
    refs = {
        "agent": reference(task.scope.agent),
        "task": reference(task.id),
        "context": reference(task.context_id),
    }
    claims = Claims()
    if entry.kind in (kinds.MESSAGE, kinds.REPLY):
        record = content[_MEMBERS[entry.kind]]
        message = record["message"] if entry.kind == kinds.MESSAGE else record
        refs["message"] = reference(message["messageId"])
        claims = Claims(handoff=handoff(message, record.get("metadata")))
    elif entry.kind == kinds.ARTIFACT:
        refs["artifact"] = reference(content["artifactUpdate"]["artifact"]["artifactId"])
    data = Data(
        document="journal-entry",
        version="1.0",
        version_source="journal",
        refs=refs,
        content=content,
        claims=claims,
        synthetic=Named(),
        unmapped=Named(),
        raw=raw_of(entry.data),
        entry=b'{"chain":"%b","kind":%b,"ordinal":%d,"seq":%d,"sub":%d,"time":%d}'
        % (entry.chain.hex().encode(), word(entry.kind), entry.ordinal, entry.seq, entry.sub, entry.time),
    )
    return data.canonical(canonical)


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
