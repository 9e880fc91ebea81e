"""The format of a bundle: a tar.gz file. The same records and keys give the same bytes.

    manifest.json         the other members with their digests; canonical JSON
    manifest.json.sig     a detached JWS over the manifest
    keys/jwks.json        the keys of that signature and of the checkpoints
    cards/{agent}.json    the signed cards
    checkpoints.ndjson    the checkpoints from the first that a proof or the selection names, to the newest
    proofs.ndjson         the proof that a task is in a checkpoint: its leaf, and the path to the root
    tombstones.ndjson     the records that remain of pruned tasks
    tasks.ndjson          each task: its scope, the number of its entries, and its head
    events.ndjson         each entry: its position in the chain, its bytes, and the event; task by task
    raw/{sha256}          the bytes of an entry that is too long for a line

The members have this order. Every field of the tar headers is fixed: see `header`.
"""

from __future__ import annotations

import re
import tarfile
from hashlib import sha256
from itertools import accumulate

from msgspec import Struct, field

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
"""The gzip header, without a name, a time or an operating system."""


class BundleLimits(Struct, frozen=True):
    """Default limits of a bundle."""

    size: int = 100 << 20
    """Compressed bytes."""
    events: int = 100_000
    ratio: int = 250
    """Uncompressed bytes for each compressed byte."""


class BundleMember(Struct):
    name: str
    sha256: str
    size: int


class Roots(Struct):
    run_root: str
    """`sha256:` and the digest over all content hashes in the order of the events, each followed by a line end."""
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
    without_event: int = field(default=0, name="untold")
    """Entries without an event, because no host writes such entries."""


class Producer(Struct):
    name: str
    version: str


class Manifest(Struct, forbid_unknown_fields=True):
    format: str
    profile: str
    producer: Producer
    signer: str
    """Thumbprint (RFC 7638) of the key that signs the manifest."""
    redacted: list[str]
    """The fields that are omitted or replaced by a digest."""
    roots: Roots
    counts: Counts
    members: list[BundleMember]


REDACTED = ["events.event.data", "events.raw", "tasks.owner", "tasks.tenant", "tombstones.owner", "tombstones.tenant"]


_MEMBER_ORDER = (MANIFEST, SIGNATURE, KEYS, "cards", *LINES, "raw")
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"')
_NESTING = {ord("{"): 1, ord("["): 1, ord("}"): -1, ord("]"): -1}


def known(name: str) -> bool:
    return name in _MEMBER_ORDER or bool(CARD.fullmatch(name) or RAW.fullmatch(name))


def order(name: str) -> tuple[int, str]:
    """Return the sort key of a known member."""
    return _MEMBER_ORDER.index(name if name in _MEMBER_ORDER else name.partition("/")[0]), name


def card_name(agent: str) -> str:
    """Return the member name of a card. A tar header is too short for the longest agent ids."""
    return f"cards/{agent if len(agent) <= 80 else sha256(agent.encode()).hexdigest()}.json"


def header(name: str, size: int) -> bytes:
    """Return the 512 bytes before a member: a regular file without an owner, dated 1970."""
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o644
    return info.tobuf(tarfile.USTAR_FORMAT, "ascii", "strict")


def padding(size: int) -> bytes:
    return bytes(-size % BLOCK)


def too_deep(data: bytes) -> bool:
    """Return whether JSON is nested deeper than MAX_DEPTH."""
    if data.count(b"{") + data.count(b"[") <= MAX_DEPTH:
        return False
    changes = (_NESTING.get(byte, 0) for byte in _STRINGS.sub(b"", data))
    return max(accumulate(changes), default=0) > MAX_DEPTH
