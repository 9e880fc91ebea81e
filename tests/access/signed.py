"""The signatures of a card, as a2a-sdk's own verifier finds them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any

import jwt
from a2a.types import a2a_pb2 as pb
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from google.protobuf import json_format

Fields = dict[str, Any]


def kids(card: Fields) -> set[str]:
    """The kids of the keys that signed it."""

    def kid(signature: dict[str, str]) -> str:
        protected = signature["protected"]
        found: str = json.loads(base64.urlsafe_b64decode(protected + "=" * (-len(protected) % 4)))["kid"]
        return found

    return {kid(signature) for signature in card["signatures"]}


def holds(card: Fields, keys: Iterable[Fields]) -> bool:
    """Whether the verifier finds the card signed by one of these keys, which are all that it knows."""
    known = {key["kid"]: jwt.PyJWK(key) for key in keys}

    def named(kid: str | None, jku: str | None) -> jwt.PyJWK:
        if kid not in known:
            raise jwt.PyJWTError("no such key")
        return known[kid]

    plain = {name: value for name, value in card.items() if not name.startswith("x-")}
    try:
        create_signature_verifier(named, ["EdDSA", "ES256"])(json_format.ParseDict(plain, pb.AgentCard()))
    except InvalidSignaturesError:
        return False
    return True
