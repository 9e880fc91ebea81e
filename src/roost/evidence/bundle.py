"""The form of a bundle: a tar.gz that is the same bytes whoever makes it of the same records, with the same keys.

    manifest.json         what the other members are, by digest; canonical JSON
    manifest.json.sig     a detached JWS over it
    keys/jwks.json        the keys of that signature and of the checkpoints
    cards/{agent}.json    the signed cards
    checkpoints.ndjson    from the first that has a task of the bundle, or was asked for, to the newest
    proofs.ndjson         that a task is in a checkpoint: its leaf, and the path to the root
    tombstones.ndjson     what is left of pruned tasks
    tasks.ndjson          each task: whose it is, how many entries it has, and its head
    events.ndjson         each entry: its place in the chain, its bytes, and the event; task by task
    raw/{sha256}          the bytes of an entry that is too long for a line

Members come in this order. Nothing in the tar is left to choice: see `header`.
"""

from __future__ import annotations

import re
import tarfile
from hashlib import sha256
from itertools import accumulate

from msgspec import Struct

FORMAT = "roost-evidence-1"
PROFILE = "v2"

MANIFEST, SIGNATURE, KEYS = "manifest.json", "manifest.json.sig", "keys/jwks.json"
CHECKPOINTS, PROOFS = "checkpoints.ndjson", "proofs.ndjson"
TOMBSTONES, TASKS, EVENTS = "tombstones.ndjson", "tasks.ndjson", "events.ndjson"
LINES = (CHECKPOINTS, PROOFS, TOMBSTONES, TASKS, EVENTS)
CARD = re.compile(r"cards/[A-Za-z0-9][A-Za-z0-9._-]{0,79}\.json")
RAW = re.compile(r"raw/[0-9a-f]{64}")

MAX_LINE = 1 << 20
MAX_DEPTH = 64
MAX_MANIFEST = 8 << 20
BLOCK = 512
END = bytes(2 * BLOCK)
GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
"""No name, no time, no system: what gzip says beside the data."""


class BundleLimits(Struct, frozen=True):
    """What a bundle may be without being asked for more."""

    size: int = 100 << 20
    """Bytes, compressed."""
    events: int = 100_000
    ratio: int = 250
    """Bytes out of one byte in."""


class BundleMember(Struct):
    name: str
    sha256: str
    size: int


class Roots(Struct):
    run_root: str
    """`sha256:` and the digest of all content hashes in the order of the events, each with a line end."""
    heads: str
    """The root of the Merkle tree (RFC 9162) over the lines of tasks.ndjson."""


class Counts(Struct):
    cards: int = 0
    checkpoints: int = 0
    events: int = 0
    proofs: int = 0
    raw: int = 0
    tasks: int = 0
    tombstones: int = 0
    untold: int = 0
    """Entries without an event: they are not as a host writes them."""


class Producer(Struct):
    name: str
    version: str


class Manifest(Struct, forbid_unknown_fields=True):
    format: str
    profile: str
    producer: Producer
    signer: str
    """Thumbprint (RFC 7638) of the key that signs this."""
    redacted: list[str]
    """What is left out, with a digest in its place."""
    roots: Roots
    counts: Counts
    members: list[BundleMember]


REDACTED = ["events.event.data", "events.raw", "tasks.owner", "tasks.tenant", "tombstones.owner", "tombstones.tenant"]


_PLACES = (MANIFEST, SIGNATURE, KEYS, "cards", *LINES, "raw")
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"')
_STEPS = {ord("{"): 1, ord("["): 1, ord("}"): -1, ord("]"): -1}


def known(name: str) -> bool:
    return name in _PLACES or bool(CARD.fullmatch(name) or RAW.fullmatch(name))


def order(name: str) -> tuple[int, str]:
    """Where a member that is known comes."""
    return _PLACES.index(name if name in _PLACES else name.partition("/")[0]), name


def card_name(agent: str) -> str:
    """A tar has no room for the longest ids."""
    return f"cards/{agent if len(agent) <= 80 else sha256(agent.encode()).hexdigest()}.json"


def header(name: str, size: int) -> bytes:
    """The 512 bytes before a member: a plain file of nobody's, from 1970."""
    about = tarfile.TarInfo(name)
    about.size, about.mode = size, 0o644
    return about.tobuf(tarfile.USTAR_FORMAT, "ascii", "strict")


def padding(size: int) -> bytes:
    return bytes(-size % BLOCK)


def too_deep(data: bytes) -> bool:
    """Nested deeper than MAX_DEPTH."""
    if data.count(b"{") + data.count(b"[") <= MAX_DEPTH:
        return False
    steps = (_STEPS.get(byte, 0) for byte in _STRINGS.sub(b"", data))
    return max(accumulate(steps), default=0) > MAX_DEPTH
