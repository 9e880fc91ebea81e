"""The port that identity needs of a store: tokens, signing keys, the audit log, and figures that hosts share.

All times are milliseconds since 1970.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol


def now_ms() -> int:
    """Return the time by this machine's clock."""
    return time.time_ns() // 1_000_000


class Token(NamedTuple):
    """A credential that Roost issued. The secret itself is not stored."""

    id: str
    digest: bytes
    """SHA-256 of the secret."""
    name: str
    subject: str
    """The caller that it authenticates; several tokens may have the same subject."""
    tenants: tuple[str, ...]
    """The tenants that its caller may use; the first is the default."""
    scopes: tuple[str, ...]
    created: int
    expires: int | None = None
    revoked: int | None = None


class SigningKey(NamedTuple):
    """A key that signs the cards of one agent, by Ed25519 or ES256."""

    agent: str
    """The agent whose cards it signs; "" for the fleet's own card."""
    kid: str
    """RFC 7638 thumbprint of the public key."""
    alg: str
    public: bytes
    """The public JWK as JSON."""
    sealed: bytes
    """The private JWK as JSON, encrypted; empty once the key is retired."""
    created: int
    until: int | None = None
    """The end of its overlap with its successor; None for the agent's current key."""
    retired: int | None = None


class Changes(NamedTuple):
    """The tokens and keys that changed since a version, and the version after these changes."""

    version: int
    tokens: list[Token]
    keys: list[SigningKey]


class Audited(NamedTuple):
    """A line of the audit log."""

    time: int
    actor: str
    """The caller as issuer:subject; "anonymous" where there was no valid credential."""
    action: str
    """token.create, token.revoke, key.rotate, key.retire, refused, ..."""
    target: str
    """The token, key, route or task that the action was about."""
    outcome: str
    """`done`, or the reason why it was not."""
    address: str = ""
    """The network address of the caller."""


class NumberedAudit(NamedTuple):
    number: int
    """The position of the line in the log, from 1 on."""
    line: Audited


class Identities(Protocol):
    """Tokens, signing keys and the audit log. Every change of a token or key raises one version number."""

    async def read_identities(self, after: int) -> Changes:
        """Return the tokens and keys that were made or changed after that version; with 0 all, revoked ones included.

        A reader never misses a change: versions are in the order of commits.
        """

    async def add_token(self, token: Token) -> bool:
        """Add a token. Return False, and change nothing, if there is one with this id or digest."""

    async def revoke_token(self, token_id: str, at: int) -> Token | None:
        """Revoke a token and return it, or None if there is none. A token that is revoked already keeps its time."""

    async def add_key(self, key: SigningKey, replacing: str | None, until: int) -> bool:
        """Make it the agent's current key, if the current one is `replacing` (None: the agent has no key).

        The key that is replaced stays valid until `until`. Return False, and change nothing, if another is current.
        """

    async def retire_key(self, agent: str, kid: str, at: int) -> bool:
        """Retire a key that is not current, and delete its private part. Return False if there is no such key.

        A key that is retired already can only be given an earlier time.
        """

    async def write_audit(self, lines: Sequence[Audited], keep: int) -> None:
        """Add lines; the store may delete all but the newest `keep`."""

    async def read_audit(self, before: int | None, limit: int) -> list[NumberedAudit]:
        """Return lines with a number below `before`, the newest first."""

    async def share(self, worker: str, figures: bytes) -> dict[str, bytes]:
        """Publish this worker's figures, and return those that other workers published in the last 5 s, by worker."""
