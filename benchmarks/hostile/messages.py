"""Messages of every shape, at every door that takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from benchmarks.hostile import grpc_shapes, shapes
from benchmarks.hostile.case import BUSY, EITHER, LIMITED, Case, Stage, invalid, outcome
from benchmarks.hostile.senders import DOORS, REST, V1, Door, call_grpc

SNAKE_CASE, RPC, OLD, MCP = "REST, snake_case", "JSON-RPC", "0.3 JSON-RPC", "MCP"
ISSUE_DATA = ("2M floats", "600,000 keys", "2,000 integers of 4,000 digits")
ISSUE_PARTS = ("2.6M {}", "4M numbers", "690,000 texts")
TEXT_PARTS = {
    "0.3 JSON-RPC": b'{"kind":"text","text":%b}',
    "OpenAI chat": b'{"type":"text","text":%b}',
    "OpenAI responses": b'{"type":"input_text","text":%b}',
    "MCP": b"%b",
}
TEXTS = ("ASCII", "non-ASCII", "escapes", "lone surrogates", "quotes")
RAWS = ("standard", "url-safe", "unpadded", "line breaks", "wrong at the end")
PART_REFUSED = invalid(r"parts|content\[|messages|input") + f"|{LIMITED}"
"""The error names the parts, or a limit."""
VALUE_REFUSED = f"{EITHER}|" + invalid("nest|levels|surrogate|[Ii]nteger|exponents|Error parsing")
"""The request is accepted, or the error names a limit, or what is wrong with the value."""
NOT_JSON = invalid("JSON|nest")
MESSAGE_FIELDS: dict[str, Callable[[], bytes]] = {
    "referenceTaskIds x 1M": lambda: b'"referenceTaskIds":[%b]' % shapes.repeated(b'"abcde"', shapes.ROOM),
    "extensions x 1M": lambda: b'"extensions":[%b]' % shapes.repeated(b'"abcde"', shapes.ROOM),
    "extensions of 8 MB": lambda: b'"extensions":["%b"]' % (b"x" * shapes.ROOM),
    "metadata of 8 MB": lambda: b'"metadata":{%b}' % shapes.filled(lambda n: b'"k%d":1' % n, shapes.ROOM),
    "metadata of 60 KB": lambda: b'"metadata":{%b}' % shapes.filled(lambda n: b'"k%d":1' % n, 60_000),
    "an unknown field of 8 MB": lambda: b'"unknown":[%b]' % shapes.repeated(b"[]", shapes.ROOM),
    "contextId of 8 MB": lambda: b'"contextId":"%b"' % (b"c" * shapes.ROOM),
    "taskId of 8 MB": lambda: b'"taskId":"%b"' % (b"t" * shapes.ROOM),
}


def cases() -> Iterator[Case]:
    yield from _of_the_issue()
    yield from _grpc()
    for name, shape in shapes.DATA.items():
        if name not in ISSUE_DATA:
            for door in (REST, DOORS[OLD], DOORS[MCP]):
                yield Case(f"data: {name}", door.name, partial(_data, door, shape), VALUE_REFUSED)
    for name, part in shapes.PARTS.items():
        if name not in ISSUE_PARTS:
            yield Case(f"parts: {name}", REST.name, partial(_parts, REST, part), PART_REFUSED)
    for kind in TEXTS:
        for door in DOORS.values():
            if door.name not in (SNAKE_CASE, "sandbox"):
                expected = invalid("surrogate") if kind == "lone surrogates" else EITHER
                yield Case(f"text of 8 MB: {kind}", door.name, partial(_text, door, kind), expected)
    for kind in RAWS:
        for door in (REST, DOORS[SNAKE_CASE], DOORS[OLD]):
            yield Case(f"file of 6 MB: {kind}", door.name, partial(_raw, door, kind), f"{EITHER}|{invalid('base64')}")
    for name, made in MESSAGE_FIELDS.items():
        expected = f"{EITHER}|refused 404"
        yield Case(f"message: {name}", REST.name, partial(_field, REST, made), expected)
    modes = partial(_modes, REST)
    yield Case("acceptedOutputModes x 1M", REST.name, modes, EITHER)
    yield Case("messageId of 8 MB", REST.name, partial(_message_id, REST), EITHER)
    yield Case("id of 8 MB", "JSON-RPC", partial(_rpc_id, DOORS[RPC]), LIMITED)
    yield Case("batch of 200,000 requests", "JSON-RPC", partial(_batch, DOORS[RPC]), f"{invalid('batch')}|{LIMITED}")
    yield Case("batch of 200,000 requests", "MCP", partial(_batch, DOORS[MCP]), f"{invalid('single')}|{LIMITED}")
    yield Case("not JSON: 8 MB of [", REST.name, partial(_body, REST, lambda: b"[" * shapes.ROOM), NOT_JSON)
    yield Case("not JSON: 8 MB of spaces", REST.name, partial(_body, REST, lambda: b" " * shapes.ROOM), NOT_JSON)
    yield Case("not UTF-8: 8 MB", REST.name, partial(_body, REST, _not_utf8), NOT_JSON)
    yield Case("four at once: 2M floats", REST.name, partial(_at_once, REST, 4), f"{EITHER}|{BUSY}")
    yield Case("echo of 8 MB", REST.name, _echo, EITHER)
    yield Case("echo of 1M floats", REST.name, _echo_data, EITHER)


def _of_the_issue() -> Iterator[Case]:
    for door in DOORS.values():
        for name in ISSUE_PARTS:
            part = shapes.PARTS[name]
            if name == "690,000 texts" and door.name in TEXT_PARTS:
                item = TEXT_PARTS[door.name] % b'""'
                part = partial(shapes.repeated, item)
            expected = EITHER if door.name == MCP else PART_REFUSED
            yield Case(f"parts: {name}", door.name, partial(_parts, door, part), expected)
        for name in ISSUE_DATA:
            yield Case(f"data: {name}", door.name, partial(_data, door, shapes.DATA[name]), VALUE_REFUSED)
    for name in ISSUE_DATA:
        yield Case(f"tokens: {name}", "admin", partial(_admin, shapes.DATA[name]), LIMITED)


def _grpc() -> Iterator[Case]:
    for name, part in grpc_shapes.PARTS.items():
        yield Case(f"parts: {name}", "gRPC", partial(_grpc_send, _built(grpc_shapes.message, part)), PART_REFUSED)
    empty = partial(_old_grpc, _built(grpc_shapes.old_message, grpc_shapes.old_parts))
    yield Case("parts: 4M empty parts", "0.3 gRPC", empty, PART_REFUSED)
    for name, value in grpc_shapes.VALUES.items():
        send = partial(_grpc_send, _built(grpc_shapes.with_data, value))
        yield Case(f"data: {name}", "gRPC", send, VALUE_REFUSED)
        old = partial(_old_grpc, _built(grpc_shapes.old_data, value))
        yield Case(f"data: {name}", "0.3 gRPC", old, VALUE_REFUSED)
    beside = partial(grpc_shapes.message, grpc_shapes.TEXT_PART)
    for name, more in grpc_shapes.EXTENSIONS.items():
        yield Case(f"message: {name}", "gRPC", partial(_grpc_send, _built(beside, more)), EITHER)
    yield Case(
        "8 MB that is no protobuf",
        "gRPC",
        partial(_grpc_send, lambda: b"\xff" * shapes.ROOM),
        invalid("Invalid SendMessageRequest"),
    )
    yield Case("over max_body", "gRPC", partial(_grpc_send, lambda: bytes(9 * 1024 * 1024)), LIMITED)


def _built(build: Callable[[bytes], bytes], shape: shapes.Shape) -> Callable[[], bytes]:
    return lambda: build(shape(shapes.ROOM))


def _parts(door: Door, shape: shapes.Shape, stage: Stage) -> str:
    return outcome(door.send(stage.port, door.with_parts(shape(shapes.ROOM))))


def _data(door: Door, shape: shapes.Shape, stage: Stage) -> str:
    return outcome(door.send(stage.port, door.with_data(shape(shapes.ROOM))))


def _text(door: Door, kind: str, stage: Stage) -> str:
    item = TEXT_PARTS.get(door.name, b'{"text":%b}')
    return outcome(door.send(stage.port, door.with_parts(item.replace(b"%b", shapes.text(kind)))))


def _raw(door: Door, kind: str, stage: Stage) -> str:
    item = b'{"kind":"file","file":{"bytes":%b}}' if door.name.startswith("0.3") else b'{"raw":%b}'
    return outcome(door.send(stage.port, door.with_parts(item.replace(b"%b", shapes.raw(kind)))))


def _field(door: Door, made: Callable[[], bytes], stage: Stage) -> str:
    body = door.with_parts(b'{"text":"hi"}').replace(b'"role"', made() + b',"role"', 1)
    return outcome(door.send(stage.port, body))


def _modes(door: Door, stage: Stage) -> str:
    modes = b'"configuration":{"acceptedOutputModes":[%b]},' % shapes.repeated(b'"a/b"', shapes.ROOM)
    return outcome(door.send(stage.port, b"{" + modes + door.with_parts(b'{"text":"hi"}')[1:]))


def _message_id(door: Door, stage: Stage) -> str:
    body = door.envelope.replace(b"%(id)s", b"m" * shapes.ROOM).replace(b"%(parts)s", b'{"text":"hi"}')
    return outcome(door.send(stage.port, body))


def _rpc_id(door: Door, stage: Stage) -> str:
    body = door.with_parts(b'{"text":"hi"}').replace(b'"id": 1', b'"id": "%b"' % (b"i" * shapes.ROOM))
    return outcome(door.send(stage.port, body))


def _batch(door: Door, stage: Stage) -> str:
    one = b'{"jsonrpc":"2.0","id":1,"method":"x"}'
    return outcome(door.send(stage.port, b"[%b]" % shapes.repeated(one, shapes.ROOM)))


def _body(door: Door, made: Callable[[], bytes], stage: Stage) -> str:
    return outcome(door.send(stage.port, made()))


def _not_utf8() -> bytes:
    return REST.with_parts(b'{"text":"%b"}' % (b"\xff" * (shapes.ROOM - 100)))


def _at_once(door: Door, times: int, stage: Stage) -> str:
    bodies = [door.with_data(shapes.DATA["2M floats"](shapes.ROOM)) for _ in range(times)]
    with ThreadPoolExecutor(times) as pool:
        found = list(pool.map(lambda body: outcome(door.send(stage.port, body)), bodies))
    return max(found)


def _echo(stage: Stage) -> str:
    door = REST._replace(path="/agents/echo/message:send")
    return _text(door, "ASCII", stage)


def _echo_data(stage: Stage) -> str:
    door = REST._replace(path="/agents/echo/message:send")
    return _data(door, lambda _: b"[%b]" % shapes.repeated(b"0.5", 4 * 1024 * 1024), stage)


def _admin(shape: shapes.Shape, stage: Stage) -> str:
    headers = {**V1, "Authorization": f"Bearer {stage.arena.admin_token}"}
    door = Door("admin", "/api/v2/admin/tokens", headers, b"", b"")
    return outcome(door.send(stage.port, b'{"name":"n","scopes":%b}' % shape(shapes.ROOM)))


def _grpc_send(made: Callable[[], bytes], stage: Stage) -> str:
    found = call_grpc(stage.grpc_port, grpc_shapes.V1_SERVICE, "SendMessage", made(), {"a2a-version": "1.0"})
    return outcome(found)


def _old_grpc(made: Callable[[], bytes], stage: Stage) -> str:
    metadata = {"a2a-agent": "sink"}
    return outcome(call_grpc(stage.grpc_port, grpc_shapes.OLD_SERVICE, "SendMessage", made(), metadata))


def warm_up(stage: Stage) -> None:
    """Use each door once, so that what it loads is not counted as a case's memory."""
    for door in DOORS.values():
        item = TEXT_PARTS.get(door.name, b'{"text":%b}').replace(b"%b", b'"hi"')
        found = outcome(door.send(stage.port, door.with_parts(item)))
        if found != "accepted":
            raise RuntimeError(f"{door.name} answers a good message with {found}")
    _grpc_send(lambda: grpc_shapes.message(grpc_shapes.TEXT_PART), stage)
