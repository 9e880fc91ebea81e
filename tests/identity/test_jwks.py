"""The issuer's keys: fetched rarely, kept during an outage, and dropped when the issuer withdraws them."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as new_rsa
from jwt.algorithms import OKPAlgorithm, RSAAlgorithm

from roost.identity.jwks import MAX_BYTES, KeysUnavailable, public_keys
from roost.identity.jwt import Issuer, JWTClaims, JWTVerifier
from roost.identity.token_cache import CredentialRefused
from tests.identity.issuer import AUDIENCE, ISSUER, JWKS, Clock, Served, claims, signer

DISCOVERY = f"{ISSUER}/.well-known/openid-configuration"


class Host:
    """A verifier with its issuer and its clock."""

    def __init__(self, *keys: dict[str, Any], issuer: str = ISSUER, jwks_url: str | None = JWKS) -> None:
        self.served = Served(*keys)
        self.clock = Clock()
        self.verifier = JWTVerifier(Issuer(issuer, AUDIENCE, ("agent:*",), jwks_url), self.served.fetch, self.clock)

    async def accepts(self, kid: str = "k1", said: str = "") -> bool:
        """Make a token with the key of that name, which may claim to be by another key."""
        good = claims(exp=self.clock.now + 3600, iat=self.clock.now)
        token = signer("EdDSA", kid).sign(good, kid=said or kid)
        try:
            return isinstance(await self.verifier.verify(token), JWTClaims)
        except CredentialRefused:
            return False

    async def background(self) -> None:
        assert self.verifier.keys.fetching is not None
        await asyncio.wait({self.verifier.keys.fetching})


def jwk(kid: str = "k1") -> dict[str, Any]:
    return signer("EdDSA", kid).jwk()


async def test_unknown_names_cause_one_fetch_in_ten_seconds() -> None:
    host = Host(jwk())
    assert await host.accepts()
    for second in range(30):
        for number in range(20):
            assert not await host.accepts(said=f"{second}-{number}")
        host.clock.now += 1
    assert len(host.served.asked) == 1 + 2
    assert await host.accepts()


async def test_all_who_wait_share_one_fetch() -> None:
    host = Host(jwk())
    host.served.gate.clear()
    waiting = [asyncio.ensure_future(host.accepts()) for _ in range(50)]
    while not host.served.asked:
        await asyncio.sleep(0)
    host.clock.now += 100
    waiting += [asyncio.ensure_future(host.accepts(kid=f"k{number}")) for number in range(1, 3)]
    await asyncio.sleep(0)
    host.served.gate.set()
    assert await asyncio.gather(*waiting) == [True] * 51 + [False]
    assert host.served.asked == [JWKS]


async def test_one_who_gives_up_does_not_end_the_fetch_for_the_others() -> None:
    host = Host(jwk())
    host.served.gate.clear()
    first, second = (asyncio.ensure_future(host.accepts()) for _ in range(2))
    while not host.served.asked:
        await asyncio.sleep(0)
    first.cancel()
    host.served.gate.set()
    assert await second
    assert host.served.asked == [JWKS]


async def test_old_keys_serve_while_new_ones_are_fetched() -> None:
    host = Host(jwk())
    assert await host.accepts()
    host.clock.now += 301
    host.served.gate.clear()
    assert await host.accepts()  # without waiting for a fetch
    assert await host.accepts()
    while len(host.served.asked) < 2:
        await asyncio.sleep(0)
    host.served.gate.set()
    await host.background()
    assert await host.accepts()
    assert len(host.served.asked) == 2


async def test_a_new_key_works_at_once() -> None:
    host = Host(jwk())
    assert await host.accepts()
    host.served.publish(jwk(), jwk("k2"))
    host.clock.now += 10
    assert await host.accepts("k2")
    assert await host.accepts()


async def test_a_key_that_was_removed_ends_with_the_next_fetch() -> None:
    host = Host(jwk(), jwk("k2"))
    assert await host.accepts()
    host.served.publish(jwk("k2"))
    host.clock.now += 301
    assert await host.accepts()
    await host.background()
    assert not await host.accepts()
    assert await host.accepts("k2")


async def test_a_key_that_was_removed_in_a_quiet_hour_is_not_good_for_the_first_request_after_it() -> None:
    host = Host(jwk(), jwk("k2"))
    assert await host.accepts()
    host.served.publish(jwk("k2"))
    host.clock.now += 3600
    assert not await host.accepts()


async def test_an_issuer_that_takes_all_keys_away_is_believed() -> None:
    host = Host(jwk())
    assert await host.accepts()
    host.served.publish()
    host.clock.now += 3600
    with pytest.raises(KeysUnavailable):
        await host.accepts()


@pytest.mark.parametrize(
    "page",
    [
        OSError("connection refused"),
        b"",
        b"<html>502</html>",
        b"[]",
        b"{}",
        b'{"keys": 7}',
        b'{"keys": null}',
        b'{"keys": ' + b"[" * 5000,
        b'{"keys": []}' + b" " * MAX_BYTES,
    ],
    ids=["down", "empty", "html", "list", "object", "number", "null", "deep", "long"],
)
async def test_keys_are_kept_for_a_day_while_the_issuer_is_down_or_answers_garbage(
    page: bytes | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "roost.access")
    host = Host(jwk())
    assert await host.accepts()
    good, host.served.pages[JWKS] = host.served.pages[JWKS], page
    start = host.clock.now
    for minutes in (6, 7, 60, 23 * 60, 24 * 60):
        host.clock.now = start + minutes * 60
        assert await host.accepts()
        await host.background()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    host.clock.now = start + 24 * 3600 + 11
    with pytest.raises(KeysUnavailable):
        await host.accepts()
    host.served.pages[JWKS] = good
    host.clock.now += 11
    assert await host.accepts()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_without_any_key_the_issuer_is_asked_every_ten_seconds() -> None:
    host = Host(jwk())
    good, host.served.pages[JWKS] = host.served.pages[JWKS], TimeoutError()
    for _ in range(25):
        with pytest.raises(KeysUnavailable):
            await host.accepts()
        host.clock.now += 1
    assert len(host.served.asked) == 3
    host.served.pages[JWKS] = good
    host.clock.now += 10
    assert await host.accepts()


async def test_during_an_outage_nobody_waits_for_the_issuer() -> None:
    host = Host(jwk())
    assert await host.accepts()
    host.served.pages[JWKS] = OSError()
    host.clock.now += 3600
    assert await host.accepts()
    host.served.gate.clear()
    host.clock.now += 20
    assert await host.accepts()
    host.served.gate.set()
    await host.background()


async def test_no_credential_of_a_url_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    host = Host()
    host.served.pages[JWKS] = OSError("https://me:p@ss@idp.example/keys?code=hush failed; see //u:hush@x")
    with pytest.raises(KeysUnavailable):
        await host.accepts()
    assert "https://idp.example/keys failed; see //x" in caplog.text
    assert "hush" not in caplog.text
    assert "p@ss" not in caplog.text


async def test_keys_that_are_of_no_use_spoil_none_of_the_others() -> None:
    small = RSAAlgorithm.to_jwk(new_rsa(public_exponent=65537, key_size=1024).public_key(), as_dict=True)
    other_curve = OKPAlgorithm.to_jwk(Ed448PrivateKey.generate().public_key(), as_dict=True)
    rsa, ec = signer("RS256").jwk(), signer("ES256").jwk()
    useless = [
        7,
        {},
        {"kty": 7},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "a"},
        {"kty": "AKP", "alg": "ML-DSA-44", "pub": "AAAA"},
        {"kty": "RSA", "n": "!", "e": "AQAB"},
        {"kty": "RSA"},
        {"kty": "RSA", "e": "AQAB", "n": "A" * 100_000},
        small,
        other_curve,
        {**rsa, "use": "tls"},
        {**rsa, "e": ""},
        {**ec, "crv": "secp256k1"},
        {**ec, "x": ec["y"]},
        {**jwk(), "x": "AAAA"},
        {**jwk(), "kid": 7},
    ]
    found = public_keys(json.dumps({"keys": [*useless, rsa, ec, jwk()]}).encode())
    assert [key.kty for key in found] == ["RSA", "EC", "OKP"]


async def test_the_private_part_of_a_key_is_not_even_read() -> None:
    private = json.loads(OKPAlgorithm.to_jwk(signer().private))
    assert "d" in private
    (key,) = public_keys(json.dumps({"keys": [private]}).encode()).values()
    assert not key.is_private


async def test_a_hundred_keys_are_taken_and_no_more() -> None:
    keys = [{**jwk(), "kid": str(number)} for number in range(101)]
    found = public_keys(json.dumps({"keys": keys}).encode())
    assert [key.kid for key in found] == [str(number) for number in range(100)]


@pytest.mark.parametrize("issuer", [ISSUER, f"{ISSUER}/"])
async def test_keys_are_found_by_discovery(issuer: str) -> None:
    host = Host(jwk(), issuer=issuer, jwks_url=None)
    host.served.pages[DISCOVERY] = json.dumps({"issuer": issuer, "jwks_uri": JWKS, "more": [1]}).encode()
    assert await host.verifier.keys.named("k1")
    assert host.served.asked == [DISCOVERY, JWKS]


@pytest.mark.parametrize(
    "found",
    [
        {"issuer": f"{ISSUER}/", "jwks_uri": JWKS},
        {"issuer": "https://evil.example", "jwks_uri": JWKS},
        {"issuer": ISSUER, "jwks_uri": JWKS.replace("https", "http")},
        {"issuer": ISSUER},
        {"issuer": ISSUER, "jwks_uri": 7},
        {"jwks_uri": JWKS},
        [],
    ],
)
async def test_a_discovery_that_is_not_the_issuers_is_not_followed(found: object) -> None:
    host = Host(jwk(), jwks_url=None)
    host.served.pages[DISCOVERY] = json.dumps(found).encode()
    with pytest.raises(KeysUnavailable):
        await host.accepts()
    assert host.served.asked == [DISCOVERY]


async def test_a_clock_that_is_set_back_neither_drops_keys_nor_stops_looking() -> None:
    host = Host(jwk())
    assert await host.accepts()
    good, host.served.pages[JWKS] = host.served.pages[JWKS], OSError()
    host.clock.now -= 30 * 86_400
    assert await host.accepts()
    host.clock.now += 301
    assert await host.accepts()
    await host.background()
    host.served.pages[JWKS] = good
    host.clock.now += 11
    assert await host.accepts()
    await host.background()
    assert len(host.served.asked) == 3


async def test_a_clock_that_is_set_ahead_asks_the_issuer_before_it_drops_keys() -> None:
    host = Host(jwk())
    assert await host.accepts()
    host.clock.now += 30 * 86_400
    assert await host.accepts()
    host.served.pages[JWKS] = OSError()
    host.clock.now += 30 * 86_400
    with pytest.raises(KeysUnavailable):
        await host.accepts()


async def test_closing_ends_the_fetch() -> None:
    host = Host(jwk())
    await host.verifier.close()
    host.served.gate.clear()
    waiting = asyncio.ensure_future(host.accepts())
    while not host.served.asked:
        await asyncio.sleep(0)
    await host.verifier.close()
    with pytest.raises(KeysUnavailable):
        await waiting
