"""Hints: which messages make the judged agent do what a check needs. Without a hint the check is skipped."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from roost.conform.outcome import NotJudged

TCK = "tck"
NO_PAUSE = "no hint makes this agent ask for input: give --profile or --agent-hints"
NO_SLOW = "no hint makes this agent work for long: give --profile or --agent-hints"
NO_DIRECT = "no hint makes this agent answer with a message: give --profile or --agent-hints"


class Hint(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A message that makes the agent do something."""

    message_id: str = ""
    """A prefix of the messageId."""
    text: str = "Hello from roost conform"
    metadata: dict[str, Any] = {}

    def message(self, **more: Any) -> dict[str, Any]:
        """Make a new message, with these further fields."""
        prefix = f"{self.message_id}-" if self.message_id else ""
        return {
            "messageId": f"{prefix}{uuid.uuid4()}",
            "role": "ROLE_USER",
            "parts": [{"text": self.text}],
            **({"metadata": self.metadata} if self.metadata else {}),
            **more,
        }


class Hints(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    plain: Hint = Hint()
    """Makes the agent complete a task."""
    pause: Hint | None = None
    """Makes the agent ask for input."""
    answer: Hint = Hint()
    """Completes the task that asked for input."""
    slow: Hint | None = None
    """Makes the agent work for half a second or longer, and stream artifacts meanwhile."""
    chunks: Hint | None = None
    """Makes the agent stream an artifact in several pieces."""
    artifact: Hint | None = None
    """Makes the agent produce an artifact."""
    direct: Hint | None = None
    """Makes the agent answer with a message instead of a task."""

    def of_tenant(self, tenant_id: str) -> Hints:
        """Return the same hints for messages that name a tenant."""
        metadata = {"tenant_id": tenant_id}
        found = {name: getattr(self, name) for name in self.__struct_fields__}
        return Hints(**{name: replace(hint, metadata=metadata) for name, hint in found.items() if hint is not None})


PROFILES = {
    "plain": Hints(),
    TCK: Hints(
        plain=Hint("tck-complete-task"),
        pause=Hint("tck-input-required"),
        answer=Hint("tck-complete-task"),
        slow=Hint("tck-long-running"),
        chunks=Hint("tck-stream-001"),
        artifact=Hint("tck-artifact-text"),
        direct=Hint("tck-message-response"),
    ),
}


def profile_of(card: dict[str, Any]) -> str:
    """Return `tck` if the card's name, or the id or a tag of a skill, is `tck`, and `plain` otherwise."""
    words = [card.get("name")]
    skills = card.get("skills")
    for skill in skills if isinstance(skills, list) else []:
        if isinstance(skill, dict):
            tags = skill.get("tags")
            words += [skill.get("id"), *(tags if isinstance(tags, list) else [])]
    return TCK if any(isinstance(word, str) and word.lower() == TCK for word in words) else "plain"


def read_hints(text: str | bytes) -> Hints:
    """Parse hints from JSON. NotJudged if they are invalid."""
    try:
        return msgspec.json.decode(text, type=Hints)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise NotJudged(f"invalid hints: {error}") from None
