"""Verifies the signatures of any card: which are valid, by which key, and what they cover.

It does not decide whom the keys belong to: a valid signature by a key that nobody vouches for proves nothing.
"""

from __future__ import annotations

import base64
import binascii
import enum
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
from joserfc import jwk, jws
from joserfc.errors import BadSignatureError, JoseError

from roost.identity.signing import (
    BINDING,
    CARD,
    DIGEST,
    DOCUMENT,
    FORM,
    FORMS_OF,
    MAX_SIGNATURES,
    NOT_OF_CARDS,
    STRICT,
    base64url,
    digest,
)
from roost.protocol.canonical import NotCanonical, card_form, document_form, read_json, strict_form, uncovered

MAX_CARD = 1024 * 1024
MAX_NAMESAKES = 4
"""The most keys with the same kid that are tried."""
RSA_BITS = range(2048, 8192 + 1)

ACCEPTED = frozenset(
    ("EdDSA", "Ed25519", "Ed448", "ES256", "ES384", "ES512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
)

Jwk = dict[str, Any]


class SignatureFault(enum.StrEnum):
    """Why a signature is not valid."""

    MALFORMED = "malformed"
    REFUSED = "refused"
    """It uses an algorithm, a key or a header parameter that is not accepted."""
    UNKNOWN_KEY = "unknown-key"
    MISMATCH = "mismatch"
    """The card was changed after it was signed, or another key signed it."""


class SignatureVerdict(NamedTuple):
    """The result for one signature."""

    kid: str = ""
    alg: str = ""
    jku: str = ""
    thumbprint: str = ""
    """The thumbprint of the key that made it."""
    covers: str = ""
    """DOCUMENT for the whole document, or CARD for the fields of A2A only."""
    uncovered: tuple[str, ...] = ()
    """The fields that it does not cover."""
    form: str = ""
    """The form that it is over: CARD, STRICT or DOCUMENT."""
    binds: tuple[str, ...] = ()
    """The forms that its key signed, by its own word; empty if it does not say."""
    missing: tuple[str, ...] = ()
    """Those of these forms over which the card has no valid signature by this key."""
    altered: bool = False
    """True if the document is not the one for which it was made, though the form that it is over is the same."""
    whole: bool = False
    """True if it proves that nothing was removed from the document, and nothing added."""
    fault: SignatureFault | None = None
    why: str = ""

    @property
    def valid(self) -> bool:
        return self.fault is None


class Unverifiable(Exception):
    """The input is not a card or key set that can be verified. The message says why."""


class _Faulty(Exception):
    def __init__(self, fault: SignatureFault, why: str) -> None:
        super().__init__(why)
        self.fault = fault


class _Binding(msgspec.Struct, frozen=True, rename={"forms": FORMS_OF, "digest": DIGEST}):
    """The value of BINDING."""

    forms: tuple[str, ...]
    digest: str


class VerificationRegistry(jws.JWSRegistry):
    """joserfc's registry with our limits, for callers that have checked the `alg`.

    It does not warn that EdDSA has a newer name.
    """

    max_header_length = 8192
    max_signature_length = 2048

    def __init__(self, max_payload: int) -> None:
        super().__init__(strict_check_header=False)
        self.max_payload_length = max_payload

    def get_alg(self, name: str) -> Any:
        return self.algorithms[name]


_registry = VerificationRegistry(2 * MAX_CARD)


def read_jwks(data: bytes) -> list[Jwk]:
    """Read the keys of a JWK Set, or a single key in its place."""
    try:
        found = read_json(data)
    except NotCanonical as error:
        raise Unverifiable(f"it is not a key set: {error}") from None
    keys = found.get("keys", [found]) if isinstance(found, dict) else None
    if not isinstance(keys, list) or not all(isinstance(key, dict) and "kty" in key for key in keys):
        raise Unverifiable('it is not a key set: there is no list "keys" of keys with a "kty" each')
    return keys


def thumbprint(key: Jwk) -> str:
    """Return the RFC 7638 thumbprint of a key; empty if the key cannot be used."""
    try:
        return _imported(key).thumbprint()
    except _Faulty:
        return ""


def read_card(document: bytes) -> dict[str, Any]:
    """Read a card, whose signatures are a list; whether each is well-formed is checked later."""
    if len(document) > MAX_CARD:
        raise Unverifiable(f"a card has at most {MAX_CARD} bytes")
    try:
        card = read_json(document)
    except NotCanonical as error:
        raise Unverifiable(f"it is not a card: {error}") from None
    if not isinstance(card, dict):
        raise Unverifiable("it is not a card: it is not an object")
    signatures = card.setdefault("signatures", [])
    if not isinstance(signatures, list):
        raise Unverifiable("it is not a card: its signatures are not a list")
    if len(signatures) > MAX_SIGNATURES:
        raise Unverifiable(f"a card has at most {MAX_SIGNATURES} signatures, this one has {len(signatures)}")
    return card


def key_urls(card: Mapping[str, Any]) -> list[str]:
    """Return the URLs of keys that the signatures name (jku), without duplicates."""
    found = []
    for entry in card["signatures"]:
        try:
            found.append(_header(entry).get("jku"))
        except _Faulty:
            continue
    return list(dict.fromkeys(url for url in found if isinstance(url, str) and url))


def verify(document: bytes, keys: Sequence[Jwk]) -> list[SignatureVerdict]:
    """Return a verdict on each signature of a card, in their order."""
    card = read_card(document)
    forms = _forms(card)
    verdicts = [_verdict(card, entry, forms, keys) for entry in card["signatures"]]
    signed = {(verdict.thumbprint, verdict.form) for verdict in verdicts if verdict.valid}
    return [
        verdict._replace(missing=tuple(form for form in verdict.binds if (verdict.thumbprint, form) not in signed))
        for verdict in verdicts
    ]


def _forms(card: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the bytes that a signature may be over."""
    found = {}
    for name, make in ((CARD, card_form), (STRICT, strict_form), (DOCUMENT, document_form)):
        with suppress(NotCanonical):
            found[name] = make(card)
    return found


def _verdict(card: Mapping[str, Any], entry: Any, forms: Mapping[str, bytes], keys: Sequence[Jwk]) -> SignatureVerdict:
    verdict = SignatureVerdict()
    try:
        header = _header(entry)
        verdict = SignatureVerdict(kid=_text(header, "kid"), alg=_text(header, "alg"), jku=_text(header, "jku"))
        _check_header(header)
        binding = _binding(header)
        possible = {name: form for name, form in forms.items() if name == DOCUMENT or FORM not in header}
        key, name = _match(entry, verdict.alg, possible, _candidates(keys, verdict.kid))
    except _Faulty as error:
        return verdict._replace(fault=error.fault, why=str(error))
    document = forms.get(DOCUMENT)
    bound = binding is not None and document is not None and binding.digest == digest(document)
    return verdict._replace(
        thumbprint=key.thumbprint(),
        covers=DOCUMENT if forms[name] == document else CARD,
        uncovered=tuple(uncovered(card, forms[name])),
        form=name,
        binds=() if binding is None else binding.forms,
        altered=binding is not None and not bound,
        whole=bound or (binding is None and name == DOCUMENT),
    )


def _binding(header: Mapping[str, Any]) -> _Binding | None:
    """Read what the signature says about the others; None if it says nothing."""
    if BINDING not in header:
        return None
    try:
        return msgspec.convert(header[BINDING], _Binding)
    except msgspec.ValidationError as error:
        raise _Faulty(SignatureFault.MALFORMED, f"its parameter {BINDING} is malformed: {error}") from None


def _header(entry: Any) -> dict[str, Any]:
    if not isinstance(entry, dict) or not all(isinstance(entry.get(name), str) for name in ("protected", "signature")):
        raise _Faulty(SignatureFault.MALFORMED, "it has no protected header, or no signature")
    text = entry["protected"]
    try:
        header = read_json(base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True))
    except (binascii.Error, ValueError):
        header = None
    if not isinstance(header, dict):
        raise _Faulty(SignatureFault.MALFORMED, "its protected header is not a JSON object in base64url")
    return header


def _text(header: Mapping[str, Any], name: str) -> str:
    return str(header.get(name, ""))


def _check_header(header: Mapping[str, Any]) -> None:
    alg, kid = header.get("alg"), header.get("kid")
    if not isinstance(alg, str) or alg not in ACCEPTED:
        raise _Faulty(SignatureFault.REFUSED, f"its alg {alg!r} is not accepted")
    if not isinstance(kid, str) or not kid:
        raise _Faulty(SignatureFault.MALFORMED, "it does not say which key made it (kid)")
    if "crit" in header or "b64" in header:
        raise _Faulty(SignatureFault.REFUSED, "it asks for extensions of JWS that are not known here (crit, b64)")
    if str(header.get("typ", "")).startswith(NOT_OF_CARDS):
        raise _Faulty(SignatureFault.REFUSED, f"it is not the signature of a card: its typ is {header['typ']!r}")
    if header.get(FORM, DOCUMENT) != DOCUMENT:
        raise _Faulty(SignatureFault.REFUSED, f"it is over a form of the card that is not known here: {header[FORM]!r}")


def _candidates(keys: Sequence[Jwk], kid: str) -> list[Jwk]:
    found = [key for key in keys if key.get("kid") == kid]
    found = found or [key for key in keys if "kid" not in key and thumbprint(key) == kid]
    if not found:
        raise _Faulty(SignatureFault.UNKNOWN_KEY, "its key is not among the given keys")
    return found[:MAX_NAMESAKES]


def _match(entry: Jwk, alg: str, forms: Mapping[str, bytes], keys: Sequence[Jwk]) -> tuple[jwk.Key, str]:
    """Return the key that made the signature, and the name of the form that it is over.

    Where forms are the same bytes, this is the one that is signed: the first, unless the signature says DOCUMENT.
    """
    fault = _Faulty(SignatureFault.MISMATCH, "it does not match: the card or the signature was changed")
    for candidate in keys:
        try:
            key = _imported(candidate)
            for name, form in forms.items():
                if _fits(entry, alg, form, key):
                    return key, name
        except _Faulty as error:
            fault = error
    raise fault


def _imported(key: Jwk) -> jwk.Key:
    size = len(key["n"]) * 6 if isinstance(key.get("n"), str) else RSA_BITS.start
    if key["kty"] == "oct" or size not in RSA_BITS:
        raise _Faulty(SignatureFault.REFUSED, "its key is a shared secret, or an RSA key that is too short or too long")
    try:
        return jwk.import_key(key)
    except (JoseError, ValueError, TypeError, KeyError) as error:
        raise _Faulty(SignatureFault.REFUSED, f"its key cannot be used: {error}") from None


def _fits(entry: Jwk, alg: str, form: bytes, key: jwk.Key) -> bool:
    try:
        _registry.get_alg(alg).check_key(key)
    except JoseError:
        raise _Faulty(SignatureFault.REFUSED, f"its alg {alg} cannot be used with its key") from None
    value: jws.FlattenedJSONSerialization = {
        "payload": base64url(form),
        "protected": entry["protected"],
        "signature": entry["signature"],
    }
    try:
        jws.deserialize_json(value, key, registry=_registry)
    except BadSignatureError:
        return False
    except (JoseError, ValueError) as error:
        raise _Faulty(SignatureFault.MALFORMED, f"it is not a valid JWS (RFC 7515): {error}") from None
    return True
