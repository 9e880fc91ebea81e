"""A JWT of the issuer is a credential; an invalid one is refused for a specific reason."""

from __future__ import annotations

import json
import string
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from roost.identity import jwt as jwts
from roost.identity.jwt import REASONS, Issuer, JWTClaims, JWTVerifier
from roost.identity.token_cache import CredentialRefused
from tests.identity.issuer import (
    AUDIENCE,
    ISSUER,
    JWKS,
    NOW,
    Clock,
    Served,
    claims,
    encoded,
    forge,
    signer,
)

ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"]
GOOD = JWTClaims("alice", ("default",), ("agent:*",), int((NOW + 3600) * 1000))


def verifier(served: Served, clock: Clock | None = None, **changed: Any) -> JWTVerifier:
    issuer = Issuer(issuer=ISSUER, audience=AUDIENCE, scopes=("agent:*",), jwks_url=JWKS)
    return JWTVerifier(issuer._replace(**changed), served.fetch, clock or Clock())


async def refusal(verifier: JWTVerifier, token: str) -> str:
    with pytest.raises(CredentialRefused) as refused:
        await verifier.verify(token)
    assert refused.value.reason in REASONS
    assert verifier.cached(token) is None
    return refused.value.reason


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_a_token_of_another_library_is_accepted(algorithm: str) -> None:
    key = signer("RS256" if algorithm[0] in "RP" else algorithm)
    served = Served(key.jwk(alg=algorithm, use="sig", key_ops=["verify"]))
    assert await verifier(served).verify(key.sign(claims(), algorithm)) == GOOD


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"exp": NOW}, "expired"),
        ({"exp": NOW - 3600}, "expired"),
        ({"exp": 0}, "expired"),
        ({"exp": None}, "no expiry"),
        ({"exp": str(NOW + 60)}, "malformed"),
        ({"exp": True}, "malformed"),
        ({"exp": 10**400}, "malformed"),
        ({"nbf": NOW + 31}, "not yet valid"),
        ({"iat": NOW + 31}, "not yet valid"),
        ({"aud": None}, "wrong audience"),
        ({"aud": ""}, "wrong audience"),
        ({"aud": []}, "wrong audience"),
        ({"aud": "roost-hos"}, "wrong audience"),
        ({"aud": ["a", "b"]}, "wrong audience"),
        ({"aud": {"roost-host": 1}}, "malformed"),
        ({"iss": None}, "wrong issuer"),
        ({"iss": "https://idp.example/"}, "wrong issuer"),
        ({"iss": "https://idp.example.evil"}, "wrong issuer"),
        ({"sub": None}, "no subject"),
        ({"sub": ""}, "no subject"),
        ({"sub": "a\nb"}, "no subject"),
        ({"sub": "a\0"}, "no subject"),
        ({"sub": "a" * 256}, "no subject"),
        ({"sub": 7}, "malformed"),
        ({"tenant": "-a"}, "tenant"),
        ({"tenant": ""}, "tenant"),
        ({"tenant": "a" * 129}, "tenant"),
        ({"tenant": "a\n"}, "tenant"),
        ({"tenant": []}, "tenant"),
        ({"tenant": ["a", 1]}, "tenant"),
        ({"tenant": {"a": 1}}, "tenant"),
        ({"scope": 7}, "malformed"),
        ({"scope": ["admin", 7]}, "malformed"),
    ],
)
async def test_a_claim_that_is_wrong_refuses_the_token(changed: dict[str, Any], reason: str) -> None:
    key = signer()
    assert await refusal(verifier(Served(key.jwk())), key.sign(claims(**changed))) == reason


@pytest.mark.parametrize(
    "changed",
    [
        {"nbf": NOW + 30},
        {"iat": NOW + 30.0},
        {"exp": NOW + 0.5},
        {"aud": [AUDIENCE, "another"]},
        {"sub": "a" * 255},
        {"sub": "https://idp.example:ålice@example.com"},
    ],
)
async def test_a_claim_at_its_limit_is_good(changed: dict[str, Any]) -> None:
    key = signer()
    found = await verifier(Served(key.jwk())).verify(key.sign(claims(**changed)))
    assert found.subject == changed.get("sub", "alice")


async def test_a_token_for_ever_ends_with_the_calendar() -> None:
    key = signer()
    found = await verifier(Served(key.jwk())).verify(key.sign(claims(exp=10**30)))
    assert found.expires == 253_402_300_799_000


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "", "HS256", "HS384", "HS512", "RS1", "ES256K", "ES512"])
async def test_an_algorithm_that_is_not_accepted_is_refused_before_any_key_is_looked_at(algorithm: str) -> None:
    served = Served(signer("RS256").jwk())
    assert await refusal(verifier(served), forge({"alg": algorithm, "kid": "k1"}, claims())) == "algorithm"
    assert served.asked == []


async def test_a_public_key_is_no_secret_to_sign_with() -> None:
    key = signer("RS256")
    public = key.private.public_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    secrets = [
        pem,
        pem.strip(),
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        json.dumps(key.jwk()).encode(),
        key.jwk()["n"].encode(),
    ]
    checked = verifier(Served(key.jwk()))
    assert await checked.verify(key.sign(claims())) == GOOD
    for secret in secrets:
        for header in ({"alg": "HS256", "kid": key.kid}, {"alg": "HS256"}):
            assert await refusal(checked, forge(header, claims(), secret)) == "algorithm"
        assert await refusal(checked, forge({"alg": "RS256", "kid": key.kid}, claims(), secret)) == "signature"


@pytest.mark.parametrize(
    ("algorithm", "fields"),
    [
        ("ES256", {}),
        ("EdDSA", {}),
        ("PS256", {"alg": "RS256"}),
        ("RS512", {"alg": "RS256"}),
        ("RS256", {"use": "enc", "key_ops": None}),
        ("RS256", {"key_ops": ["encrypt", "wrapKey"]}),
    ],
)
async def test_an_algorithm_must_fit_the_key(algorithm: str, fields: dict[str, object]) -> None:
    key = signer("RS256")
    token = signer(algorithm).sign(claims()) if algorithm[0] == "E" else key.sign(claims(), algorithm)
    assert await refusal(verifier(Served(key.jwk(**fields))), token) == "algorithm"


async def test_an_elliptic_curve_must_fit_the_algorithm() -> None:
    token = signer("ES256").sign(claims())
    assert await refusal(verifier(Served(signer("ES384").jwk())), token) == "algorithm"


async def test_keys_that_a_token_brings_or_points_to_are_ignored() -> None:
    ours, theirs = signer(), signer("EdDSA", "theirs")
    served = Served(ours.jwk())
    checked = verifier(served)
    evil = "https://evil.example/keys"
    brought: dict[str, Any] = {"jwk": theirs.jwk(), "jku": evil, "x5u": evil, "x5c": ["x"]}
    assert await refusal(checked, theirs.sign(claims(), kid=ours.kid, **brought)) == "signature"
    assert await refusal(checked, theirs.sign(claims(), kid="theirs", **brought)) == "unknown key"
    assert await refusal(checked, theirs.sign(claims(), kid=None, **brought)) == "signature"
    assert await checked.verify(ours.sign(claims(), **brought)) == GOOD
    assert set(served.asked) == {JWKS}


@pytest.mark.parametrize("critical", [["exp"], ["b64"], [], None])
async def test_a_critical_header_is_refused(critical: object) -> None:
    assert await refusal(verifier(Served()), forge({"alg": "EdDSA", "crit": critical}, claims())) == "critical header"


async def test_a_token_may_have_8_kib() -> None:
    key = signer()
    checked = verifier(Served(key.jwk()))
    token = key.sign(claims(more=""))
    longest = key.sign(claims(more="x" * ((jwts.MAX_TOKEN - len(token)) * 3 // 4 - 2)))
    assert jwts.MAX_TOKEN - 8 < len(longest) <= jwts.MAX_TOKEN
    assert await checked.verify(longest) == GOOD
    assert await refusal(checked, longest + "A" * 8) == "oversized"


async def test_no_beginning_of_a_token_is_accepted() -> None:
    key = signer()
    checked = verifier(Served(key.jwk()))
    token = key.sign(claims())
    reasons = {await refusal(checked, token[:length]) for length in range(len(token))}
    assert reasons == {"malformed", "signature"}
    assert await refusal(checked, token + "A") == "signature"
    assert await refusal(checked, token + "=") == "malformed"


async def test_no_character_of_a_token_can_be_changed() -> None:
    key = signer()
    checked = verifier(Served(key.jwk()))
    token = key.sign(claims())
    for place, was in enumerate(token):
        changed = token[:place] + ("A" if was != "A" else "B") + token[place + 1 :]
        await refusal(checked, changed)
    assert await checked.verify(token) == GOOD


async def test_another_payload_needs_another_signature() -> None:
    key = signer("RS256")
    head, _, signature = key.sign(claims()).split(".")
    payload = key.sign(claims(sub="root")).split(".")[1]
    assert await refusal(verifier(Served(key.jwk())), f"{head}.{payload}.{signature}") == "signature"


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "EdDSA"])
@pytest.mark.parametrize("signature", [b"", b"\0", b"\0" * 64, b"\xff" * 256, b"\0" * 4096])
async def test_a_signature_of_nonsense_is_a_wrong_signature(algorithm: str, signature: bytes) -> None:
    key = signer("RS256" if algorithm == "PS256" else algorithm)
    signed = key.sign(claims(), algorithm).rpartition(".")[0]
    assert await refusal(verifier(Served(key.jwk())), f"{signed}.{encoded(signature)}") == "signature"


@pytest.mark.parametrize("token", ["", ".", "..", "....", "a.b.c", "a.b.c.d.e", "é.é.é", "\udcff.."])
async def test_what_is_no_jwt_is_malformed(token: str) -> None:
    assert await refusal(verifier(Served()), token) == "malformed"


@pytest.mark.parametrize(
    ("head", "payload"),
    [
        (b"[]", b"{}"),
        (b"{}", b"{}"),
        (b'{"alg":7}', b"{}"),
        (b'{"alg":"EdDSA","kid":7}', b"{}"),
        (b'{"alg":"EdDSA","a":' + b"[" * 2000, b"{}"),
        (b'{"alg":"EdDSA"}', b"[]"),
        (b'{"alg":"EdDSA"}', b'{"iss":"\xff"}'),
        (b'{"alg":"EdDSA"}', b'{"a":' + b"[" * 2000),
        (b'{"alg":"EdDSA"}', b'{"exp":1e999}'),
        (b'{"alg":"EdDSA"}', b'{"exp":NaN}'),
    ],
)
async def test_parts_that_are_not_what_they_should_be_are_malformed(head: bytes, payload: bytes) -> None:
    assert await refusal(verifier(Served()), f"{encoded(head)}.{encoded(payload)}.") == "malformed"


@given(st.text(string.printable, max_size=60), st.text(string.printable, max_size=60), st.text(max_size=60))
def test_any_text_is_refused_and_never_breaks_anything(head: str, payload: str, rest: str) -> None:
    for token in (head, f"{head}.{payload}.{rest}", f"{encoded(head.encode())}.{encoded(payload.encode())}.{rest}"):
        with pytest.raises(CredentialRefused):
            jwts.parse(token)


@pytest.mark.parametrize(
    ("said", "scopes"),
    [
        ({}, ("agent:*",)),
        ({"scope": "openid profile"}, ("agent:*",)),
        ({"scope": "openid agent:trip metrics agent:trip"}, ("agent:trip", "metrics")),
        ({"scope": ["operate", "openid"]}, ("operate",)),
        ({"scp": "audit"}, ("audit",)),
        ({"scp": ["audit"]}, ("audit",)),
        ({"scope": "openid", "scp": "audit"}, ("audit",)),
        ({"scope": "agent:bad!name"}, ()),
        ({"scope": "agent:bad!name metrics"}, ("metrics",)),
        ({"scope": []}, ("agent:*",)),
        ({"roles": "admin"}, ("agent:*",)),
    ],
)
async def test_scopes_are_those_that_roost_knows_or_the_configured_ones(
    said: dict[str, Any], scopes: tuple[str, ...]
) -> None:
    key = signer()
    assert (await verifier(Served(key.jwk())).verify(key.sign(claims(**said)))).scopes == scopes


async def test_another_claim_for_scopes_stands_alone() -> None:
    key = signer()
    checked = verifier(Served(key.jwk()), scope_claim="roles", scopes=("metrics",))
    assert (await checked.verify(key.sign(claims(roles=["admin", "x"])))).scopes == ("admin",)
    assert (await checked.verify(key.sign(claims(scope="admin", scp="admin")))).scopes == ("metrics",)


@pytest.mark.parametrize(
    ("said", "tenants"),
    [
        ({}, ("default",)),
        ({"org": "acme"}, ("acme",)),
        ({"org": ["acme", "Zeta.1_x-y", "acme"]}, ("acme", "Zeta.1_x-y")),
        ({"tenant": "acme"}, ("default",)),
    ],
)
async def test_tenants_come_from_the_configured_claim(said: dict[str, Any], tenants: tuple[str, ...]) -> None:
    key = signer()
    checked = verifier(Served(key.jwk()), tenant_claim="org")
    assert (await checked.verify(key.sign(claims(**said)))).tenants == tenants


async def test_without_a_name_the_only_key_that_fits_is_meant() -> None:
    key, other = signer(), signer("ES256")
    served = Served(key.jwk(kid=None), other.jwk())
    clock = Clock()
    checked = verifier(served, clock)
    token = key.sign(claims(), kid=None)
    assert await checked.verify(token) == GOOD
    served.publish(key.jwk(), signer("EdDSA", "second").jwk())
    clock.now += 3600 - 1
    assert await refusal(checked, token) == "unknown key"


# The cache of verified tokens


async def test_a_verified_token_is_known_for_a_minute() -> None:
    key, clock = signer(), Clock()
    checked = verifier(Served(key.jwk()), clock)
    token = key.sign(claims())
    assert checked.cached(token) is None
    assert await checked.verify(token) == GOOD
    clock.now += 59.9
    assert checked.cached(token) == GOOD
    assert checked.cached(token[:-1]) is None
    clock.now += 0.1
    assert checked.cached(token) is None
    assert not checked.cache


async def test_a_token_is_not_known_after_its_end() -> None:
    key, clock = signer(), Clock()
    checked = verifier(Served(key.jwk()), clock)
    token = key.sign(claims(exp=NOW + 10))
    await checked.verify(token)
    clock.now += 9.9
    assert checked.cached(token) is not None
    clock.now += 0.1
    assert checked.cached(token) is None
    assert await refusal(checked, token) == "expired"


async def test_a_change_of_keys_makes_every_token_unknown() -> None:
    key, clock = signer(), Clock()
    served = Served(key.jwk())
    checked = verifier(served, clock)
    token = key.sign(claims())
    await checked.verify(token)
    clock.now += 11
    assert await refusal(checked, signer("EdDSA", "new").sign(claims())) == "unknown key"
    assert checked.cached(token) == GOOD  # the same keys as before
    served.publish(signer("EdDSA", "new").jwk())
    clock.now += 11
    await checked.verify(signer("EdDSA", "new").sign(claims()))
    assert checked.cached(token) is None
    clock.now += 11
    assert await refusal(checked, token) == "unknown key"


async def test_only_so_many_tokens_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwts, "MAX_CACHED", 3)
    key = signer()
    checked = verifier(Served(key.jwk()))
    tokens = [key.sign(claims(sub=f"user{number}")) for number in range(4)]
    for token in tokens[:3]:
        await checked.verify(token)
    assert checked.cached(tokens[0]) is not None
    await checked.verify(tokens[3])
    assert [checked.cached(token) is not None for token in tokens] == [True, False, True, True]


async def test_a_clock_that_is_set_judges_anew() -> None:
    key, clock = signer(), Clock()
    checked = verifier(Served(key.jwk()), clock)
    token = key.sign(claims(nbf=NOW - 5))
    await checked.verify(token)
    clock.now = NOW - 3600
    assert checked.cached(token) is None
    assert await refusal(checked, token) == "not yet valid"
    clock.now = NOW + 1
    assert await checked.verify(token) == GOOD
    clock.now = NOW + 2 * 86_400
    assert checked.cached(token) is None
    assert await refusal(checked, token) == "expired"
    clock.now = NOW + 2
    assert await checked.verify(token) == GOOD
