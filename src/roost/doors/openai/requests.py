"""The requests of OpenAI clients, as far as they matter here. Other members are ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from roost.protocol.codec import decoder, invalid
from roost.protocol.cost import DEFAULT, JSONLimits, check
from roost.protocol.errors import InvalidParams, ParseError

T = TypeVar("T")

Role = Literal["system", "developer", "user", "task-delegation", "assistant", "tool", "function"]
DELEGATION: Role = "task-delegation"
"""The role of a message in which one agent gives another a task (KAOS). It is read as the user's."""


class Unsupported(InvalidParams):
    reason = "UNSUPPORTED_PARAMETER"


# Content, of either API


class Text(Struct, tag="text"):
    text: str


class InputText(Struct, tag="input_text"):
    text: str


class OutputText(Struct, tag="output_text"):
    text: str


class RefusalPart(Struct, tag="refusal"):
    refusal: str


class ImageURL(Struct):
    url: str


class Image(Struct, tag="image_url"):
    image_url: ImageURL


class InputImage(Struct, tag="input_image"):
    image_url: str | None = None
    file_id: str | None = None


class FileData(Struct):
    file_data: str | None = None
    filename: str | None = None
    file_id: str | None = None


class File(Struct, tag="file"):
    file: FileData


class InputFile(Struct, tag="input_file"):
    file_data: str | None = None
    file_url: str | None = None
    filename: str | None = None
    file_id: str | None = None


class AudioData(Struct):
    data: str
    format: str


class Audio(Struct, tag="input_audio"):
    input_audio: AudioData


Content = Text | InputText | OutputText | RefusalPart | Image | InputImage | File | InputFile | Audio


class InputMessage(Struct):
    """A message of a conversation."""

    role: Role | None = None
    content: str | list[Content] | None = None
    type: str = "message"


class Item(InputMessage):
    """An item of `input`: a message, or something else."""

    id: str | None = None


# Requests


class StreamOptions(Struct):
    include_usage: bool | None = None


class Format(Struct):
    type: str


class TextOptions(Struct):
    format: Format | None = None


class ConversationReference(Struct):
    id: str


class ChatRequest(Struct):
    """The body of POST chat/completions."""

    messages: Annotated[list[InputMessage], Meta(min_length=1)]
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    session_id: str | None = None
    metadata: dict[str, str] | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    logprobs: bool | None = None
    response_format: Format | None = None
    modalities: list[str] | None = None

    def check(self) -> None:
        """Refuse options that would change the form or the end of the answer, and that agents do not support."""
        _refuse("n", self.n not in (None, 1), "an agent gives one answer")
        _refuse("stop", bool(self.stop), "an agent ends by itself")
        _refuse("tools", bool(self.tools), "an agent has tools of its own")
        _refuse("functions", bool(self.functions), "an agent has tools of its own")
        _refuse("logprobs", bool(self.logprobs), "an agent has none")
        _refuse("response_format", not _is_text(self.response_format), "an agent answers as it does; text is taken")
        _refuse("modalities", bool(self.modalities) and self.modalities != ["text"], "answers are text")


class ResponsesRequest(Struct):
    """The body of POST responses."""

    input: str | Annotated[list[Item], Meta(min_length=1)]
    model: str | None = None
    instructions: str | None = None
    stream: bool | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    conversation: str | ConversationReference | None = None
    session_id: str | None = None
    metadata: dict[str, str] | None = None
    tools: list[Any] | None = None
    text: TextOptions | None = None
    prompt: dict[str, Any] | None = None
    top_logprobs: int | None = None

    def check(self) -> None:
        _refuse("tools", bool(self.tools), "an agent has tools of its own")
        _refuse("text.format", self.text is not None and not _is_text(self.text.format), "text is taken")
        _refuse("prompt", self.prompt is not None, "there are no stored prompts here")
        _refuse("top_logprobs", bool(self.top_logprobs), "an agent has none")

    @property
    def said(self) -> list[Item]:
        return [Item("user", self.input)] if isinstance(self.input, str) else self.input

    @property
    def conversation_id(self) -> str | None:
        return self.conversation.id if isinstance(self.conversation, ConversationReference) else self.conversation


def parse(kind: type[T], body: bytes, limits: JSONLimits = DEFAULT) -> T:
    """Decode a request. Raise ParseError for bad JSON, and InvalidParams, with the field, for anything else."""
    check(body, limits)
    try:
        try:
            return decoder(kind)(body)
        except msgspec.ValidationError:
            return msgspec.convert(_bared(msgspec.json.decode(body)), kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise invalid(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ParseError(f"Invalid JSON payload: {error}") from None


def _bared(body: Any) -> Any:
    """Reduce items of `input` other than messages to their type, so that only messages must have the right form."""
    items = body.get("input") if isinstance(body, dict) else None
    if not isinstance(items, list):
        return body
    return {**body, "input": [_bare(item) if isinstance(item, dict) else item for item in items]}


def _bare(item: dict[str, Any]) -> dict[str, Any]:
    if item.get("type", "message") == "message":
        return item
    return {name: item[name] for name in ("type", "id") if name in item}


def _refuse(name: str, given: bool, why: str) -> None:
    if given:
        raise Unsupported(f"{name} is not supported: {why}", field=name)


def _is_text(form: Format | None) -> bool:
    return form is None or form.type == "text"
