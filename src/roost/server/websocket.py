"""uvicorn's WebSocket protocol, held to the limits of HTTP connections and with the peer that HTTP requests have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from uvicorn import Config
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.http11 import Request

from roost.doors.counters import REFUSED
from roost.identity.peers import Peer

if TYPE_CHECKING:
    from roost.server.http import ConnectionWatch

PEER = "roost.peer"


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """A connection that was upgraded from HTTP. `peer` is the peer of the HTTP connection."""

    def __init__(
        self, config: Config, state: ServerState, app_state: dict[str, Any], watch: ConnectionWatch, peer: Peer | None
    ) -> None:
        super().__init__(config, state, app_state)
        self.watch = watch
        self.peer = peer
        self.unsent = 0
        """Bytes that the client had not read when the sweep last looked."""
        self.stalled: float | None = None
        """The monotonic time since when the client has read none of them."""

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.peer is not None and not self.close_sent:
            cast("dict[str, Any]", self.scope)[PEER] = self.peer  # the application's task has not run yet

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True  # a refusal completes it too; otherwise uvicorn logs an error

    def look(self, now: float) -> None:
        """End a connection whose client has read nothing for too long."""
        before, self.unsent = self.unsent, self.transport.get_write_buffer_size()
        if not self.unsent or self.unsent < before:
            self.stalled = None
        elif self.stalled is None:
            self.stalled = now
        elif now - self.stalled >= self.watch.limits.write_s:
            REFUSED["write_time"] += 1
            self.transport.abort()
