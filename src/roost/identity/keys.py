"""The keys that sign cards, one current key for each agent and one for the fleet, and the key that signs evidence.

    created at the start or on first use -> current -> replaced, and valid until its overlap ends -> retired

During the overlap a card has the signatures of both keys, so that a client that trusts either accepts it. A retired
key neither signs nor is published, and its private part is deleted. The keyring caches the keys of all agents: call
`absorb` with the changes in the store, and `sweep` from time to time.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

from msgspec import Raw, to_builtins

from roost.identity.ports import Changes, Identities, SigningKey, now_ms
from roost.identity.seal import Seal, WrongKey
from roost.identity.signing import ALGORITHMS, FORMS, MAX_SIGNATURES, Signer, make_pair, sign, sign_card, signer
from roost.protocol.canonical import document_form
from roost.protocol.codec import encode
from roost.protocol.types import AgentCardSignature

log = logging.getLogger("roost.access")

EVIDENCE = "@evidence"
"""The owner of the key that signs evidence: no agent can have this id."""
CACHED = 1024
"""Cards whose signatures are cached."""
MAX_SIGNERS = MAX_SIGNATURES // FORMS
"""Keys that sign, the newest first, so that no card has more signatures than verifiers check."""


class NoKey(Exception):
    """The key exists, but it cannot be decrypted."""


class NoSuchKey(Exception):
    pass


class CannotRetire(Exception):
    """It is the current key."""


def alive(key: SigningKey, now: int) -> bool:
    return key.retired is None and (key.until is None or key.until > now)


def in_order(keys: Iterable[SigningKey]) -> list[SigningKey]:
    """Sort by agent, the current key first, then the one that was replaced last."""
    return sorted(keys, key=lambda key: (key.agent, key.until is not None, -(key.until or 0), -key.created, key.kid))


def key_set(keys: Iterable[SigningKey]) -> bytes:
    """Encode the public keys as a JWK Set (RFC 7517)."""
    return encode({"keys": [Raw(key.public) for key in in_order(keys)]})


def withdrawn(key: SigningKey) -> bool:
    """Whether someone retired it before the end of its overlap, when it would have been retired anyway."""
    return key.retired is not None and key.until is not None and key.retired < key.until


class Keyring:
    def __init__(self, store: Identities, seal: Seal, alg: str, clock: Callable[[], int] = now_ms) -> None:
        if alg not in ALGORITHMS:
            raise ValueError(f"cards are signed with {' or '.join(ALGORITHMS)}, not with {alg!r}: see card_alg")
        self.store = store
        self.seal = seal
        self.alg = alg
        self.clock = clock
        self.version = 0
        self.by_agent: dict[str, dict[str, SigningKey]] = {}
        self.next_end: int | None = None
        """The time at which the next overlap ends, in milliseconds since 1970."""
        self.sets: dict[str | None, bytes] = {}
        self.signatures: OrderedDict[tuple[bytes, str, tuple[str, ...]], list[dict[str, str]]] = OrderedDict()

    # The cache of the store's keys

    def absorb(self, changes: Changes) -> None:
        """Take over changes, which may come late and twice: a key that has ended stays so."""
        for key in changes.keys:
            known = self.by_agent.setdefault(key.agent, {})
            if key.kid not in known or _ended(key) >= _ended(known[key.kid]):
                known[key.kid] = key
        if changes.keys:
            ends = [key.until for key in self.all() if key.retired is None and key.until is not None]
            self.next_end = min(ends, default=None)
            self.sets.clear()

    async def refresh(self) -> None:
        changes = await self.store.read_identities(self.version)
        self.absorb(changes)
        self.version = max(self.version, changes.version)

    def all(self) -> list[SigningKey]:
        """Return all keys, retired ones included."""
        return in_order(key for known in self.by_agent.values() for key in known.values())

    def outdated(self) -> bool:
        """Whether an overlap has ended: a card that was signed before may have a signature too many."""
        return self.next_end is not None and self.next_end <= self.clock()

    def jwks(self, agent: str | None) -> bytes:
        """Return the JWK Set of an agent, or for None that of the fleet: the keys of all agents and its own."""
        if self.outdated():
            self.sets.clear()
        if agent is not None and agent not in self.by_agent:
            return key_set([])
        if agent not in self.sets:
            now = self.clock()
            chosen = self.all() if agent is None else self.by_agent[agent].values()
            self.sets[agent] = key_set(key for key in chosen if alive(key, now) and key.agent != EVIDENCE)
        return self.sets[agent]

    async def evidence_keys(self) -> list[SigningKey]:
        """Return all keys that ever signed evidence, since their signatures remain. Create one if there is none."""
        await self.signing_keys(EVIDENCE)
        return in_order(self.by_agent[EVIDENCE].values())

    async def evidence_jwks(self) -> bytes:
        """Return the JWK Set of the evidence keys that have not been withdrawn."""
        return key_set(key for key in await self.evidence_keys() if not withdrawn(key))

    # Changes

    async def rotate(self, agent: str, overlap_ms: int) -> SigningKey:
        """Create a new current key. The one before stays valid for the overlap."""
        while True:
            await self.refresh()
            current = self._current(agent)
            new = await self._add(agent, None if current is None else current.kid, overlap_ms)
            if new is not None:
                await self.refresh()
                await self.sweep()
                return new

    async def retire(self, agent: str, kid: str) -> None:
        """Retire a key that was replaced; a key that is retired already stays as it is.

        An evidence key stays public after its overlap, because its signatures remain: it can be withdrawn then too.
        """
        await self.refresh()
        key = self.by_agent.get(agent, {}).get(kid)
        whose = f"the agent {agent!r}" if agent else "the fleet"
        if key is None:
            raise NoSuchKey(f"{whose} has no key {kid!r}: `roost keys list` shows the keys")
        if key.until is None:
            raise CannotRetire(f"{kid} is the current key of {whose}: rotate it first, then retire it")
        now = self.clock()
        await self.store.retire_key(agent, kid, min(now, key.until - 1) if agent == EVIDENCE else now)
        await self.refresh()

    async def sweep(self) -> None:
        """Retire the keys whose overlap has ended."""
        now = self.clock()
        if not self.outdated():
            return
        for key in self.all():
            if key.retired is None and not alive(key, now):
                await self.store.retire_key(key.agent, key.kid, now)
        await self.refresh()

    # Signing

    async def prepare(self, agents: Iterable[str]) -> None:
        """Create the keys that are missing, so that cards can be signed when the store can only be read."""
        missing = [agent for agent in agents if self._current(agent) is None]
        if not missing:
            return
        await self.refresh()
        for agent in missing:
            if self._current(agent) is None:
                await self._add(agent, None, 0)
        await self.refresh()

    async def signing_keys(self, agent: str) -> list[SigningKey]:
        """Return the keys that sign the agent's cards now. Create one if there is none."""
        if self._current(agent) is None:
            await self.refresh()
        if self._current(agent) is None:
            await self._add(agent, None, 0)  # if another host is quicker, its key is the agent's
            await self.refresh()
        now = self.clock()
        return in_order(key for key in self.by_agent[agent].values() if alive(key, now))[:MAX_SIGNERS]

    async def signed(self, card: dict[str, Any], agent: str, jku: str) -> dict[str, Any]:
        """Return the card with its signatures, which are cached for the same card and keys."""
        keys = await self.signing_keys(agent)
        cache_key = (sha256(document_form(card)).digest(), jku, tuple(key.kid for key in keys))
        signatures = self.signatures.get(cache_key)
        if signatures is None:
            signers = [opened for key in keys if (opened := self._opened(key)) is not None]
            signatures = to_builtins(sign_card(card, signers, jku))
            self.signatures[cache_key] = signatures
            if len(self.signatures) > CACHED:
                self.signatures.popitem(last=False)
        self.signatures.move_to_end(cache_key)
        return {**card, "signatures": signatures}

    async def sign(self, agent: str, payload: bytes, typ: str) -> AgentCardSignature:
        """Make a detached JWS with the agent's current key. NoKey if it cannot be decrypted."""
        key = (await self.signing_keys(agent))[0]
        opened = self._opened(key)
        if opened is None:
            raise NoKey(f"the key {key.kid} cannot be decrypted: check the setting secret_file")
        return sign(payload, opened, {"typ": typ})

    def _current(self, agent: str) -> SigningKey | None:
        return next((key for key in self.by_agent.get(agent, {}).values() if key.until is None), None)

    async def _add(self, agent: str, replacing: str | None, overlap_ms: int) -> SigningKey | None:
        """Create a key; None if another key has become current in the meantime."""
        pair = make_pair(self.alg)
        now = self.clock()
        sealed = self.seal.seal(pair.private, _about(agent, pair.kid))
        key = SigningKey(agent, pair.kid, pair.alg, pair.public, sealed, now)
        return key if await self.store.add_key(key, replacing, now + overlap_ms) else None

    def _opened(self, key: SigningKey) -> Signer | None:
        """Decrypt a key. One that was sealed with another secret is logged and skipped: the others still sign."""
        try:
            private = self.seal.open(key.sealed, _about(key.agent, key.kid))
        except WrongKey as error:
            whose = key.agent or "the fleet"
            log.error("the key %s of %s cannot be decrypted, so it signs no card: %s", key.kid, whose, error)
            return None
        return signer(key.kid, key.alg, private)


def _ended(key: SigningKey) -> tuple[bool, bool, int]:
    return key.retired is not None, key.until is not None, -(key.retired or 0)


def _about(agent: str, kid: str) -> bytes:
    return f"key:{agent}{kid}".encode()
