"""What identity asks of a store: tokens, signing keys, the audit log, and figures that hosts share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Token(NamedTuple):
    """A credential that Roost gave out. The secret itself is nowhere."""

    id: str
    digest: bytes
    """SHA-256 of the secret."""
    name: str
    subject: str
    """Who it stands for; several tokens may stand for one."""
    tenants: tuple[str, ...]
    """The first is the default, the others can be chosen."""
    scopes: tuple[str, ...]
    created: int
    """Milliseconds, as all times here."""
    expires: int | None = None
    revoked: int | None = None


class SigningKey(NamedTuple):
    """A key that signs the cards of one agent. Ed25519 or ES256."""

    agent: str
    """Whose cards it signs; "" for the fleet's own."""
    kid: str
    """RFC 7638 thumbprint of the public key."""
    alg: str
    public: bytes
    """The public JWK as JSON."""
    sealed: bytes
    """The private JWK as JSON, encrypted; empty once it is retired."""
    created: int
    until: int | None = None
    """The end of its overlap, after it was replaced; None: it is the agent's current key."""
    retired: int | None = None


class Changes(NamedTuple):
    """What changed since a version, and the version that this makes."""

    version: int
    tokens: list[Token]
    keys: list[SigningKey]


class Audited(NamedTuple):
    """A line of the audit log."""

    time: int
    actor: str
    """Who did it, as issuer:subject; "anonymous" where nobody was known."""
    action: str
    """token.create, token.revoke, key.rotate, key.retire, refused, ..."""
    target: str
    """The token, key, route or task that it was done to."""
    outcome: str
    """done, or why not."""
    address: str = ""
    """Where the caller was."""


class NumberedAudit(NamedTuple):
    number: int
    """From 1 on, in the order in which they were written."""
    line: Audited


class Identities(Protocol):
    """Tokens, keys and what became of them. Every change of a token or key raises one version number."""

    async def read_identities(self, after: int) -> Changes:
        """Tokens and keys that were made or changed after that version; with 0 all of them, the revoked ones too.

        A change is never seen with a version that a reader has had before: versions are in the order of commits.
        """

    async def add_token(self, token: Token) -> bool:
        """False, and nothing changes, if there is one with this id or digest."""

    async def revoke_token(self, token_id: str, at: int) -> Token | None:
        """The token as it is now; one that is revoked keeps its time. None if there is none."""

    async def add_key(self, key: SigningKey, replacing: str | None, until: int) -> bool:
        """Make it the agent's current key, if the one that is current now is `replacing` (None: there is none).

        That one goes on until `until`. False, and nothing changes, if another key is current.
        """

    async def retire_key(self, agent: str, kid: str, at: int) -> bool:
        """End a key that is not current: its private part is deleted. False if there is no such key to retire.

        One that has ended can only end earlier.
        """

    async def write_audit(self, lines: Sequence[Audited], keep: int) -> None:
        """Add lines; only the newest `keep` of all have to stay."""

    async def read_audit(self, before: int | None, limit: int) -> list[NumberedAudit]:
        """The newest first; only those with a number below `before`."""

    async def share(self, worker: str, figures: bytes) -> dict[str, bytes]:
        """Tell the other hosts, and hear what they told in the last 5 s, by worker, without one's own."""
