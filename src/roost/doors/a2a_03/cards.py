"""The card of 0.3, from that of 1.0."""

from __future__ import annotations

from typing import Any

from a2a.types import a2a_pb2 as pb

from roost.doors.a2a_03.bridge import compat_card, plain
from roost.doors.protobuf import write


def old_card(card: bytes) -> dict[str, Any]:
    """Convert an AgentCard of 1.0, given as JSON. It lists an interface of 0.3."""
    made: dict[str, Any] = plain(compat_card(write(pb.AgentCard(), card)))
    return made
