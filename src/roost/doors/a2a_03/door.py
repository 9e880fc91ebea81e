"""The doors of A2A 0.3: which requests are its own, by version and path."""

from __future__ import annotations

from collections.abc import Sequence

from roost.doors.a2a_03 import load
from roost.doors.a2a_03.errors import rest_error
from roost.doors.admission import Call
from roost.doors.context import Context
from roost.doors.door import AGENT, CALLER, Door, Route
from roost.doors.errors import rest_error as rest_error_1_0
from roost.doors.errors import rpc_error
from roost.doors.guard import OLD_VERSION, SUPPORTED_VERSION, is_old, version_of
from roost.doors.http import Connection, Request, RequestHead, Response
from roost.doors.jsonrpc import NO_ID, Envelope, is_rpc_path, serve_rpc
from roost.doors.openapi_doors import old_operation
from roost.doors.paths import OPENAI_ALIAS, Endpoint, Match, Table
from roost.doors.rest import AgentDoor, Handler
from roost.protocol.errors import A2AError, VersionNotSupported
from roost.protocol.operations import OPERATIONS, Operation

PREFIX = "/v1/"


def speaks_0_3(head: RequestHead) -> None:
    """Check that a request asks for 0.3 or for no version."""
    version = version_of(head)
    if not is_old(version):
        raise VersionNotSupported(
            f"A2A version {version!r} is not supported here. A request without a version is one of 0.3",
            metadata={"requestedVersion": version, "supportedVersions": f"{OLD_VERSION}, {SUPPORTED_VERSION}"},
        )


def negotiate(call: Call, request: Request) -> None:
    """Settle version and extensions. The response names the extensions under the header's old name too."""
    call.context.admission.negotiate(call, speaks_0_3)
    if request.extensions:
        uris = ", ".join(request.extensions).encode("latin-1", "replace")
        request.response_headers.append((b"x-a2a-extensions", uris))


def _rest_handler(operation: Operation) -> Handler:
    async def handler(call: Call, request: Request, path: dict[str, str]) -> None:
        await (await load("rest")).serve(operation, call, request, path)

    return handler


def _summary(operation: Operation) -> str:
    return f"A2A 0.3: {operation.summary[:1].lower()}{operation.summary[1:]}"


TABLE: Table[Handler] = Table(
    Endpoint(route.method, route.template, _rest_handler(operation), _summary(operation))
    for operation in OPERATIONS
    for route in operation.old.rest
)


class OldRestDoor(AgentDoor):
    """Claims the paths below an agent's `/v1/` that the dialect of agentic-sandbox has not claimed.

    An agent whose id is `v1` has the paths of A2A 1.0 with a tenant there.
    """

    def negotiate(self, call: Call, request: Request) -> None:
        negotiate(call, request)

    def routes(self) -> Sequence[Route]:
        return [
            Route(route.method, AGENT + route.template, _summary(operation), CALLER, old_operation(operation))
            for operation in OPERATIONS
            for route in operation.old.rest
        ]

    def claims(self, request: Request) -> bool:
        place = request.place
        if not place.agent or not place.below.startswith(PREFIX) or place.below == OPENAI_ALIAS:
            return False
        return place.agent != PREFIX.strip("/") or is_old(version_of(request))

    def match(self, request: Request) -> Match[Handler]:
        return TABLE.match(request.method, request.place.below)

    def error(self, request: Connection, error: A2AError) -> Response:
        return rest_error(error)


class OldJSONRPCDoor(Door):
    """Claims requests to the JSON-RPC path that ask for no version or for one that 1.0 does not serve."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def routes(self) -> Sequence[Route]:
        return []  # the path is that of 1.0

    def claims(self, request: Request) -> bool:
        if not is_rpc_path(request.place):
            return False
        version = version_of(request)
        return version != SUPPORTED_VERSION and not version.startswith(SUPPORTED_VERSION + ".")

    def error(self, request: Connection, error: A2AError) -> Response:
        return rpc_error(error, NO_ID) if request.method == "POST" else rest_error_1_0(request, error)

    async def serve(self, request: Request) -> None:
        await serve_rpc(self.context, request, _serve_rpc)


async def _serve_rpc(call: Call, request: Request, envelope: Envelope, request_id: bytes) -> None:
    await (await load("jsonrpc")).serve(call, request, envelope, request_id)
