"""Large requests of OpenAI clients, such as a history of thousands of messages: read in a worker process.

The turn is made there, and only what can still matter of the rest comes back.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from roost.doors.openai.requests import ChatRequest, InputMessage, Item, ResponsesRequest, parse
from roost.doors.openai.turn import ChatTurn, turn_of
from roost.engine.limits import MessageLimits
from roost.protocol.codec import encode
from roost.protocol.cost import JSONLimits
from roost.protocol.errors import InvalidParams

T = TypeVar("T", ChatRequest, ResponsesRequest)

MOST_HISTORY = 2500
"""The most earlier messages that are kept. More do not fit into a message's metadata."""

_encode = msgspec.msgpack.Encoder().encode


class LargeTurn(Struct, Generic[T]):
    """A request without its conversation, and the turn that was made of it."""

    asked: T
    turn: ChatTurn | None = None
    refusal: str = ""
    """Why there is no turn. It is reported after what is wrong with the rest of the request."""
    field: str = ""


def read_chat(body: bytes, in_session: bool, *limits: int) -> bytes:
    asked = parse(ChatRequest, body, JSONLimits(*limits[:3]))
    in_session = in_session or asked.session_id is not None
    made = LargeTurn(asked)
    _add_turn(made, asked.messages, "messages", None, in_session, MessageLimits(*limits[3:]))
    asked.messages = [InputMessage("user", "")]
    asked.tools, asked.functions = asked.tools and [None], asked.functions and [None]
    asked.stop = "" if not asked.stop else "stop"
    asked.modalities = asked.modalities and asked.modalities[:2]
    return _encode(made)


def read_response(body: bytes, in_session: bool, *limits: int) -> bytes:
    asked = parse(ResponsesRequest, body, JSONLimits(*limits[:3]))
    named = (asked.session_id, asked.conversation, asked.previous_response_id)
    in_session = in_session or any(one is not None for one in named)
    made = LargeTurn(asked)
    _add_turn(made, asked.said, "input", asked.instructions, in_session, MessageLimits(*limits[3:]))
    asked.input, asked.instructions = [Item("user", "")], None
    asked.tools, asked.prompt = asked.tools and [None], None if asked.prompt is None else {}
    return _encode(made)


def _add_turn(
    made: LargeTurn[T],
    said: list[InputMessage] | list[Item],
    name: str,
    instructions: str | None,
    in_session: bool,
    limits: MessageLimits,
) -> None:
    try:
        turn = turn_of(said, name, instructions, in_session=in_session)
        if len(turn.parts) > limits.parts:
            raise InvalidParams(
                f"{name} has {len(turn.parts)} parts; at most {limits.parts} are accepted, the host's setting"
                " max_parts",
                field=name,
            )
        if made.asked.metadata is not None and len(encode(made.asked.metadata)) > limits.metadata:
            raise InvalidParams(
                f"metadata is longer than {limits.metadata} bytes, the host's setting max_metadata", field="metadata"
            )
    except InvalidParams as error:
        made.refusal, made.field = error.message, error.field or name
        made.asked.metadata = None
    else:
        made.turn = _without_the_oldest(turn, limits.metadata)


def _without_the_oldest(turn: ChatTurn, room: int) -> ChatTurn:
    """Leave out the earlier messages that do not fit into `room` bytes of metadata."""
    kept = 0
    for one in reversed(turn.history[-MOST_HISTORY:]):
        room -= len(one.text) if isinstance(one.text, str) else 0
        if room < 0:
            break
        kept += 1
    left_out = len(turn.history) - kept
    return turn._replace(history=turn.history[left_out:], left_out=left_out)
