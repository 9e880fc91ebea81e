"""Values that are cheap to send and may be dear to receive, as large as a request may be."""

from __future__ import annotations

import base64
from collections.abc import Callable
from itertools import count, takewhile

ROOM = 8 * 1024 * 1024 - 4096
"""The bytes for a value within the default max_body."""


def filled(each: Callable[[int], bytes], room: int, most: int | None = None) -> bytes:
    """Join what `each` returns for 0, 1, 2 ... by commas, until the room is full."""
    made, size = [], 0
    for number in count() if most is None else range(most):
        item = each(number)
        size += len(item) + 1
        if size > room:
            break
        made.append(item)
    return b",".join(made)


def repeated(item: bytes, room: int) -> bytes:
    return b",".join([item] * (room // (len(item) + 1)))


def nested(before: bytes, inner: bytes, after: bytes, depth: int) -> bytes:
    return before * depth + inner + after * depth


Shape = Callable[[int], bytes]
"""Makes a value that fits into a number of bytes."""

DATA: dict[str, Shape] = {
    "2M floats": lambda room: b"[%b]" % repeated(b"0.5", room),
    "600,000 keys": lambda room: b"{%b}" % filled(lambda n: b'"k%d":1' % n, room, 600_000),
    "2,000 integers of 4,000 digits": lambda room: b"[%b]" % repeated(b"9" * 4000, min(room, 2000 * 4001)),
    "1M small objects": lambda room: b"[%b]" % repeated(b'{"a":1}', room),
    "4M empty lists in depth 2": lambda room: b"[%b]" % repeated(b"[]", room),
    "depth 90": lambda room: nested(b'{"a":', b"1", b"}", 90),
    "depth 95 many times": lambda room: b"[%b]" % repeated(nested(b"[", b"1", b"]", 85), room),
    "depth 4,000,000": lambda room: nested(b"[", b"", b"]", room // 2),
    "1.4M escapes": lambda room: b'["%b"]' % (b"\\u0001" * (room // 6)),
    "non-ASCII escapes": lambda room: b'["%b"]' % (b"\\u00e4" * (room // 6)),
    "surrogate pairs": lambda room: b'["%b"]' % (b"\\ud83d\\udca5" * (room // 12)),
    "lone surrogates": lambda room: b'["%b"]' % (b"\\ud800" * (room // 6)),
    "one key a million times": lambda room: b"{%b}" % repeated(b'"a":1', room),
    "numbers near the limit": lambda room: b"[%b]" % repeated(b"1e308", room),
    "minus zeros": lambda room: b"[%b]" % repeated(b"-0.0", room),
    "long decimals": lambda room: b"[%b]" % repeated(b"0." + b"123456789" * 80, room),
    "9,000 slow exponents": lambda room: b"[%b]" % repeated(b"1.7976931348623157e308", min(room, 9_000 * 23)),
    "8 MB of a decimal": lambda room: b"0." + b"7" * room,
    "an integer of 8 MB": lambda room: b"7" * room,
    "booleans": lambda room: b"[%b]" % repeated(b"true", room),
    "short texts": lambda room: b"[%b]" % repeated(b'"a"', room),
    "long keys": lambda room: b"{%b}" % filled(lambda n: b'"%b%d":1' % (b"k" * 4000, n), room),
    "300,000 keys in snake_case": lambda room: b"{%b}" % filled(lambda n: b'"a_b_c%d":1' % n, room, 300_000),
}
"""JSON values, for a data part or wherever a door takes any value."""

PARTS: dict[str, Shape] = {
    "2.6M {}": lambda room: repeated(b"{}", room),
    "4M numbers": lambda room: repeated(b"1", room),
    "690,000 texts": lambda room: repeated(b'{"text":""}', room),
    "nulls": lambda room: repeated(b"null", room),
    "400,000 parts with two fields": lambda room: repeated(b'{"text":"","url":""}', room),
    "parts with metadata": lambda room: repeated(b'{"text":"","metadata":{"a":1}}', room),
}
"""The items of the list of parts."""


def text(kind: str) -> bytes:
    """Return a JSON string of the whole room."""
    match kind:
        case "ASCII":
            return b'"%b"' % (b"x" * (ROOM - 2))
        case "non-ASCII":
            return b'"%b"' % ("ä".encode() * (ROOM // 2 - 2))
        case "escapes":
            return b'"%b"' % (b"\\u0000" * (ROOM // 6))
        case "lone surrogates":
            return b'"%b"' % (b"\\ud800" * (ROOM // 6))
        case "quotes":
            return b'"%b"' % (b'\\"' * (ROOM // 2 - 2))
    raise ValueError(kind)


def raw(kind: str) -> bytes:
    """Return base64 of the whole room, as a JSON string."""
    encoded = base64.b64encode(b"\xfb\xff\xfe" * (ROOM // 4))
    match kind:
        case "url-safe":
            encoded = base64.urlsafe_b64encode(b"\xfb\xff\xfe" * (ROOM // 4))
        case "wrong at the end":
            encoded = encoded[:-1] + b"!"
        case "unpadded":
            encoded = encoded[:-4] + b"+/8"
        case "line breaks":
            lines = (encoded[at : at + 74] for at in takewhile(lambda at: at < len(encoded), count(0, 74)))
            encoded = b"\\n".join(lines)[: ROOM - 2]
    return b'"%b"' % encoded
