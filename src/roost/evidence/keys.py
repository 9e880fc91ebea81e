"""Signatures of evidence: detached JWS by a key of its own, with a `typ` that no card's signature has."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from joserfc import jwk, jws
from joserfc.errors import BadSignatureError, JoseError
from msgspec import to_builtins

from roost.identity.card_verification import Jwk, VerificationRegistry
from roost.identity.keys import EVIDENCE, Keyring
from roost.identity.signing import ALGORITHMS, NOT_OF_CARDS, base64url
from roost.protocol.canonical import read_json

MANIFEST = f"{NOT_OF_CARDS}manifest+jws"
CHECKPOINT = f"{NOT_OF_CARDS}checkpoint+jws"

MAX_SIGNED = 64 << 20


class BadSignature(Exception):
    """The message says what is wrong with it."""


class UnknownKey(BadSignature):
    """It may be valid: the key is not at hand."""


_registry = VerificationRegistry(MAX_SIGNED)


async def signature(keyring: Keyring, payload: bytes, typ: str) -> dict[str, str]:
    made: dict[str, str] = to_builtins(await keyring.sign(EVIDENCE, payload, typ))
    return made


def is_signature(signed: Any) -> bool:
    keys = {"protected", "signature"}
    return isinstance(signed, dict) and signed.keys() == keys and all(isinstance(one, str) for one in signed.values())


def header_of(signed: Any) -> dict[str, Any]:
    """The protected header, whoever made it."""
    if not is_signature(signed):
        raise BadSignature("a signature is an object of two strings, `protected` and `signature`")
    text = signed["protected"]
    try:
        header = read_json(base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True))
    except ValueError:
        header = None
    if not isinstance(header, dict):
        raise BadSignature("its protected header is not a JSON object in base64url")
    return header


def check(signed: Any, payload: bytes, typ: str, keys: Sequence[Jwk]) -> str:
    """The thumbprint of the key that made it; BadSignature if none of `keys` did, for this purpose."""
    header = header_of(signed)
    if header.get("typ") != typ:
        raise BadSignature(f"its typ is {header.get('typ')!r}, expected {typ!r}")
    if header.get("alg") not in [*ALGORITHMS] or header.keys() != {"alg", "kid", "typ"}:
        raise BadSignature(f"its protected header has alg {header.get('alg')!r} and {', '.join(sorted(header))}")
    candidates = [found for key in keys if (found := _imported(key)) is not None]
    chosen = next((key for key in candidates if key.thumbprint() == header["kid"]), None)
    if chosen is None:
        raise UnknownKey(f"its key {header['kid']} is not among those at hand")
    if not _is_exact(signed["signature"]):
        raise BadSignature("it is not base64url as it is written: some of its bits say nothing")
    value: Any = {"payload": base64url(payload), **signed}
    try:
        _registry.get_alg(header["alg"]).check_key(chosen)
        jws.deserialize_json(value, chosen, registry=_registry)
    except BadSignatureError:
        raise BadSignature(f"it does not fit: what the key {header['kid']} signed was something else") from None
    except (JoseError, ValueError, TypeError) as error:
        raise BadSignature(f"it is not as RFC 7515 has it: {error}") from None
    return chosen.thumbprint()


def _is_exact(text: Any) -> bool:
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
    except (TypeError, ValueError):
        return False
    return bool(base64url(data) == text)


def _imported(key: Jwk) -> jwk.Key | None:
    try:
        return jwk.import_key(key) if key.get("kty") in ("OKP", "EC") else None
    except (JoseError, ValueError, TypeError, KeyError):
        return None
