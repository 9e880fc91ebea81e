"""The results of the tools of /mcp: tasks and messages, as content for models and as data for programs."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Any

import mcp_types as mcp
from msgspec import UNSET, Raw

from roost.doors.mcp_arguments import STATES, word
from roost.protocol.codec import decoder, encode
from roost.protocol.cost import LIGHT_VALUES, has_few_values_outside_strings
from roost.protocol.errors import A2AError
from roost.protocol.states import TERMINAL
from roost.protocol.types import Message, Part, Task, TaskState

ANSWER = "answer"
"""The only field of a form for the user, and the only request in a result that asks a question."""

TASK: dict[str, Any] = {
    "type": "object",
    "properties": {
        "agent": {"type": "string"},
        "taskId": {"type": "string", "description": "Missing if the agent answered without a task"},
        "contextId": {"type": "string"},
        "state": {"type": "string", "enum": [*STATES, "answered"]},
        "message": {"type": "string", "description": "What the agent says or asks with this state"},
        "artifacts": {"type": "array", "items": {"type": "object"}, "description": "In A2A's form"},
    },
    "required": ["agent", "contextId", "state", "artifacts"],
}
TASKS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "tasks": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "agent": {"type": "string"},
                    "taskId": {"type": "string"},
                    "contextId": {"type": "string"},
                    "state": {"type": "string", "enum": list(STATES)},
                    "changed": {"type": "string"},
                    "message": {"type": "string"},
                },
                "required": ["agent", "taskId", "contextId", "state"],
            },
        },
        "nextPageToken": {"type": "string"},
    },
    "required": ["tasks"],
}


def of_task(agent: str, task: Task, *, read: bool = False) -> mcp.CallToolResult:
    """Describe a task. With `read` the call only reads it, so a failed task is not a failed call."""
    state = task.status.state
    said = _text(task.status.message)
    content = [block for artifact in task.artifacts for block in _content(artifact.parts, task.id)]
    if task.status.message is not None:
        content += _content(task.status.message.parts, task.id)
    more = _what_next(agent, task, anything=bool(content))
    artifacts = encode(task.artifacts)
    data = [bytes(part.data) for artifact in task.artifacts for part in artifact.parts if isinstance(part.data, Raw)]
    if (
        not all(map(has_few_values_outside_strings, data))
        or sum(len(one.parts) for one in task.artifacts) > LIGHT_VALUES
    ):
        artifacts = b"[]"
        more = f"{more} The artifacts have too many values for this form: read task {task.id} over A2A.".lstrip()
    structured = {
        "agent": agent,
        "taskId": task.id,
        "contextId": task.context_id,
        "state": word(state),
        "artifacts": decoder(list[Any])(artifacts),
    }
    if said:
        structured["message"] = said
    return mcp.CallToolResult(
        content=[*content, *([mcp.TextContent(text=more)] if more else [])],
        structured_content=structured,
        is_error=not read and state in TERMINAL and state is not TaskState.COMPLETED,
    )


def of_message(agent: str, message: Message) -> mcp.CallToolResult:
    """Describe an answer without a task."""
    return mcp.CallToolResult(
        content=list(_content(message.parts, message.message_id)),
        structured_content={
            "agent": agent,
            "contextId": message.context_id,
            "state": "answered",
            "message": _text(message),
            "artifacts": [],
        },
    )


def of_tasks(found: list[tuple[str, Task]], next_page: str) -> mcp.CallToolResult:
    tasks: list[dict[str, str]] = []
    for agent, task in found:
        status = task.status
        shown = {"agent": agent, "taskId": task.id, "contextId": task.context_id, "state": word(status.state)}
        shown |= {"changed": status.timestamp} if status.timestamp else {}
        shown |= {"message": said} if (said := _text(status.message)) else {}
        tasks.append(shown)
    lines = [f"{one['taskId']} {one['agent']} {one['state']} {one.get('message', '')[:200]}".rstrip() for one in tasks]
    lines += [f"There are more: pageToken {next_page}"] if next_page else []
    structured: dict[str, Any] = {"tasks": tasks, **({"nextPageToken": next_page} if next_page else {})}
    return mcp.CallToolResult(
        content=[mcp.TextContent(text="\n".join(lines) or "There are no tasks.")], structured_content=structured
    )


def failed(error: A2AError, task_id: str = "") -> mcp.CallToolResult:
    retry = f" Try again in {error.retry_after} s." if error.retry_after is not None else ""
    goes_on = f" The task {task_id} exists: get_task shows its state." if task_id else ""
    said = f"{error.message} ({error.reason}).{retry}{goes_on}"
    return mcp.CallToolResult(content=[mcp.TextContent(text=said)], is_error=True)


def question(task: Task, state: str) -> mcp.InputRequiredResult:
    """Ask a client of MCP 2026-07-28, which calls again with the answer and `state`."""
    form = mcp.ElicitRequestFormParams(message=asks(task), requested_schema=FORM)
    return mcp.InputRequiredResult(input_requests={ANSWER: mcp.ElicitRequest(params=form)}, request_state=state)


def asks(task: Task) -> str:
    return _text(task.status.message) or "The agent asks for input."


FORM: dict[str, Any] = {
    "type": "object",
    "properties": {ANSWER: {"type": "string", "title": "Answer", "minLength": 1}},
    "required": [ANSWER],
}


def _what_next(agent: str, task: Task, *, anything: bool) -> str:
    state = task.status.state
    if state is TaskState.INPUT_REQUIRED:
        return (
            f"The agent waits for an answer. To give it, call the tool of {agent} again with taskId {task.id} and the"
            " answer as text."
        )
    if state is TaskState.AUTH_REQUIRED:
        return f"The agent waits for an authorization. When it has been given, get_task {task.id} shows the progress."
    if state not in TERMINAL:
        return f"The task is {word(state)}. It continues: get_task {task.id} shows its progress, cancel_task ends it."
    return "" if anything else f"The task is {word(state)}."


def _text(message: Message | None) -> str:
    return "" if message is None else "\n".join(_pieces(message.parts))


def _pieces(parts: Iterable[Part]) -> Iterator[str]:
    for part in parts:
        if isinstance(part.text, str):
            yield part.text
        elif part.data is not UNSET:
            yield encode(part.data).decode()


def _content(parts: Iterable[Part], owner: str) -> Iterator[mcp.ContentBlock]:
    """Join text that was streamed in pieces."""
    text = ""
    for index, part in enumerate(parts):
        if isinstance(part.text, str):
            text += part.text
            continue
        if text:
            yield mcp.TextContent(text=text)
            text = ""
        yield _block(part, f"{owner}/{index}")
    if text:
        yield mcp.TextContent(text=text)


def _block(part: Part, place: str) -> mcp.ContentBlock:
    kind = part.media_type
    if isinstance(part.url, str):
        return mcp.ResourceLink(uri=part.url, name=part.filename or part.url, mime_type=kind or None)
    if isinstance(part.raw, bytes):
        data = base64.b64encode(part.raw).decode()
        if kind.startswith("image/"):
            return mcp.ImageContent(data=data, mime_type=kind)
        if kind.startswith("audio/"):
            return mcp.AudioContent(data=data, mime_type=kind)
        blob = mcp.BlobResourceContents(uri=f"a2a:{place}/{part.filename}", blob=data, mime_type=kind or None)
        return mcp.EmbeddedResource(resource=blob)
    return mcp.TextContent(text=encode(part.data).decode())
