"""Cards to sign and to tamper with, keys, and the Python SDK's verifier."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from typing import Any

from a2a.client.card_resolver import parse_agent_card
from a2a.utils.signing import SignatureVerificationError, _canonicalize_agent_card, create_signature_verifier
from jwt.api_jwk import PyJWK
from jwt.exceptions import PyJWKSetError

from roost.identity.signing import DOCUMENT, FORM, Signer, make_pair, sign, sign_card, signer
from roost.protocol.canonical import card_form, document_form, strict_form

JKU = "https://agents.example.com/agents/full/.well-known/jwks.json"

Card = dict[str, Any]
Path = tuple[str | int, ...]

SCOPES = {"read": "Read things", "write": "Write things"}

FULL: Card = {
    "name": "Full",
    "description": "Has every field, and nothing that is empty.",
    "version": "1.2.3",
    "supportedInterfaces": [
        {"url": "https://a.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0", "tenant": "full"},
        {"url": "https://a.example/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0", "tenant": "full"},
    ],
    "provider": {"url": "https://example.com", "organization": "Example Köln \U0001f426"},
    "documentationUrl": "https://example.com/docs",
    "iconUrl": "https://example.com/icon.png",
    "capabilities": {
        "streaming": True,
        "pushNotifications": False,
        "extendedAgentCard": True,
        "extensions": [
            {
                "uri": "urn:example:ext",
                "description": "With params",
                "required": True,
                "params": {
                    "float": 0.1,
                    "small": 1e-7,
                    "whole": 3.0,
                    "count": 42,
                    "negative": -0.5,
                    "no": False,
                    "list": ["a", 1, True, {"deep": ["er"]}],
                    "\U0001f600": "beyond the first plane",
                    "\uffff": "the last of the first plane",
                    'quote"\\\n\u2028\x7f': "ünïcode",
                },
            },
            {"uri": "urn:example:other", "description": "Without"},
        ],
    },
    "defaultInputModes": ["text/plain", "application/json"],
    "defaultOutputModes": ["text/plain"],
    "skills": [
        {
            "id": "one",
            "name": "One",
            "description": "Does one thing",
            "tags": ["a", "b"],
            "examples": ["do it"],
            "inputModes": ["text/plain"],
            "outputModes": ["image/png"],
            "securityRequirements": [{"schemes": {"code": {"list": ["read"]}}}],
        },
        {"id": "two", "name": "Two", "description": "Does another", "tags": ["c"]},
    ],
    "securitySchemes": {
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key", "description": "A key"}},
        "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": "JWT", "description": "A token"}},
        "oidc": {
            "openIdConnectSecurityScheme": {
                "openIdConnectUrl": "https://id.example/.well-known/openid-configuration",
                "description": "Sign in",
            }
        },
        "mtls": {"mtlsSecurityScheme": {"description": "A certificate"}},
        "code": {
            "oauth2SecurityScheme": {
                "description": "By browser",
                "oauth2MetadataUrl": "https://id.example/.well-known/oauth-authorization-server",
                "flows": {
                    "authorizationCode": {
                        "authorizationUrl": "https://id.example/authorize",
                        "tokenUrl": "https://id.example/token",
                        "refreshUrl": "https://id.example/refresh",
                        "scopes": SCOPES,
                        "pkceRequired": True,
                    }
                },
            }
        },
        "client": {
            "oauth2SecurityScheme": {
                "flows": {"clientCredentials": {"tokenUrl": "https://id.example/token", "scopes": SCOPES}}
            }
        },
        "implicit": {
            "oauth2SecurityScheme": {
                "flows": {"implicit": {"authorizationUrl": "https://id.example/authorize", "scopes": SCOPES}}
            }
        },
        "password": {
            "oauth2SecurityScheme": {
                "flows": {"password": {"tokenUrl": "https://id.example/token", "scopes": SCOPES}},
            }
        },
        "device": {
            "oauth2SecurityScheme": {
                "flows": {
                    "deviceCode": {
                        "deviceAuthorizationUrl": "https://id.example/device",
                        "tokenUrl": "https://id.example/token",
                        "refreshUrl": "https://id.example/refresh",
                        "scopes": SCOPES,
                    }
                }
            }
        },
    },
    "securityRequirements": [{"schemes": {"code": {"list": ["read", "write"]}, "client": {"list": ["read"]}}}],
}

BLOCK: Card = {"x-fleet": {"members": ["a", "b"], "ratio": 0.25}, "x-note": "ours"}
"""Fields that A2A does not define."""

MINIMAL: Card = {
    "name": "Minimal",
    "description": "Has what a card must have",
    "version": "1",
    "supportedInterfaces": [{"url": "https://a.example", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
    "capabilities": {},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "one", "name": "One", "description": "Does one thing", "tags": ["a"]}],
}


def new_signer(alg: str = "EdDSA") -> tuple[Signer, Card]:
    """Return a key pair."""
    pair = make_pair(alg)
    return signer(pair.kid, pair.alg, pair.private), json.loads(pair.public)


def signed(card: Card, *signers: Signer, jku: str = JKU) -> Card:
    made = [{"protected": one.protected, "signature": one.signature} for one in sign_card(card, signers, jku)]
    return {**card, "signatures": made}


def signed_before(card: Card, *signers: Signer, jku: str = JKU) -> Card:
    """Sign as the releases did whose signatures say nothing about one another."""
    usual, strict, document = card_form(card), strict_form(card), document_form(card)
    made = []
    for by in signers:
        made.append(sign(usual, by, {"jku": jku}))
        if strict not in (usual, document):
            made.append(sign(strict, by, {"jku": jku}))
        if document != usual:
            made.append(sign(document, by, {"jku": jku, FORM: DOCUMENT}))
    return {**card, "signatures": [{"protected": one.protected, "signature": one.signature} for one in made]}


def places(value: Any, at: Path = ()) -> Iterator[Path]:
    """Yield the path of every field and element, at any depth."""
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*at, key)
        yield from places(item, (*at, key))


def tampered(card: Card, at: Path) -> Iterator[Card]:
    """Yield the card with another value at the path, and without the value."""
    for change in (_changed, None):
        other = copy.deepcopy(card)
        holder: Any = other
        for key in at[:-1]:
            holder = holder[key]
        if change is None:
            del holder[at[-1]]
        else:
            holder[at[-1]] = change(holder[at[-1]])
        yield other


def _changed(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return value + "!"
    if isinstance(value, list):
        return [*value, *value]
    return dict(list(value.items())[1:])


def python_form(card: Card) -> bytes:
    return _canonicalize_agent_card(parse_agent_card(copy.deepcopy(card))).encode()


def python_accepts(card: Card, keys: Sequence[Card]) -> bool:
    """Whether the verifier of a2a-sdk accepts the card."""

    def find(kid: str | None, jku: str | None) -> PyJWK:
        found = next((key for key in keys if key["kid"] == kid), None)
        if found is None:
            raise PyJWKSetError("unknown key")
        return PyJWK(found)

    try:
        create_signature_verifier(find, ["EdDSA", "ES256"])(parse_agent_card(copy.deepcopy(card)))
    except SignatureVerificationError:
        return False
    return True
