"""What the server refused before it was a request, counted for the metrics."""

from __future__ import annotations

from typing import Literal, get_args

RefusalKind = Literal["head_time", "body_time", "write_time", "head_size", "headers", "malformed", "connections", "tls"]
"""Too slow a head or body, an answer that is not read, too long a head, too many headers, not HTTP, too many
connections, no TLS handshake."""

REFUSED: dict[RefusalKind, int] = dict.fromkeys(get_args(RefusalKind), 0)
"""How often, in this process."""
