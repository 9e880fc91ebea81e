"""JSON in and out. Input is forgiving where ProtoJSON is (snake_case, null, url-safe base64)
and exact where it matters: an error names the field."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import inspect as mi

from roost.protocol.errors import InvalidParams, ParseError

T = TypeVar("T")

MAX_DEPTH = 100
"""Nesting of JSON objects and arrays, the limit that protobuf's own parser has."""

encode: Callable[[Any], bytes] = msgspec.json.Encoder(decimal_format="number").encode

_SNAKE_KEY = re.compile(rb'"[a-z0-9]+_[a-z0-9_]*"\s*:')
_AT = re.compile(r"^(.*?)(?: - at `(?:key in )?\$\.?(.*?)`)?$", re.DOTALL)
_MISSING = re.compile(r"missing required field `(\w+)`")


@cache
def _decoder(kind: Any) -> Callable[[bytes], Any]:
    return msgspec.json.Decoder(kind).decode


def decoder(kind: type[T]) -> Callable[[bytes], T]:
    """The decode function of a type, made once."""
    made: Callable[[Any], Callable[[bytes], T]] = _decoder
    return made(kind)


def decode(kind: type[T], body: bytes) -> T:
    """Parse a request body. Raises ParseError for bad JSON and InvalidParams for the rest."""
    check_depth(body)
    try:
        if _SNAKE_KEY.search(body) is None:
            try:
                return decoder(kind)(body)
            except msgspec.ValidationError:
                pass  # perhaps only ProtoJSON's liberties: convert() decides
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ParseError(f"Invalid JSON payload: {error}") from None
    except RecursionError:
        raise InvalidParams("nesting is too deep") from None
    return convert(kind, value)


def convert(kind: type[T], value: Any, *, strict: bool = True) -> T:
    """Turn plain JSON values into a struct; with strict=False numbers and booleans may be strings."""
    try:
        return msgspec.convert(_normal(mi.type_info(kind), value), kind, strict=strict)
    except (msgspec.ValidationError, RecursionError) as error:
        raise invalid(error) from None


def invalid(error: Exception) -> InvalidParams:
    """The InvalidParams that says what a msgspec error says, with the path of the field."""
    if isinstance(error, RecursionError):
        return InvalidParams("nesting is too deep")
    found = _AT.match(str(error))
    what, path = (found.group(1), found.group(2) or "") if found else (str(error), "")
    missing = _MISSING.search(what)
    if missing:
        path = f"{path}.{missing.group(1)}" if path else missing.group(1)
    path = path.replace("[...]", "[]")
    message = f"{path}: {what}" if path else what
    return InvalidParams(message, field=path or "body")


def check_depth(body: bytes) -> None:
    if body.count(b"{") + body.count(b"[") <= MAX_DEPTH:
        return
    depth = 0
    for token in re.finditer(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', body, re.DOTALL):
        mark = token.group()
        if mark in (b"{", b"["):
            depth += 1
            if depth > MAX_DEPTH:
                raise InvalidParams(f"JSON is nested deeper than {MAX_DEPTH} levels", field="body")
        elif mark in (b"}", b"]"):
            depth -= 1


def camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word[:1].upper() + word[1:] for word in rest)


def _normal(kind: mi.Type, value: Any) -> Any:
    """Rename snake_case keys, drop nulls and mend url-safe base64, only where the schema has fields."""
    if isinstance(kind, mi.UnionType):
        for option in kind.types:
            if isinstance(option, (mi.StructType, mi.ListType, mi.BytesType, mi.DictType)):
                return _normal(option, value)
        return value
    if isinstance(kind, mi.StructType) and isinstance(value, dict):
        return _normal_struct(kind, value)
    if isinstance(kind, mi.ListType) and isinstance(value, list):
        return [_normal(kind.item_type, item) for item in value]
    if isinstance(kind, mi.DictType) and isinstance(value, dict):
        return {key: _normal(kind.value_type, item) for key, item in value.items()}
    if isinstance(kind, mi.BytesType) and isinstance(value, str):
        return _standard_base64(value)
    return value


def _normal_struct(kind: mi.StructType, value: dict[str, Any]) -> dict[str, Any]:
    fields = {field.encode_name: field for field in kind.fields}
    found: dict[str, Any] = {}
    for key, item in value.items():
        field = fields.get(key) or fields.get(camel(key))
        if field is None or (item is None and not isinstance(field.type, mi.AnyType)):
            continue
        found[field.encode_name] = _normal(field.type, item)
    return found


def _standard_base64(value: str) -> str:
    plain = value.replace("-", "+").replace("_", "/").rstrip("=")
    plain += "=" * (-len(plain) % 4)
    try:
        base64.b64decode(plain, validate=True)
    except ValueError:
        return value
    return plain
