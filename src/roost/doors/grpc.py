"""The gRPC binding (specification, section 10): A2A's service on grpc.aio. A request's `tenant` names the agent."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import grpc
from a2a.types import a2a_pb2 as pb

from roost.doors.context import Context
from roost.doors.grpc_batching import BatchedStarts
from roost.doors.grpc_calls import Calls, received
from roost.doors.grpc_errors import CLIENT_GONE, Metadata, Servicer, abort
from roost.doors.guard import Guard, negotiate_extensions, require_version
from roost.doors.http import RequestHead
from roost.doors.observability import Requests
from roost.doors.operations import Operations
from roost.doors.protobuf import parse
from roost.doors.rest import last_event_id, refuse_resume
from roost.doors.sdk import SdkCall, ours
from roost.engine.hosted import Profile
from roost.identity.peers import NamesNobody, Peer, certified
from roost.protocol.errors import A2AError, AgentNotFound, InvalidParams

Operation = Callable[[SdkCall, Any], Awaitable[bytes]]
Opening = Callable[[SdkCall, Any], AsyncGenerator[bytes]]

SERVICE = pb.DESCRIPTOR.services_by_name["A2AService"]
RESUMED = ("SubscribeToTask", "TaskSubscription")
"""With Last-Event-ID; the second is A2A 0.3's."""
GONE = 499


class GrpcDoor:
    """root: the agent of requests without a tenant."""

    name = SERVICE.full_name
    names_agent = "tenant"
    """What a request says which agent with."""

    def __init__(self, context: Context, guard: Guard, requests: Requests, root: str | None, calls: Calls) -> None:
        self.context = context
        self.guard = guard
        self.requests = requests
        self.root = root
        self.calls = calls
        self.engine = context.engine
        self.access = context.access

    def service(self) -> grpc.GenericRpcHandler:
        operations = Operations(self.context)
        unary: dict[str, Operation] = {
            "SendMessage": BatchedStarts().taken_by(operations.send),
            "GetTask": operations.get,
            "ListTasks": operations.list_tasks,
            "CancelTask": operations.cancel,
            "CreateTaskPushNotificationConfig": operations.create_config,
            "GetTaskPushNotificationConfig": operations.get_config,
            "ListTaskPushNotificationConfigs": operations.list_configs,
            "DeleteTaskPushNotificationConfig": operations.delete_config,
            "GetExtendedAgentCard": operations.extended_card,
        }
        streams: dict[str, Opening] = {
            "SendStreamingMessage": operations.send_streaming,
            "SubscribeToTask": operations.subscribe,
        }
        kinds = {method.name: getattr(pb, method.input_type.name) for method in SERVICE.methods}
        return self._handlers(kinds, unary, streams)

    def _handlers(
        self, kinds: dict[str, type[Any]], unary: dict[str, Operation], streams: dict[str, Opening]
    ) -> grpc.GenericRpcHandler:
        """Takes and gives bytes: what cannot be parsed is refused in our form.

        To the library all take streams: so a method begins before the request's message is there.
        """
        made: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        for name, operation in unary.items():
            made[name] = grpc.stream_unary_rpc_method_handler(self._unary(name, kinds[name], operation))
        for name, opening in streams.items():
            made[name] = grpc.stream_stream_rpc_method_handler(self._stream(name, kinds[name], opening))
        return grpc.method_handlers_generic_handler(self.name, made)

    def _unary(self, name: str, kind: type[Any], operation: Operation) -> Any:
        route = f"/{self.name}/{name}"

        async def serve(_: Any, context: Servicer) -> bytes:
            head = head_of(context, route)
            status = GONE
            try:
                await self._meet(head)
                params = parse(kind, await received(context, self.calls.head_s))
                call = await self._admit(head, self._agent(head, params))
                answer = await operation(call, params)
                said = _said(call)
                if said:
                    await context.send_initial_metadata(said)
                status = 200
                return answer
            except CLIENT_GONE:
                raise
            except Exception as error:
                refused = ours(error, head)
                status = refused.http
            finally:
                self.requests.count(route, "POST", status)
            await self._refuse(context, refused)
            return b""

        return serve

    def _stream(self, name: str, kind: type[Any], opening: Opening) -> Any:
        route = f"/{self.name}/{name}"

        async def serve(_: Any, context: Servicer) -> None:
            head = head_of(context, route)
            status = GONE
            try:
                await self._meet(head)
                params = parse(kind, await received(context, self.calls.head_s))
                call = await self._admit(head, self._agent(head, params))
                if name in RESUMED:
                    call.last_event_id = last_event_id(head)
                else:
                    refuse_resume(head)
                async with self.calls.reading(call.principal) as reader, aclosing(opening(call, params)) as responses:
                    async for response in responses:
                        reader.is_written_to()
                        if status == GONE:
                            await context.send_initial_metadata(_said(call))
                            status = 200
                        await context.write(response)
                        reader.has_read()
                return
            except CLIENT_GONE:
                raise
            except Exception as error:
                refused = ours(error, head)
                status = status if status == 200 else refused.http
            finally:
                self.requests.count(route, "POST", status)
            await self._refuse(context, refused)

        return serve

    def _agent(self, head: RequestHead, params: Any) -> str | None:
        return params.tenant or self.root

    def _check_version(self, version: str) -> None:
        require_version(version)

    async def _refuse(self, context: Servicer, error: A2AError) -> None:
        await abort(context, error, error.message)

    async def _meet(self, head: RequestHead) -> None:
        """Only of those who may call anybody here is a message read, and only they are given a place."""
        if self.access.open:
            self.guard.check_near(head)
        await self.access.for_anyone(head)
        self.calls.begin()

    async def _admit(self, head: RequestHead, agent: str | None) -> SdkCall:
        """Who may call this agent, in the version that is spoken here."""
        profile = self._profile(agent)
        principal = await self.access.for_agent(head, profile)
        meter = self.engine.meter
        if not meter.idle:
            meter.check_rate("a2a", principal.name, "", profile.id)
        self._check_version(head.header(b"a2a-version").strip())
        negotiate_extensions(head, profile, self.engine.tenancy)
        return SdkCall(head, profile.id, principal, self.context.url)

    def _profile(self, agent: str | None) -> Profile:
        queue = None if agent is None else self.engine.runner.queues.get(agent)
        if queue is not None:
            return queue.hosted.profile
        if agent is None:
            said = f"{self.names_agent}: name the agent; this host has none that answers without"
            raise InvalidParams(said, field=self.names_agent)
        raise AgentNotFound(f"There is no agent {agent[:128]!r} here; GET /agents/ lists those there are")


def head_of(context: Servicer, route: str) -> RequestHead:
    fields = [
        (name.encode(), value if isinstance(value, bytes) else value.encode("utf-8", "replace"))
        for name, value in context.invocation_metadata() or ()
    ]
    pem = next(iter(context.auth_context().get("x509_pem_cert", ())), None)
    return RequestHead("POST", route, fields, _address(context.peer()), None if pem is None else _certified(pem))


@lru_cache(1024)
def _address(peer: str) -> str | None:
    """ipv4:127.0.0.1:4711, ipv6:%5B::1%5D:4711"""
    family, _, place = unquote(peer).partition(":")
    return place.rpartition(":")[0].strip("[]") if family in ("ipv4", "ipv6") else None


@lru_cache(1024)
def _certified(pem: bytes) -> Peer | None:
    try:
        return certified(ssl.PEM_cert_to_DER_cert(pem.decode("ascii")))
    except (NamesNobody, ValueError):
        return None


def _said(call: SdkCall) -> Metadata:
    """What HTTP says in headers."""
    said: Metadata = []
    if call.position is not None:
        said.append(("last-event-id", str(call.position)))
    if call.replayed:
        said.append(("idempotent-replayed", "true"))
    if call.head.extensions:
        said.append(("a2a-extensions", ", ".join(call.head.extensions)))
    return said
