"""JSON decoding and encoding. Input may have the liberties of ProtoJSON (snake_case, null, url-safe base64);
an error names the field."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import inspect as mi

from roost.protocol.cost import DEFAULT, JSONLimits, check
from roost.protocol.errors import InvalidParams, ParseError

T = TypeVar("T")

encode: Callable[[Any], bytes] = msgspec.json.Encoder(decimal_format="number").encode

_SNAKE_KEY = re.compile(rb'"[a-z0-9]+_[a-z0-9_]*"\s*:')
_MISSING = re.compile(r"missing required field `(\w+)`")
_INTEGER = re.compile(r"-?[0-9]{1,10}")
_NORMALIZED = (mi.StructType, mi.ListType, mi.DictType, mi.BytesType, mi.IntType, mi.EnumType)


@cache
def _decoder(kind: Any) -> Callable[[bytes], Any]:
    return msgspec.json.Decoder(kind).decode


def decoder(kind: type[T]) -> Callable[[bytes], T]:
    """Return the decode function of a type, which is made once."""
    made: Callable[[Any], Callable[[bytes], T]] = _decoder
    return made(kind)


def decode(kind: type[T], body: bytes, limits: JSONLimits = DEFAULT) -> T:
    """Parse a request body. Raise ParseError for bad JSON and InvalidParams for anything else."""
    check(body, limits)
    try:
        if _SNAKE_KEY.search(body) is None:
            try:
                return decoder(kind)(body)
            except msgspec.ValidationError:
                pass  # perhaps it only uses ProtoJSON's liberties: convert() decides
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ParseError(f"Invalid JSON payload: {error}") from None
    except RecursionError:
        raise InvalidParams("nesting is too deep") from None
    return convert(kind, value)


def convert(kind: type[T], value: Any, *, strict: bool = True) -> T:
    """Turn plain JSON values into a struct; with strict=False numbers and booleans may be strings."""
    try:
        return msgspec.convert(_normal(mi.type_info(kind), value, ""), kind, strict=strict)
    except (msgspec.ValidationError, RecursionError) as error:
        raise invalid(error) from None


def invalid(error: Exception) -> InvalidParams:
    """Turn a msgspec error into InvalidParams with the path of the field."""
    if isinstance(error, RecursionError):
        return InvalidParams("nesting is too deep")
    what, at, path = str(error).rpartition(" - at `")
    if not at:
        what, path = path, ""
    path = path.removesuffix("`").removeprefix("key in ").removeprefix("$").removeprefix(".")
    missing = _MISSING.search(what)
    if missing:
        path = f"{path}.{missing.group(1)}" if path else missing.group(1)
    path = path.replace("[...]", "[]")
    message = f"{path}: {what}" if path else what
    return InvalidParams(message, field=path or "body")


def _normal(kind: mi.Type, value: Any, at: str) -> Any:
    """Undo the liberties of ProtoJSON in the fields of the schema: snake_case, nulls, url-safe base64,
    integers as strings, enums as numbers. `at` is the path for the error about an enum."""
    if isinstance(kind, mi.UnionType):
        kind = next((option for option in kind.types if isinstance(option, _NORMALIZED)), kind)
    if isinstance(kind, mi.StructType) and isinstance(value, dict):
        return _normal_struct(kind, value, at)
    if isinstance(kind, mi.ListType) and isinstance(value, list):
        return [_normal(kind.item_type, item, f"{at}[{index}]") for index, item in enumerate(value)]
    if isinstance(kind, mi.DictType) and isinstance(value, dict):
        return {key: _normal(kind.value_type, item, f"{at}[]") for key, item in value.items()}
    if isinstance(kind, mi.BytesType) and isinstance(value, str):
        return _standard_base64(value)
    if isinstance(kind, mi.IntType):
        return _integer(value)
    if isinstance(kind, mi.EnumType):
        return _enum_value([str(member.value) for member in kind.cls], value, at)
    return value


def _normal_struct(kind: mi.StructType, value: dict[str, Any], at: str) -> dict[str, Any]:
    fields = {name: field for field in kind.fields for name in (field.name, field.encode_name)}
    found: dict[str, Any] = {}
    for key, item in value.items():
        field = fields.get(key)
        if field is None or (item is None and not isinstance(field.type, mi.AnyType)):
            continue
        name = field.encode_name
        found[name] = _normal(field.type, item, f"{at}.{name}" if at else name)
    return found


def _standard_base64(value: str) -> str:
    plain = value.replace("-", "+").replace("_", "/").rstrip("=")
    plain += "=" * (-len(plain) % 4)
    try:
        base64.b64decode(plain, validate=True)
    except ValueError:
        return value
    return plain


def _integer(value: Any) -> Any:
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _enum_value(names: list[str], value: Any, at: str) -> Any:
    """Return the name of an enum's value. Enums are declared in the order of their numbers."""
    if type(value) is int and 0 <= value < len(names):
        return names[value]
    if isinstance(value, (str, int, float)) and value not in names:
        what = f"{value!r:.80} is not one of {', '.join(names)}"
        raise InvalidParams(f"{at}: {what}" if at else what, field=at or "body")
    return value
