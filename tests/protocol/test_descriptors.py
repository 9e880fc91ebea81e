"""The structs match a2a.proto exactly, as it is compiled into the SDK."""

from __future__ import annotations

from typing import Any

import pytest
from a2a.types import a2a_pb2
from google.api import field_behavior_pb2
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from msgspec import NODEFAULT, Struct
from msgspec import inspect as mi

from roost.protocol import types

MESSAGES: dict[str, Descriptor] = dict(a2a_pb2.DESCRIPTOR.message_types_by_name)
ENUMS: dict[str, EnumDescriptor] = dict(a2a_pb2.DESCRIPTOR.enum_types_by_name)
STRUCTS: dict[str, type[Struct]] = {
    name: value
    for name, value in vars(types).items()
    if isinstance(value, type) and issubclass(value, types.Wire) and value is not types.Wire
}

SCALARS = {
    FieldDescriptor.TYPE_STRING: mi.StrType,
    FieldDescriptor.TYPE_BYTES: mi.BytesType,
    FieldDescriptor.TYPE_BOOL: mi.BoolType,
    FieldDescriptor.TYPE_INT32: mi.IntType,
}
DEFAULTS = {
    FieldDescriptor.TYPE_STRING: "",
    FieldDescriptor.TYPE_BYTES: b"",
    FieldDescriptor.TYPE_BOOL: False,
    FieldDescriptor.TYPE_INT32: 0,
}
WRITTEN_THOUGH_DEFAULT = {("TaskArtifactUpdateEvent", "append")}
"""Unset instead of false, so that false can be written: some clients read its absence as true."""
KEPT_AS_TEXT = {("TaskStatus", "timestamp")}
"""A timestamp that is passed on unchanged."""


def fields_of(name: str) -> dict[str, mi.Field]:
    info = mi.type_info(STRUCTS[name])
    assert isinstance(info, mi.StructType)
    return {field.encode_name: field for field in info.fields}


def is_required(field: FieldDescriptor) -> bool:
    return field_behavior_pb2.REQUIRED in field.GetOptions().Extensions[field_behavior_pb2.field_behavior]


def default_of(field: mi.Field) -> Any:
    if field.default_factory is not NODEFAULT:
        return field.default_factory()
    return field.default


ALL_FIELDS = [
    pytest.param(name, field, id=f"{name}.{field.name}")
    for name, message in MESSAGES.items()
    for field in message.fields
]


def test_every_message_has_a_struct_and_every_struct_a_message() -> None:
    assert set(STRUCTS) == set(MESSAGES)


@pytest.mark.parametrize("name", MESSAGES)
def test_a_struct_has_the_fields_of_its_message_and_no_others(name: str) -> None:
    assert {key: field.name for key, field in fields_of(name).items()} == {
        field.json_name: field.name for field in MESSAGES[name].fields
    }


@pytest.mark.parametrize("name", ENUMS)
def test_an_enum_has_the_values_of_the_proto_in_the_order_of_their_numbers(name: str) -> None:
    assert [str(member) for member in getattr(types, name)] == [value.name for value in ENUMS[name].values]
    assert [value.number for value in ENUMS[name].values] == list(range(len(ENUMS[name].values)))


@pytest.mark.parametrize(("name", "field"), ALL_FIELDS)
def test_a_field_has_the_type_of_the_proto(name: str, field: FieldDescriptor) -> None:
    expect_type(fields_of(name)[field.json_name].type, field, text=(name, field.name) in KEPT_AS_TEXT)


@pytest.mark.parametrize(("name", "field"), ALL_FIELDS)
def test_presence_is_that_of_the_proto(name: str, field: FieldDescriptor) -> None:
    ours = fields_of(name)[field.json_name]
    written_always = not STRUCTS[name].__struct_config__.omit_defaults
    if is_required(field):
        assert ours.required or written_always
        return
    assert not ours.required
    if field.has_presence or (name, field.name) in WRITTEN_THOUGH_DEFAULT:
        assert default_of(ours) in (None, NODEFAULT)  # inspect shows UNSET as NODEFAULT
    else:
        assert default_of(ours) == proto_default(field)


def proto_default(field: FieldDescriptor) -> Any:
    if is_map(field):
        return {}
    if field.is_repeated:
        return []
    if field.enum_type is not None:
        return field.enum_type.values[0].name
    return DEFAULTS[field.type]


def is_map(field: FieldDescriptor) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def expect_type(kind: mi.Type, field: FieldDescriptor, *, text: bool = False, item: bool = False) -> None:
    if isinstance(kind, mi.UnionType):
        options = [option for option in kind.types if not isinstance(option, mi.NoneType)]
        assert len(options) == 1
        expect_type(options[0], field, text=text)
    elif is_map(field):
        assert isinstance(kind, mi.DictType)
        assert isinstance(kind.key_type, mi.StrType)
        expect_type(kind.value_type, field.message_type.fields_by_name["value"])
    elif field.is_repeated and not item:
        assert isinstance(kind, mi.ListType)
        expect_type(kind.item_type, field, item=True)
    elif field.enum_type is not None:
        assert isinstance(kind, mi.EnumType)
        assert kind.cls is getattr(types, field.enum_type.name)
    elif field.message_type is not None:
        expect_message(kind, field.message_type.full_name, text)
    else:
        assert isinstance(kind, SCALARS[field.type])


def expect_message(kind: mi.Type, full_name: str, text: bool) -> None:
    package, _, name = full_name.rpartition(".")
    if package == "lf.a2a.v1":
        assert isinstance(kind, mi.StructType)
        assert kind.cls is STRUCTS[name]
    elif name == "Struct":
        assert isinstance(kind, mi.DictType)
        assert isinstance(kind.value_type, mi.AnyType)
    elif name == "Value":
        assert isinstance(kind, mi.AnyType)
    else:
        assert name == "Timestamp"
        assert isinstance(kind, mi.StrType if text else mi.DateTimeType)
