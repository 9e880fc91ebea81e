"""Hostile requests as protobuf, written by hand, because its classes would take seconds to build them."""

from __future__ import annotations

import struct
from uuid import uuid4

from a2a.compat.v0_3 import a2a_v0_3_pb2 as old_pb
from a2a.types import a2a_pb2 as pb
from google.protobuf import struct_pb2
from google.protobuf.descriptor import Descriptor

from benchmarks.hostile.shapes import Shape

V1_SERVICE = "lf.a2a.v1.A2AService"
OLD_SERVICE = old_pb.DESCRIPTOR.services_by_name["A2AService"].full_name


def varint(number: int) -> bytes:
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    made.append(number)
    return bytes(made)


def _number(kind: Descriptor, name: str) -> int:
    return int(kind.fields_by_name[name].number)


def field(kind: Descriptor, name: str, value: bytes) -> bytes:
    """Encode a field of bytes, text or a message."""
    return varint(_number(kind, name) << 3 | 2) + varint(len(value)) + value


VALUE, LIST, STRUCT = (struct_pb2.DESCRIPTOR.message_types_by_name[name] for name in ("Value", "ListValue", "Struct"))
NUMBER = varint(_number(VALUE, "number_value") << 3 | 1) + struct.pack("<d", 0.5)


def _listed(item: bytes, room: int) -> bytes:
    one = field(LIST, "values", item)
    return field(VALUE, "list_value", one * (room // len(one)))


def _keyed(count: int) -> bytes:
    entry = STRUCT.nested_types_by_name["FieldsEntry"]
    pairs = (field(entry, "key", b"k%d" % number) + field(entry, "value", NUMBER) for number in range(count))
    return field(VALUE, "struct_value", b"".join(field(STRUCT, "fields", pair) for pair in pairs))


def _deep(depth: int) -> bytes:
    value = NUMBER
    for _ in range(depth):
        value = field(VALUE, "list_value", field(LIST, "values", value))
    return value


VALUES: dict[str, Shape] = {
    "640,000 floats": lambda room: _listed(NUMBER, room),
    "1.3M empty values": lambda room: _listed(b"", room),
    "1M empty lists": lambda room: _listed(field(VALUE, "list_value", b""), room),
    "320,000 keys": lambda room: _keyed(room // 26),
    "600,000 texts": lambda room: _listed(field(VALUE, "string_value", b"abcd"), room),
    "depth 85 many times": lambda room: _listed(_deep(20), room),
    "depth 40,000": lambda room: _deep(room // 200),
}
"""google.protobuf.Values, for a data part."""

EMPTY_PART = field(pb.Message.DESCRIPTOR, "parts", b"")
TEXT_PART = field(pb.Message.DESCRIPTOR, "parts", field(pb.Part.DESCRIPTOR, "text", b""))
PARTS: dict[str, Shape] = {
    "4M empty parts": lambda room: EMPTY_PART * (room // len(EMPTY_PART)),
    "2M empty texts": lambda room: TEXT_PART * (room // len(TEXT_PART)),
}
"""The encoded parts of a message."""

UNKNOWN = varint(1000 << 3 | 0) + b"\1"
EXTENSIONS: dict[str, Shape] = {
    "4M extensions": lambda room: field(pb.Message.DESCRIPTOR, "extensions", b"") * (room // 2),
    "2M task ids": lambda room: field(pb.Message.DESCRIPTOR, "reference_task_ids", b"ab") * (room // 4),
    "2.6M unknown fields": lambda room: UNKNOWN * (room // len(UNKNOWN)),
}
"""More of a message, beside one part."""


def message(parts: bytes, more: bytes = b"", agent: str = "sink") -> bytes:
    kind = pb.Message.DESCRIPTOR
    role = varint(_number(kind, "role") << 3) + varint(int(pb.ROLE_USER))
    made = field(kind, "message_id", str(uuid4()).encode()) + role + parts + more
    request = pb.SendMessageRequest.DESCRIPTOR
    return field(request, "tenant", agent.encode()) + field(request, "message", made)


def with_data(value: bytes, agent: str = "sink") -> bytes:
    part = field(pb.Part.DESCRIPTOR, "data", value)
    return message(field(pb.Message.DESCRIPTOR, "parts", part), agent=agent)


def old_message(parts: bytes) -> bytes:
    """The same in A2A 0.3, where a message has `content`."""
    kind = old_pb.Message.DESCRIPTOR
    role = varint(_number(kind, "role") << 3) + varint(int(old_pb.ROLE_USER))
    made = field(kind, "message_id", str(uuid4()).encode()) + role + parts
    return field(old_pb.SendMessageRequest.DESCRIPTOR, "request", made)


def old_parts(room: int) -> bytes:
    """Return empty parts of 0.3."""
    empty = _old_part(b"")
    return empty * (room // len(empty))


def _old_part(value: bytes) -> bytes:
    return field(old_pb.Message.DESCRIPTOR, "content", value)


def old_data(value: bytes) -> bytes:
    """A data part of 0.3 whose Struct has the value under one key."""
    entry = STRUCT.nested_types_by_name["FieldsEntry"]
    fields = field(STRUCT, "fields", field(entry, "key", b"v") + field(entry, "value", value))
    part = field(old_pb.Part.DESCRIPTOR, "data", field(old_pb.DataPart.DESCRIPTOR, "data", fields))
    return old_message(_old_part(part))
