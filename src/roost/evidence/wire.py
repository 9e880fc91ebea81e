"""The profile v2: converts documents of A2A 0.3 and 1.0, as they were on the wire, to canonical events.

An event lists every value of its document that it does not contain, by JSON pointer and at any depth.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from roost.evidence.adapter import Mode
from roost.evidence.adapter_fields import rfc3339_utc
from roost.evidence.claims import Claims, handoff, is_reference, reference
from roost.evidence.documents import UNKNOWN, V03, V10, Document, recognize
from roost.evidence.errors import ErrorKind, EvidenceError, InputLimitReached, measurement
from roost.evidence.events import TYPE, Data, EvidenceEvent, run_id
from roost.evidence.json_input import check_shape, check_size, large_numbers_as_text, parse, read_float, read_int
from roost.evidence.pointers import NamedPointers
from roost.evidence.raw import JSON, Keep, Raw, raw_of
from roost.evidence.schema import NOTHING
from roost.identity.card_verification import Jwk, Unverifiable, verify

MIB = 1024 * 1024

_TYPES = {
    "message": "message",
    "task": "task",
    "statusUpdate": "status",
    "artifactUpdate": "artifact",
    "card": "card",
    "error": "error",
    "request": "request",
}
_REQUIRED = {
    "message": ("messageId", "role", "parts"),
    "task": ("id", "status.state"),
    "statusUpdate": ("taskId", "status.state"),
    "artifactUpdate": ("taskId", "artifact.artifactId"),
    "card": ("name",),
}
_IDS = {
    "message": {"message": "messageId", "task": "taskId", "context": "contextId"},
    "task": {"task": "id", "context": "contextId"},
    "statusUpdate": {"task": "taskId", "context": "contextId"},
    "artifactUpdate": {"artifact": "artifact.artifactId", "task": "taskId", "context": "contextId"},
}
_REQUIRED_REF = {"message": "message", "task": "task", "statusUpdate": "task", "artifactUpdate": "task"}
"""The reference that every such document needs. Lenient mode adds it if it is missing."""


class TrafficLimits(NamedTuple):
    max_bytes: int = 100 * MIB
    """Bytes of all documents together."""
    max_events: int = 100_000
    max_payload_bytes: int = MIB
    """Bytes of one document, and of its event."""
    max_json_depth: int = 64
    max_array_length: int = 10_000


DEFAULT = TrafficLimits()


class TrafficConverter:
    """Converts documents in the order in which they were seen. Each task has its own sequence, from 0."""

    def __init__(
        self,
        mode: Mode = Mode.STRICT,
        version: str | None = None,
        keys: Sequence[Jwk] = (),
        limits: TrafficLimits = DEFAULT,
        keep: Keep = raw_of,
    ) -> None:
        """`version` applies to documents that do not show theirs. Card signatures are checked against `keys`."""
        self.mode = mode
        self.hint = None if version is None else _supported_version(version)
        self.keys = keys
        self.limits = limits
        self.keep = keep
        self.bytes = 0
        self.events = 0
        self.sequences: Counter[str] = Counter()

    def convert(self, payload: bytes, media_type: str = JSON) -> EvidenceEvent:
        self._check_limits(payload)
        raw = self.keep(payload, media_type)
        value = parse(payload, what="invalid A2A payload JSON", read_int=read_int, read_float=read_float, unique=True)
        check_shape(value, self.limits.max_json_depth, self.limits.max_array_length)
        event = _DocumentConversion(self, value, raw).event()
        if len(event.line()) > self.limits.max_payload_bytes:
            raise measurement(f"event exceeds max_payload_bytes ({self.limits.max_payload_bytes})")
        self.sequences[event.run] += 1
        self.events += 1
        return event

    def _check_limits(self, payload: bytes) -> None:
        self.bytes += len(payload)
        if self.bytes > self.limits.max_bytes:
            raise InputLimitReached(f"input exceeds max_bytes ({self.limits.max_bytes})")
        if self.events >= self.limits.max_events:
            raise InputLimitReached(f"input exceeds max_events ({self.limits.max_events})")
        check_size(payload, self.limits.max_payload_bytes)


class _DocumentConversion:
    """Converts one document."""

    def __init__(self, converter: TrafficConverter, value: Any, raw: Raw) -> None:
        self.converter = converter
        self.lenient = converter.mode is Mode.LENIENT
        self.value = value
        self.raw = raw
        self.synthetic = NamedPointers()
        self.unmapped = NamedPointers()

    def event(self) -> EvidenceEvent:
        document = recognize(self.value)
        if document is None:
            if not self.lenient:
                raise EvidenceError(ErrorKind.LOSSINESS, "unsupported document in strict mode")
            NOTHING.apply(self.value, "", self.unmapped)
            document = Document("unknown", UNKNOWN, lambda _: NOTHING)
            return self._build(document, (UNKNOWN, UNKNOWN), {})
        version = self._version(document)
        schema = document.schema(version[0] if version[0] != UNKNOWN else V10)
        content = schema.apply(self.value, "", self.unmapped)
        return self._build(document, version, content)

    def _version(self, document: Document) -> tuple[str, str]:
        """Return the version, and how it is known."""
        if document.version == V03 and document.card is not None:
            declared = document.card.get("protocolVersion")
            if isinstance(declared, str):
                if _supported_version(declared) != V03:
                    raise _unsupported(declared)
                return V03, "declared"
        if document.version is not None:
            return document.version, "unknown" if document.version == UNKNOWN else "shape"
        if self.converter.hint is not None:
            return self.converter.hint, "hint"
        if not self.lenient:
            raise measurement("the document does not show its A2A version, and no version was given")
        self.synthetic.add("/data/protocol/version")
        return V10, "assumed"

    def _build(self, document: Document, version: tuple[str, str], content: dict[str, Any]) -> EvidenceEvent:
        holder = next((content[name] for name in ("request", "pushConfig") if name in content), content)
        member = next((name for name in _REQUIRED if isinstance(holder.get(name), dict)), None)
        found: Mapping[str, Any] = holder[member] if member else {}
        if not self.lenient:
            self._check(document, member, found)
        refs = self._refs(member or document.required, found)
        if isinstance(holder.get(document.task_field), str):
            refs["task"] = reference(holder[document.task_field])
        run, subject = self._run(member, found, refs)
        data = Data(
            document=document.name,
            version=version[0],
            version_source=version[1],
            refs=refs,
            content=large_numbers_as_text(content, "/data/content", self.synthetic),
            claims=self._claims(document, member, found, holder),
            synthetic=self.synthetic,
            unmapped=self.unmapped,
            raw=self.raw,
        )
        other = "request" if document.name == "jsonrpc-request" else "result"
        kind = _TYPES.get(member or next((name for name in _TYPES if name in content), ""), other)
        return EvidenceEvent(
            type=TYPE + (kind if document.name != "unknown" else "unknown"),
            subject=subject,
            run=run,
            seq=self.converter.sequences[run],
            time=rfc3339_utc(_value_at(found, "status.timestamp")),
            data=data.canonical(),
        )

    def _check(self, document: Document, member: str | None, found: Mapping[str, Any]) -> None:
        if len(document.members) > 1:
            raise measurement(f"a StreamResponse has exactly one of its members, not {' and '.join(document.members)}")
        if document.required and member is None:
            raise measurement(f"missing required field: {document.required}")
        for path in _REQUIRED.get(member or "", ()):
            if _value_at(found, path) is None:
                raise measurement(f"missing required field: {member}.{path}")

    def _refs(self, member: str, found: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        ids = {name: _value_at(found, path) for name, path in _IDS.get(member, {}).items()}
        refs = {name: reference(value) for name, value in ids.items() if isinstance(value, str)}
        needed = _REQUIRED_REF.get(member)
        if needed is not None and needed not in refs:
            refs[needed] = reference(f"unknown-{needed}", synthetic=True)
            self.synthetic.add(f"/data/refs/{needed}/id")
        return refs

    def _run(self, member: str | None, found: Mapping[str, Any], refs: Mapping[str, Any]) -> tuple[str, str]:
        """Return the run id and the subject: those of the task, else of the context, the message or the input."""
        for name in ("task", "context", "message"):
            if name in refs and refs[name]["visible"]:
                return run_id(name, refs[name]["id"]), refs[name]["id"]
        self.synthetic.add("/assayrunid")
        if member == "card" and is_reference(found.get("name")):
            return run_id("card", self.raw.sha256), found["name"]
        self.synthetic.add("/subject")
        return run_id("raw", self.raw.sha256), f"sha256:{self.raw.sha256}"

    def _claims(self, document: Document, member: str | None, found: Any, holder: Mapping[str, Any]) -> Claims:
        if member == "message":
            return Claims(handoff=handoff(found, holder.get("metadata")))
        if document.card is None:
            return Claims()
        signed = any(
            isinstance(one, dict) and one.get("protected") and one.get("signature")
            for one in found.get("signatures") or ()
        )
        discovery = {
            "agent_card_visible": True,
            "agent_card_source_kind": "document",
            "extended_card_access_visible": document.extended,
            "signature_material_visible": signed,
        }
        key = verifying_key(document.card, self.converter.keys) if signed else None
        return Claims(discovery=discovery, signature={"present": signed, "verified_with": key, "anchored": False})


def verifying_key(card: Mapping[str, Any], keys: Sequence[Jwk]) -> str | None:
    """Return the thumbprint of the first key that fits a signature of the card. It does not check who owns the key."""
    if not keys:
        return None
    try:
        verdicts = verify(json.dumps(card).encode(), keys)
    except Unverifiable:
        return None
    return next((verdict.thumbprint for verdict in verdicts if verdict.valid), None)


def _supported_version(version: str) -> str:
    known = next((one for one in (V03, V10) if version == one or version.startswith(f"{one}.")), None)
    if known is None:
        raise _unsupported(version)
    return known


def _unsupported(version: str) -> EvidenceError:
    return EvidenceError(ErrorKind.UNSUPPORTED_VERSION, f"unsupported A2A version: {version:.100}")


def _value_at(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value
