"""Signatures of evidence: detached JWS with a separate key and a `typ` that no card signature has."""

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
    """The signature is not valid. The message says why."""


class UnknownKey(BadSignature):
    """The key is unknown, so that the signature cannot be checked."""


_registry = VerificationRegistry(MAX_SIGNED)


async def signature(keyring: Keyring, payload: bytes, typ: str) -> dict[str, str]:
    signed: dict[str, str] = to_builtins(await keyring.sign(EVIDENCE, payload, typ))
    return signed


def is_signature(signed: Any) -> bool:
    keys = {"protected", "signature"}
    return isinstance(signed, dict) and signed.keys() == keys and all(isinstance(one, str) for one in signed.values())


def header_of(signed: Any) -> dict[str, Any]:
    """Return the protected header, without checking the signature."""
    if not is_signature(signed):
        raise BadSignature("a signature is an object of two strings, `protected` and `signature`")
    text = signed["protected"]
    try:
        header = read_json(base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True))
    except ValueError:
        header = None
    if not isinstance(header, dict):
        raise BadSignature("the protected header is not a JSON object in base64url")
    return header


def check(signed: Any, payload: bytes, typ: str, keys: Sequence[Jwk]) -> str:
    """Return the thumbprint of the key that made the signature for `typ`. Raises BadSignature if none of `keys` did."""
    header = header_of(signed)
    if header.get("typ") != typ:
        raise BadSignature(f"the typ is {header.get('typ')!r}, expected {typ!r}")
    if header.get("alg") not in [*ALGORITHMS] or header.keys() != {"alg", "kid", "typ"}:
        raise BadSignature(
            f"the protected header has alg {header.get('alg')!r} and the members {', '.join(sorted(header))}"
        )
    candidates = [found for key in keys if (found := _import_key(key)) is not None]
    chosen = next((key for key in candidates if key.thumbprint() == header["kid"]), None)
    if chosen is None:
        raise UnknownKey(f"the key {header['kid']} is not among the known keys")
    if not _is_canonical_base64url(signed["signature"]):
        raise BadSignature("the signature is not canonical base64url: it has unused bits")
    value: Any = {"payload": base64url(payload), **signed}
    try:
        _registry.get_alg(header["alg"]).check_key(chosen)
        jws.deserialize_json(value, chosen, registry=_registry)
    except BadSignatureError:
        raise BadSignature(f"the signature does not match: the key {header['kid']} signed something else") from None
    except (JoseError, ValueError, TypeError) as error:
        raise BadSignature(f"the signature does not conform to RFC 7515: {error}") from None
    return chosen.thumbprint()


def _is_canonical_base64url(text: Any) -> bool:
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
    except (TypeError, ValueError):
        return False
    return bool(base64url(data) == text)


def _import_key(key: Jwk) -> jwk.Key | None:
    try:
        return jwk.import_key(key) if key.get("kty") in ("OKP", "EC") else None
    except (JoseError, ValueError, TypeError, KeyError):
        return None
