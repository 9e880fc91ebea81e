"""Claims that an event makes about its input beside the content: references, handoff, discovery, signature.

All claims are about visibility: what one document shows, and nothing about what it led to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

PLACEHOLDERS = frozenset(("unknown-agent", "unknown-task", "unknown-artifact", "unknown-message"))
"""Ids that lenient adapters write where an id is missing. They refer to nothing, whoever wrote them."""

DELEGATION = ("urn:roost:a2a:delegation:v1", "delegation")
"""Names in a message's metadata that hold delegation metadata."""

NO_HANDOFF: dict[str, Any] = {
    "visible": False,
    "source_kind": "unknown",
    "task_ref_visible": False,
    "message_ref_visible": False,
}
NO_DISCOVERY: dict[str, Any] = {
    "agent_card_visible": False,
    "agent_card_source_kind": "unknown",
    "extended_card_access_visible": False,
    "signature_material_visible": False,
}
NO_SIGNATURE: dict[str, Any] = {"present": False, "verified_with": None, "anchored": False}


class Claims(NamedTuple):
    handoff: dict[str, Any] = NO_HANDOFF
    discovery: dict[str, Any] = NO_DISCOVERY
    signature: dict[str, Any] = NO_SIGNATURE


def is_reference(value: Any) -> bool:
    return isinstance(value, str) and value != "" and value not in PLACEHOLDERS


def reference(value: str, *, synthetic: bool = False) -> dict[str, Any]:
    """Return an id with two flags: whether it refers to something visible upstream, and whether we made it up."""
    return {"id": value, "visible": not synthetic and is_reference(value), "synthetic": synthetic}


def handoff(message: Mapping[str, Any], request_metadata: Any = None) -> dict[str, Any]:
    """Return the handoff claim for a message in A2A 1.0 form; `request_metadata` is that of the enclosing request.

    A handoff is visible if the message names other tasks in referenceTaskIds, or if the message or its request has
    delegation metadata.
    """
    listed = message.get("referenceTaskIds")
    others = (
        [value for value in listed or () if is_reference(value) and value != message.get("taskId")]
        if isinstance(listed, list)
        else []
    )
    delegations = [
        delegation
        for delegation in (_delegation(message.get("metadata")), _delegation(request_metadata))
        if delegation is not None
    ]
    if not others and not delegations:
        return NO_HANDOFF
    return {
        "visible": True,
        "source_kind": "reference_task_ids" if others else "delegation_metadata",
        "task_ref_visible": bool(others) or any(is_reference(found.get("taskId")) for found in delegations),
        "message_ref_visible": is_reference(message.get("messageId")),
    }


def _delegation(metadata: Any) -> Mapping[str, Any] | None:
    if not isinstance(metadata, Mapping):
        return None
    return next((metadata[name] for name in DELEGATION if isinstance(metadata.get(name), Mapping)), None)
