"""What the server refused before it was a request, counted for the metrics."""

from __future__ import annotations

from typing import Literal, get_args

Kind = Literal["head_time", "body_time", "head_size", "headers", "malformed", "connections", "tls"]
"""Too slow a head or body, too long a head, too many headers, not HTTP, too many connections, no TLS handshake."""

REFUSED: dict[Kind, int] = dict.fromkeys(get_args(Kind), 0)
"""How often, in this process."""
