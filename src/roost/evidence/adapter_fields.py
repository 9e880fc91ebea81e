"""The parts of the profile v1 that depend on one field each, and its digests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from hashlib import sha256
from json.encoder import encode_basestring
from typing import Any

from roost.evidence.claims import NO_DISCOVERY, NO_HANDOFF
from roost.protocol.canonical import jcs

_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:[Zz]|([+\-\u2212])(\d\d):(\d\d))", re.ASCII
)
_HASHED = ("specversion", "type", "datacontenttype", "subject", "data")


def discovery_of(attributes: Any) -> dict[str, Any]:
    card = _visible(attributes, "agent_card")
    return {
        **NO_DISCOVERY,
        "agent_card_visible": card,
        "agent_card_source_kind": "attributes" if card else "unknown",
        "extended_card_access_visible": _visible(attributes, "extended_card_access"),
    }


def _visible(attributes: Any, name: str) -> bool:
    for key in ("assay_g4", name, "visible"):
        attributes = attributes.get(key) if isinstance(attributes, dict) else None
    return attributes is True


def handoff_of(event_type: str, task: Mapping[str, str], message: Mapping[str, str]) -> dict[str, Any]:
    """Return the handoff claim. It depends on typed fields only, before any of them is substituted."""
    if event_type != "assay.adapter.a2a.task.requested" or task.get("kind") != "delegation":
        return dict(NO_HANDOFF)
    return {
        "visible": True,
        "source_kind": "typed_payload",
        "task_ref_visible": "id" in task,
        "message_ref_visible": "id" in message,
    }


def normalize(value: Any) -> Any:
    """Sort the names of objects, and lists that contain only strings."""
    if isinstance(value, dict):
        return {key: normalize(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        if all(isinstance(item, str) for item in value):
            return sorted(value)
        return [normalize(item) for item in value]
    return value


def rfc3339_utc(value: Any) -> str | None:
    """Write a time as the adapter does: in UTC, with 0, 3, 6 or 9 fractional digits, as few as it needs."""
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    sign, hours, minutes = match[8], int(match[9] or 0), int(match[10] or 0)
    if second > 60 or minutes > 59 or hours > 23:
        return None
    offset = timedelta(hours=hours, minutes=minutes)
    try:
        moment = datetime(year, month, day, hour, minute) - (offset if sign == "+" else -offset)
    except (ValueError, OverflowError):
        return None
    nanos = (match[7] or "")[:9].ljust(9, "0")
    while nanos.endswith("000"):
        nanos = nanos[:-3]
    return f"{moment.isoformat(timespec='minutes')}:{second:02d}{'.' if nanos else ''}{nanos}Z"


def read_int(text: str) -> int | float:
    """Read an integer as the adapter's parser does: a value beyond 64 bits becomes a double, and so does -0."""
    if len(text) > 400:
        return read_float(text)
    value = int(text)
    return float(text) if text == "-0" or not -(2**63) <= value < 2**64 else value


def read_float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("number out of range")
    return value


def compact(value: Any) -> bytes:
    """Return the adapter's canonical bytes: names sorted, no white space, UTF-8 unescaped."""
    return _compact(value).encode()


def adapter_digest(value: Any) -> str:
    return sha256(compact(value)).hexdigest()


def content_hash(event: Mapping[str, Any]) -> str:
    """Hash an event of either profile. Raises NotCanonical if it has integers that RFC 8785 cannot write."""
    return "sha256:" + sha256(jcs({name: event[name] for name in _HASHED if name in event})).hexdigest()


def _compact(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{encode_basestring(key)}:{_compact(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_compact(item) for item in value) + "]"
    if isinstance(value, str):
        return encode_basestring(value)
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return _double(value) if isinstance(value, float) else str(value)


def _double(value: float) -> str:
    """Write the shortest digits that read back, with an exponent from 1e16 on and below 1e-5."""
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    minus, text = "-" if sign else "", "".join(map(str, digits))
    point = len(text) + exponent
    if value == 0:
        return f"{minus}0.0"
    if exponent >= 0 and point <= 16:
        return f"{minus}{text}{'0' * exponent}.0"
    if 0 < point <= 16:
        return f"{minus}{text[:point]}.{text[point:]}"
    if -5 < point <= 0:
        return f"{minus}0.{'0' * -point}{text}"
    rest = f".{text[1:]}" if len(text) > 1 else ""
    return f"{minus}{text[0]}{rest}e{point - 1}"
