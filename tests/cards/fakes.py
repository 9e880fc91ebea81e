"""The part of a store that a keyring needs, in memory."""

from __future__ import annotations

from collections.abc import Sequence

from roost.identity.ports import Audited, Changes, NumberedAudit, SigningKey, Token


class FakeIdentities:
    def __init__(self) -> None:
        self.version = 0
        self.rows: dict[tuple[str, str], tuple[int, SigningKey]] = {}
        self.reads = 0

    async def read_identities(self, after: int) -> Changes:
        self.reads += 1
        return Changes(self.version, [], [key for version, key in self.rows.values() if version > after])

    async def add_key(self, key: SigningKey, replacing: str | None, until: int) -> bool:
        current = next((row for _, row in self.rows.values() if row.agent == key.agent and row.until is None), None)
        if (None if current is None else current.kid) != replacing:
            return False
        if current is not None:
            self._put(current._replace(until=until))
        self._put(key)
        return True

    async def retire_key(self, agent: str, kid: str, at: int) -> bool:
        row = self.rows.get((agent, kid))
        if row is None or row[1].until is None or row[1].retired is not None:
            return False
        self._put(row[1]._replace(retired=at, sealed=b""))
        return True

    def _put(self, key: SigningKey) -> None:
        self.version += 1
        self.rows[key.agent, key.kid] = (self.version, key)

    async def add_token(self, token: Token) -> bool:
        raise NotImplementedError

    async def revoke_token(self, token_id: str, at: int) -> Token | None:
        raise NotImplementedError

    async def write_audit(self, lines: Sequence[Audited], keep: int) -> None:
        raise NotImplementedError

    async def read_audit(self, before: int | None, limit: int) -> list[NumberedAudit]:
        raise NotImplementedError

    async def share(self, worker: str, figures: bytes) -> dict[str, bytes]:
        raise NotImplementedError


class LostRace(FakeIdentities):
    """A store in which another host adds its key at the moment when this one would."""

    def __init__(self, theirs: SigningKey) -> None:
        super().__init__()
        self.theirs: SigningKey | None = theirs

    async def add_key(self, key: SigningKey, replacing: str | None, until: int) -> bool:
        if self.theirs is not None:
            theirs, self.theirs = self.theirs, None
            await super().add_key(theirs, replacing, until)
        return await super().add_key(key, replacing, until)
