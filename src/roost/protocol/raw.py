"""The objects of A2A with the data of their parts left as JSON.

A data part may hold a quarter of a million values, which nobody but the agent needs to see. What is read with these
types is not taken apart, whatever its size, and is written out as it came in. Each is a subclass of the type that it
stands for, and differs in `Part.data` only, which is a msgspec.Raw.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Raw, Struct, UnsetType
from msgspec.structs import replace

from roost.protocol.codec import decoder, encode
from roost.protocol.entries import Received
from roost.protocol.types import Message, Part, SendMessageRequest, Task

S = TypeVar("S", bound=Struct)


@cache
def raw(kind: type[S]) -> type[S]:
    """Return the type that leaves the data of parts as JSON; the type itself if it has no parts."""
    fields = msgspec.structs.fields(kind)
    replaced = {
        field.name: Raw | UnsetType if kind is Part and field.name == "data" else _replaced(field.type)
        for field in fields
    }
    if all(replaced[field.name] == field.type for field in fields):
        return kind
    return _made(f"Raw{kind.__name__}", kind, replaced)


def _made(name: str, kind: type[S], types: dict[str, Any]) -> type[S]:
    """Make a subclass with these types of its fields. All are named again, because those that are named come last."""
    given = [(field.name, types[field.name], *_default(field)) for field in msgspec.structs.fields(kind)]
    made: Any = msgspec.defstruct(name, given, bases=(kind,), kw_only=True, module=__name__)
    found: type[S] = made
    return found


def raw_decoder(kind: type[S]) -> Callable[[bytes], S]:
    """Return the decode function of `raw(kind)`."""
    return decoder(raw(kind))


def _default(field: msgspec.structs.FieldInfo) -> list[Any]:
    if field.default_factory is not msgspec.NODEFAULT:
        return [msgspec.field(default_factory=field.default_factory)]
    return [] if field.default is msgspec.NODEFAULT else [field.default]


def _replaced(kind: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, Struct):
        return raw(kind)
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return Annotated[(_replaced(args[0]), *args[1:])]
    if origin in (Union, UnionType):
        return Union[tuple(_replaced(arg) for arg in args)]  # noqa: UP007  # the members are known at run time only
    if origin is list:
        return list[_replaced(args[0])]  # type: ignore[misc]  # the type is known at run time only
    return kind


# Messages that a Task's history has are not read again, so the fold keeps them as JSON altogether.

_types = {field.name: field.type for field in msgspec.structs.fields(raw(Task))}
read_folded: Callable[[bytes], Task] = decoder(_made("FoldedTask", raw(Task), {**_types, "history": list[Raw]}))
_types = {field.name: field.type for field in msgspec.structs.fields(Received)}
read_received: Callable[[bytes], Received] = decoder(_made("FoldedMessage", Received, {**_types, "message": Raw}))


def folded(received: Received) -> Received:
    """Return what a client sent, as the fold keeps it."""
    return replace(received, message=Raw(encode(received.message)))


class PreparedRequest(SendMessageRequest):
    """A large message that a worker process has checked and converted."""

    fingerprint: str = ""
    """The fingerprint of the request, which is as much work as the rest."""


def has_raw_data(message: Message) -> bool:
    return any(isinstance(part.data, Raw) for part in message.parts)


def data_of(part: Part) -> Any:
    """Return the value of a data part, however it was read."""
    return decoder(object)(bytes(part.data)) if isinstance(part.data, Raw) else part.data
