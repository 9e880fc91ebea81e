"""Tokens, signing keys and the audit log in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice

from roost.identity.ports import Audited, Changes, NumberedAudit, SigningKey, Token


class MemoryIdentities:
    def __init__(self) -> None:
        super().__init__()
        self.version = 0
        self.tokens: dict[str, tuple[int, Token]] = {}
        """Tokens by id, each with the version of its last change; `keys` has them too."""
        self.keys: dict[tuple[str, str], tuple[int, SigningKey]] = {}
        self.audit: deque[NumberedAudit] = deque()
        self.audited = 0

    async def read_identities(self, after: int) -> Changes:
        tokens = [token for version, token in self.tokens.values() if version > after]
        keys = [key for version, key in self.keys.values() if version > after]
        return Changes(self.version, tokens, keys)

    async def add_token(self, token: Token) -> bool:
        digests = {known.digest for _, known in self.tokens.values()}
        if token.id in self.tokens or token.digest in digests:
            return False
        self.version += 1
        self.tokens[token.id] = (self.version, token)
        return True

    async def revoke_token(self, token_id: str, at: int) -> Token | None:
        if token_id not in self.tokens:
            return None
        token = self.tokens[token_id][1]
        if token.revoked is None:
            token = token._replace(revoked=at)
            self.version += 1
            self.tokens[token_id] = (self.version, token)
        return token

    async def add_key(self, key: SigningKey, replacing: str | None, until: int) -> bool:
        current = next((k for _, k in self.keys.values() if k.agent == key.agent and k.until is None), None)
        if (current and current.kid) != replacing or (key.agent, key.kid) in self.keys:
            return False
        self.version += 1
        if current is not None:
            self.keys[key.agent, current.kid] = (self.version, current._replace(until=until))
        self.keys[key.agent, key.kid] = (self.version, key._replace(until=None, retired=None))
        return True

    async def retire_key(self, agent: str, kid: str, at: int) -> bool:
        found = self.keys.get((agent, kid))
        if found is None or found[1].until is None or (found[1].retired is not None and found[1].retired <= at):
            return False
        self.version += 1
        self.keys[agent, kid] = (self.version, found[1]._replace(retired=at, sealed=b""))
        return True

    async def write_audit(self, lines: Sequence[Audited], keep: int) -> None:
        for line in lines:
            self.audited += 1
            self.audit.append(NumberedAudit(self.audited, line))
        while len(self.audit) > keep:
            self.audit.popleft()

    async def read_audit(self, before: int | None, limit: int) -> list[NumberedAudit]:
        older = (line for line in reversed(self.audit) if before is None or line.number < before)
        return list(islice(older, limit))

    async def share(self, worker: str, figures: bytes) -> dict[str, bytes]:
        return {}
