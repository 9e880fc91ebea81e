"""The gRPC binding (specification, section 10): A2A's service on grpc.aio. A request's `tenant` names the agent."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import grpc
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import A2AError as SdkError
from google.protobuf.any_pb2 import Any as AnyDetail
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from roost.doors.context import Context
from roost.doors.errors import known
from roost.doors.guard import Guard, negotiate_extensions, require_version
from roost.doors.http import Head
from roost.doors.observability import Requests
from roost.doors.protobuf import parse
from roost.doors.rest import last_event_id, refuse_resume
from roost.doors.sdk import EngineHandler, SdkCall
from roost.engine.hosted import Profile
from roost.identity.peers import NamesNobody, Peer, certified
from roost.protocol.errors import A2AError, AgentNotFound, InvalidParams, Unauthenticated

Servicer = grpc.aio.ServicerContext[Any, Any]
Metadata = list[tuple[str, str | bytes]]

SERVICE = pb.DESCRIPTOR.services_by_name["A2AService"]
CODES = {code.name: code for code in grpc.StatusCode}
DETAILS = "grpc-status-details-bin"
LONGEST = 1000
"""Of a text in an error: clients take 8 KiB of metadata by default."""
GONE = 499


class GrpcDoor:
    """root: the agent of requests without a tenant."""

    def __init__(self, context: Context, guard: Guard, requests: Requests, root: str | None) -> None:
        self.context = context
        self.guard = guard
        self.requests = requests
        self.root = root
        self.engine = context.engine
        self.access = context.access
        self.handler = EngineHandler(context)

    def service(self) -> grpc.GenericRpcHandler:
        """Takes and gives bytes: what cannot be parsed is refused in our form."""
        handler = self.handler
        unary: dict[str, Callable[[Any, Any], Awaitable[Message | None]]] = {
            "SendMessage": self._send,
            "GetTask": handler.on_get_task,
            "ListTasks": handler.on_list_tasks,
            "CancelTask": handler.on_cancel_task,
            "CreateTaskPushNotificationConfig": handler.on_create_task_push_notification_config,
            "GetTaskPushNotificationConfig": handler.on_get_task_push_notification_config,
            "ListTaskPushNotificationConfigs": handler.on_list_task_push_notification_configs,
            "DeleteTaskPushNotificationConfig": handler.on_delete_task_push_notification_config,
            "GetExtendedAgentCard": handler.on_get_extended_agent_card,
        }
        streams: dict[str, Callable[[Any, Any], Any]] = {
            "SendStreamingMessage": handler.send_streaming,
            "SubscribeToTask": handler.subscribe,
        }
        kinds = {method.name: getattr(pb, method.input_type.name) for method in SERVICE.methods}
        made: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        for name, operation in unary.items():
            made[name] = grpc.unary_unary_rpc_method_handler(self._unary(name, kinds[name], operation))
        for name, opening in streams.items():
            made[name] = grpc.unary_stream_rpc_method_handler(self._stream(name, kinds[name], opening))
        return grpc.method_handlers_generic_handler(SERVICE.full_name, made)

    async def _send(self, params: pb.SendMessageRequest, context: Any) -> pb.SendMessageResponse:
        answer = await self.handler.on_message_send(params, context)
        if isinstance(answer, pb.Task):
            return pb.SendMessageResponse(task=answer)
        return pb.SendMessageResponse(message=answer)

    def _unary(self, name: str, kind: type[Any], operation: Callable[[Any, Any], Awaitable[Message | None]]) -> Any:
        route = f"/{SERVICE.full_name}/{name}"

        async def serve(data: bytes, context: Servicer) -> bytes:
            head = head_of(context, route)
            status = GONE
            try:
                params = parse(kind, data)
                call = await self._admit(head, params.tenant)
                answer = await operation(params, call.context()) or Empty()
                said = _said(call)
                if said:
                    await context.send_initial_metadata(said)
                status = 200
                return answer.SerializeToString()
            except Exception as error:
                refused = _ours(error, head)
                status = refused.http
            finally:
                self.requests.count(route, "POST", status)
            await abort(context, refused)
            return b""

        return serve

    def _stream(self, name: str, kind: type[Any], opening: Callable[[Any, Any], Any]) -> Any:
        route = f"/{SERVICE.full_name}/{name}"

        async def serve(data: bytes, context: Servicer) -> None:
            head = head_of(context, route)
            status = GONE
            try:
                params = parse(kind, data)
                call = await self._admit(head, params.tenant)
                if name == "SubscribeToTask":
                    call.last_event_id = last_event_id(head)
                else:
                    refuse_resume(head)
                async with aclosing(opening(params, call.context())) as responses:
                    async for response in responses:
                        if status == GONE:
                            await context.send_initial_metadata(_said(call))
                            status = 200
                        await context.write(response.SerializeToString())
                return
            except Exception as error:
                refused = _ours(error, head)
                status = status if status == 200 else refused.http
            finally:
                self.requests.count(route, "POST", status)
            await abort(context, refused)

        return serve

    async def _admit(self, head: Head, tenant: str) -> SdkCall:
        """Who may call the agent that the tenant names, in the version that is spoken here."""
        access, meter = self.access, self.engine.meter
        if access.open:
            self.guard.check_near(head)
        if not meter.idle:
            meter.check_rate("a2a", "", "", "")
        agent = tenant or self.root
        profile = await self._profile(head, agent)
        principal = await access.for_agent(head, profile)
        if not meter.idle:
            meter.check_rate("", principal.name, "", profile.id)
        require_version(head.header(b"a2a-version").strip())
        negotiate_extensions(head, profile, self.engine.tenancy)
        return SdkCall(head, profile.id, principal, self.context.url)

    async def _profile(self, head: Head, agent: str | None) -> Profile:
        lane = None if agent is None else self.engine.runner.lanes.get(agent)
        if lane is not None:
            return lane.hosted.profile
        await self.access.for_anyone(head)
        if agent is None:
            raise InvalidParams("tenant: name the agent; this host has none that answers without", field="tenant")
        raise AgentNotFound(f"There is no agent {agent[:128]!r} here; GET /agents/ lists those there are")


def head_of(context: Servicer, route: str) -> Head:
    fields = [
        (name.encode(), value if isinstance(value, bytes) else value.encode("utf-8", "replace"))
        for name, value in context.invocation_metadata() or ()
    ]
    pem = next(iter(context.auth_context().get("x509_pem_cert", ())), None)
    return Head("POST", route, fields, _address(context.peer()), None if pem is None else _certified(pem))


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


def _ours(error: Exception, head: Head) -> A2AError:
    cause = error.__cause__ if isinstance(error, SdkError) else error
    return known(cause or error, head)


async def abort(context: Servicer, error: A2AError) -> None:
    """The specification's status, with google.rpc.Status in the trailers."""
    code = CODES[error.grpc]
    message = error.message[:LONGEST]
    status = Status(code=code.value[0], message=message, details=_details(error, message))
    trailers: Metadata = [(DETAILS, status.SerializeToString())]
    if isinstance(error, Unauthenticated):
        trailers += [("www-authenticate", challenge) for challenge in error.challenges]
    await context.abort(code, message, tuple(trailers))


def _details(error: A2AError, message: str) -> list[AnyDetail]:
    metadata = {key: value[:LONGEST] for key, value in (error.metadata or {}).items()}
    found: list[Message] = [ErrorInfo(reason=error.reason, domain=error.domain, metadata=metadata)]
    if error.field is not None:
        violation = BadRequest.FieldViolation(field=error.field[:LONGEST], description=message)
        found.append(BadRequest(field_violations=[violation]))
    if error.retry_after is not None:
        found.append(RetryInfo(retry_delay={"seconds": error.retry_after}))
    return [_packed(detail) for detail in found]


def _packed(detail: Message) -> AnyDetail:
    made = AnyDetail()
    made.Pack(detail)
    return made
