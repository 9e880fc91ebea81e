"""The input of a response as items: what the client sent, read again from the message of the turn."""

from __future__ import annotations

import base64
import mimetypes
from typing import Any

from msgspec import UNSET, Struct, ValidationError, convert

from roost.doors.http import Request
from roost.doors.openai.exchange import Exchange
from roost.doors.openai.turn import BINARY, KEY
from roost.protocol.codec import encode
from roost.protocol.errors import InvalidParams
from roost.protocol.types import Message, Part, Role

PAGE = 20
MOST = 100
"""Items in a page: by default, and at most."""

Object = dict[str, Any]


def items_of(exchange: Exchange) -> list[Object]:
    """Return the input of a turn, the oldest item first: earlier messages that came with it, then the turn itself."""
    task = exchange.reader.task
    said = [message for message in task.history if message.role == Role.USER]
    message = said[-1] if said else Message(message_id="", role=Role.USER, parts=[])
    contents = [(one.role, [_text(one.role, one.content)]) for one in _history(message)]
    contents.append(("user", [_content(part) for part in message.parts]))
    place = exchange.place
    return [
        {
            "id": f"in_{place.task}_{place.seq}_{number}",
            "type": "message",
            "role": role,
            "status": "completed",
            "content": content,
        }
        for number, (role, content) in enumerate(contents)
    ]


class _HistoryItem(Struct):
    """An earlier message that came with a turn."""

    role: str
    content: str


class _Beside(Struct):
    history: list[_HistoryItem] = []


def _history(message: Message) -> list[_HistoryItem]:
    """Read the earlier messages. A client of another door may have written something else in their place."""
    try:
        return convert((message.metadata or {}).get(KEY, {}), _Beside).history
    except ValidationError:
        return []


def page_of(request: Request, items: list[Object]) -> Object:
    """Return a page of the items, as the query asks: the newest first unless `order` is asc."""
    query = request.query
    order, limit, after = query.get("order", "desc"), query.get("limit", str(PAGE)), query.get("after")
    if order not in ("asc", "desc"):
        raise InvalidParams("order must be asc or desc", field="order")
    if not (limit.isascii() and limit.isdigit()) or len(limit) > 9 or not 1 <= int(limit) <= MOST:
        raise InvalidParams(f"limit must be a number from 1 to {MOST}", field="limit")
    found = items if order == "asc" else items[::-1]
    if after is not None:
        places = [number for number, item in enumerate(found) if item["id"] == after]
        if not places:
            raise InvalidParams("after must be the id of an item of this response", field="after")
        found = found[places[0] + 1 :]
    shown = found[: int(limit)]
    return {
        "object": "list",
        "data": shown,
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
        "has_more": len(shown) < len(found),
    }


def _text(role: str, text: str) -> Object:
    if role == "assistant":
        return {"type": "output_text", "text": text, "annotations": []}
    return {"type": "input_text", "text": text}


def _content(part: Part) -> Object:
    if part.text is not UNSET:
        return _text("user", part.text)
    if part.data is not UNSET:
        return _text("user", encode(part.data).decode())
    raw = part.raw if isinstance(part.raw, bytes) else None
    url = part.url if isinstance(part.url, str) else ""
    kind = part.media_type or mimetypes.guess_type(url or part.filename)[0] or BINARY
    if raw is not None:
        url = f"data:{kind};base64,{base64.b64encode(raw).decode()}"
    if kind.startswith("image/"):
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    named = {"filename": part.filename} if part.filename else {}
    return {"type": "input_file", "file_url" if raw is None else "file_data": url, **named}
