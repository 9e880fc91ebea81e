"""The card of 0.3, from that of 1.0, and the card that is both."""

from __future__ import annotations

from typing import Any

from a2a.types import a2a_pb2 as pb

from roost.doors.a2a_03.bridge import compat_card, plain
from roost.doors.protobuf import write


def old_card(card: bytes) -> dict[str, Any]:
    """Convert an AgentCard of 1.0, given as JSON. It lists an interface of 0.3."""
    made: dict[str, Any] = plain(compat_card(write(pb.AgentCard(), card)))
    return made


def merge(card: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """Add to a card of 1.0 what only the card of 0.3 has, as the servers of a2a-sdk do. What is in both stays."""
    both = {name: _both(value, old.get(name)) for name, value in card.items()}
    return both | {name: value for name, value in old.items() if name not in card}


def _both(new: Any, old: Any) -> Any:
    if isinstance(new, dict) and isinstance(old, dict):
        return merge(new, old)
    if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        return [_both(item, other) for item, other in zip(new, old, strict=True)]
    return new
