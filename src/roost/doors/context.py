"""The parts of a host that every door gets."""

from __future__ import annotations

from urllib.parse import quote

from roost.doors.access import Access
from roost.doors.admission import Admission
from roost.doors.cards import Cards
from roost.doors.heartbeat import Heartbeat
from roost.doors.http import Connection, RequestHead
from roost.doors.requests import RequestReader
from roost.engine.engine import Engine
from roost.fleet.registry import Registry


class Context:
    """The parts of a host that doors use.

    public_url: the URL under which clients reach this host, or "" for the bound address.
    bound_url: that address as a URL.
    """

    def __init__(
        self,
        engine: Engine,
        agents: Registry,
        access: Access,
        cards: Cards,
        *,
        requests: RequestReader,
        public_url: str,
        bound_url: str = "",
    ) -> None:
        self.engine = engine
        self.agents = agents
        self.access = access
        self.admission = Admission(access, engine, agents)
        self.cards = cards
        self.requests = requests
        self.public_url = public_url
        self.bound_url = bound_url
        self.heartbeat = Heartbeat()

    def base(self, head: RequestHead) -> str:
        """Return the host's URL, from the settings or the bound address, never from the request's headers."""
        if self.public_url:
            return self.public_url
        if not isinstance(head, Connection):
            return self.bound_url or "http://localhost"
        host, port = head.scope.get("server") or ("127.0.0.1", None)
        if host.startswith("/"):  # a Unix socket has no URL; its clients know where they are
            return "http://localhost"
        scheme = head.scope.get("scheme", "http")
        name = f"[{host}]" if ":" in host else host
        place = name if port in (None, 80 if scheme == "http" else 443) else f"{name}:{port}"
        return f"{scheme}://{place}{quote(head.scope.get('root_path', ''))}"
