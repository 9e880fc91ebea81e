"""Checkpoints as hosts make them, the signatures of evidence, and the Merkle tree."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import asyncpg
import httpx
import msgspec
import pytest

from roost.engine.store_types import Append, NewTask, Scope, TaskHead
from roost.evidence import keys
from roost.evidence.checkpoint import BadCheckpoint, make, read_statement, signer_of
from roost.evidence.checkpoint_audit import audit
from roost.evidence.keys import BadSignature
from roost.evidence.merkle import MerkleTree, root_from_path
from roost.identity.card_verification import SignatureFault, read_jwks, verify
from roost.identity.keys import EVIDENCE, Keyring
from roost.identity.seal import Seal, new_key
from roost.protocol.canonical import jcs
from roost.protocol.types import TaskState
from roost.stores.memory import MemoryStore
from roost.stores.postgres import PostgresStore
from tests.evidence.journals import edit
from tests.evidence.test_bundle_hostile import chained
from tests.processes import FLEET, ROOT, roost, running
from tests.waiting import eventually

TOMORROW = """
    UPDATE checkpoints SET time = time + 86400000
    WHERE number = (SELECT max(number) FROM checkpoints) AND time < 1000 * strftime('%s', 'now', '+1 hour')
"""


def test_a_host_makes_checkpoints_periodically(tmp_path: Path) -> None:
    with running(FLEET, data=tmp_path, args=("--checkpoint-s", "0.1", "--drain-s", "0")) as server:
        server.send("hello", "you")

        def counts() -> list[int]:
            done = roost("evidence", "checkpoints", "--limit", "100000", "--json", "--data", tmp_path)
            return [one["checkpoint"]["count"] for one in msgspec.json.decode(done.stdout)["items"]]

        eventually(lambda: len(found := counts()) > 2 and 1 in found and found[0] == 0)

        def continues_after_a_checkpoint_in_the_future() -> bool:
            edit(tmp_path, lambda connection: connection.execute(TOMORROW))
            return "in the future of this host's clock" in server.stderr

        eventually(continues_after_a_checkpoint_in_the_future)
        made = len(counts())
        eventually(lambda: len(counts()) > made)
    assert "Traceback" not in server.stderr


def test_checkpoint_s_0_makes_no_checkpoints_and_a_retired_key_is_not_published(tmp_path: Path) -> None:
    with running(FLEET, data=tmp_path, args=("--checkpoint-s", "0", "--drain-s", "0")) as server:
        server.send("hello", "you")

        def shown() -> list[str]:
            found = httpx.get(f"{server.url}/.well-known/evidence-jwks.json").json()["keys"]
            return [key["kid"] for key in found]

        [old] = shown()
        assert roost("keys", "rotate", "@evidence", "--overlap", "0s", "--data", tmp_path).returncode == 0
        eventually(lambda: len(shown()) == 2 and old in shown())
        assert roost("keys", "retire", "--data", tmp_path, "--", "@evidence", old).returncode == 0
        eventually(lambda: len(shown()) == 1 and old not in shown())
    assert roost("evidence", "checkpoints", "--data", tmp_path).stdout == ""


async def ring() -> Keyring:
    return Keyring(MemoryStore(), Seal(new_key()), "EdDSA")


async def test_a_signature_of_evidence_is_not_valid_for_a_card_and_vice_versa() -> None:
    keyring = await ring()
    card = {"name": "a", "version": "1"}
    signed = await keyring.sign(EVIDENCE, jcs(card), keys.MANIFEST)
    document = jcs({**card, "signatures": [msgspec.to_builtins(signed)]})
    public = [msgspec.json.decode(key.public) for key in await keyring.evidence_keys()]
    [verdict] = verify(document, public)
    assert (verdict.fault, "not the signature of a card" in verdict.why) == (SignatureFault.REFUSED, True)
    of_card = (await keyring.signed(card, "agent", ""))["signatures"][0]
    with pytest.raises(BadSignature, match="the typ is 'JOSE'"):
        keys.check(of_card, jcs(card), keys.MANIFEST, read_jwks(keyring.jwks("agent")))
    with pytest.raises(BadSignature, match="the typ is"):
        keys.check(msgspec.to_builtins(signed), jcs(card), keys.CHECKPOINT, public)
    assert keys.check(msgspec.to_builtins(signed), jcs(card), keys.MANIFEST, public) == public[0]["kid"]


async def test_the_evidence_key_is_not_among_the_card_keys_and_old_evidence_keys_stay_known() -> None:
    keyring = await ring()
    [first] = await keyring.evidence_keys()
    made = await make(keyring.store, keyring)  # type: ignore[arg-type]
    assert made is not None
    await keyring.rotate(EVIDENCE, 0)
    both = await keyring.evidence_keys()
    assert first.kid in {key.kid for key in both}
    assert len(both) == 2
    public = [msgspec.json.decode(key.public) for key in both]
    assert signer_of(read_statement(made.statement), public) == first.kid
    await keyring.signing_keys("agent")
    assert {key["kid"] for key in read_jwks(keyring.jwks(None))} == {
        key.kid for key in keyring.by_agent["agent"].values()
    }


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda text: b"", "not a checkpoint"),
        (lambda text: b"[1]", "it must have the members `checkpoint`"),
        (lambda text: text.replace(b"checkpoint-1", b"checkpoint-9"), "this release supports only"),
        (lambda text: text.replace(b'"count":0', b'"count":-1'), "a number, the time or a digest"),
        (lambda text: text.replace(b'"number":1', b'"number":1152921504606846976'), "a number, the time or a digest"),
        (lambda text: text.replace(b'"signature":{', b'"signature":{"a":[],'), "not an object of two strings"),
        (lambda text: text.replace(b'"count":0', b'"count":"0"'), "among count"),
        (lambda text: text.replace(b'"count":0', b'"count":0,"count":0'), "twice"),
        (lambda text: text + b" " * 5000, "at most"),
    ],
)
async def test_an_invalid_checkpoint_is_refused(change: object, expected: str) -> None:
    keyring = await ring()
    made = await make(keyring.store, keyring)  # type: ignore[arg-type]
    assert made is not None
    with pytest.raises(BadCheckpoint, match=expected):
        read_statement(change(made.statement))  # type: ignore[operator]


def test_the_merkle_tree_is_that_of_rfc_9162_and_every_path_leads_to_the_root() -> None:
    def tree_of(leaves: list[bytes]) -> bytes:
        if len(leaves) < 2:
            return sha256(b"\0" + leaves[0] if leaves else b"").digest()
        split = 1 << (len(leaves) - 1).bit_length() - 1
        return sha256(b"\1" + tree_of(leaves[:split]) + tree_of(leaves[split:])).digest()

    for count in range(20):
        leaves = [b"leaf %d" % number for number in range(count)]
        tree = MerkleTree(range(count))
        for leaf in leaves:
            tree.add(leaf)
        assert tree.root() == tree_of(leaves)
        for index, leaf in enumerate(leaves):
            path = tree.paths[index]
            assert root_from_path(leaf, index, count, path) == tree.root()
            assert root_from_path(b"other", index, count, path) != tree.root()
            assert root_from_path(leaf, index, count, [*path, b""]) is None
            assert root_from_path(leaf, (index + 1) % count, count, path) != tree.root() or count == 1


async def test_edits_of_a_postgresql_journal_are_reported(database: str) -> None:
    store = PostgresStore(database)
    await store.open()
    keyring = Keyring(store, Seal(new_key()), "ES256")
    head = TaskHead(TaskState.COMPLETED, 1000, None, 1, False)
    for name in ("a", "b", "c", "d"):
        new = NewTask(name, Scope("t", "o", "agent"), "c", 1)
        assert await store.commit([Append(name, 1, chained(name, 5), new, head)]) == [None]
    made = await make(store, keyring)
    assert made is not None
    held = read_statement(made.statement)
    public = [msgspec.json.decode(key.public) for key in await keyring.evidence_keys()]
    assert (await audit(store, held, public)).sound
    assert sum(usage.tasks for usage in await store.prune("agent", None, 3, 10)) == 1
    connection = await asyncpg.connect(database, server_settings={"search_path": "roost"})
    blob = await connection.fetchval("SELECT entries FROM segments WHERE task_id = 'b'")
    await connection.execute(
        "UPDATE segments SET entries = $1 WHERE task_id = 'b'", blob.replace(b"piece 2", b"piece 7")
    )
    await connection.execute("UPDATE segments SET task_id = 'x' WHERE task_id = 'c'")
    await connection.close()
    found = await audit(store, held, public)
    texts = [fault.text() for fault in found.faults]
    assert any("task b, entry 2: the hash chain is broken" in text for text in texts), texts
    assert any("task c, entry 4: the entry is gone, but checkpoint 1 has it" in text for text in texts), texts
    assert {fault.task for fault in found.faults} == {"b", "c"}
    assert [pruned.task for pruned in found.pruned] == ["a"]
    await store.close()


def test_the_script_in_the_docs_is_short() -> None:
    assert len((ROOT / "docs" / "verify_bundle.py").read_text().splitlines()) <= 90
