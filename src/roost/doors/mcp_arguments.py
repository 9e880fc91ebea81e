"""The arguments of the tools of /mcp: the schemas that clients see, and the structs that we decode."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta

from roost.protocol.codec import convert
from roost.protocol.errors import InvalidParams
from roost.protocol.types import NonEmpty, TaskState, Wire

T = TypeVar("T", bound=Wire)

PAGE_SIZE = 20


class AgentArguments(Wire):
    text: NonEmpty
    data: Any = UNSET
    context_id: str = ""
    task_id: str = ""
    wait: bool = True


class TaskArguments(Wire):
    task_id: NonEmpty


class ListArguments(Wire):
    agent: str = ""
    context_id: str = ""
    state: str = ""
    limit: Annotated[int, Meta(ge=1, le=100)] = PAGE_SIZE
    page_token: str = ""

    @property
    def status(self) -> TaskState:
        if not self.state:
            return TaskState.UNSPECIFIED
        if self.state not in STATES:
            raise InvalidParams(f"state: {self.state[:80]!r} is not one of {', '.join(STATES)}", field="state")
        return STATES[self.state]


def word(state: TaskState) -> str:
    return state.removeprefix("TASK_STATE_").lower().replace("_", "-")


STATES = {word(state): state for state in TaskState if state is not TaskState.UNSPECIFIED}


def arguments(kind: type[T], given: dict[str, Any] | None) -> T:
    """Decode the arguments. Raise InvalidParams, which names the argument, if one is wrong, missing or unknown."""
    known = {name for field in msgspec.structs.fields(kind) for name in (field.name, field.encode_name)}
    for name in given or {}:
        if name not in known:
            named = ", ".join(field.encode_name for field in msgspec.structs.fields(kind))
            raise InvalidParams(f"{name[:80]}: there is no such argument; there are {named}", field=name[:80])
    return convert(kind, given or {})


def _schema(required: list[str], **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


INPUT = _schema(
    ["text"],
    text=_text("The message for the agent, or the answer to its question.", minLength=1),
    data={"description": "Any JSON to send with the text, for agents that accept it."},
    contextId=_text("Continue a conversation: the contextId of an earlier result."),
    taskId=_text("Answer a task that waits for input: the taskId of its result."),
    wait={
        "type": "boolean",
        "default": True,
        "description": "false: return at once, while the task continues; get_task shows its progress.",
    },
)
OF_TASK = _schema(["taskId"], taskId=_text("The id of the task.", minLength=1))
LISTING = _schema(
    [],
    agent=_text("Only the tasks of this agent."),
    contextId=_text("Only the tasks of this conversation."),
    state=_text("Only the tasks in this state.", enum=list(STATES)),
    limit={"type": "integer", "minimum": 1, "maximum": 100, "default": PAGE_SIZE},
    pageToken=_text("Continue the list of one agent: its nextPageToken."),
)
