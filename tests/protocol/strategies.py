"""Random A2A objects: as protobuf messages from the descriptors, and as our structs from their types."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from typing import Any

from a2a.types import a2a_pb2
from google.protobuf import json_format, struct_pb2, timestamp_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message as ProtoMessage
from hypothesis import strategies as st
from msgspec import UNSET, Struct
from msgspec import inspect as mi

from .test_descriptors import ENUMS, MESSAGES, STRUCTS, is_map, is_required

texts = st.text(max_size=6)
"""Any Unicode but lone surrogates: JSON in UTF-8 cannot carry them, and neither can protobuf."""
names = st.text(min_size=1, max_size=6)
numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53)
"""Values of google.protobuf.Value, whose numbers are doubles. NaN and the infinities have no JSON."""
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
objects = st.dictionaries(texts, values, max_size=2)
moments = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))
"""Times in microseconds: a Timestamp has nanoseconds, but our clocks have not."""


# Protobuf


@cache
def protos(name: str) -> st.SearchStrategy[ProtoMessage]:
    """Messages with all required fields, and at most one field of each oneof."""
    return st.builds(_proto, st.just(name), _proto_fields(MESSAGES[name]), _choices(name))


def _proto(name: str, fields: dict[str, Any], chosen: dict[str, Any]) -> ProtoMessage:
    message: ProtoMessage = getattr(a2a_pb2, name)()
    for key, value in {**fields, **chosen}.items():
        target = getattr(message, key)
        field = message.DESCRIPTOR.fields_by_name[key]
        if is_map(field):
            for at, item in value.items():
                if isinstance(item, ProtoMessage):
                    target[at].CopyFrom(item)
                else:
                    target[at] = item
        elif field.is_repeated:
            target.extend(value)
        elif isinstance(value, ProtoMessage):
            target.CopyFrom(value)
        else:
            setattr(message, key, value)
    return message


def _proto_fields(message: Descriptor) -> st.SearchStrategy[dict[str, Any]]:
    loose = {field.name: field for field in message.fields if oneof_of(field) is None}
    always = {name: _proto_field(message.name, field) for name, field in loose.items() if is_required(field)}
    perhaps = {name: _proto_field(message.name, field) for name, field in loose.items() if name not in always}
    return st.fixed_dictionaries(always, optional=perhaps)


def _choices(name: str) -> st.SearchStrategy[dict[str, Any]]:
    choices = [
        st.fixed_dictionaries({field.name: _proto_field(name, field)})
        for field in MESSAGES[name].fields
        if oneof_of(field) is not None
    ]
    return st.one_of(choices) if choices else st.just({})


def oneof_of(field: FieldDescriptor) -> str | None:
    """Return the oneof of a field, unless `optional` has made it."""
    oneof = field.containing_oneof
    return None if oneof is None or oneof.name.startswith("_") else str(oneof.name)


def _proto_field(owner: str, field: FieldDescriptor) -> st.SearchStrategy[Any]:
    least = 1 if is_required(field) and owner != "ListTasksResponse" else 0
    if is_map(field):
        value = _proto_value(owner, field.message_type.fields_by_name["value"], 0)
        return st.dictionaries(texts, value, min_size=least, max_size=2)
    if field.is_repeated:
        return st.lists(_proto_value(owner, field, 0), min_size=least, max_size=2)
    return _proto_value(owner, field, least)


def _proto_value(owner: str, field: FieldDescriptor, least: int) -> st.SearchStrategy[Any]:
    if field.enum_type is not None:
        return st.integers(least, len(ENUMS[field.enum_type.name].values) - 1)
    if field.message_type is not None:
        return _proto_message(field.message_type.full_name)
    kinds: dict[int, Callable[[], st.SearchStrategy[Any]]] = {
        FieldDescriptor.TYPE_STRING: lambda: names if least else texts,
        FieldDescriptor.TYPE_BYTES: lambda: st.binary(max_size=5),
        FieldDescriptor.TYPE_BOOL: st.booleans,
        FieldDescriptor.TYPE_INT32: lambda: integers_of(owner, field.name),
    }
    return kinds[field.type]()


def _proto_message(full_name: str) -> st.SearchStrategy[ProtoMessage]:
    name = full_name.rpartition(".")[2]
    if name == "Struct":
        return objects.map(lambda value: json_format.ParseDict(value, struct_pb2.Struct()))
    if name == "Value":
        return values.map(lambda value: json_format.ParseDict(value, struct_pb2.Value()))
    if name == "Timestamp":
        return moments.map(_timestamp)
    return protos(name)


def _timestamp(moment: datetime) -> timestamp_pb2.Timestamp:
    found = timestamp_pb2.Timestamp()
    found.FromDatetime(moment)
    return found


def integers_of(owner: str, field: str) -> st.SearchStrategy[int]:
    """Integers within int32 and within the limits of the specification for this field."""
    info = mi.type_info(STRUCTS[owner])
    assert isinstance(info, mi.StructType)
    kind = next(found.type for found in info.fields if found.name == field)
    if isinstance(kind, mi.UnionType):
        kind = next(option for option in kind.types if isinstance(option, mi.IntType))
    assert isinstance(kind, mi.IntType)
    return st.integers(kind.ge or 0, kind.le or 2**31 - 1)


# Structs


@cache
def structs(name: str) -> st.SearchStrategy[Struct]:
    info = mi.type_info(STRUCTS[name])
    assert isinstance(info, mi.StructType)
    protos_of = MESSAGES[name].fields_by_name
    loose = [field for field in info.fields if oneof_of(protos_of[field.name]) is None]
    chosen = [field for field in info.fields if oneof_of(protos_of[field.name]) is not None]
    always = {f.name: _struct_field(name, f) for f in loose if is_required(protos_of[f.name])}
    perhaps = {f.name: _struct_field(name, f) for f in loose if f.name not in always}
    choice = st.one_of([st.fixed_dictionaries({f.name: _struct_field(name, f)}) for f in chosen] or [st.just({})])
    return st.builds(
        lambda fields, choice: STRUCTS[name](**fields, **choice),
        st.fixed_dictionaries(always, optional=perhaps),
        choice,
    )


def _struct_field(owner: str, field: mi.Field) -> st.SearchStrategy[Any]:
    if (owner, field.name) == ("TaskStatus", "timestamp"):
        return st.none() | moments.map(lambda moment: str(_timestamp(moment).ToJsonString()))
    required = is_required(MESSAGES[owner].fields_by_name[field.name]) and owner != "ListTasksResponse"
    return _struct_value(owner, field.name, field.type, 1 if required else 0)


def _struct_value(owner: str, name: str, kind: mi.Type, least: int) -> st.SearchStrategy[Any]:
    if isinstance(kind, mi.UnionType):
        options = [option for option in kind.types if not isinstance(option, mi.NoneType)]
        return st.none() | _struct_value(owner, name, options[0], least)
    if isinstance(kind, mi.StructType):
        return structs(kind.cls.__name__)
    if isinstance(kind, mi.ListType):
        return st.lists(_struct_value(owner, name, kind.item_type, 0), min_size=least, max_size=2)
    if isinstance(kind, mi.DictType):
        if isinstance(kind.value_type, mi.AnyType):
            return objects
        return st.dictionaries(texts, _struct_value(owner, name, kind.value_type, 0), min_size=least, max_size=2)
    if isinstance(kind, mi.EnumType):
        return st.sampled_from(list(kind.cls)[least:])
    if isinstance(kind, mi.IntType):
        return integers_of(owner, name)
    if isinstance(kind, mi.StrType):
        return names if least else texts
    simple: dict[type[mi.Type], st.SearchStrategy[Any]] = {
        mi.BoolType: st.just(UNSET) | st.just(True) if name == "append" else st.booleans(),
        mi.BytesType: st.binary(max_size=5),
        mi.AnyType: values,
        mi.DateTimeType: st.builds(_elsewhere, moments, st.integers(-14 * 60, 14 * 60)),
    }
    return simple[type(kind)]


def _elsewhere(moment: datetime, minutes: int) -> datetime:
    return moment.astimezone(timezone(timedelta(minutes=minutes)))
