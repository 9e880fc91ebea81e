"""Verification of cards from anywhere: what is accepted, what is refused, and why."""

from __future__ import annotations

import base64
import hmac
import json
from typing import Any

import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.utils.signing import create_agent_card_signer
from google.protobuf.json_format import MessageToDict
from joserfc.jwk import JWKRegistry
from jwt import api_jws
from jwt.api_jwk import PyJWK

from roost.identity.card_verification import (
    MAX_CARD,
    MAX_NAMESAKES,
    SignatureFault,
    SignatureVerdict,
    Unverifiable,
    key_urls,
    read_card,
    read_jwks,
    thumbprint,
    verify,
)
from roost.identity.signing import DOCUMENT, FORM, MAX_SIGNATURES, base64url
from roost.protocol.canonical import card_form, document_form, strict_form
from roost.protocol.codec import encode
from tests.cards.samples import BLOCK, FULL, JKU, MINIMAL, Card, new_signer, signed

SIGNER, KEY = new_signer()
OWN = {**FULL, **BLOCK}


def made_key(kind: str, size: Any, **more: str) -> tuple[Card, Card]:
    """A private and public key with a name."""
    key = JWKRegistry.generate_key(kind, size, auto_kid=True)
    return {**key.as_dict(private=True), **more}, {**key.as_dict(private=False), **more}


def forged(payload: bytes, private: Card, alg: str, **header: Any) -> dict[str, str]:
    """Sign with PyJWT, with any header."""
    headers = {"typ": "JOSE", "kid": private["kid"], **header}
    protected, _, signature = api_jws.encode(payload, PyJWK(private, alg).key, alg, headers).split(".")
    return {"protected": protected, "signature": signature}


def one(card: Card, *keys: Card) -> SignatureVerdict:
    [verdict] = verify(encode(card), keys)
    return verdict


# What is accepted


@pytest.mark.parametrize(
    ("alg", "kind", "size"),
    [
        ("EdDSA", "OKP", "Ed25519"),
        ("EdDSA", "OKP", "Ed448"),
        ("ES256", "EC", "P-256"),
        ("ES384", "EC", "P-384"),
        ("ES512", "EC", "P-521"),
        ("RS256", "RSA", 2048),
        ("PS256", "RSA", 2048),
    ],
)
def test_signatures_of_others_are_verified(alg: str, kind: str, size: Any) -> None:
    private, public = made_key(kind, size)
    card = {**MINIMAL, "signatures": [forged(card_form(MINIMAL), private, alg)]}
    verdict = one(card, public)
    assert verdict == SignatureVerdict(
        kid=public["kid"],
        alg=alg,
        thumbprint=thumbprint(public),
        covers="card",
        uncovered=("capabilities",),
        form="card",
    )
    assert one({**card, "name": "Other"}, public).fault is SignatureFault.MISMATCH


@pytest.mark.parametrize(("form", "covers"), [(card_form, "card"), (strict_form, "card"), (document_form, "document")])
def test_whatever_form_was_signed_is_found(form: Any, covers: str) -> None:
    private, public = made_key("EC", "P-256")
    card = {**MINIMAL, **BLOCK}
    assert one({**card, "signatures": [forged(form(card), private, "ES256")]}, public).covers == covers


def test_a_card_that_the_sdk_signed() -> None:
    private, public = made_key("EC", "P-256")
    header: Any = {"alg": "ES256", "typ": "JOSE", "kid": public["kid"], "jku": JKU}
    message = create_agent_card_signer(PyJWK(private).key, header)(parse_agent_card(dict(FULL)))
    verdict = one(MessageToDict(message), public)
    assert (verdict.valid, verdict.jku) == (True, JKU)


def test_a_key_without_a_name_is_found_by_its_thumbprint() -> None:
    nameless = {name: value for name, value in KEY.items() if name != "kid"}
    assert one(signed(FULL, SIGNER), nameless).valid


def test_the_key_that_fits_is_found_among_its_namesakes() -> None:
    others = [{**new_signer()[1], "kid": KEY["kid"]} for _ in range(MAX_NAMESAKES - 1)]
    verdict = one(signed(FULL, SIGNER), *others, KEY)
    assert verdict.thumbprint == thumbprint(KEY) == KEY["kid"]


def test_a_card_without_signatures_has_no_verdict() -> None:
    assert verify(encode(FULL), [KEY]) == []


# What is refused


def test_an_unknown_key() -> None:
    verdict = one(signed(FULL, SIGNER), new_signer()[1])
    assert (verdict.fault, verdict.kid, verdict.thumbprint) == (SignatureFault.UNKNOWN_KEY, KEY["kid"], "")


def test_no_algorithm_at_all() -> None:
    header = base64url(encode({"alg": "none", "typ": "JOSE", "kid": KEY["kid"]}))
    verdict = one({**FULL, "signatures": [{"protected": header, "signature": ""}]}, KEY)
    assert (verdict.fault, verdict.why) == (SignatureFault.REFUSED, "its alg 'none' is not accepted")


@pytest.mark.parametrize("alg", ["HS256", "HS384", "HS512"])
def test_a_shared_secret_that_is_no_secret(alg: str) -> None:
    """The public key as the secret of an HMAC: the classic algorithm confusion."""
    _, public = made_key("RSA", 2048)
    secret = encode(public)
    protected = base64url(encode({"alg": alg, "typ": "JOSE", "kid": public["kid"]}))
    signed_text = f"{protected}.{base64url(document_form(FULL))}".encode()
    signature = base64url(hmac.digest(secret, signed_text, f"sha{alg[2:]}"))
    card = {**FULL, "signatures": [{"protected": protected, "signature": signature}]}
    oct_key = {"kty": "oct", "kid": public["kid"], "k": base64url(secret)}
    assert one(card, public, oct_key).fault is SignatureFault.REFUSED


@pytest.mark.parametrize("alg", ["ES256K", "RS1", "dir", "", 5, None, ["EdDSA"]])
def test_an_unknown_algorithm(alg: Any) -> None:
    header = base64url(encode({"alg": alg, "typ": "JOSE", "kid": KEY["kid"]}))
    verdict = one({**FULL, "signatures": [{"protected": header, "signature": "AAAA"}]}, KEY)
    assert (verdict.fault, verdict.why) == (SignatureFault.REFUSED, f"its alg {alg!r} is not accepted")


@pytest.mark.parametrize(
    ("alg", "public"),
    [
        ("ES256", KEY),
        ("RS256", KEY),
        ("EdDSA", made_key("EC", "P-256")[1]),
        ("ES256", made_key("EC", "P-384")[1]),
        ("Ed25519", {**KEY, "alg": "EdDSA"}),
        ("EdDSA", {**KEY, "alg": "ES256"}),
        ("EdDSA", {**KEY, "use": "enc"}),
    ],
    ids=["ES256 Ed25519", "RS256 Ed25519", "EdDSA P-256", "ES256 P-384", "Ed25519 EdDSA", "another alg", "another use"],
)
def test_an_algorithm_that_does_not_fit_the_key(alg: str, public: Card) -> None:
    header = base64url(encode({"alg": alg, "typ": "JOSE", "kid": public["kid"]}))
    verdict = one({**FULL, "signatures": [{"protected": header, "signature": "A" * 86}]}, public)
    assert (verdict.fault, verdict.why) == (SignatureFault.REFUSED, f"its alg {alg} cannot be used with its key")


@pytest.mark.parametrize(
    "public",
    [
        {"kty": "oct", "k": "c2VjcmV0"},
        {"kty": "RSA", "n": "A" * 170, "e": "AQAB"},
        {"kty": "RSA", "n": "A" * 20_000, "e": "AQAB"},
        {"kty": "RSA", "n": 5, "e": "AQAB"},
        {"kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA"},
        {"kty": "OKP", "crv": "Ed25519"},
        {"kty": "AKP"},
        {"kty": ["OKP"]},
    ],
    ids=lambda key: "-".join(map(str, (key["kty"], len(str(key.get("n", "")))))),
)
def test_a_key_that_cannot_be_used(public: Card) -> None:
    verdict = one(signed(FULL, SIGNER), {**public, "kid": KEY["kid"]})
    assert verdict.fault is SignatureFault.REFUSED
    assert verdict.why.startswith("its key")
    assert thumbprint(public) == ""


@pytest.mark.parametrize(
    ("header", "fault"),
    [
        ({"crit": ["exp"]}, SignatureFault.REFUSED),
        ({"b64": True}, SignatureFault.REFUSED),
        ({FORM: "another"}, SignatureFault.REFUSED),
        ({FORM: 1}, SignatureFault.REFUSED),
        ({"kid": ""}, SignatureFault.MALFORMED),
        ({"jku": "ftp://example.com"}, SignatureFault.MALFORMED),
    ],
)
def test_a_header_that_is_not_understood(header: Card, fault: SignatureFault) -> None:
    private, public = made_key("OKP", "Ed25519")
    plain = base64url(encode({"alg": "EdDSA", "typ": "JOSE", "kid": private["kid"], **header}))
    key = PyJWK(private, "EdDSA").key
    signature = base64url(key.sign(f"{plain}.{base64url(document_form(OWN))}".encode()))
    verdict = one({**OWN, "signatures": [{"protected": plain, "signature": signature}]}, public)
    assert verdict.fault is fault


def test_a_mark_of_the_document_on_a_signature_of_less_is_no_signature_of_the_document() -> None:
    private, public = made_key("OKP", "Ed25519")
    marked = forged(card_form(OWN), private, "EdDSA", **{FORM: DOCUMENT})
    assert one({**OWN, "signatures": [marked]}, public).fault is SignatureFault.MISMATCH


def test_the_header_that_is_not_protected_counts_for_nothing() -> None:
    [signature] = signed(FULL, SIGNER)["signatures"]
    card = {**FULL, "signatures": [{**signature, "header": {"alg": "none", "kid": "other", "crit": ["x"]}}]}
    assert one(card, KEY).valid


@pytest.mark.parametrize(
    "entry",
    [
        None,
        "text",
        {},
        {"protected": 1, "signature": "AAAA"},
        {"protected": "e30"},
        {"protected": "%%%", "signature": "AAAA"},
        {"protected": base64url(b"[]"), "signature": "AAAA"},
        {"protected": base64url(b'{"alg":"EdDSA","alg":"none"}'), "signature": "AAAA"},
        {"protected": base64url(b'{"alg":"EdDSA"}'), "signature": "AAAA"},
        {"protected": base64url(b'{"alg":"EdDSA","kid":5}'), "signature": "AAAA"},
        {"protected": signed(FULL, SIGNER)["signatures"][0]["protected"], "signature": "!"},
        {"protected": signed(FULL, SIGNER)["signatures"][0]["protected"], "signature": "A" * 5000},
        {"protected": base64url(encode({"alg": "EdDSA", "kid": KEY["kid"], "x": "x" * 9000})), "signature": "AAAA"},
    ],
)
def test_a_signature_that_is_none(entry: Any) -> None:
    """The other signatures are verified nevertheless."""
    first, second = verify(encode({**FULL, "signatures": [entry, *signed(FULL, SIGNER)["signatures"]]}), [KEY])
    assert first.fault is SignatureFault.MALFORMED
    assert second.valid


def test_a_signature_without_bytes_does_not_fit() -> None:
    [signature] = signed(FULL, SIGNER)["signatures"]
    assert one({**FULL, "signatures": [{**signature, "signature": ""}]}, KEY).fault is SignatureFault.MISMATCH


def test_a_card_without_a_canonical_form_has_no_signature_that_fits() -> None:
    card = {**signed(FULL, SIGNER), "x-big": 2**60 + 1, "version": 5}
    assert one(card, KEY).fault is SignatureFault.MISMATCH


@pytest.mark.parametrize(
    ("document", "blamed"),
    [
        (b" " * (MAX_CARD + 1), "at most 1048576 bytes"),
        (encode({**FULL, "signatures": [{}] * (MAX_SIGNATURES + 1)}), "at most 16 signatures, this one has 17"),
        (b'{"name": "a", "name": "b"}', "an object has 'name' twice"),
        (b'{"skills": [{"id": 1, "id": 2}]}', "an object has 'id' twice"),
        (b"<html>", "not JSON"),
        (b"[]", "not an object"),
        (b'{"signatures": {}}', "not a list"),
        (b'{"signatures": null}', "not a list"),
        (b'{"a":' * 150 + b"1" + b"}" * 150, "deeper than 100"),
    ],
)
def test_what_cannot_be_judged(document: bytes, blamed: str) -> None:
    with pytest.raises(Unverifiable, match=blamed):
        verify(document, [KEY])


# Keys


def test_a_key_set_or_a_key() -> None:
    assert read_jwks(encode({"keys": [KEY]})) == read_jwks(encode(KEY)) == [KEY]
    assert read_jwks(b'{"keys": []}') == []


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"keys": {}}', b'{"keys": [5]}', b'{"keys": [{}]}', b"{]"])
def test_what_is_no_key_set(data: bytes) -> None:
    with pytest.raises(Unverifiable, match="not a key set"):
        read_jwks(data)


def test_where_a_card_says_that_its_keys_are() -> None:
    other, _ = new_signer()
    signatures = [
        *signed(OWN, SIGNER, other)["signatures"],
        *signed(FULL, other, jku="https://elsewhere.example/keys")["signatures"],
        *signed(FULL, other, jku="")["signatures"],
        {"protected": "x"},
        {"protected": base64url(json.dumps({"jku": 5}).encode()), "signature": ""},
    ]
    assert key_urls(read_card(encode({**FULL, "signatures": signatures}))) == [JKU, "https://elsewhere.example/keys"]


def test_thumbprints_are_rfc_7638() -> None:
    """The example of RFC 7638, section 3.1."""
    n = (
        "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMs"
        "tn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn"
        "1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw"
    )
    assert (
        thumbprint({"kty": "RSA", "n": n, "e": "AQAB", "alg": "RS256"}) == "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"
    )
    assert len(base64.urlsafe_b64decode(KEY["kid"] + "=")) == 32
