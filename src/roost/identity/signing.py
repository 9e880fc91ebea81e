"""Signatures of cards: detached JWS over canonical forms, as section 8.4 of the specification defines them.

A key signs the form that the SDKs compute, and the other two forms where they differ from it. The protected header of
the signature over the whole document has FORM: "document". A client that does not know this parameter finds that the
signature does not match and tries the next one, as it does for an unknown key.

Every signature has BINDING in its protected header: the forms that its key has signed, and the digest of the whole
document. So whoever removes one of them, with the fields that only it covered, contradicts all the others.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from joserfc.jwk import JWKRegistry
from msgspec import json

from roost.protocol.canonical import card_form, document_form, strict_form
from roost.protocol.codec import encode
from roost.protocol.types import AgentCardSignature

FORM = "urn:roost:a2a:card-form"
CARD = "card"
STRICT = "strict"
DOCUMENT = "document"

BINDING = "urn:roost:a2a:card-signatures"
"""The header parameter with the forms that the key has signed (FORMS_OF), and the digest of the document (DIGEST)."""
FORMS_OF = "forms"
DIGEST = "sha256"

MAX_SIGNATURES = 16
FORMS = 3
"""The most signatures that one key makes for a card."""

NOT_OF_CARDS = "application/vnd.roost."
"""The prefix of the `typ` of all other signatures, so that none of them can pass for a card's."""

ALGORITHMS = {"EdDSA": ("OKP", "Ed25519"), "ES256": ("EC", "P-256")}


class Pair(NamedTuple):
    """A new pair of keys."""

    kid: str
    """RFC 7638 thumbprint."""
    alg: str
    public: bytes
    """The public JWK as JSON."""
    private: bytes
    """The private JWK as JSON, not yet encrypted."""


class Signer(NamedTuple):
    kid: str
    alg: str
    key: Ed25519PrivateKey | EllipticCurvePrivateKey


def make_pair(alg: str) -> Pair:
    kind, curve = ALGORITHMS[alg]
    key = JWKRegistry.generate_key(kind, curve, {"alg": alg, "use": "sig"}, auto_kid=True)
    assert key.kid is not None
    return Pair(key.kid, alg, encode(key.as_dict(private=False)), encode(key.as_dict(private=True)))


def signer(kid: str, alg: str, private: bytes) -> Signer:
    key = JWKRegistry.import_key(json.decode(private)).raw_value
    assert isinstance(key, Ed25519PrivateKey | EllipticCurvePrivateKey)
    return Signer(kid, alg, key)


def sign(payload: bytes, by: Signer, header: Mapping[str, Any]) -> AgentCardSignature:
    """Sign a payload. `header` adds to the alg, kid and typ of the protected header, and may replace the typ."""
    protected = base64url(encode({"alg": by.alg, "typ": "JOSE", "kid": by.kid, **header}))
    signed = f"{protected}.{base64url(payload)}".encode()
    if isinstance(by.key, Ed25519PrivateKey):
        value = by.key.sign(signed)
    else:  # deterministic, as EdDSA is by itself: all hosts of a fleet serve the same bytes
        r, s = decode_dss_signature(by.key.sign(signed, ECDSA(SHA256(), deterministic_signing=True)))
        value = r.to_bytes(32) + s.to_bytes(32)
    return AgentCardSignature(protected=protected, signature=base64url(value))


def sign_card(card: Mapping[str, Any], signers: Sequence[Signer], jku: str) -> list[AgentCardSignature]:
    """Make up to FORMS signatures by each signer, in their order. NotCanonical if the card cannot be signed."""
    usual, strict, document = card_form(card), strict_form(card), document_form(card)
    forms = {CARD: usual}
    if strict not in (usual, document):
        forms[STRICT] = strict
    if document != usual:
        forms[DOCUMENT] = document
    header: dict[str, Any] = {"jku": jku} if jku else {}
    header[BINDING] = {FORMS_OF: list(forms), DIGEST: digest(document)}
    marks = {name: {**header, FORM: DOCUMENT} if name == DOCUMENT else header for name in forms}
    return [sign(form, by, marks[name]) for by in signers for name, form in forms.items()]


def digest(document: bytes) -> str:
    """Return the digest of a document's canonical form, as BINDING has it."""
    return base64url(hashlib.sha256(document).digest())


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
