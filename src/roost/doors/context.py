"""What every door is given."""

from __future__ import annotations

from urllib.parse import quote

from roost.doors.access import Access
from roost.doors.cards import Cards
from roost.doors.http import Request
from roost.doors.sse import Heartbeat
from roost.engine.engine import Engine


class Context:
    """public_url: what cards say of where this host is; "" for the bound address. place: that address, as a URL."""

    def __init__(
        self, engine: Engine, access: Access, cards: Cards, *, max_body: int, public_url: str, place: str = ""
    ) -> None:
        self.engine = engine
        self.access = access
        self.cards = cards
        self.max_body = max_body
        self.public_url = public_url
        self.url = public_url or place or "http://localhost"
        """The host's URL to those who did not come by HTTP."""
        self.heartbeat = Heartbeat()

    def base(self, request: Request) -> str:
        """The host's URL, from the settings or the bound address, never from what the request says."""
        if self.public_url:
            return self.public_url
        host, port = request.scope.get("server") or ("127.0.0.1", None)
        if host.startswith("/"):  # a Unix socket has no URL; its clients know where they are
            return "http://localhost"
        scheme = request.scope.get("scheme", "http")
        name = f"[{host}]" if ":" in host else host
        place = name if port in (None, 80 if scheme == "http" else 443) else f"{name}:{port}"
        return f"{scheme}://{place}{quote(request.scope.get('root_path', ''))}"
