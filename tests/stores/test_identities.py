"""The guarantees of every store on which identity relies: tokens, signing keys, the audit log, shared figures."""

from __future__ import annotations

import asyncio

from roost.engine.ports import Store
from roost.identity.ports import Changes, NumberedAudit

from .samples import Cache, audited, key, token

UNTIL = 9000

# Tokens


async def test_a_token_is_read_back_as_it_was_made(store: Store) -> None:
    assert await store.read_identities(0) == Changes(0, [], [])
    full = token(
        "full", name="Grüße\0\1 😀", subject="a:b", tenants=("a", "b\0"), scopes=("agent:x", "admin"), expires=7
    )
    plain = token("plain", tenants=(), scopes=(), name="")
    assert await store.add_token(full)
    assert await store.add_token(plain)
    assert await store.read_identities(0) == Changes(2, [full, plain], [])


async def test_only_what_was_made_or_changed_after_a_version_is_read(store: Store) -> None:
    await store.add_token(token("a"))
    await store.add_key(key("k"), None, UNTIL)
    version, tokens, keys = await store.read_identities(0)
    assert (len(tokens), len(keys)) == (1, 1)
    assert await store.read_identities(version) == Changes(version, [], [])
    await store.add_token(token("b"))
    await store.revoke_token("a", 2000)
    changes = await store.read_identities(version)
    assert changes.version > version
    assert sorted(changes.tokens) == [token("a", revoked=2000), token("b")]
    assert changes.keys == []


async def test_a_token_with_an_id_or_digest_that_there_is_changes_nothing(store: Store) -> None:
    assert await store.add_token(token("a"))
    before = await store.read_identities(0)
    assert not await store.add_token(token("a", digest=b"another"))
    assert not await store.add_token(token("b", digest=token("a").digest))
    assert await store.read_identities(0) == before
    assert await store.add_token(token("b"))


async def test_a_token_is_revoked_once_and_stays_so(store: Store) -> None:
    await store.add_token(token("a"))
    revoked = token("a", revoked=2000)
    assert await store.revoke_token("a", 2000) == revoked
    before = await store.read_identities(0)
    assert await store.revoke_token("a", 3000) == revoked
    assert await store.revoke_token("b", 3000) is None
    assert await store.read_identities(0) == before
    assert before.tokens == [revoked]
    assert not await store.add_token(token("a"))


# Signing keys


async def test_the_first_key_of_an_agent_is_its_current_one_and_agents_have_their_own(store: Store) -> None:
    made = [key("k", "x"), key("k", "y"), key("k", ""), key("k", "\0")]
    for one in made:
        assert await store.add_key(one, None, UNTIL)
    assert sorted((await store.read_identities(0)).keys) == sorted(made)


async def test_a_key_replaces_the_current_one_which_goes_on_for_a_while(store: Store) -> None:
    await store.add_key(key("old"), None, UNTIL)
    await store.add_key(key("other", "another"), None, UNTIL)
    before = await store.read_identities(0)
    assert await store.add_key(key("new", created=2000), "old", UNTIL)
    changes = await store.read_identities(before.version)
    assert sorted(changes.keys) == [key("new", created=2000), key("old", until=UNTIL)]
    assert changes.tokens == []


async def test_a_key_that_would_replace_another_than_the_current_one_changes_nothing(store: Store) -> None:
    assert not await store.add_key(key("new"), "nothing", UNTIL)
    assert await store.read_identities(0) == Changes(0, [], [])
    await store.add_key(key("first"), None, UNTIL)
    await store.add_key(key("second"), "first", UNTIL)
    before = await store.read_identities(0)
    for replacing in (None, "first", "", "nothing"):
        assert not await store.add_key(key("third"), replacing, UNTIL + 1)
    for known in ("first", "second"):
        assert not await store.add_key(key(known), "second", UNTIL + 1)
    assert await store.read_identities(0) == before
    assert await store.add_key(key("third"), "second", UNTIL)


async def test_a_key_that_is_retired_has_no_private_part_any_more(store: Store) -> None:
    await store.add_key(key("old"), None, UNTIL)
    await store.add_key(key("new"), "old", UNTIL)
    before = await store.read_identities(0)
    for agent, kid in (("agent", "new"), ("agent", "nothing"), ("another", "old")):
        assert not await store.retire_key(agent, kid, 5000)
    assert await store.read_identities(before.version) == Changes(before.version, [], [])
    assert await store.retire_key("agent", "old", 5000)
    after = await store.read_identities(before.version)
    assert after.keys == [key("old", until=UNTIL, retired=5000, sealed=b"")]
    assert not await store.retire_key("agent", "old", 6000)
    assert not await store.add_key(key("old"), "new", UNTIL)
    assert await store.read_identities(after.version) == Changes(after.version, [], [])
    assert await store.retire_key("agent", "old", 4000)
    assert [one.retired for one in (await store.read_identities(after.version)).keys] == [4000]


async def test_of_many_that_replace_a_key_at_once_one_does(store: Store) -> None:
    replacing = None
    for turn in range(3):
        made = [key(f"{turn}.{number}") for number in range(8)]
        won = await asyncio.gather(*(store.add_key(one, replacing, UNTIL) for one in made))
        assert won.count(True) == 1
        replacing = made[won.index(True)].kid
    keys = (await store.read_identities(0)).keys
    assert [one.kid for one in keys if one.until is None] == [replacing]
    assert len(keys) == 3


async def test_who_reads_only_what_changed_misses_nothing_while_others_write(store: Store) -> None:
    async def write(writer: str) -> None:
        kid = None
        for number in range(10):
            name = f"{writer}.{number}"
            await store.add_token(token(name))
            assert await store.add_key(key(name, writer), kid, UNTIL)
            if kid is not None:
                assert await store.retire_key(writer, kid, 5000)
            kid = name
            await store.revoke_token(f"{writer}.{number // 2}", 2000)

    writing = asyncio.gather(*(write(f"writer {number}") for number in range(4)))
    mirrors = [Cache(store) for _ in range(2)]
    await asyncio.gather(writing, *(mirror.follow_until(writing) for mirror in mirrors))
    for mirror in mirrors:
        assert await mirror.misses_nothing()
        assert (len(mirror.tokens), len(mirror.keys)) == (40, 40)


# The audit log


async def test_lines_are_numbered_as_they_are_written_and_read_newest_first(store: Store) -> None:
    assert await store.read_audit(None, 10) == []
    await store.write_audit([audited(1), audited(2, actor="\0\1", target="Grüße\n", address="")], 100)
    await store.write_audit([], 100)
    await store.write_audit([audited(3)], 100)
    lines = [NumberedAudit(3, audited(3)), NumberedAudit(2, audited(2, actor="\0\1", target="Grüße\n", address=""))]
    assert await store.read_audit(None, 2) == lines
    assert await store.read_audit(3, 10) == [lines[1], NumberedAudit(1, audited(1))]
    assert await store.read_audit(1, 10) == []


async def test_of_the_audit_log_the_newest_stay_and_numbers_are_not_used_again(store: Store) -> None:
    for start in range(1, 10, 3):
        await store.write_audit([audited(number) for number in range(start, start + 3)], 4)
    assert [line.number for line in await store.read_audit(None, 100)] == [9, 8, 7, 6]
    await store.write_audit([audited(number) for number in range(10, 16)], 2)
    assert await store.read_audit(None, 100) == [NumberedAudit(15, audited(15)), NumberedAudit(14, audited(14))]
    await store.write_audit([audited(16)], 0)
    await store.write_audit([audited(17)], 10)
    assert await store.read_audit(None, 100) == [NumberedAudit(17, audited(17))]


async def test_lines_that_are_written_at_once_are_all_there_and_stay_together(store: Store) -> None:
    groups = [[audited(10 * group + number) for number in range(5)] for group in range(10)]
    await asyncio.gather(*(store.write_audit(group, 1000) for group in groups))
    found = (await store.read_audit(None, 1000))[::-1]
    assert [line.number for line in found] == list(range(1, 51))
    written = [line.line for line in found]
    assert sorted(written[start : start + 5] for start in range(0, 50, 5)) == groups


# Figures


async def test_a_host_does_not_hear_itself(store: Store) -> None:
    assert await store.share("me", b"1") == {}
    assert await store.share("me", b"2") == {}
