"""What the judged agent can be made to do, and how. An agent is not asked for what nobody says that it does."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from roost.conform.outcome import NotJudged

TCK = "tck"


class Hint(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A message that makes the agent do something: the beginning of its id, its text, its metadata."""

    message_id: str = ""
    text: str = "Hello from roost conform"
    metadata: dict[str, Any] = {}

    def message(self, **more: Any) -> dict[str, Any]:
        prefix = f"{self.message_id}-" if self.message_id else ""
        return {
            "messageId": f"{prefix}{uuid.uuid4()}",
            "role": "ROLE_USER",
            "parts": [{"text": self.text}],
            **({"metadata": self.metadata} if self.metadata else {}),
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

    def of_tenant(self, tenant_id: str) -> Hints:
        """The same messages, which say whose they are."""
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
    """The agent of the Technology Compatibility Kit says that it is: by its name, or the id or a tag of a skill."""
    words = [card.get("name")]
    skills = card.get("skills")
    for skill in skills if isinstance(skills, list) else []:
        if isinstance(skill, dict):
            tags = skill.get("tags")
            words += [skill.get("id"), *(tags if isinstance(tags, list) else [])]
    return TCK if any(isinstance(word, str) and word.lower() == TCK for word in words) else "plain"


def read_hints(text: str | bytes) -> Hints:
    try:
        return msgspec.json.decode(text, type=Hints)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise NotJudged(f"these are no hints: {error}") from None
