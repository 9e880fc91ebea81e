"""What the judged agent can be made to do, and how. An agent is not asked for what nobody says that it does."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec
from msgspec import Struct

from roost.conform.outcome import Unjudged

TCK = "tck"


class Hint(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A message that makes the agent do something: the beginning of its id, its text, or both."""

    message_id: str = ""
    text: str = "Hello from roost conform"

    def message(self, **more: Any) -> dict[str, Any]:
        prefix = f"{self.message_id}-" if self.message_id else ""
        return {
            "messageId": f"{prefix}{uuid.uuid4()}",
            "role": "ROLE_USER",
            "parts": [{"text": self.text}],
            **more,
        }


class Hints(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """`pause` asks for more input, `answer` is what it then takes to end, `slow` works for a second or more and streams
    meanwhile, `chunks` streams an artifact, `artifact` makes one, `direct` is answered without a task."""

    plain: Hint = Hint()
    pause: Hint | None = None
    answer: Hint = Hint()
    slow: Hint | None = None
    chunks: Hint | None = None
    artifact: Hint | None = None
    direct: Hint | None = None


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
    """The agent of the Technology Compatibility Kit says that it is: by its name, or the id or a tag of a skill."""
    words = [card.get("name")]
    skills = card.get("skills")
    for skill in skills if isinstance(skills, list) else []:
        if isinstance(skill, dict):
            tags = skill.get("tags")
            words += [skill.get("id"), *(tags if isinstance(tags, list) else [])]
    return TCK if any(isinstance(word, str) and word.lower() == TCK for word in words) else "plain"


def read_hints(text: str) -> Hints:
    try:
        return msgspec.json.decode(text, type=Hints)
    except msgspec.MsgspecError as error:
        raise Unjudged(f"these are no hints: {error}") from None
