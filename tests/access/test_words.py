"""The words of access: scopes, names, times, and the lines of the audit log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from roost.engine.store_types import StoreUnavailable
from roost.identity.audit import MAX_TEXT, PER_MINUTE, WAITING, AuditLog
from roost.identity.ports import Audited
from roost.identity.principal import LOCAL, Principal, principal_name
from roost.identity.scopes import opens_agent, parse_scopes
from roost.identity.tokens import PREFIX, TokenRequest, make_token, seconds
from roost.protocol.errors import Forbidden, InvalidParams
from roost.stores.memory import MemoryStore

# Scopes


@pytest.mark.parametrize(
    ("scope", "opened"),
    [
        ("agent:*", {"desk", "desk2", "Desk", "other", "a.b"}),
        ("agent:desk", {"desk"}),
        ("agent:desk*", {"desk", "desk2"}),
        ("agent:?esk", {"desk", "Desk"}),
        ("agent:*.*", {"a.b"}),
        ("agent:.", set()),
        ("admin", set()),
        ("operate", set()),
    ],
)
def test_a_scope_opens_the_agents_that_its_pattern_fits(scope: str, opened: set[str]) -> None:
    agents = {"desk", "desk2", "Desk", "other", "a.b"}
    assert {agent for agent in agents if opens_agent((scope,), agent)} == opened


def test_scopes_are_words_that_there_are() -> None:
    assert parse_scopes([" admin ", "agent:*", "admin", ""]) == ("admin", "agent:*")
    for word in (
        "root",
        "agent",
        "agent:",
        "agent:a b",
        "agent:[a-z]",
        "agent:a/b",
        "Admin",
        "pty:*",
        "agent:" + "x" * 129,
    ):
        with pytest.raises(ValueError, match="is not a scope"):
            parse_scopes([word])


# Names


def test_no_two_principals_have_one_name() -> None:
    pairs = [
        ("a", "b:c"),
        ("a:b", "c"),
        ("a%3Ab", "c"),
        ("https://idp", "c"),
        ("https", "//idp:c"),
        ("a", ""),
        ("", "a:"),
    ]
    assert len({principal_name(*pair) for pair in pairs}) == len(pairs)
    assert Principal("roost", "ada").owner == "roost:ada"
    assert "*" not in {principal_name(*pair) for pair in pairs}


def test_a_principal_is_confined_to_one_of_its_tenants_and_does_not_come_out_again() -> None:
    person = Principal("roost", "ada", "acme", ("acme", "globex"))
    inside = person.within("globex", "X-Tenant-Id")
    assert (inside.tenant, inside.tenants, inside.owner) == ("globex", ("globex",), person.owner)
    for tenant in ("acme", "initech"):
        with pytest.raises(Forbidden):
            inside.within(tenant, "X-Tenant-Id")
    assert LOCAL.within("anything", "X-Tenant-Id").tenant == "anything"
    with pytest.raises(InvalidParams):
        LOCAL.within("any thing", "X-Tenant-Id")


# Times and secrets


def test_a_lifetime_is_a_number_and_a_unit() -> None:
    assert [seconds(text) for text in ("45s", "30m", "12h", "90d", " 1d ")] == [45, 1800, 43_200, 7_776_000, 86_400]
    for text in ("", "90", "d", "-1d", "1.5h", "1w", "1d2h", "1234567s", "٣d"):
        with pytest.raises(ValueError, match="is not a duration"):
            seconds(text)


def test_a_secret_is_made_once_long_and_recognisable() -> None:
    made = [make_token(TokenRequest("x", ["admin"])) for _ in range(100)]
    assert len({one.secret for one in made}) == len({one.token.id for one in made}) == 100
    assert all(one.secret.startswith(PREFIX) and len(one.secret) >= 40 for one in made)
    assert all(one.secret not in repr(one.token) for one in made)


# The audit log


class Slow(MemoryStore):
    """Writes the log only when it is let; notes what it has written."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.fails = False

    async def write_audit(self, lines: Sequence[Audited], keep: int) -> None:
        await self.gate.wait()
        if self.fails:
            raise StoreUnavailable("the disk is full")
        await super().write_audit(lines, keep)


def outcomes(log: AuditLog) -> list[str]:
    return [line.outcome for line in log.waiting]


async def written(store: MemoryStore) -> list[str]:
    return [found.line.outcome for found in reversed(await store.read_audit(None, 10_000))]


async def test_a_refusal_is_written_once_however_many_ask_for_the_log() -> None:
    store = Slow()
    log = AuditLog(store)
    log.record_refusal(None, "GET /", "one", "")
    asking = [asyncio.create_task(log.read(None, 10)) for _ in range(3)]
    await asyncio.sleep(0)
    log.record_refusal(None, "GET /", "two", "")
    store.gate.set()
    await asyncio.gather(*asking)
    await log.flush()
    assert await written(store) == ["one", "two"]
    assert outcomes(log) == []


async def test_what_cannot_be_written_waits() -> None:
    store = Slow()
    log = AuditLog(store)
    store.gate.set()
    store.fails = True
    log.record_refusal(LOCAL, "GET /", "one", "")
    with pytest.raises(StoreUnavailable):
        await log.flush()
    store.fails = False
    log.record_refusal(LOCAL, "GET /", "two", "")
    await log.flush()
    assert await written(store) == ["one", "two"]


async def test_refusals_of_one_caller_that_come_too_fast_are_counted_and_not_kept() -> None:
    """Whoever is refused again and again does not push out what others did."""
    store = MemoryStore()
    log = AuditLog(store)
    for number in range(PER_MINUTE + 25):
        log.record_refusal(None, "GET /", str(number), "192.0.2.1")
    log.record_refusal(None, "GET /", "another's", "192.0.2.2")
    await log.flush()
    found = await written(store)
    assert found[:PER_MINUTE] == [str(number) for number in range(PER_MINUTE)]
    assert found[PER_MINUTE:] == ["another's", "25 more that came too fast to be recorded"]
    log.record_refusal(None, "GET /", "once more", "192.0.2.1")
    await log.flush()
    assert len(await written(store)) == PER_MINUTE + 2


async def test_refusals_of_many_callers_are_bounded_too() -> None:
    log = AuditLog(MemoryStore())
    for number in range(WAITING + 25):
        log.record_refusal(None, "GET /", "", f"192.0.2.{number}")
    assert (len(log.waiting), log.dropped) == (WAITING, 25)


async def test_a_line_is_short_and_can_be_shown() -> None:
    store = MemoryStore()
    log = AuditLog(store)
    await log.record("x" * 1000, "token.create", "two\nlines\x1b[31m\ud800", address="::1")
    (found,) = await log.read(None, 10)
    assert found.line.actor == "x" * MAX_TEXT
    assert found.line.target.isprintable()
    found.line.target.encode()
