"""The shapes of the door's answers, for /openapi.json."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct


class OpenAIErrorObject(Struct):
    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(Struct):
    error: OpenAIErrorObject


class Model(Struct):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(Struct):
    object: Literal["list"]
    data: list[Model]


class ChatMessage(Struct):
    role: Literal["assistant"]
    content: str
    refusal: None


class Choice(Struct):
    index: int
    message: ChatMessage
    logprobs: None
    finish_reason: Literal["stop"]


class ChatCompletion(Struct):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: dict[str, Any] | None
    session_id: str
    metadata: dict[str, str]
    """The values of task_id, session_id and state."""
    agent_tool_calls: list[dict[str, Any]] = []
    """The tool calls, if the agent reports them."""


class DeletedResponse(Struct):
    id: str
    object: Literal["response"]
    deleted: Literal[True]


class InputItemList(Struct):
    object: Literal["list"]
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


class ConversationRef(Struct):
    id: str


class ResponseObject(Struct):
    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["queued", "in_progress", "completed", "failed", "cancelled"]
    error: dict[str, str] | None
    model: str
    output: list[dict[str, Any]]
    conversation: ConversationRef
    usage: dict[str, Any] | None
    metadata: dict[str, str]
    """The metadata of the request, with task_id, session_id and state."""
