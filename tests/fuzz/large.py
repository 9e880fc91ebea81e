"""Bodies as large as a host takes, full of values that are cheap to send: none of them may keep others waiting."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from benchmarks.hostile import grpc_shapes, shapes
from benchmarks.hostile.senders import DOORS, Door, Response, call_grpc
from hypothesis import strategies as st

from tests.fuzz import bodies
from tests.fuzz.attack import Attack
from tests.fuzz.target import Target

AGENT = "files"
ROOMS = (64 * 1024, 1024 * 1024, shapes.ROOM, shapes.ROOM)
"""The sizes of bodies, in bytes. Most are the largest."""
WEIGHT = 0.2
GRPC_PORT = re.compile(r"gRPC: 127\.0\.0\.1:(\d+)")


class Large(NamedTuple):
    """A body that is made when it is sent, so that an example can be printed."""

    kind: str
    """data or parts: where the value is."""
    value: str
    """The name of a shape, or the JSON that fills the room."""
    room: int

    def body(self, door: Door) -> bytes:
        known = shapes.DATA if self.kind == "data" else shapes.PARTS
        if self.value in known:
            made = known[self.value](self.room)
        else:
            made = shapes.repeated(self.value.encode("utf-8", "surrogatepass"), self.room)
            made = b"[%b]" % made if self.kind == "data" else made
        return door.with_data(made) if self.kind == "data" else door.with_parts(made)


class LargeCall(NamedTuple):
    """The same as protobuf."""

    kind: str
    value: str
    room: int
    old: bool
    """Whether it is a call of A2A 0.3."""


def _large(pair: tuple[str, str], room: int) -> Large:
    return Large(*pair, room)


def _large_call(pair: tuple[str, str], room: int, old: bool) -> LargeCall:
    return LargeCall(*pair, room, old)


def attacks(target: Target) -> list[Attack]:
    found = [_attack(target, door.of(AGENT)) for door in DOORS.values()]
    return [*found, _grpc_attack(target)]


def _attack(target: Target, door: Door) -> Attack:
    item = bodies.values.map(lambda value: json.dumps(value, ensure_ascii=False))
    values = st.one_of(
        st.tuples(st.just("data"), st.sampled_from(list(shapes.DATA)) | item),
        st.tuples(st.just("parts"), st.sampled_from(list(shapes.PARTS)) | item),
    )
    larges = st.builds(_large, values, st.sampled_from(ROOMS))

    def send(large: Large) -> None:
        _check(target, f"POST {door.path}", door.send(target.server.port, large.body(door)))

    return Attack(f"large bodies, {door.name}", larges, send, WEIGHT)


def _grpc_attack(target: Target) -> Attack:
    found = GRPC_PORT.search(target.server.stderr)
    assert found is not None
    port = int(found.group(1))
    kinds = {"data": grpc_shapes.VALUES, "parts": grpc_shapes.PARTS, "more": grpc_shapes.EXTENSIONS}
    pairs = st.sampled_from([(kind, value) for kind, known in kinds.items() for value in known])
    calls = st.builds(_large_call, pairs, st.sampled_from(ROOMS), st.booleans())

    def send(call: LargeCall) -> None:
        made = kinds[call.kind][call.value](call.room)
        if call.old:
            request = grpc_shapes.old_data(made) if call.kind == "data" else grpc_shapes.old_message(made)
            answer = call_grpc(port, grpc_shapes.OLD_SERVICE, "SendMessage", request, {"a2a-agent": AGENT})
        else:
            if call.kind == "data":
                request = grpc_shapes.with_data(made, AGENT)
            else:
                parts, more = (made, b"") if call.kind == "parts" else (grpc_shapes.TEXT_PART, made)
                request = grpc_shapes.message(parts, more, AGENT)
            answer = call_grpc(port, grpc_shapes.V1_SERVICE, "SendMessage", request, {"a2a-version": "1.0"})
        _check(target, "gRPC SendMessage", answer)

    return Attack("large messages, gRPC", calls, send, WEIGHT * 2)


def _check(target: Target, surface: str, answer: Response) -> None:
    target.count(surface, answer.status)
    assert answer.status not in ("INTERNAL", "UNKNOWN"), answer.short
    if answer.status.isdigit():
        assert int(answer.status) < 500 or answer.status == "503", answer.short
    else:
        assert answer.status.isupper(), answer.short  # the name of a status of gRPC, and not of an exception
