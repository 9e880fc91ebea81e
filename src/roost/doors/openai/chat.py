"""Chat completions: an agent's turn as one answer, or as chunks."""

from __future__ import annotations

from typing import Any

from roost.doors.openai.errors import error_of, failure_of
from roost.doors.openai.exchange import Exchange
from roost.doors.openai.turn_reader import Piece
from roost.extensions.data import TokenUsage
from roost.protocol.codec import encode
from roost.protocol.errors import A2AError

DONE = b"data: [DONE]\n\n"


def completion(exchange: Exchange) -> bytes:
    reader = exchange.reader
    calls = {"agent_tool_calls": [call._asdict() for call in reader.calls.values()]} if reader.calls else {}
    message = {"role": "assistant", "content": reader.text(), "refusal": None}
    return encode(
        {
            "id": exchange.place.completion,
            "object": "chat.completion",
            "created": reader.created,
            "model": exchange.place.agent,
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
            "usage": shown_usage(reader.usage),
            "session_id": reader.task.context_id,
            "metadata": exchange.metadata(),
            **calls,
        }
    )


class Chunks:
    def __init__(self, exchange: Exchange, *, with_usage: bool) -> None:
        self.exchange = exchange
        self.with_usage = with_usage
        self.common: dict[str, Any] = {
            "id": exchange.place.completion,
            "object": "chat.completion.chunk",
            "created": exchange.reader.created,
            "model": exchange.place.agent,
        }
        if with_usage:
            self.common["usage"] = None

    def opening(self) -> bytes:
        first = self._chunk({"role": "assistant", "content": ""}, {"metadata": self.exchange.metadata()})
        if self.exchange.reader.answered:  # a direct reply: nothing will follow
            first += self._chunk({"content": self.exchange.reader.text()})
        return first

    def piece(self, piece: Piece) -> bytes:
        if piece.call is not None:
            return self._chunk({}, {"agent_tool_call": piece.call._asdict()})
        return self._chunk({"content": piece.text})

    def closing(self) -> bytes:
        reader = self.exchange.reader
        if not reader.answered:
            return _event({"error": failure_of(reader)})
        last = self._chunk({}, {"metadata": self.exchange.metadata()}, "stop")
        if self.with_usage:
            last += _event({**self.common, "choices": [], "usage": shown_usage(reader.usage)})
        return last + DONE

    def broken(self, error: A2AError) -> bytes:
        return _event({"error": error_of(error)})

    def _chunk(self, delta: dict[str, str], more: dict[str, Any] | None = None, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _event({**self.common, "choices": [choice], **(more or {})})


def shown_usage(usage: TokenUsage | None) -> dict[str, Any] | None:
    if usage is None:
        return None
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }


def _event(value: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % encode(value)
