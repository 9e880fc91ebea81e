"""The gRPC binding (section 10), on the stubs of a2a-sdk. It needs the extra `grpc`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from google.rpc.status_pb2 import Status

from roost.conform.client import (
    ERROR_INFO,
    BindingError,
    ConformClient,
    ConformResponse,
    ConformStream,
    Headers,
    JSONObject,
    StreamEvent,
)
from roost.conform.outcome import NotJudged
from roost.conform.wire import MAX_BODY, MAX_EVENTS, NoAnswer
from roost.protocol.errors import A2AError
from roost.protocol.types import AgentInterface

SERVICE = pb.DESCRIPTOR.services_by_name["A2AService"]
METHODS = {method.name: method for method in SERVICE.methods}
DETAILS = "grpc-status-details-bin"
NO_ANSWER = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)
BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"


class Grpc(ConformClient):
    name = "GRPC"

    def __init__(
        self, interface: AgentInterface, token: str, required: Sequence[str], limit: float, secure: bool
    ) -> None:
        """`limit` is in seconds, for each call. `secure`: use TLS although the URL does not say so."""
        super().__init__(interface, token, required)
        self.limit = limit
        options = [("grpc.max_receive_message_length", MAX_BODY), ("grpc.use_local_subchannel_pool", 1)]
        if secure or interface.url.startswith(("https:", "grpcs:")):
            credentials = grpc.ssl_channel_credentials(_authorities())
            self.channel = grpc.aio.secure_channel(place(interface.url), credentials, options)
        else:
            self.channel = grpc.aio.insecure_channel(place(interface.url), options)

    def code(self, error: type[A2AError]) -> int | str:
        return error.grpc

    async def close(self) -> None:
        await self.channel.close()

    async def call(
        self, operation: str, params: JSONObject, headers: Headers | None = None, token: str | None = None
    ) -> ConformResponse:
        request, kind = self._request(operation, params)
        method: Any = self.channel.unary_unary(
            f"/{SERVICE.full_name}/{operation}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=kind.FromString,
        )
        try:
            response = await method(request, metadata=self._metadata(headers, token), timeout=self.limit)
        except grpc.aio.AioRpcError as error:
            return self._refused(operation, error)
        except TypeError as error:
            raise NoAnswer(str(error), "a protobuf message of the method's type") from None
        found: JSONObject = MessageToDict(response)
        return ConformResponse(found, None, {}, 0, str(found))

    @asynccontextmanager
    async def stream(
        self, operation: str, params: JSONObject, headers: Headers | None = None, token: str | None = None
    ) -> AsyncIterator[ConformStream]:
        request, kind = self._request(operation, params)
        method: Any = self.channel.unary_stream(
            f"/{SERVICE.full_name}/{operation}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=kind.FromString,
        )
        call = method(request, metadata=self._metadata(headers, token), timeout=self.limit)
        try:
            first = await call.read()
        except grpc.aio.AioRpcError as error:
            yield ConformStream(self._refused(operation, error), self._events(operation, call, None))
            return
        try:
            yield ConformStream(None, self._events(operation, call, first))
        finally:
            call.cancel()
            await asyncio.sleep(0)

    async def _events(self, operation: str, call: Any, first: Any) -> AsyncIterator[StreamEvent]:
        message, count = first, 0
        while message is not None and message is not grpc.aio.EOF:
            count += 1
            if count > MAX_EVENTS:
                raise NoAnswer(f"more than {MAX_EVENTS} events", "a stream that ends")
            yield StreamEvent(None, MessageToDict(message))
            try:
                message = await call.read()
            except grpc.aio.AioRpcError as error:
                self._refused(operation, error)
                observed = f"{operation}: the stream broke off: {error.code().name}"
                raise NoAnswer(observed, "a stream that ends") from None

    def _request(self, operation: str, params: JSONObject) -> tuple[Any, Any]:
        """Return the request and the type of its response."""
        method = METHODS[operation]
        tenant = {"tenant": self.interface.tenant} if self.interface.tenant else {}
        try:
            request = ParseDict({**tenant, **params}, getattr(pb, method.input_type.name)())
        except ParseError as error:
            raise NotJudged(f"protobuf cannot represent the request: {error}") from None
        kinds = {"Empty": _Nothing}
        return request, kinds.get(method.output_type.name) or getattr(pb, method.output_type.name)

    def _metadata(self, headers: Headers | None, token: str | None) -> tuple[tuple[str, str], ...]:
        return tuple((name.lower(), value) for name, value in self._headers(headers, token).items())

    def _refused(self, operation: str, error: grpc.aio.AioRpcError) -> ConformResponse:
        """Return the error as a response. NoAnswer if the host could not be reached or took too long."""
        code, text = error.code(), error.details() or ""
        if code in NO_ANSWER:
            raise NoAnswer(f"{operation}: {code.name}: {text}", "a response in time")
        details: list[JSONObject] = []
        trailers = dict(error.trailing_metadata() or ())
        raw = trailers.get(DETAILS)
        if isinstance(raw, bytes):
            details = _details(raw)
        return ConformResponse(None, BindingError(code.name, text, details), {}, 0, f"{code.name}: {text} {details}")


def place(url: str) -> str:
    """Return the host:port of a URL, or of an address that is host:port already."""
    return url.rpartition("://")[2].strip("/").partition("/")[0]


def _authorities() -> bytes | None:
    """Read the certificate authorities in SSL_CERT_FILE. None, for those of gRPC, if it is not set."""
    own = os.environ.get("SSL_CERT_FILE")
    try:
        return Path(own).read_bytes() if own else None
    except OSError as error:
        raise NotJudged(f"cannot read SSL_CERT_FILE {own}: {error.strerror or error}") from None


def _details(raw: bytes) -> list[JSONObject]:
    """Decode the details of an error into the form that they have in JSON."""
    try:
        status = Status.FromString(raw)
    except Exception:  # protobuf raises several types of its own
        return []
    found: list[JSONObject] = []
    for detail in status.details:
        info, bad = ErrorInfo(), BadRequest()
        if detail.Unpack(info):
            found.append({"@type": ERROR_INFO, "reason": info.reason, "domain": info.domain})
        elif detail.Unpack(bad):
            found.append({"@type": BAD_REQUEST})
    return found


class _Nothing:
    """The response type of a method that returns google.protobuf.Empty."""

    @staticmethod
    def FromString(_: bytes) -> pb.AgentCard:  # noqa: N802
        return pb.AgentCard()
