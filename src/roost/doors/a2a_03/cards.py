"""The card of 0.3, from that of 1.0."""

from __future__ import annotations

from typing import Any

from a2a.compat.v0_3 import conversions
from a2a.types import a2a_pb2 as pb

from roost.doors.a2a_03.handler import own, plain
from roost.doors.protobuf import write


def old_card(card: bytes) -> dict[str, Any]:
    """`card` is AgentCard of 1.0, as JSON. It lists an interface of 0.3."""
    made: dict[str, Any] = plain(own(conversions.to_compat_agent_card(write(pb.AgentCard(), card))))
    return made
