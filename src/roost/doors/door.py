"""A door is one way in: the requests it claims, how it serves them, the form of its errors, and its routes.

The host has a list of doors (wiring/doors.py). For each request the application asks them in order, and the first
door that claims the request serves it. To add a door, write one file and add one line to that list.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from roost.doors.http import Connection, Request, Response, WebSocket
from roost.protocol.errors import A2AError, MethodNotAllowed

if TYPE_CHECKING:
    from roost.doors.openapi_components import Describer

AGENT = "/agents/{agent}"
"""The path template of an agent."""

PUBLIC = "public"
"""Access: everyone, without a credential."""
KNOWN = "known"
"""Access: every caller with a valid credential, and everyone on a host that asks for none."""
CALLER = "agent"
"""Access: callers who may call the agent."""


Describe = Callable[["Route", "Describer"], dict[str, Any]]


class Route(NamedTuple):
    """One method and path of a door, for OpenAPI, the docs and the access tests."""

    method: str
    path: str
    """The template, from the host's root on."""
    summary: str
    access: str
    """PUBLIC, KNOWN, CALLER, or the scopes of which one is enough, separated by spaces."""
    describe: Describe | None = None
    """Writes the operation in /openapi.json. Without it, only the summary and the path are described."""


class Door(ABC):
    """One way in. A door that also takes WebSocket connections overrides the two methods about sockets."""

    @abstractmethod
    def routes(self) -> Sequence[Route]:
        """List what this door serves."""

    @abstractmethod
    def claims(self, request: Request) -> bool:
        """Say whether the request is for this door. Doors earlier in the list have not claimed it."""

    @abstractmethod
    async def serve(self, request: Request) -> None:
        """Answer the request, or raise an error before the response has begun."""

    @abstractmethod
    def error(self, request: Connection, error: A2AError) -> Response:
        """Put an error into the form that this door's clients understand."""

    def claims_socket(self, socket: WebSocket) -> bool:
        """Say whether a WebSocket connection is for this door."""
        return False

    async def serve_socket(self, socket: WebSocket) -> None:
        """Accept the connection and serve it until it ends, or raise an error before it is accepted."""
        raise NotImplementedError

    def drain(self) -> None:
        """Begin nothing new: the host is about to stop. May be called more than once."""
        return

    async def close(self) -> None:
        """End what is left. Called once, after `drain`."""
        return


def require_method(request: Request, *methods: str) -> None:
    """Raise unless the request uses one of these methods. HEAD goes wherever GET goes."""
    if request.method not in methods and not (request.method == "HEAD" and "GET" in methods):
        allowed = ", ".join([*methods, *(["HEAD"] if "GET" in methods else [])])
        raise MethodNotAllowed(
            f"{request.method} is not allowed on this path; use {allowed}", metadata={"allow": allowed}
        )
