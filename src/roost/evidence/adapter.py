"""The profile v1: converts packets of Assay's A2A adapter exactly as that adapter does (docs/evidence.md).

A packet has the adapter's own shape, not A2A's. All output is visibility evidence.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, NamedTuple

from roost._version import VERSION
from roost.evidence.adapter_fields import discovery_of, handoff_of, normalize, read_float, read_int, rfc3339_utc
from roost.evidence.errors import ErrorKind, EvidenceError, measurement
from roost.evidence.events import PRODUCER
from roost.evidence.json_input import check_shape, check_size, container_depth, parse
from roost.evidence.raw import JSON, Keep, Raw, raw_of

ADAPTER_ID = "assay-adapter-a2a"
ADAPTER_VERSION = "5.4.0"
"""The release of the adapter whose behaviour this module reproduces."""
SOURCE = "urn:assay:adapter:a2a"
DEFAULT_TIME = "2023-11-16T02:00:00Z"
"""1700100000 as a date. Replaces a missing or invalid timestamp."""
MAX_CONTAINERS = 127
"""The nesting depth that the adapter's own parser accepts."""

PREFIX = "assay.adapter.a2a."
MAPPED = ("agent.capabilities", "task.requested", "task.updated", "artifact.shared")
GENERIC = "message"
KNOWN = frozenset(
    ("protocol", "version", "event_type", "timestamp", "agent", "task", "artifact", "message", "attributes")
)


class Mode(enum.StrEnum):
    STRICT = "strict"
    LENIENT = "lenient"


class AdapterOptions(NamedTuple):
    mode: Mode = Mode.STRICT
    max_payload_bytes: int | None = None
    max_json_depth: int | None = None
    max_array_length: int | None = None


STRICT = AdapterOptions()


class Batch(NamedTuple):
    event: dict[str, Any]
    unmapped_fields_count: int
    notes: list[str]
    raw: Raw

    def plain(self) -> dict[str, Any]:
        return {
            "events": [self.event],
            "lossiness": {
                "lossiness_level": _level(self.unmapped_fields_count),
                "unmapped_fields_count": self.unmapped_fields_count,
                "raw_payload_ref": self.raw._asdict(),
                "notes": self.notes,
            },
        }


def convert(
    payload: bytes,
    media_type: str = JSON,
    version: str | None = None,
    options: AdapterOptions = STRICT,
    keep: Keep = raw_of,
) -> Batch:
    """Convert a packet. `version` applies if the packet has none.

    Raises EvidenceError. The checks come in the order of the contract's table.
    """
    check_size(payload, options.max_payload_bytes)
    raw = keep(payload, media_type)
    packet = parse(payload, what="invalid A2A payload JSON", read_int=read_int, read_float=read_float, unique=False)
    if container_depth(packet) > MAX_CONTAINERS:
        raise measurement("invalid A2A payload JSON: recursion limit exceeded")
    check_shape(packet, options.max_json_depth, options.max_array_length)
    if not isinstance(packet, dict) or packet.get("protocol") != "a2a":
        raise measurement("protocol must be 'a2a'")
    conversion = _PacketConversion(packet, _supported_version(packet, version))
    if options.mode is Mode.STRICT:
        conversion.check()
    return conversion.run(raw)


class _PacketConversion:
    """Converts one packet. A field of a wrong type counts as absent; an empty string does not."""

    def __init__(self, packet: Mapping[str, Any], version: str) -> None:
        self.packet = packet
        self.version = version
        event_type = packet.get("event_type")
        self.event_type = event_type if isinstance(event_type, str) else None
        self.mapped = self.event_type if self.event_type in MAPPED else None
        self.agent = self._strings("agent", "id", "name", "role")
        self.task = self._strings("task", "id", "status", "kind")
        self.artifact = self._strings("artifact", "id", "name", "media_type")
        self.message = self._strings("message", "id", "role")
        self.notes: list[str] = []

    def check(self) -> None:
        if "id" not in self.agent:
            raise measurement("missing required field: agent.id")
        if self.mapped is None:
            raise EvidenceError(ErrorKind.LOSSINESS, "unsupported event_type in strict mode")
        if self.mapped.startswith("task.") and "id" not in self.task:
            raise measurement("missing required field: task.id")
        if self.mapped == "artifact.shared" and "id" not in self.artifact:
            raise measurement("missing required field: artifact.id")

    def run(self, raw: Raw) -> Batch:
        kind = self.mapped or GENERIC
        handoff = handoff_of(PREFIX + kind, self.task, self.message)
        self._substitute(self.agent, "agent")
        if self.mapped is None:
            self.notes.append("unsupported event_type -> emitted generic A2A message event")
        if kind.startswith("task."):
            self._substitute(self.task, "task")
        if kind == "artifact.shared":
            self._substitute(self.artifact, "artifact")
        if kind == GENERIC:
            self._substitute(self.message, "message")
        unmapped = sum(name not in KNOWN for name in self.packet) + len(self.notes)
        event = self._event(kind, self._payload(handoff, unmapped))
        return Batch(event, unmapped, self.notes, raw)

    def _substitute(self, fields: dict[str, Any], name: str) -> None:
        if "id" not in fields:
            fields["id"] = f"unknown-{name}"
            self.notes.append(f"missing {name}.id -> substituted unknown-{name}")

    def _payload(self, handoff: dict[str, Any], unmapped: int) -> dict[str, Any]:
        payload: dict[str, Any] = {
            "adapter_id": ADAPTER_ID,
            "adapter_version": ADAPTER_VERSION,
            "protocol": "a2a",
            "protocol_name": "a2a",
            "protocol_version": self.version,
        }
        if self.event_type is not None:
            payload["upstream_event_type"] = self.event_type
        payload["agent"] = dict(self.agent)
        capabilities = _member(self.packet, "agent", "capabilities")
        if isinstance(capabilities, list):
            payload["agent"]["capabilities"] = sorted(item for item in capabilities if isinstance(item, str))
        for name, fields in (("task", self.task), ("artifact", self.artifact), ("message", self.message)):
            if "id" in fields:
                payload[name] = fields
        if "attributes" in self.packet:
            payload["attributes"] = normalize(self.packet["attributes"])
        payload["discovery"] = discovery_of(self.packet.get("attributes"))
        payload["handoff"] = handoff
        payload["unmapped_fields_count"] = unmapped
        return payload

    def _event(self, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        group = kind.partition(".")[0]
        primary = {"task": self.task, "artifact": self.artifact, "message": self.message}.get(group, self.agent)["id"]
        run = f"a2a:{primary}"
        return {
            "specversion": "1.0",
            "type": PREFIX + kind,
            "source": SOURCE,
            "id": f"{run}:0",
            "time": rfc3339_utc(self.packet.get("timestamp")) or DEFAULT_TIME,
            "datacontenttype": JSON,
            "subject": primary,
            "assayrunid": run,
            "assayseq": 0,
            "assayproducer": PRODUCER,
            "assayproducerversion": VERSION,
            "assaygit": "unknown",
            "assaypii": False,
            "assaysecrets": False,
            "assaycontenthash": None,
            "data": payload,
        }

    def _strings(self, name: str, *fields: str) -> dict[str, Any]:
        values = {field: _member(self.packet, name, field) for field in fields}
        return {field: value for field, value in values.items() if isinstance(value, str)}


def _member(packet: Mapping[str, Any], name: str, field: str) -> Any:
    inner = packet.get(name)
    return inner.get(field) if isinstance(inner, dict) else None


def _supported_version(packet: Mapping[str, Any], hint: str | None) -> str:
    given = packet.get("version")
    version = given if isinstance(given, str) else hint
    if version is None:
        raise measurement("missing required field: version")
    numbers = [_number(part) for part in version.split(".")[:2]]
    if len(numbers) < 2 or numbers[0] != 0 or numbers[1] is None or numbers[1] < 2:
        raise EvidenceError(ErrorKind.UNSUPPORTED_VERSION, f"unsupported A2A version: {version}")
    return version


def _number(part: str) -> int | None:
    digits = part.removeprefix("+")
    if not digits.isascii() or not digits.isdigit() or len(digits.lstrip("0")) > 20:
        return None
    number = int(digits[-20:])
    return number if number < 2**64 else None


def _level(unmapped: int) -> str:
    if unmapped == 0:
        return "none"
    return "low" if unmapped <= 2 else "high"
