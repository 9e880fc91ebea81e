"""The keys of a fleet: created once, replaced with an overlap, and retired permanently."""

from __future__ import annotations

import json
from typing import Any

import pytest

from roost.identity.card_verification import read_jwks, verify
from roost.identity.keys import CACHED, MAX_SIGNERS, CannotRetire, Keyring, NoSuchKey
from roost.identity.ports import Changes, SigningKey
from roost.identity.seal import Seal, new_key
from roost.identity.signing import MAX_SIGNATURES, sign_card
from roost.protocol.codec import encode
from tests.cards.fakes import FakeIdentities, LostRace
from tests.cards.javascript import JavaScript
from tests.cards.samples import BLOCK, FULL, JKU, MINIMAL, Card, python_accepts

SEAL = Seal(new_key())
DAY = 86_400_000


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def store() -> FakeIdentities:
    return FakeIdentities()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ring(store: FakeIdentities, clock: Clock) -> Keyring:
    return Keyring(store, SEAL, "EdDSA", clock)


def published(ring: Keyring, agent: str | None) -> list[Card]:
    return read_jwks(ring.jwks(agent))


def signers_of(card: Card) -> set[str]:
    return {verdict.kid for verdict in verify(encode(card), [])}


def all_valid(card: Card, keys: list[Card]) -> bool:
    verdicts = verify(encode(card), keys)
    return bool(verdicts) and all(verdict.valid for verdict in verdicts)


# The first key


@pytest.mark.parametrize("alg", ["EdDSA", "ES256"])
async def test_the_first_card_makes_the_key(store: FakeIdentities, alg: str, js: JavaScript) -> None:
    ring = Keyring(store, SEAL, alg)
    card = await ring.signed({**FULL, **BLOCK}, "full", JKU)
    keys = published(ring, "full")
    assert [(key["alg"], key["use"]) for key in keys] == [(alg, "sig")]
    assert all_valid(card, keys)
    assert python_accepts(card, keys)
    assert js.ask(card, keys).valid


async def test_every_agent_has_a_key_of_its_own_and_so_has_the_fleet(ring: Keyring) -> None:
    for agent in ("one", "two", ""):
        await ring.signed(FULL, agent, JKU)
    own = {agent: [key["kid"] for key in published(ring, agent)] for agent in ("one", "two", "")}
    assert all(len(kids) == 1 for kids in own.values())
    assert {key["kid"] for key in published(ring, None)} == {kid for kids in own.values() for kid in kids}
    assert published(ring, "three") == []


async def test_two_hosts_show_one_card_and_one_key_set(store: FakeIdentities) -> None:
    for alg in ("EdDSA", "ES256"):
        first, second = Keyring(store, SEAL, alg), Keyring(store, SEAL, alg)
        assert await first.signed(FULL, alg, JKU) == await second.signed(FULL, alg, JKU)
        assert first.jwks(alg) == second.jwks(alg)


async def test_the_host_that_comes_second_takes_the_key_of_the_first(clock: Clock) -> None:
    theirs = (await Keyring(FakeIdentities(), SEAL, "EdDSA", clock).signing_keys("full"))[0]
    ring = Keyring(LostRace(theirs), SEAL, "EdDSA", clock)
    assert signers_of(await ring.signed(FULL, "full", JKU)) == {theirs.kid}


async def test_no_private_part_is_published_or_readable_in_the_store(ring: Keyring, store: FakeIdentities) -> None:
    [key] = await ring.signing_keys("full")
    assert "d" not in json.loads(key.public)
    assert b'"d"' not in ring.jwks(None)
    assert b'"d"' not in key.sealed
    private = json.loads(SEAL.open(key.sealed, f"key:full{key.kid}".encode()))
    assert private["d"].encode() not in key.sealed


async def test_a_key_that_was_sealed_with_another_secret_signs_nothing_and_the_log_says_so(
    ring: Keyring, store: FakeIdentities, caplog: pytest.LogCaptureFixture
) -> None:
    [key] = await ring.signing_keys("full")
    other = Keyring(store, Seal(new_key()), "EdDSA")
    assert (await other.signed(FULL, "full", JKU))["signatures"] == []
    assert f"the key {key.kid} of full cannot be decrypted" in caplog.text
    assert "secret_file" in caplog.text
    new = await other.rotate("full", 60_000)
    assert signers_of(await other.signed(FULL, "full", JKU)) == {new.kid}


async def test_a_key_that_was_moved_to_another_agent_signs_nothing(ring: Keyring, store: FakeIdentities) -> None:
    [key] = await ring.signing_keys("full")
    await store.add_key(key._replace(agent="other"), None, 0)
    assert (await ring.signed(FULL, "other", JKU))["signatures"] == []


def test_an_algorithm_that_there_is_not(store: FakeIdentities) -> None:
    with pytest.raises(ValueError, match="EdDSA or ES256, not with 'RS256': see card_alg"):
        Keyring(store, SEAL, "RS256")


# Rotation


async def test_during_the_overlap_both_keys_sign_and_a_client_may_trust_either(ring: Keyring, js: JavaScript) -> None:
    [old] = published_after(ring, await ring.signed(FULL, "full", JKU))
    new = await ring.rotate("full", DAY)
    card = await ring.signed({**FULL, **BLOCK}, "full", JKU)
    keys = published(ring, "full")
    assert [key["kid"] for key in keys] == [new.kid, old["kid"]]
    assert all_valid(card, keys)
    for key in keys:
        assert python_accepts(card, [key])
        assert js.ask(card, [key]).valid


def published_after(ring: Keyring, card: Card) -> list[Card]:
    return [key for key in published(ring, "full") if key["kid"] in signers_of(card)]


async def test_when_the_overlap_is_over_the_old_key_neither_signs_nor_verifies(ring: Keyring, clock: Clock) -> None:
    [old] = await ring.signing_keys("full")
    new = await ring.rotate("full", DAY)
    await ring.signed(FULL, "full", JKU)
    clock.now += DAY - 1
    assert not ring.outdated()
    assert len(published(ring, "full")) == 2
    clock.now += 1
    assert ring.outdated()
    assert [key["kid"] for key in published(ring, "full")] == [new.kid]
    assert [key["kid"] for key in published(ring, None)] == [new.kid]
    assert signers_of(await ring.signed(FULL, "full", JKU)) == {new.kid} != {old.kid}


async def test_whoever_notices_retires_the_key_whose_overlap_is_over(
    ring: Keyring, store: FakeIdentities, clock: Clock
) -> None:
    [old] = await ring.signing_keys("full")
    await ring.rotate("full", DAY)
    clock.now += DAY
    other = Keyring(store, SEAL, "EdDSA", clock)
    await other.refresh()
    await other.sweep()
    row = store.rows["full", old.kid][1]
    assert (row.sealed, row.retired) == (b"", clock.now)
    assert not other.outdated()
    await ring.sweep()
    assert not ring.outdated()
    assert store.rows["full", old.kid][1] == row


async def test_a_sweep_without_anything_to_do_does_not_ask_the_store(ring: Keyring, store: FakeIdentities) -> None:
    await ring.signing_keys("full")
    await ring.rotate("full", DAY)
    before = store.reads
    await ring.sweep()
    assert store.reads == before


async def test_an_overlap_of_nothing_ends_the_old_key_at_once(ring: Keyring, store: FakeIdentities) -> None:
    [old] = await ring.signing_keys("full")
    new = await ring.rotate("full", 0)
    assert store.rows["full", old.kid][1].sealed == b""
    assert [key.kid for key in await ring.signing_keys("full")] == [new.kid]


async def test_a_rotation_before_the_first_card_makes_the_first_key(ring: Keyring) -> None:
    new = await ring.rotate("full", DAY)
    assert [key.kid for key in await ring.signing_keys("full")] == [new.kid]


async def test_a_rotation_that_comes_second_replaces_the_key_of_the_first(clock: Clock) -> None:
    theirs = (await Keyring(FakeIdentities(), SEAL, "EdDSA", clock).signing_keys("full"))[0]
    store = LostRace(theirs)
    new = await Keyring(store, SEAL, "EdDSA", clock).rotate("full", DAY)
    assert store.rows["full", theirs.kid][1].until == clock.now + DAY
    assert store.rows["full", new.kid][1].until is None


async def test_however_often_keys_are_replaced_a_card_stays_verifiable(ring: Keyring) -> None:
    for _ in range(MAX_SIGNERS + 3):
        newest = await ring.rotate("full", DAY)
    card = await ring.signed({**MINIMAL, **BLOCK, "skills": []}, "full", JKU)
    assert len(card["signatures"]) <= MAX_SIGNATURES
    assert len(signers_of(card)) == MAX_SIGNERS
    assert newest.kid in signers_of(card)
    assert all_valid(card, published(ring, "full"))


# Retirement


async def test_a_key_that_is_retired_is_gone(ring: Keyring, store: FakeIdentities) -> None:
    [old] = await ring.signing_keys("full")
    new = await ring.rotate("full", DAY)
    await ring.retire("full", old.kid)
    assert store.rows["full", old.kid][1].sealed == b""
    assert [key["kid"] for key in published(ring, "full")] == [new.kid]
    assert signers_of(await ring.signed(FULL, "full", JKU)) == {new.kid}
    at = store.rows["full", old.kid][1].retired
    await ring.retire("full", old.kid)
    assert store.rows["full", old.kid][1].retired == at


async def test_the_current_key_cannot_be_retired(ring: Keyring) -> None:
    [key] = await ring.signing_keys("full")
    with pytest.raises(CannotRetire, match="is the current key of the agent 'full': rotate it first"):
        await ring.retire("full", key.kid)


async def test_a_key_of_another_agent_cannot_be_retired(ring: Keyring) -> None:
    [key] = await ring.signing_keys("full")
    with pytest.raises(NoSuchKey, match="the fleet has no key"):
        await ring.retire("", key.kid)


# The cache of the store's keys


async def test_what_other_hosts_did_is_heard_of(ring: Keyring, store: FakeIdentities, clock: Clock) -> None:
    [old] = await ring.signing_keys("full")
    other = Keyring(store, SEAL, "EdDSA", clock)
    seen = (await store.read_identities(0)).version
    new = await other.rotate("full", DAY)
    ring.absorb(await store.read_identities(seen))
    assert [key.kid for key in await ring.signing_keys("full")] == [new.kid, old.kid]
    seen = (await store.read_identities(0)).version
    await other.retire("full", old.kid)
    ring.absorb(await store.read_identities(seen))
    assert [key["kid"] for key in published(ring, "full")] == [new.kid]


async def test_news_that_come_late_or_twice_undo_nothing(ring: Keyring, store: FakeIdentities) -> None:
    [old] = await ring.signing_keys("full")
    stale = [await store.read_identities(0)]
    new = await ring.rotate("full", DAY)
    stale.append(await store.read_identities(0))
    await ring.retire("full", old.kid)
    for changes in (*stale, *reversed(stale)):
        ring.absorb(changes)
        assert [key.kid for key in await ring.signing_keys("full")] == [new.kid]
    assert [(key.kid, key.retired is None) for key in ring.all()] == [(new.kid, True), (old.kid, False)]


async def test_news_of_a_part_do_not_hide_what_was_not_heard(ring: Keyring, store: FakeIdentities) -> None:
    """A host that starts late still finds the existing key."""
    other = Keyring(store, SEAL, "EdDSA")
    [key] = await other.signing_keys("full")
    seen = store.version
    await other.signing_keys("two")
    ring.absorb(await store.read_identities(seen))
    assert [found.kid for found in await ring.signing_keys("full")] == [key.kid]


def test_keys_are_listed_by_agent_the_current_one_first(ring: Keyring) -> None:
    def key(agent: str, kid: str, until: int | None, created: int) -> SigningKey:
        return SigningKey(agent, kid, "EdDSA", b"{}", b"", created, until)

    ring.absorb(
        Changes(1, [], [key("b", "1", 10, 1), key("b", "2", 20, 2), key("b", "3", None, 3), key("a", "4", None, 4)])
    )
    assert [key.kid for key in ring.all()] == ["4", "3", "2", "1"]


# What it costs


@pytest.fixture
def signings(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Count the calls that sign a card."""
    made: list[Any] = []

    def counted(*given: Any) -> Any:
        made.append(given)
        return sign_card(*given)

    monkeypatch.setattr("roost.identity.keys.sign_card", counted)
    return made


async def test_a_card_is_signed_once(ring: Keyring, store: FakeIdentities, signings: list[Any]) -> None:
    first = await ring.signed(FULL, "full", JKU)
    reads = store.reads
    assert await ring.signed(dict(reversed(FULL.items())), "full", JKU) == first
    assert (len(signings), store.reads) == (1, reads)


async def test_a_key_set_is_made_once_for_the_same_keys(ring: Keyring) -> None:
    await ring.signing_keys("full")
    made = ring.jwks(None)
    assert ring.jwks(None) is made
    await ring.signing_keys("two")
    assert ring.jwks(None) != made


async def test_a_card_is_signed_again_when_it_or_its_keys_change(ring: Keyring, signings: list[Any]) -> None:
    await ring.signed(FULL, "full", JKU)
    await ring.signed({**FULL, **BLOCK}, "full", JKU)
    await ring.signed(FULL, "full", "https://other.example/jwks.json")
    await ring.rotate("full", DAY)
    await ring.signed(FULL, "full", JKU)
    assert len(signings) == 4


async def test_signatures_are_remembered_of_the_cards_that_were_served_last(ring: Keyring, signings: list[Any]) -> None:
    for number in range(CACHED):
        await ring.signed({"name": str(number)}, "full", JKU)
    await ring.signed({"name": "0"}, "full", JKU)
    await ring.signed({"name": "one more"}, "full", JKU)
    assert len(ring.signatures) == CACHED
    assert len(signings) == CACHED + 1
    await ring.signed({"name": "0"}, "full", JKU)
    assert len(signings) == CACHED + 1
    await ring.signed({"name": "1"}, "full", JKU)
    assert len(signings) == CACHED + 2


async def test_a_card_keeps_nothing_of_signatures_that_it_came_with(ring: Keyring) -> None:
    card = await ring.signed({**FULL, "signatures": [{"protected": "x", "signature": "y"}]}, "full", JKU)
    assert card == await ring.signed(FULL, "full", JKU)
