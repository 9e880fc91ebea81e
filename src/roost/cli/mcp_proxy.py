"""A proxy between an MCP client on stdin and stdout and a host's /mcp.

Messages pass unchanged, so the client can use all that the host can do: tools, progress, questions, cancellation, in
any version of MCP. The proxy adds patience: a restarted host has lost its sessions, so the proxy opens the session
again without the client noticing; a host that cannot be reached is an error of one request only.
"""

from __future__ import annotations

import asyncio
from asyncio import FIRST_COMPLETED
from collections.abc import AsyncIterator
from typing import Any

import httpx
import mcp_types as mcp
from mcp.server.stdio import stdio_server
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
)
from mcp.shared.jsonrpc_dispatcher import cancelled_request_id_from_params
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from roost.addresses import is_loopback
from roost.cli.client import call_headers
from roost.cli.transport import ANSWER_S, CONNECT_S, SILENCE_S, UNIX, authorities, checked_url

PATH = "/mcp"
SESSION = "mcp-session-id"
MOST_REQUESTS = 64
"""The most requests in progress at the same time."""
LAST_ANSWERS_S = 1.5
"""Seconds to wait for each remaining answer after stdin has ended. Clients kill their servers after two seconds."""
GOODBYE_S = 2.0

Write = Any
"""A stream of the SDK, whose type has no public name."""


class SessionLost(Exception):
    """The host does not know the session, because it was restarted or the session was idle for too long."""


def async_client(url: str, token: str, tenant: str) -> httpx.AsyncClient:
    """A client for the host at `url`, with the same headers, certificates and proxies as the other commands use."""
    url = checked_url(url)
    headers = call_headers(token, tenant)
    timeout = httpx.Timeout(ANSWER_S, connect=CONNECT_S)
    if url.startswith(UNIX):
        transport = httpx.AsyncHTTPTransport(uds=url.removeprefix(UNIX))
        return httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers, timeout=timeout)
    local = is_loopback(httpx.URL(url).host)  # proxies are for other machines
    return httpx.AsyncClient(
        base_url=url, headers=headers, timeout=timeout, trust_env=not local, verify=authorities() or True
    )


async def serve(http: httpx.AsyncClient, url: str) -> None:
    async with stdio_server() as (read, write), http:
        proxy = Proxy(http, write, url)
        try:
            async for item in read:
                await proxy.pass_on(item)
            await proxy.finish()
        finally:
            await proxy.close()
            await write.aclose()


class Proxy:
    def __init__(self, http: httpx.AsyncClient, write: Write, url: str) -> None:
        self.http = http
        self.write = write
        self.url = url
        self.session = ""
        self.version = ""
        """The protocol version of the session."""
        self.opening: mcp.JSONRPCRequest | None = None
        """The client's `initialize` request, which can open the session again."""
        self.reopening = asyncio.Lock()
        self.requests: dict[mcp.RequestId, asyncio.Task[None]] = {}

    async def pass_on(self, item: SessionMessage | Exception) -> None:
        if isinstance(item, Exception):
            await self._fail(None, "this line is not a JSON-RPC message", mcp.PARSE_ERROR)
            return
        message = item.message
        if not isinstance(message, mcp.JSONRPCRequest):
            if not self._consumed(message):
                await self._tell(message)
        elif len(self.requests) >= MOST_REQUESTS:
            await self._fail(message.id, f"there are {MOST_REQUESTS} requests already; wait for an answer")
        else:
            asking = asyncio.get_running_loop().create_task(self._ask(message))
            self.requests[message.id] = asking
            asking.add_done_callback(lambda done: self._asked(message.id, done))
            if message.method == "initialize":  # what follows belongs to its session
                await asyncio.wait([asking])

    async def finish(self) -> None:
        """Wait for the answers to requests that came before stdin ended."""
        answered = True
        while self.requests and answered:
            asking = [*self.requests.values()]
            answered = bool((await asyncio.wait(asking, timeout=LAST_ANSWERS_S, return_when=FIRST_COMPLETED))[0])

    async def close(self) -> None:
        """End the session. Tasks continue, except in versions of MCP where a closed connection cancels the call."""
        asking = [*self.requests.values()]
        for one in asking:
            one.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        if self.session:
            try:
                await self.http.delete(PATH, headers=self._of_session(), timeout=GOODBYE_S)
            except httpx.HTTPError:
                return  # the host ends idle sessions itself

    def _asked(self, request_id: mcp.RequestId, done: asyncio.Task[None]) -> None:
        if self.requests.get(request_id) is done:
            del self.requests[request_id]

    def _consumed(self, message: mcp.JSONRPCMessage) -> bool:
        """Cancel a call by closing its connection, if there is no session through which to cancel it."""
        if not isinstance(message, mcp.JSONRPCNotification) or message.method != "notifications/cancelled":
            return False
        if self.session:
            return False
        request_id = cancelled_request_id_from_params(message.params)
        asking = None if request_id is None else self.requests.get(request_id)
        if asking is not None:
            asking.cancel()
        return True

    # To the host

    async def _tell(self, message: mcp.JSONRPCMessage) -> None:
        """Send a notification or an answer. Its loss is not reported, since nobody waits for it."""
        try:
            await self.http.post(PATH, content=_bytes(message), headers=self._headers(message))
        except httpx.HTTPError:
            return

    async def _ask(self, request: mcp.JSONRPCRequest) -> None:
        session = self.session
        try:
            try:
                await self._post(request)
            except SessionLost:
                await self._reopen(session)
                await self._post(request)
        except SessionLost:
            await self._fail(request.id, f"{self.url} does not know this session")
        except (httpx.ConnectError, httpx.ConnectTimeout):
            await self._fail(request.id, f"nothing answers at {self.url}. Is the host running, and is --url right?")
        except httpx.HTTPError as error:
            said = f"the connection to {self.url} was lost: {error or type(error).__name__}"
            await self._fail(request.id, f"{said}. A task that had begun continues: list_tasks shows it")

    async def _reopen(self, lost: str) -> None:
        """Open a new session for the same client, which does not see the answer."""
        async with self.reopening:
            if self.session != lost or self.opening is None:
                return
            # Until it is open, requests go to the lost session, and come here too.
            response = await self.http.post(PATH, content=_bytes(self.opening), headers=self._headers(self.opening))
            self.session = response.headers.get(SESSION, "")
            await self._tell(mcp.JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized"))

    async def _post(self, request: mcp.JSONRPCRequest) -> None:
        timeout = httpx.Timeout(SILENCE_S, connect=CONNECT_S)
        headers = self._headers(request)
        async with self.http.stream(
            "POST", PATH, content=_bytes(request), headers=headers, timeout=timeout
        ) as response:
            if response.status_code == 404 and SESSION in headers:
                raise SessionLost
            if request.method == "initialize":
                self.opening, self.session = request, response.headers.get(SESSION, "")
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                async for data in _events(response):
                    if await self._say(data, request):
                        return
                raise httpx.RemoteProtocolError("the stream ended without an answer")
            if not await self._say(await response.aread(), request):
                await self._fail(request.id, f"{self.url} answers, but not as MCP does (HTTP {response.status_code})")

    def _headers(self, message: mcp.JSONRPCMessage) -> dict[str, str]:
        headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        params = message.params if isinstance(message, mcp.JSONRPCRequest) else None
        named = ((params or {}).get("_meta") or {}).get(mcp.PROTOCOL_VERSION_META_KEY)
        if not isinstance(message, mcp.JSONRPCRequest) or not isinstance(named, str):
            is_opening = isinstance(message, mcp.JSONRPCRequest) and message.method == "initialize"
            return headers if is_opening else headers | self._of_session()
        headers |= {MCP_PROTOCOL_VERSION_HEADER: named, MCP_METHOD_HEADER: message.method}
        name = (params or {}).get(NAME_BEARING_METHODS.get(message.method, ""))
        return headers | ({MCP_NAME_HEADER: encode_header_value(name)} if isinstance(name, str) else {})

    def _of_session(self) -> dict[str, str]:
        version = {MCP_PROTOCOL_VERSION_HEADER: self.version} if self.version else {}
        return {SESSION: self.session, **version} if self.session else {}

    # To the client

    async def _say(self, data: bytes, request: mcp.JSONRPCRequest) -> bool:
        """Pass on a message of the host. True if it is the answer to the request."""
        try:
            message = mcp.jsonrpc_message_adapter.validate_json(data, by_name=False)
        except ValidationError:
            return False
        if isinstance(message, mcp.JSONRPCError) and message.id is None:  # the host refused it unread
            message = mcp.JSONRPCError(jsonrpc="2.0", id=request.id, error=message.error)
        if isinstance(message, mcp.JSONRPCResponse) and request.method == "initialize":
            self.version = str(message.result.get("protocolVersion", ""))
        await self.write.send(SessionMessage(message))
        return isinstance(message, mcp.JSONRPCResponse | mcp.JSONRPCError)

    async def _fail(self, request_id: mcp.RequestId | None, said: str, code: int = mcp.INTERNAL_ERROR) -> None:
        error = mcp.JSONRPCError(jsonrpc="2.0", id=request_id, error=mcp.ErrorData(code=code, message=said))
        await self.write.send(SessionMessage(error))


def _bytes(message: mcp.JSONRPCMessage) -> bytes:
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode()


async def _events(response: httpx.Response) -> AsyncIterator[bytes]:
    """The data of each event. Only line feeds end a line; httpx would also split at U+2028 inside JSON."""
    begun: list[bytes] = []
    async for chunk in response.aiter_bytes():
        head, *rest = chunk.split(b"\n")
        begun.append(head)
        for piece in rest:
            name, _, value = b"".join(begun).removesuffix(b"\r").partition(b":")
            if name == b"data" and value.strip():
                yield value.strip()
            begun = [piece]
