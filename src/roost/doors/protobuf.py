"""Protobuf to structs, and the engine's JSON to protobuf, by tables that are made once for each message type.

`json_format` does the same ten times slower: 100 us for one event of a stream.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.struct_pb2 import NULL_VALUE, ListValue, Struct, Value

from roost.protocol.codec import convert
from roost.protocol.errors import InvalidParams, ParseError, UnsupportedOperation

T = TypeVar("T")
M = TypeVar("M", bound=Message)

Read = Callable[[Any], Any]
Put = Callable[[Any, Any], None]

MAX_DEPTH = 90
"""Of a Struct or a Value, in messages: parsers follow a hundred, and up to seven are around it."""


class Unfit(ValueError):
    """A value that the other side cannot have. `path` leads to it."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.path: list[str] = []


def parse(kind: type[M], data: bytes) -> M:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise ParseError(f"Invalid {kind.DESCRIPTOR.name}: {error}") from None


def read(kind: type[T], message: Message) -> T:
    """A request as a struct. InvalidParams, with the field, for all that a JSON body would be refused for."""
    try:
        value = _plain(message)
    except Unfit as unfit:
        path = ".".join(unfit.path)
        raise InvalidParams(f"{path}: {unfit}", field=path) from None
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return convert(kind, value)  # names the field


def write(message: M, data: bytes) -> M:
    """What the engine has written as JSON; what the message has no field for is left out."""
    try:
        _fill(message, msgspec.json.decode(data))
    except Unfit as unfit:
        raise UnsupportedOperation(f"This cannot be said in protobuf: {unfit}. HTTP can say it") from None
    return message


# From protobuf

_readers: dict[str, dict[int, tuple[str, str, Read | None]]] = {}


def _plain(message: Message) -> dict[str, Any]:
    """As JSON would have it, but for bytes and times."""
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
            raise Unfit(f"{number} is no number in JSON")
        return int(number) if number.is_integer() else number
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


# To protobuf

_writers: dict[str, dict[str, Put]] = {}


def _fill(message: Message, value: dict[str, Any]) -> None:
    known = _writers.get(message.DESCRIPTOR.full_name) or _learn_to_write(message.DESCRIPTOR)
    message.SetInParent()
    for name, item in value.items():
        put = known.get(name)
        if put is not None:
            put(message, item)


def _learn_to_write(descriptor: Any) -> dict[str, Put]:
    made = _writers[descriptor.full_name] = {field.json_name: _writer(field) for field in descriptor.fields}
    return made


def _writer(field: FieldDescriptor) -> Put:
    name, kind = field.name, field.message_type
    if kind is None:
        return _scalar_writer(field)
    if kind.GetOptions().map_entry:
        return _map_writer(name, kind.fields_by_name["value"])
    fill: Put = _KNOWN_WRITERS.get(kind.full_name, _fill)

    def put_each(message: Any, items: Any) -> None:
        added = getattr(message, name)
        for item in items:
            fill(added.add(), item)

    def put(message: Any, item: Any) -> None:
        fill(getattr(message, name), item)

    return put_each if field.is_repeated else put


def _map_writer(name: str, of: FieldDescriptor) -> Put:
    def put(message: Any, items: Any) -> None:
        made = getattr(message, name)
        for key, item in items.items():
            if of.message_type is None:
                made[key] = item
            else:
                _fill(made[key], item)

    return put


def _scalar_writer(field: FieldDescriptor) -> Put:
    name = field.name
    if field.is_repeated:
        return lambda message, items: getattr(message, name).extend(items)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return lambda message, item: setattr(message, name, base64.b64decode(item))
    if field.enum_type is not None:
        numbers = {value.name: value.number for value in field.enum_type.values}
        return lambda message, item: setattr(message, name, numbers[item])
    return lambda message, item: setattr(message, name, item)


def _fill_struct(struct: Struct, item: dict[str, Any], left: int = MAX_DEPTH) -> None:
    struct.SetInParent()
    for key, value in item.items():
        _fill_value(struct.fields[key], value, left - 2)


def _fill_value(value: Value, item: Any, left: int = MAX_DEPTH) -> None:
    if left < 0:
        raise Unfit("it is nested too deep")
    if item is None:
        value.null_value = NULL_VALUE
    elif isinstance(item, bool):
        value.bool_value = item
    elif isinstance(item, str):
        value.string_value = item
    elif isinstance(item, dict):
        _fill_struct(value.struct_value, item, left - 1)
    elif isinstance(item, list):
        _fill_list(value.list_value, item, left - 1)
    else:
        try:
            value.number_value = item
        except OverflowError:
            raise Unfit("it has a number that is too large") from None


def _fill_list(values: ListValue, items: list[Any], left: int) -> None:
    values.SetInParent()
    for item in items:
        _fill_value(values.values.add(), item, left - 1)


def _fill_time(message: Any, text: str) -> None:
    try:
        message.FromDatetime(datetime.fromisoformat(text))
    except ValueError:
        raise Unfit("it has a time that is none") from None


_KNOWN_WRITERS: dict[str, Put] = {
    "google.protobuf.Struct": _fill_struct,
    "google.protobuf.Value": _fill_value,
    "google.protobuf.Timestamp": _fill_time,
}
