"""What is mapped: shapes of JSON that a value is held against. Whatever does not fit is named, never dropped.

A node's `take` gives what the event will have, or ABSENT after it has named every leaf of the value as unmapped.
An empty object or list is a leaf, and so is null: a member that is null stays null.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple, Protocol

from msgspec import inspect as mi

from roost.evidence.numbers import Numeral
from roost.evidence.pointers import NamedPointers, Place, below

ABSENT: Any = object()

SECRETS = frozenset((("AuthenticationInfo", "credentials"), ("TaskPushNotificationConfig", "token")))
"""Members that no event repeats: they are named as unmapped."""


class Node(Protocol):
    def take(self, value: Any, at: Place, unmapped: NamedPointers) -> Any: ...


class MemberSchema(NamedTuple):
    name: str | None
    """In the event; None if the member's own members stand in its place."""
    node: Node


class ValueSchema(NamedTuple):
    kinds: tuple[type, ...]

    def take(self, value: Any, at: Place, unmapped: NamedPointers) -> Any:
        return value if type(value) in self.kinds else _left(value, at, unmapped)


class Word(NamedTuple):
    """A word out of a list, and what it is called in A2A 1.0."""

    words: Mapping[Any, str]

    def take(self, value: Any, at: Place, unmapped: NamedPointers) -> Any:
        known = type(value) in (str, int) and value in self.words
        return self.words[value] if known else _left(value, at, unmapped)


class Free(NamedTuple):
    """Any JSON, as it is."""

    def take(self, value: Any, at: Place, unmapped: NamedPointers) -> Any:
        return value


class Nothing(NamedTuple):
    """No JSON at all."""

    def take(self, value: Any, at: Place, unmapped: NamedPointers) -> Any:
        return _left(value, at, unmapped)


class FreeObject(NamedTuple):
    def take(self, value: Any, at: Place, unmapped: NamedPointers) -> Any:
        return value if isinstance(value, dict) else _left(value, at, unmapped)


class Many(NamedTuple):
    node: Node

    def take(self, value: Any, at: Place, unmapped: NamedPointers) -> Any:
        if not isinstance(value, list):
            return _left(value, at, unmapped)
        taken = (self.node.take(item, below(at, index), unmapped) for index, item in enumerate(value))
        return [item for item in taken if item is not ABSENT]


class Table(NamedTuple):
    """An object whose names are anyone's."""

    node: Node

    def take(self, value: Any, at: Place, unmapped: NamedPointers) -> Any:
        if not isinstance(value, dict):
            return _left(value, at, unmapped)
        taken = {name: self.node.take(item, below(at, name), unmapped) for name, item in value.items()}
        return {name: item for name, item in taken.items() if item is not ABSENT}


class ObjectSchema(NamedTuple):
    """An object with known members."""

    members: Mapping[str, MemberSchema]

    def take(self, value: Any, at: Place, unmapped: NamedPointers) -> Any:
        if not isinstance(value, dict):
            return _left(value, at, unmapped)
        found: dict[str, Any] = {}
        for name, item in value.items():
            self._member(found, name, item, below(at, name), unmapped)
        return found

    def _member(self, found: dict[str, Any], name: str, item: Any, at: Place, unmapped: NamedPointers) -> None:
        member = self.members.get(name)
        if member is None or member.name in found:  # the same twice: in camelCase and in snake_case
            _left(item, at, unmapped)
        elif member.name is None:
            inner = member.node.take(item, at, unmapped)
            if inner is not ABSENT:
                found.update(inner)
            if item == {}:
                unmapped.add(at)
        else:
            taken = None if item is None else member.node.take(item, at, unmapped)
            if taken is not ABSENT:
                found[member.name] = taken


class ImpliedWord(NamedTuple):
    """A word that the place says already: it is understood, and not repeated."""

    word: str

    def take(self, value: Any, at: Place, unmapped: NamedPointers) -> Any:
        return {} if value == self.word and type(value) is str else _left(value, at, unmapped)


class Variants(NamedTuple):
    """Objects of A2A 0.3 that say in `kind` what they are; each has at least one of some members, or is none."""

    shapes: Mapping[str, tuple[ObjectSchema, tuple[str, ...]]]

    def take(self, value: Any, at: Place, unmapped: NamedPointers) -> Any:
        kind = value.get("kind") if isinstance(value, dict) else None
        if not isinstance(kind, str) or kind not in self.shapes:
            return _left(value, at, unmapped)
        shape, needed = self.shapes[kind]
        tried = NamedPointers()
        found = shape.take(value, at, tried)
        if not any(name in found for name in needed):
            return _left(value, at, unmapped)
        unmapped.join(tried)
        return found


def leaves(value: Any, at: Place) -> Iterator[Place]:
    """The places of all scalars, and of what is empty."""
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from leaves(item, below(at, name))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from leaves(item, below(at, index))
    else:
        yield at


def _left(value: Any, at: Place, unmapped: NamedPointers) -> Any:
    for place in leaves(value, at):
        unmapped.add(place)
    return ABSENT


NOTHING = Nothing()
TEXT = ValueSchema((str,))
FLAG = ValueSchema((bool,))
NUMBER = ValueSchema((int, float, Numeral))
TEXTS = Many(TEXT)


def shape(**members: Node) -> ObjectSchema:
    """Members that keep their names."""
    return ObjectSchema({name: MemberSchema(name, node) for name, node in members.items()})


@cache
def node_of(kind: Any) -> Node:
    """The node of a type of A2A 1.0, with the liberties of ProtoJSON: snake_case, enums as numbers."""
    return _node(mi.type_info(kind))


def _node(kind: mi.Type) -> Node:
    if isinstance(kind, mi.UnionType):
        kind = next(option for option in kind.types if not isinstance(option, mi.NoneType))
    match kind:
        case mi.StructType():
            return _shape(kind)
        case mi.ListType():
            return Many(_node(kind.item_type))
        case mi.DictType(value_type=mi.AnyType()):
            return FreeObject()
        case mi.DictType():
            return Table(_node(kind.value_type))
        case mi.EnumType():
            names = [str(member.value) for member in kind.cls]
            return Word({**{name: name for name in names}, **dict(enumerate(names))})
        case mi.BoolType():
            return FLAG
        case mi.IntType() | mi.FloatType():
            return NUMBER
        case mi.AnyType():
            return Free()
        case _:
            return TEXT


def _shape(kind: mi.StructType) -> ObjectSchema:
    members: dict[str, MemberSchema] = {}
    for field in kind.fields:
        if (kind.cls.__name__, field.name) not in SECRETS:
            member = MemberSchema(field.encode_name, _node(field.type))
            members |= {field.name: member, field.encode_name: member}
    return ObjectSchema(members)
