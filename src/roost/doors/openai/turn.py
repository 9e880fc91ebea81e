"""One turn of a client: its new input as parts of a message, and the conversation before it."""

from __future__ import annotations

import base64
import binascii
import mimetypes
import re
from collections.abc import Sequence
from typing import NamedTuple, TypeGuard
from urllib.parse import unquote_to_bytes, urlsplit

from msgspec import UNSET

from roost.doors.openai.requests import (
    DELEGATION,
    Audio,
    Content,
    File,
    Image,
    InputFile,
    InputImage,
    InputMessage,
    InputText,
    Item,
    OutputText,
    RefusalPart,
    Text,
    Unsupported,
)
from roost.protocol.codec import encode
from roost.protocol.errors import InvalidParams
from roost.protocol.types import JSONObject, Part

INSTRUCTIONS = ("system", "developer")
ASKS = ("user", DELEGATION)
"""The roles of those who give the agent something to do."""
BINARY = "application/octet-stream"
AUDIO = {"mp3": "audio/mpeg"}
"""The media types of formats whose name differs from their type."""
KEY = "openai"
"""The key in a message's metadata for everything that came beside the turn itself."""
REFERENCE = "item_reference"
ANSWER, TOOL_CALL = "msg_", "mcp_"
"""The prefixes of the ids of our items."""
OURS = re.compile(rf"{ANSWER}(?P<task>[^_]+)_(?P<seq>\d{{1,18}})|{TOOL_CALL}.+", re.ASCII)


class NamedAnswer(NamedTuple):
    """An earlier answer that the client sends only the id of."""

    id: str


class Earlier(NamedTuple):
    role: str
    text: str | NamedAnswer


class ChatTurn(NamedTuple):
    parts: list[Part]
    places: list[str]
    """The field of the request that each part comes from."""
    instructions: str
    told_in: str
    """The field of the request that holds the instructions."""
    history: list[Earlier]
    """The oldest first."""
    delegated: bool = False
    """Another agent has delegated the task."""
    left_out: int = 0
    """The number of messages before the history that are not kept."""


def turn_of(said: Sequence[InputMessage], name: str, instructions: str | None = None, *, in_session: bool) -> ChatTurn:
    """Split a conversation. The user's messages since the last answer are the turn; `name` is the field of the list."""
    places = [(f"{name}[{at}]", one) for at, one in enumerate(said)]
    messages = [(place, one) for place, one in places if _is_message(place, one, in_session)]
    told = [_words(one) for _, one in messages if one.role in INSTRUCTIONS]
    spoken = [(place, one) for place, one in messages if one.role not in INSTRUCTIONS]
    begin = len(spoken)
    while begin and spoken[begin - 1][1].role in ASKS:
        begin -= 1
    if begin == len(spoken):
        place = f"{spoken[-1][0]}.role" if spoken else name
        raise InvalidParams(f"{place}: the last message must be the user's", field=place)
    found = [part for place, one in spoken[begin:] for part in _parts(place, one)]
    return ChatTurn(
        [part for part, _ in found],
        [place for _, place in found],
        "\n".join([*([instructions] if instructions else []), *told]),
        "instructions" if instructions else name,
        [_earlier(one) for _, one in spoken[:begin]],
        any(one.role == DELEGATION for _, one in spoken[begin:]),
    )


def beside(turn: ChatTurn, *, with_history: bool, room: int) -> JSONObject:
    """Instructions and history as metadata of at most `room` bytes.

    The oldest turns are left out, and answers that are only named; they are counted.
    """
    found: JSONObject = {"instructions": turn.instructions} if turn.instructions else {}
    if turn.delegated:
        found["delegated"] = True
    if not with_history or not (turn.history or turn.left_out):
        return {KEY: found} if found else {}
    said = len(turn.history) + turn.left_out
    left = room - len(encode({KEY: {**found, "history": [], "omitted": said}}))
    kept: list[JSONObject] = []
    for one in reversed(turn.history):
        if isinstance(one.text, NamedAnswer):
            continue
        entry: JSONObject = {"role": one.role, "content": one.text}
        left -= len(encode(entry)) + 1
        if left < 0:
            break
        kept.append(entry)
    found["history"] = kept[::-1]
    if len(kept) < said:
        found["omitted"] = said - len(kept)
    return {KEY: found}


def _is_message(place: str, one: InputMessage, in_session: bool) -> bool:
    """Return a message, or the id of one. Other items, such as the calls of an earlier answer, are ignored."""
    if _is_reference(one):
        if not in_session and OURS.fullmatch(one.id or "") is None:
            raise Unsupported(f"{place}.type: no such item is kept here; send it itself", field=f"{place}.type")
        return (one.id or "").startswith(ANSWER)
    if one.type == "message" and one.role is None:
        raise InvalidParams(f"{place}.role: missing required field `role`", field=f"{place}.role")
    return one.type == "message"


def _is_reference(one: InputMessage) -> TypeGuard[Item]:
    return isinstance(one, Item) and one.type == REFERENCE


def _earlier(one: InputMessage) -> Earlier:
    if _is_reference(one):
        return Earlier("assistant", NamedAnswer(one.id or ""))
    return Earlier(one.role or "", _words(one))


def _words(one: InputMessage) -> str:
    if isinstance(one.content, str):
        return one.content
    texts = [
        item.refusal if isinstance(item, RefusalPart) else getattr(item, "text", None) for item in one.content or ()
    ]
    return "\n".join(text for text in texts if text)


# Parts


def _parts(place: str, one: InputMessage) -> list[tuple[Part, str]]:
    place += ".content"
    if isinstance(one.content, str):
        return [(Part(text=one.content), place)]
    if not one.content:
        raise InvalidParams(f"{place}: there is nothing in it", field=place)
    return [(_part(f"{place}[{at}]", item), f"{place}[{at}]") for at, item in enumerate(one.content)]


def _part(place: str, item: Content) -> Part:
    match item:
        case Text(text=text) | InputText(text=text) | OutputText(text=text) | RefusalPart(refusal=text):
            return Part(text=text)
        case Image():
            return _at_url(f"{place}.image_url.url", item.image_url.url)
        case InputImage():
            if item.image_url is None:
                raise _no_content(place, "image_url", item.file_id)
            return _at_url(f"{place}.image_url", item.image_url)
        case File():
            return _file(f"{place}.file", item.file.file_data, item.file.filename or "", item.file.file_id)
        case InputFile():
            if item.file_url is not None and item.file_data is None:
                return _at_url(f"{place}.file_url", item.file_url, item.filename or "")
            return _file(place, item.file_data, item.filename or "", item.file_id)
        case Audio():
            form = item.input_audio.format.lower()
            raw = _decoded(f"{place}.input_audio.data", item.input_audio.data)
            return Part(raw=raw, media_type=AUDIO.get(form, f"audio/{form}"))


def _file(place: str, data: str | None, filename: str, file_id: str | None) -> Part:
    if data is None:
        raise _no_content(place, "file_data", file_id)
    place += ".file_data"
    if data.startswith("data:"):
        return _from_data_url(place, data, filename)
    kind = mimetypes.guess_type(filename)[0] or BINARY
    return Part(raw=_decoded(place, data), media_type=kind, filename=filename)


def _no_content(place: str, wanted: str, file_id: str | None) -> InvalidParams:
    if file_id is not None:
        return Unsupported(
            f"{place}.file_id: no files are kept here; send the content as {wanted}", field=f"{place}.file_id"
        )
    return InvalidParams(f"{place}.{wanted}: missing required field `{wanted}`", field=f"{place}.{wanted}")


def _at_url(place: str, url: str, filename: str = "") -> Part:
    """Make a part from a URL, which is passed on and never fetched. The content of a data: URL is decoded."""
    if url.startswith("data:"):
        return _from_data_url(place, url, filename)
    try:
        is_web = urlsplit(url).scheme in ("http", "https") and bool(urlsplit(url).hostname)
    except ValueError:
        is_web = False
    if not is_web:
        raise InvalidParams(f"{place}: give an http(s) or data: URL", field=place)
    return Part(url=url, filename=filename)


def _from_data_url(place: str, url: str, filename: str) -> Part:
    head, comma, data = url.removeprefix("data:").partition(",")
    if not comma:
        raise InvalidParams(f"{place}: a data: URL has a comma before its data", field=place)
    kind, *words = head.split(";")
    raw = _decoded(place, data) if "base64" in words else unquote_to_bytes(data)
    return Part(raw=raw, media_type=kind.strip().lower() or "text/plain", filename=filename)


def _decoded(place: str, data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidParams(f"{place}: this is no base64: {error}", field=place) from None


def shown(parts: list[Part]) -> str:
    """Write the parts of an answer as text: data as JSON, a file as its name and type."""
    return "".join(_shown(part) for part in parts)


def _shown(part: Part) -> str:
    if part.text is not UNSET:
        return part.text
    if part.url is not UNSET:
        return part.url
    if part.raw is not UNSET:
        return f"[{part.filename or 'file'}: {part.media_type or BINARY}, {len(part.raw)} bytes]"
    return encode(part.data).decode()
