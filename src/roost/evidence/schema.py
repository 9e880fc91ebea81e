"""Schemas that map JSON values into an event. A value that does not fit is listed as unmapped, never dropped.

`apply` returns the mapped value, or ABSENT after it has listed every leaf of the value as unmapped. An empty object or
list is a leaf, and so is null: a member that is null stays null.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple, Protocol

from msgspec import inspect as mi

from roost.evidence.json_input import LargeNumber
from roost.evidence.pointers import JsonPath, NamedPointers, child

ABSENT: Any = object()

SECRETS = frozenset((("AuthenticationInfo", "credentials"), ("TaskPushNotificationConfig", "token")))
"""Members that no event repeats: they are listed as unmapped."""


class Schema(Protocol):
    def apply(self, value: Any, at: JsonPath, unmapped: NamedPointers) -> Any: ...


class MemberSchema(NamedTuple):
    name: str | None
    """The member's name in the event. None if the members of its value are merged into the enclosing object."""
    schema: Schema


class ValueSchema(NamedTuple):
    """Accepts a scalar of one of these types."""

    types: tuple[type, ...]

    def apply(self, value: Any, at: JsonPath, unmapped: NamedPointers) -> Any:
        return value if type(value) in self.types else _list_unmapped(value, at, unmapped)


class EnumSchema(NamedTuple):
    """Accepts one of a set of values, and maps it to its name in A2A 1.0."""

    names: Mapping[Any, str]

    def apply(self, value: Any, at: JsonPath, unmapped: NamedPointers) -> Any:
        known = type(value) in (str, int) and value in self.names
        return self.names[value] if known else _list_unmapped(value, at, unmapped)


class AnySchema(NamedTuple):
    """Accepts any JSON value unchanged."""

    def apply(self, value: Any, at: JsonPath, unmapped: NamedPointers) -> Any:
        return value


class NothingSchema(NamedTuple):
    """Accepts no value."""

    def apply(self, value: Any, at: JsonPath, unmapped: NamedPointers) -> Any:
        return _list_unmapped(value, at, unmapped)


class AnyObjectSchema(NamedTuple):
    """Accepts any object unchanged."""

    def apply(self, value: Any, at: JsonPath, unmapped: NamedPointers) -> Any:
        return value if isinstance(value, dict) else _list_unmapped(value, at, unmapped)


class ListSchema(NamedTuple):
    item: Schema

    def apply(self, value: Any, at: JsonPath, unmapped: NamedPointers) -> Any:
        if not isinstance(value, list):
            return _list_unmapped(value, at, unmapped)
        mapped = (self.item.apply(item, child(at, index), unmapped) for index, item in enumerate(value))
        return [item for item in mapped if item is not ABSENT]


class MapSchema(NamedTuple):
    """Accepts an object with arbitrary names, whose values fit one schema."""

    value: Schema

    def apply(self, value: Any, at: JsonPath, unmapped: NamedPointers) -> Any:
        if not isinstance(value, dict):
            return _list_unmapped(value, at, unmapped)
        mapped = {name: self.value.apply(item, child(at, name), unmapped) for name, item in value.items()}
        return {name: item for name, item in mapped.items() if item is not ABSENT}


class ObjectSchema(NamedTuple):
    """Accepts an object with known members."""

    members: Mapping[str, MemberSchema]

    def apply(self, value: Any, at: JsonPath, unmapped: NamedPointers) -> Any:
        if not isinstance(value, dict):
            return _list_unmapped(value, at, unmapped)
        mapped: dict[str, Any] = {}
        for name, item in value.items():
            self._apply_member(mapped, name, item, child(at, name), unmapped)
        return mapped

    def _apply_member(
        self, mapped: dict[str, Any], name: str, item: Any, at: JsonPath, unmapped: NamedPointers
    ) -> None:
        member = self.members.get(name)
        if member is None or member.name in mapped:  # the same member twice: in camelCase and in snake_case
            _list_unmapped(item, at, unmapped)
        elif member.name is None:
            inner = member.schema.apply(item, at, unmapped)
            if inner is not ABSENT:
                mapped.update(inner)
            if item == {}:
                unmapped.add(at)
        else:
            result = None if item is None else member.schema.apply(item, at, unmapped)
            if result is not ABSENT:
                mapped[member.name] = result


class ConstantSchema(NamedTuple):
    """Accepts one string that the position in the event implies, so that the event does not repeat it."""

    value: str

    def apply(self, value: Any, at: JsonPath, unmapped: NamedPointers) -> Any:
        return {} if value == self.value and type(value) is str else _list_unmapped(value, at, unmapped)


class VariantSchema(NamedTuple):
    """Accepts the objects of A2A 0.3 whose `kind` names their type and that have one of the type's required members."""

    variants: Mapping[str, tuple[ObjectSchema, tuple[str, ...]]]

    def apply(self, value: Any, at: JsonPath, unmapped: NamedPointers) -> Any:
        kind = value.get("kind") if isinstance(value, dict) else None
        if not isinstance(kind, str) or kind not in self.variants:
            return _list_unmapped(value, at, unmapped)
        schema, required = self.variants[kind]
        inner_unmapped = NamedPointers()
        mapped = schema.apply(value, at, inner_unmapped)
        if not any(name in mapped for name in required):
            return _list_unmapped(value, at, unmapped)
        unmapped.join(inner_unmapped)
        return mapped


def _list_unmapped(value: Any, at: JsonPath, unmapped: NamedPointers) -> Any:
    for leaf in _leaf_paths(value, at):
        unmapped.add(leaf)
    return ABSENT


def _leaf_paths(value: Any, at: JsonPath) -> Iterator[JsonPath]:
    """Yield the paths of all scalars and of all empty objects and lists."""
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _leaf_paths(item, child(at, name))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _leaf_paths(item, child(at, index))
    else:
        yield at


NOTHING = NothingSchema()
TEXT = ValueSchema((str,))
FLAG = ValueSchema((bool,))
NUMBER = ValueSchema((int, float, LargeNumber))
TEXTS = ListSchema(TEXT)


def object_schema(**members: Schema) -> ObjectSchema:
    """Return the schema of an object whose members keep their names."""
    return ObjectSchema({name: MemberSchema(name, schema) for name, schema in members.items()})


@cache
def schema_of(kind: Any) -> Schema:
    """Return the schema of a type of A2A 1.0. It accepts what ProtoJSON accepts: snake_case, and enums as numbers."""
    return _schema(mi.type_info(kind))


def _schema(kind: mi.Type) -> Schema:
    if isinstance(kind, mi.UnionType):
        kind = next(option for option in kind.types if not isinstance(option, mi.NoneType))
    match kind:
        case mi.StructType():
            return _struct_schema(kind)
        case mi.ListType():
            return ListSchema(_schema(kind.item_type))
        case mi.DictType(value_type=mi.AnyType()):
            return AnyObjectSchema()
        case mi.DictType():
            return MapSchema(_schema(kind.value_type))
        case mi.EnumType():
            names = [str(member.value) for member in kind.cls]
            return EnumSchema({**{name: name for name in names}, **dict(enumerate(names))})
        case mi.BoolType():
            return FLAG
        case mi.IntType() | mi.FloatType():
            return NUMBER
        case mi.AnyType():
            return AnySchema()
        case _:
            return TEXT


def _struct_schema(kind: mi.StructType) -> ObjectSchema:
    members: dict[str, MemberSchema] = {}
    for field in kind.fields:
        if (kind.cls.__name__, field.name) not in SECRETS:
            member = MemberSchema(field.encode_name, _schema(field.type))
            members |= {field.name: member, field.encode_name: member}
    return ObjectSchema(members)
