"""GET /.well-known/ai-catalog.json: the agents that the caller may use, as an AI Catalog. See docs/adr/0017."""

from __future__ import annotations

import hashlib

from roost.doors.cards import CARD_PATH
from roost.doors.http import Headers, Request, Response
from roost.engine.hosted import Profile
from roost.protocol.codec import encode

CATALOG_PATH = "/.well-known/ai-catalog.json"
MEDIA_TYPE = "application/ai-catalog+json"
SPEC_VERSION = "1.0"
AGENT_CARD = "application/a2a-agent-card+json"


def catalog(request: Request, profiles: list[Profile], base: str) -> Response:
    entries = [
        {
            "identifier": f"{base}/agents/{profile.id}",
            "type": AGENT_CARD,
            "url": f"{base}/agents/{profile.id}{CARD_PATH}",
            "displayName": profile.name,
            "description": profile.description,
        }
        for profile in profiles
    ]
    body = encode({"specVersion": SPEC_VERSION, "host": {"displayName": "Roost fleet"}, "entries": entries})
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers: Headers = [
        (b"etag", etag.encode()),
        (b"cache-control", b"private, no-cache"),  # each caller has its own
        (b"vary", b"authorization, x-api-key"),
    ]
    known = [tag.strip().removeprefix("W/") for tag in request.header(b"if-none-match").split(",")]
    if etag in known or known == ["*"]:
        return Response(304, b"", headers=headers)
    return Response(200, body, MEDIA_TYPE.encode(), headers)
