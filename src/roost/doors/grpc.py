"""The gRPC binding (specification, section 10): A2A's service on grpc.aio. A request's `tenant` names the agent."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import lru_cache
from typing import Any
from urllib.parse import unquote
from weakref import WeakKeyDictionary

import grpc
from a2a.types import a2a_pb2 as pb
from google.protobuf.message import Message

from roost.doors.admission import A2A, Call, OpenStream, speaks_1_0
from roost.doors.context import Context
from roost.doors.counters import RequestCounts
from roost.doors.errors import known
from roost.doors.grpc_batching import BatchedStarts
from roost.doors.grpc_calls import GrpcCalls, received
from roost.doors.grpc_errors import CLIENT_GONE, Metadata, Servicer, abort
from roost.doors.guard import Guard
from roost.doors.http import RequestHead
from roost.doors.operations import check_tenant, opening, unary
from roost.doors.protobuf import page_of, parse, prepare_large, read, wire_large, within
from roost.doors.protobuf_cost import is_light, text_field
from roost.doors.requests import too_large
from roost.engine.live import LiveTask
from roost.engine.responses import SendResult, TaskStream
from roost.engine.ring import StreamFrame
from roost.identity.peers import NamesNobody, Peer, certified
from roost.identity.principal import Principal
from roost.protocol.cost import is_light as is_light_json
from roost.protocol.errors import A2AError, InvalidParams
from roost.protocol.operations import BY_NAME, Operation
from roost.protocol.raw import PreparedRequest

SERVICE = pb.DESCRIPTOR.services_by_name["A2AService"]
GONE = 499


class GrpcDoor:
    """Serves one protobuf service. Calls without a tenant are for the agent `root`, if there is one."""

    service = SERVICE
    messages: Any = pb
    """The module with the service's messages."""
    names_agent = "tenant"
    """The field or metadata key that names the agent."""

    def __init__(self, context: Context, guard: Guard, counts: RequestCounts, root: str, calls: GrpcCalls) -> None:
        self.context = context
        self.guard = guard
        self.counts = counts
        self.root = root
        self.calls = calls
        self.starts = BatchedStarts()

    @property
    def name(self) -> str:
        full_name: str = self.service.full_name
        return full_name

    def handlers(self) -> grpc.GenericRpcHandler:
        """Return handlers of bytes, so that a message that cannot be parsed is refused in our form.

        All of them are declared as streaming, so that a method begins before the request's message has arrived.
        """
        made: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        for method in self.service.methods:
            operation, kind = self.operation(method.name), getattr(self.messages, method.input_type.name)
            if operation.streams:
                made[method.name] = grpc.stream_stream_rpc_method_handler(self._stream(method.name, operation, kind))
            else:
                made[method.name] = grpc.stream_unary_rpc_method_handler(self._unary(method.name, operation, kind))
        return grpc.method_handlers_generic_handler(self.name, made)

    # The part that differs between the versions

    def operation(self, method: str) -> Operation:
        return BY_NAME[method]

    def agent_of(self, head: RequestHead, params: Any) -> str:
        return params.tenant or self.root

    def check_version(self, head: RequestHead) -> None:
        speaks_1_0(head)

    async def prepared(self, call: Call, data: bytes) -> PreparedRequest:
        """Convert a large message."""
        return await call.context.requests.prepared(call.principal, prepare_large, data)

    async def carry_out(self, call: Call, method: str, operation: Operation, params: Any) -> tuple[bytes, bool]:
        """Carry out a unary operation. Return the response's bytes, and whether the message was a repeated one."""
        request = self._request(call, operation, params)
        if operation.name == "SendMessage":
            result = await self.starts.begin(unary(operation), call, request)
        else:
            result = await unary(operation)(call, request)
        if isinstance(result, SendResult):
            return await self._sent(call, pb.SendMessageResponse, result), result.replayed
        if operation.name == "ListTasks":
            return await self._converted(call, result, page_of), False
        if operation.response is None:
            return b"", False
        return await self._encoded(call, RESPONSES[operation.name], result), False

    async def open(self, call: Call, method: str, operation: Operation, params: Any) -> TaskStream:
        return await opening(operation)(call, self._request(call, operation, params))

    async def first(self, call: Call, operation: Operation, stream: OpenStream) -> bytes:
        """Encode the opening of a stream."""
        return await self._sent(call, pb.StreamResponse, stream.opening)

    async def events(
        self, call: Call, operation: Operation, stream: OpenStream, frames: list[StreamFrame]
    ) -> list[bytes]:
        """Encode a batch of events. Many readers at the same position get the same responses."""
        first, last, shared = frames[0].seq, frames[-1].seq, None if stream.has_view else stream.live
        if shared is None:
            return await self._encoded_events(call, frames)
        found = _responses.get(shared)
        if found is None or found[:2] != (first, last) or found[2].cancelled():
            made = asyncio.get_running_loop().create_task(self._encoded_events(call, frames))
            found = _responses[shared] = (first, last, made)
        return await asyncio.shield(found[2])

    async def _encoded_events(self, call: Call, frames: list[StreamFrame]) -> list[bytes]:
        return [await self._encoded(call, pb.StreamResponse, frame.data) for frame in frames]

    async def _sent(self, call: Call, kind: type[Message], result: SendResult) -> bytes:
        if result.task is not None:
            return within(kind, "task", await self._encoded(call, pb.Task, result.task))
        return within(kind, "message", await self._encoded(call, pb.Message, result.message or b"{}"))

    async def _encoded(self, call: Call, kind: type[Message], data: bytes) -> bytes:
        """Encode a result of the engine, in a worker process if it is large."""
        return await self._converted(call, data, wire_large, kind.DESCRIPTOR.name)

    async def _converted(self, call: Call, data: bytes, work: Callable[..., bytes], *args: str) -> bytes:
        if is_light_json(data):
            return work(*args, data)
        return await call.context.requests.workers.run(call.principal.name, work, *args, data)

    async def refuse(self, context: Servicer, error: A2AError) -> None:
        await abort(context, error, error.message)

    # The part that all versions share

    def _unary(self, method: str, operation: Operation, kind: type[Message]) -> Any:
        route = f"/{self.name}/{method}"

        async def serve(_: Any, context: Servicer) -> bytes:
            head = head_of(context, route)
            status = GONE
            try:
                principal = await self._caller(head)
                call, params = await self._read(head, principal, kind, await received(context, self.calls.head_s))
                self.calls.keep_until_sent(call.reader)
                response, replayed = await self.carry_out(call, method, operation, params)
                metadata = _metadata(head, None, replayed=replayed)
                if metadata:
                    await context.send_initial_metadata(metadata)
                status = 200
                return response
            except CLIENT_GONE:
                raise
            except Exception as error:
                refused = known(error, head)
                status = refused.http
            finally:
                self.counts.count(route, "POST", status)
            await self.refuse(context, refused)
            return b""

        return serve

    def _stream(self, method: str, operation: Operation, kind: type[Message]) -> Any:
        route = f"/{self.name}/{method}"

        async def serve(_: Any, context: Servicer) -> None:
            head = head_of(context, route)
            status = GONE
            try:
                principal = await self._caller(head)
                call, params = await self._read(head, principal, kind, await received(context, self.calls.head_s))
                self.calls.keep_until_sent(call.reader)
                async with (
                    self.calls.reading(call.principal) as reader,
                    call.stream(self.open(call, method, operation, params)) as stream,
                ):
                    first = await self.first(call, operation, stream)
                    position = None if stream.follower is None else stream.follower.position
                    await context.send_initial_metadata(_metadata(head, position, replayed=stream.opening.replayed))
                    status = 200
                    reader.is_written_to()
                    await context.write(first)
                    reader.has_read()
                    first = b""
                    stream.opening_is_sent()
                    while (frames := await stream.batch()) is not None:
                        responses = await self.events(call, operation, stream, frames) if frames else []
                        for response in responses:
                            reader.is_written_to()
                            await context.write(response)
                            reader.has_read()
                            response = b""  # it may be large, and the next may be long in coming
                        del frames, responses
                    interruption = stream.interruption()
                    if interruption is not None:
                        raise interruption
                return
            except CLIENT_GONE:
                raise
            except Exception as error:
                refused = known(error, head)
                status = status if status == 200 else refused.http
            finally:
                self.counts.count(route, "POST", status)
            await self.refuse(context, refused)

        return serve

    async def _caller(self, head: RequestHead) -> Principal:
        """Admit a call. Only an authenticated caller's message is read, and only such a call counts."""
        if self.context.access.open:
            self.guard.check_near(head)
        principal = await self.context.admission.caller(head, A2A)
        self.calls.begin()
        return principal

    async def _read(
        self, head: RequestHead, principal: Principal, kind: type[Message], data: bytes
    ) -> tuple[Call, Any]:
        """Admit a call to its agent. A large message is not parsed before, and not here."""
        if is_light(kind, data):
            params = parse(kind, data)
            return await self._admit(head, principal, self.agent_of(head, params)), params
        if kind.DESCRIPTOR.name != pb.SendMessageRequest.DESCRIPTOR.name:
            raise too_large()
        named = pb.SendMessageRequest(tenant=text_field(kind, data, pb.SendMessageRequest.TENANT_FIELD_NUMBER))
        call = await self._admit(head, principal, self.agent_of(head, named))
        with self.context.requests.room_for(principal, len(data)):
            return call, await self.prepared(call, data)

    async def _admit(self, head: RequestHead, principal: Principal, agent: str) -> Call:
        if not agent:
            raise InvalidParams(
                f"{self.names_agent}: name the agent; no agent of this host answers without it",
                field=self.names_agent,
            )
        call = await self.context.admission.agent(self.context, head, principal, agent, self.check_version)
        return call._replace(converts=True)

    def _request(self, call: Call, operation: Operation, params: Any) -> Any:
        check_tenant(call.agent, params.tenant)
        return params if isinstance(params, PreparedRequest) else read(operation.request, params)


RESPONSES: dict[str, type[Message]] = {
    method.name: getattr(pb, method.output_type.name)
    for method in SERVICE.methods
    if method.output_type.name != "Empty"
}


_responses: WeakKeyDictionary[LiveTask, tuple[int, int, asyncio.Task[list[bytes]]]] = WeakKeyDictionary()
"""The last responses of each task, so that many readers at the same position get the same ones."""


def head_of(context: Servicer, route: str) -> RequestHead:
    fields = [
        (name.encode(), value if isinstance(value, bytes) else value.encode("utf-8", "replace"))
        for name, value in context.invocation_metadata() or ()
    ]
    pem = next(iter(context.auth_context().get("x509_pem_cert", ())), None)
    return RequestHead("POST", route, fields, _address(context.peer()), None if pem is None else _certified(pem))


@lru_cache(1024)
def _address(peer: str) -> str | None:
    """Parse ipv4:127.0.0.1:4711 and ipv6:%5B::1%5D:4711."""
    family, _, place = unquote(peer).partition(":")
    return place.rpartition(":")[0].strip("[]") if family in ("ipv4", "ipv6") else None


@lru_cache(1024)
def _certified(pem: bytes) -> Peer | None:
    try:
        return certified(ssl.PEM_cert_to_DER_cert(pem.decode("ascii")))
    except (NamesNobody, ValueError):
        return None


def _metadata(head: RequestHead, position: int | None, *, replayed: bool) -> Metadata:
    """Return the metadata that HTTP would send as headers."""
    found: Metadata = []
    if position is not None:
        found.append(("last-event-id", str(position)))
    if replayed:
        found.append(("idempotent-replayed", "true"))
    if head.extensions:
        found.append(("a2a-extensions", ", ".join(head.extensions)))
    return found
