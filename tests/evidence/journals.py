"""A journal that a real host has written, and bundles of it."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from roost.engine.ports import Store
from roost.evidence import bundle
from roost.evidence.checkpoint import Statement, make, read_statement
from roost.evidence.export import Source, export
from roost.evidence.export_selection import Selection
from roost.identity.keys import Keyring
from roost.identity.seal import Seal, load_key
from roost.protocol.canonical import jcs
from roost.stores.sqlite import OfflineStore, SQLiteStore
from tests.processes import FLEET, Server, running

ADMIN_SECRET = "an-admin-token-of-the-tests"


class Written(NamedTuple):
    folder: Path
    tasks: list[str]
    """Five ids, sorted: three tasks of hello, one of stream, and one of ask, which waits for an answer."""


def write(folder: Path) -> Iterator[tuple[Server, list[str]]]:
    with running(FLEET, data=folder, env={"ROOST_ADMIN_TOKEN": ADMIN_SECRET}, args=("--drain-s", "0")) as server:
        ids = [server.send("hello", f"number {number}, \u00fcber \U0001f680")["id"] for number in range(3)]
        ids.append(server.send("stream", "one two three")["id"])
        ids.append(server.send("ask", "trip")["id"])
        yield server, ids


@asynccontextmanager
async def opened(folder: Path) -> Any:
    store = SQLiteStore(folder)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def offline(folder: Path) -> Any:
    store = OfflineStore(folder)
    try:
        yield store
    finally:
        await store.close()


def keyring(store: Store, folder: Path) -> Keyring:
    return Keyring(store, Seal(load_key(folder / "secret.key", create=True)), "EdDSA")


async def checkpoint(folder: Path) -> Statement:
    async with opened(folder) as store:
        made = await make(store, keyring(store, folder))
        assert made is not None
        return read_statement(made.statement)


async def exported(folder: Path, selection: Selection, **more: Any) -> bytes:
    out = io.BytesIO()
    async with opened(folder) as store:
        await export(Source(store, keyring(store, folder), more.pop("cards", {})), selection, out, **more)
    return out.getvalue()


def members(packed: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]


def tarred(found: Mapping[str, bytes]) -> bytes:
    return b"".join(bundle.header(n, len(d)) + d + bundle.padding(len(d)) for n, d in found.items()) + bundle.END


def packed(tar: bytes) -> bytes:
    out = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0, compresslevel=1) as file:
        file.write(tar)
    return out.getvalue()


def with_digests(found: dict[str, bytes]) -> dict[str, bytes]:
    """Update the manifest to the digests of the changed members."""
    manifest = msgspec.json.decode(found["manifest.json"])
    for one in manifest["members"]:
        one["sha256"], one["size"] = sha256(found[one["name"]]).hexdigest(), len(found[one["name"]])
    return {**found, "manifest.json": jcs(manifest)}


def edit(folder: Path, change: Callable[[Any], None]) -> None:
    """Edit the database directly, without the host."""
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(folder / "journal.db")) as connection, connection:
        change(connection)
