"""Converts protobuf to structs, and the engine's JSON to protobuf, by tables made once for each message type.

What goes out is written as bytes, without a message: see docs/adr/0015-grpc.md for what that saves.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from datetime import UTC, datetime
from struct import pack
from typing import Any, TypeVar

import msgspec
from a2a.types import a2a_pb2 as pb
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.struct_pb2 import Struct, Value

from roost.doors.large import prepare
from roost.doors.protobuf_cost import FIELDS_PER_VALUE, count_fields
from roost.protocol.codec import convert
from roost.protocol.errors import InvalidParams, ParseError, UnsupportedOperation
from roost.protocol.types import SendMessageRequest

T = TypeVar("T")
M = TypeVar("M", bound=Message)

Read = Callable[[Any], Any]
Write = Callable[[Any], bytes]

MAX_DEPTH = 90
"""The deepest nesting of a Struct or Value, in messages: parsers follow a hundred, and up to seven surround it."""
MAX_WHOLE = 2**53
"""Larger doubles are not written out as integers: 1e308 would have 309 digits."""


class Unfit(ValueError):
    """A value that the other format cannot represent. `path` leads to it."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.path: list[str] = []


def parse(kind: type[M], data: bytes) -> M:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise ParseError(f"Invalid {kind.DESCRIPTOR.name}: {error}") from None


def read(kind: type[T], message: Message) -> T:
    """Convert a request to a struct. Raise InvalidParams, with the field, for all that a JSON body is refused for."""
    try:
        value = _plain(message)
    except Unfit as unfit:
        path = ".".join(unfit.path)
        raise InvalidParams(f"{path}: {unfit}", field=path) from None
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return convert(kind, value)  # names the field


def wire(kind: type[Message], data: bytes) -> bytes:
    """Encode the engine's JSON as protobuf. Members that the message has no field for are left out."""
    return written(kind, msgspec.json.decode(data))


def written(kind: type[Message], value: dict[str, Any]) -> bytes:
    try:
        return _fields(_writers_of(kind.DESCRIPTOR), value)
    except Unfit as unfit:
        raise UnsupportedOperation(f"Protobuf cannot represent this: {unfit}. HTTP can") from None


def fitting(kind: type[Message], value: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that protobuf can represent."""
    known = _writers_of(kind.DESCRIPTOR)

    def fits(name: str, item: Any) -> bool:
        try:
            known[name](item)
        except Unfit:
            return False
        return True

    return {name: item for name, item in value.items() if name in known and fits(name, item)}


def write(message: M, data: bytes) -> M:
    message.MergeFromString(wire(type(message), data))
    return message


def wire_large(name: str, data: bytes) -> bytes:
    """Do the same for a large result. Runs in a worker process; `name` is that of the message."""
    return wire(getattr(pb, name), data)


def prepare_large(data: bytes, *limits: int) -> bytes:
    """Convert a large SendMessageRequest. Return a PreparedRequest. Runs in a worker process."""
    return prepare(read(SendMessageRequest, parse_large(pb.SendMessageRequest, data, limits[0])), *limits)


def parse_large(kind: type[M], data: bytes, values: int) -> M:
    """Parse a message of at most so many values."""
    most = values * FIELDS_PER_VALUE
    if count_fields(kind, data, most + 1) > most:
        raise InvalidParams(
            f"the message has more than {values} values, the host's setting max_values; send large data as a file",
            field="message",
        )
    return parse(kind, data)


def within(kind: type[Message], name: str, body: bytes) -> bytes:
    """Encode a message whose only field is the message `body`."""
    return _sized(_tag(kind.DESCRIPTOR.fields_by_name[name]), body)


# From protobuf

_readers: dict[str, dict[int, tuple[str, str, Read | None]]] = {}


def _plain(message: Message) -> dict[str, Any]:
    """Convert to what JSON would hold, except for bytes and times."""
    known = _readers.get(message.DESCRIPTOR.full_name) or _learn_to_read(message.DESCRIPTOR)
    found: dict[str, Any] = {}
    for field, value in message.ListFields():
        name, step, reader = known[field.number]
        try:
            found[name] = value if reader is None else reader(value)
        except Unfit as unfit:
            unfit.path.insert(0, step)
            raise
    return found


def _learn_to_read(descriptor: Any) -> dict[int, tuple[str, str, Read | None]]:
    made: dict[int, tuple[str, str, Read | None]] = {}
    for field in descriptor.fields:
        reader, step = _reader(field), field.json_name
        if field.is_repeated:
            reader, step = (list if reader is None else _each(reader)), f"{step}[]"
        made[field.number] = (field.json_name, step, reader)
    _readers[descriptor.full_name] = made
    return made


def _reader(field: FieldDescriptor) -> Read | None:
    if field.enum_type is not None:
        names = {value.number: value.name for value in field.enum_type.values}
        return lambda number: names.get(number, number)
    if field.message_type is not None:
        reader: Read = _KNOWN_READERS.get(field.message_type.full_name, _plain)
        return reader
    return None


def _each(reader: Read) -> Read:
    return lambda values: [reader(value) for value in values]


def _struct(struct: Struct) -> dict[str, Any]:
    return {key: _value(value) for key, value in struct.fields.items()}


def _value(value: Value) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "number_value":
        number = value.number_value
        if not math.isfinite(number):
            raise Unfit(f"{number} cannot be a number in JSON")
        return int(number) if number.is_integer() and abs(number) <= MAX_WHOLE else number
    if kind == "struct_value":
        return _struct(value.struct_value)
    if kind == "list_value":
        return [_value(item) for item in value.list_value.values]
    return None if kind is None or kind == "null_value" else getattr(value, kind)


def _time(value: Any) -> datetime:
    try:
        found: datetime = value.ToDatetime(UTC)
    except (ValueError, OverflowError):
        raise Unfit("there is no such time") from None
    return found


_KNOWN_READERS: dict[str, Read] = {
    "google.protobuf.Struct": _struct,
    "google.protobuf.Value": _value,
    "google.protobuf.Timestamp": _time,
}


# To protobuf: tags, sizes and values as https://protobuf.dev/programming-guides/encoding has them

VARINT, SIZED = 0, 2
SMALL = [bytes([number]) for number in range(128)]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_writers: dict[str, dict[str, Write]] = {}


def _fields(known: dict[str, Write], value: dict[str, Any]) -> bytes:
    return b"".join([known[name](item) for name, item in value.items() if name in known])


def _writers_of(kind: Any) -> dict[str, Write]:
    found = _writers.get(kind.full_name)
    if found is None:
        found = _writers[kind.full_name] = {field.json_name: _writer(field) for field in kind.fields}
    return found


def _writer(field: FieldDescriptor) -> Write:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        return _map_writer(_tag(field), kind)
    one = _scalar_writer(field) if kind is None else _message_writer(_tag(field), kind)
    return (lambda items: b"".join([one(item) for item in items])) if field.is_repeated else one


def _message_writer(tag: bytes, kind: Any) -> Write:
    known = _KNOWN_WRITERS.get(kind.full_name)
    if known is not None:
        return lambda item: _sized(tag, known(item))
    table = _writers_of(kind)
    return lambda item: _sized(tag, _fields(table, item))


def _map_writer(tag: bytes, kind: Any) -> Write:
    write_key, write_value = (_writer(kind.fields_by_name[name]) for name in ("key", "value"))
    return lambda items: b"".join([_sized(tag, write_key(key) + write_value(item)) for key, item in items.items()])


def _scalar_writer(field: FieldDescriptor) -> Write:
    tag = _tag(field)
    if field.enum_type is not None:
        made = {value.name: tag + _varint(value.number) for value in field.enum_type.values}
        return made.__getitem__
    return {
        FieldDescriptor.TYPE_STRING: lambda text: _sized(tag, text.encode()),
        FieldDescriptor.TYPE_BYTES: lambda text: _sized(tag, base64.b64decode(text)),
        FieldDescriptor.TYPE_BOOL: lambda item: tag + SMALL[item],
        FieldDescriptor.TYPE_INT32: lambda number: tag + _varint(number),
    }[field.type]


def _tag(field: Any) -> bytes:
    is_sized = field.type in (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
    return _varint(field.number << 3 | (SIZED if is_sized else VARINT))


def _sized(tag: bytes, body: bytes) -> bytes:
    size = len(body)
    return tag + (SMALL[size] if size < 128 else _varint(size)) + body


def _varint(number: int) -> bytes:
    number &= 0xFFFF_FFFF_FFFF_FFFF
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    made.append(number)
    return bytes(made)


def _struct_body(items: dict[str, Any], left: int = MAX_DEPTH) -> bytes:
    return b"".join(
        [
            _sized(b"\x0a", _sized(b"\x0a", key.encode()) + _sized(b"\x12", _value_body(item, left - 2)))
            for key, item in items.items()
        ]
    )


def _value_body(item: Any, left: int = MAX_DEPTH) -> bytes:
    if left < 0:
        raise Unfit("it is nested too deep")
    if item is None:
        return b"\x08\0"
    if isinstance(item, bool):
        return b"\x20" + SMALL[item]
    if isinstance(item, str):
        return _sized(b"\x1a", item.encode())
    if isinstance(item, dict):
        return _sized(b"\x2a", _struct_body(item, left - 1))
    if isinstance(item, list):
        values = [_sized(b"\x0a", _value_body(value, left - 2)) for value in item]
        return _sized(b"\x32", b"".join(values))
    try:
        return b"\x11" + pack("<d", float(item))
    except OverflowError:
        raise Unfit("it has a number that is too large") from None


def _time_body(text: str) -> bytes:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise Unfit("it has a time that does not exist") from None
    since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - EPOCH
    return b"\x08" + _varint(since.days * 86_400 + since.seconds) + b"\x10" + _varint(since.microseconds * 1000)


_KNOWN_WRITERS: dict[str, Write] = {
    "google.protobuf.Struct": _struct_body,
    "google.protobuf.Value": _value_body,
    "google.protobuf.Timestamp": _time_body,
}


def page_of(data: bytes) -> bytes:
    """Encode a page of tasks.

    A task that protobuf cannot represent is listed with the fields that it can, so that it does not hide the others.
    """
    page = msgspec.json.decode(data)
    try:
        return written(pb.ListTasksResponse, page)
    except UnsupportedOperation:
        tasks = [{**fitting(pb.Task, task), "status": fitting(pb.TaskStatus, task["status"])} for task in page["tasks"]]
        return written(pb.ListTasksResponse, {**page, "tasks": tasks})
