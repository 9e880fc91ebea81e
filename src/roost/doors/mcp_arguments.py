"""What the tools of /mcp are given: the schemas that clients see, and the structs that we read."""

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
            raise InvalidParams(f"state: {self.state[:80]!r} is none of {', '.join(STATES)}", field="state")
        return STATES[self.state]


def word(state: TaskState) -> str:
    return state.removeprefix("TASK_STATE_").lower().replace("_", "-")


STATES = {word(state): state for state in TaskState if state is not TaskState.UNSPECIFIED}


def arguments(kind: type[T], given: dict[str, Any] | None) -> T:
    """Raises InvalidParams, which names the argument, for one that is wrong, missing or not known."""
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
    text=_text("What to tell the agent, or the answer to what it asks.", minLength=1),
    data={"description": "Any JSON that goes with the text, for agents that take it."},
    contextId=_text("Go on with a conversation: the contextId of an earlier result."),
    taskId=_text("Answer a task that waits for input: the taskId of its result."),
    wait={
        "type": "boolean",
        "default": True,
        "description": "false: return at once, while the task goes on; get_task tells how it goes.",
    },
)
OF_TASK = _schema(["taskId"], taskId=_text("The id of the task.", minLength=1))
LISTING = _schema(
    [],
    agent=_text("Only the tasks of this agent."),
    contextId=_text("Only those of one conversation."),
    state=_text("Only those in this state.", enum=list(STATES)),
    limit={"type": "integer", "minimum": 1, "maximum": 100, "default": PAGE_SIZE},
    pageToken=_text("Go on where the list of one agent ended: its nextPageToken."),
)
