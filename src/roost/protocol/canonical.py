"""Canonical forms: the bytes that a signature or a fingerprint covers, the same wherever they are computed.

A signed card has three of them, because section 8.4.1 of the specification, the SDKs that implement it, and cards
with additional fields do not agree:

    document_form   the whole document that is served
    strict_form     the fields of A2A, where defaults are present or absent as the specification's text says
    card_form       the same without anything empty: what the Python and the JavaScript SDK compute

Both SDKs compute card_form for a card as it was served, with one exception: a2a-js loses a key `__proto__`. A card
that the client of a2a-js has parsed has lost its `securitySchemes` before its verifier sees it (a2a-js issue 663):
such a card has to be verified as the JSON that was received.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NoReturn

import msgspec
import rfc8785
from msgspec import inspect as mi

from roost.protocol.cost import DEFAULT, check
from roost.protocol.errors import InvalidParams
from roost.protocol.types import AgentCard, OAuthFlows, SecurityScheme

_ANY_SIZE = DEFAULT._replace(values=2**31, digits=2**31)
"""Limits for documents of the host's own, such as the entries of a journal."""
_ONE_OF = (OAuthFlows, SecurityScheme)
_KINDS: dict[type[mi.Type], str] = {
    mi.ListType: "a list",
    mi.DictType: "an object",
    mi.StrType: "a string",
    mi.BoolType: "true or false",
}


class NotCanonical(ValueError):
    """The value has no canonical form; the message names the part that is at fault."""


encode_sorted = msgspec.json.Encoder(order="sorted").encode
"""Encode with sorted names and without blanks: for most values these are the bytes of RFC 8785."""

_DOUBTFUL_NUMBER = re.compile(rb"[:,\[]-?\d(?:\d*[.eE]|\d{15})")
_BEYOND_FIRST_PLANE = re.compile(rb"[\xf0-\xf4]")


def is_surely_canonical(encoded: bytes) -> bool:
    """Whether an object or array written by `encode_sorted` is certain to be RFC 8785's form of what it says.

    The two differ in floats, in integers from 2**53 on, which have no canonical form, and in the order of names with
    characters beyond the first plane. The answer is False too where a string or a smaller number looks like that.
    """
    if encoded[:1] not in (b"{", b"[") or _DOUBTFUL_NUMBER.search(encoded):
        return False
    return encoded.isascii() or _BEYOND_FIRST_PLANE.search(encoded) is None


def quick_jcs(value: Any) -> bytes | None:
    """Return what `jcs` returns if `encode_sorted` is certain to write the same, in a fraction of the time."""
    try:
        encoded = encode_sorted(value)
    except (TypeError, UnicodeEncodeError):
        return None
    if b"null" in encoded:  # perhaps an infinite float, which msgspec writes like that
        return None
    return encoded if is_surely_canonical(encoded) else None


def jcs(value: Any) -> bytes:
    """Return RFC 8785's form of plain JSON values: dicts, lists, strings, numbers, booleans and None.

    NotCanonical for an integer from 2**53 on, because as a double it may be another one, and for a lone surrogate.
    """
    encoded = quick_jcs(value)
    if encoded is not None:
        return encoded
    try:
        return rfc8785.dumps(value)
    except rfc8785.CanonicalizationError as error:
        raise NotCanonical(str(error)) from None
    except UnicodeEncodeError:
        raise NotCanonical("a name has a character that UTF-8 cannot encode") from None


def is_canonical(value: Any, encoded: bytes) -> bool:
    """Whether these bytes are RFC 8785's form of the value."""
    try:
        return jcs(value) == encoded
    except NotCanonical:
        return False


def read_json(data: bytes) -> Any:
    """Parse JSON that all parsers read alike: UTF-8, no duplicate names in an object, at most 100 levels."""
    try:
        check(data, _ANY_SIZE)
        return json.loads(data.decode(), object_pairs_hook=_object, parse_constant=_no_number)
    except InvalidParams as error:
        raise NotCanonical(error.message) from None
    except UnicodeDecodeError:
        raise NotCanonical("it is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise NotCanonical(f"it is not JSON: {error}") from None
    except ValueError as error:
        raise NotCanonical(str(error)) from None


def document_form(card: Mapping[str, Any]) -> bytes:
    return jcs(_doubles(_unsigned(card), exact=True))


def strict_form(card: Mapping[str, Any]) -> bytes:
    return jcs(_message(_card_type(), _unsigned(card), ""))


def card_form(card: Mapping[str, Any]) -> bytes:
    return jcs(_filled(_message(_card_type(), _unsigned(card), "")) or {})


def uncovered(card: Mapping[str, Any], form: bytes) -> list[str]:
    """Return the fields of a card that a signature over one of its forms does not cover."""
    return list(_missing(_unsigned(card), json.loads(form), ""))


def _unsigned(card: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in card.items() if key != "signatures"}


@cache
def _card_type() -> mi.StructType:
    kind = mi.type_info(AgentCard)
    assert isinstance(kind, mi.StructType)
    return kind


def _message(kind: mi.StructType, value: Any, at: str) -> dict[str, Any]:
    """Return the fields that the protocol defines and the sender has set, as protobuf represents them."""
    if not isinstance(value, Mapping):
        raise NotCanonical(f"{at or 'the card'} is not an object")
    found: dict[str, Any] = {}
    for field in kind.fields:
        path = f"{at}.{field.encode_name}" if at else field.encode_name
        given = [value[name] for name in {field.encode_name, field.name} if value.get(name) is not None]
        if len(given) > 1:
            raise NotCanonical(f"{path} occurs twice, as {field.encode_name} and as {field.name}")
        for item in given:
            kept = _value(field.type, item, path)
            if kept or field.required or isinstance(field.type, mi.UnionType):
                found[field.encode_name] = kept
    if kind.cls in _ONE_OF and len(found) > 1:
        raise NotCanonical(f"{at} is both {' and '.join(found)}")
    return found


def _value(kind: mi.Type, value: Any, at: str) -> Any:
    if isinstance(kind, mi.UnionType):
        kind = next(option for option in kind.types if not isinstance(option, mi.NoneType))
    if isinstance(kind, mi.StructType):
        return _message(kind, value, at)
    if isinstance(kind, mi.ListType) and isinstance(value, list):
        return [_value(kind.item_type, item, f"{at}[{index}]") for index, item in enumerate(value)]
    if isinstance(kind, mi.DictType) and isinstance(value, Mapping):
        return {key: _value(kind.value_type, item, f"{at}[{key!r}]") for key, item in value.items()}
    if isinstance(kind, mi.AnyType):
        return _doubles(value, exact=False)
    scalar = {mi.StrType: str, mi.BoolType: bool}.get(type(kind))
    if scalar is None or not isinstance(value, scalar):
        raise NotCanonical(f"{at} is not {_KINDS[type(kind)]}")
    return value


def _doubles(value: Any, *, exact: bool) -> Any:
    """Replace integers that are too large for some readers by doubles: exact ones only, or the nearest."""
    if isinstance(value, Mapping):
        return {key: _doubles(item, exact=exact) for key, item in value.items()}
    if isinstance(value, list):
        return [_doubles(item, exact=exact) for item in value]
    if isinstance(value, int) and abs(value) >= 2**53:
        double = float(value) if abs(value) < 2**1023 else None
        return double if double is not None and (double == value or not exact) else value
    return value


def _filled(value: Any) -> Any:
    """Return the value without its empty parts; None if nothing is left."""
    if isinstance(value, Mapping):
        return {key: kept for key, item in value.items() if (kept := _filled(item)) is not None} or None
    if isinstance(value, list):
        return [kept for item in value if (kept := _filled(item)) is not None] or None
    return None if value == "" else value


def _missing(given: Any, kept: Any, at: str) -> Iterator[str]:
    if isinstance(given, Mapping) and isinstance(kept, Mapping):
        for key, item in given.items():
            path = f"{at}.{key}" if at else key
            if key in kept:
                yield from _missing(item, kept[key], path)
            else:
                yield path
    elif isinstance(given, list) and isinstance(kept, list):
        if len(given) != len(kept):
            yield at
            return
        for index, (item, other) in enumerate(zip(given, kept, strict=True)):
            yield from _missing(item, other, f"{at}[{index}]")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise NotCanonical(f"an object has {name!r} twice")
        found[name] = value
    return found


def _no_number(name: str) -> NoReturn:
    raise NotCanonical(f"{name} is not a number in JSON")
