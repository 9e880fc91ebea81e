"""Several hosts, one store: a token that is made is known, one that is revoked is refused, and rates are shared."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import asyncpg
import pytest
from tools.services import Postgres, drop_database, new_database

from tests.access.people import AGENTS, CARD, OPERATOR, People, bearer, refusal
from tests.doors.wire import sending
from tests.processes import Server, roost, running
from tests.waiting import eventually

RATE = 20
QUOTAS = f"principal:roost:often.rate={RATE},principal:roost:busy.tasks=1"


class Pair:
    """Two hosts on one database, each with its people."""

    def __init__(self, servers: list[Server], people: list[People], where: tuple[str, ...], database: str) -> None:
        self.servers = servers
        self.people = people
        self.where = where
        self.database = database

    def statuses(self, secret: str) -> list[int]:
        """The status with which each host answers this bearer token."""
        answers = []
        for people in self.people:
            with People(people.base) as guests:
                answers.append(guests.with_headers(bearer(secret)).status())
        return answers


@pytest.fixture(scope="module")
def pair(postgres_server: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    key = folder / "secret.key"
    key.touch(mode=0o600)
    key.write_text(secrets.token_hex(32))
    database = new_database(postgres_server.url)
    where = ("--store", database, "--secret-file", str(key))
    env = {**OPERATOR, "AGENT_GATES": str(folder)}
    with ExitStack() as stack:
        stack.callback(drop_database, database)
        servers = [
            stack.enter_context(running(AGENTS, store=where, args=("--drain-s", "0", "--quotas", QUOTAS), env=env))
            for _ in range(2)
        ]
        people = [stack.enter_context(People(server)) for server in servers]
        yield Pair(servers, people, where, database)


def test_what_one_host_makes_and_revokes_holds_on_the_other(pair: Pair) -> None:
    here, there = pair.people
    made = here.operator.make("agent:desk")
    eventually(lambda: pair.statuses(made["token"]) == [200, 200])
    assert made["id"] in {token["id"] for token in there.operator.admin("GET", "tokens")["items"]}
    there.operator.admin("DELETE", f"tokens/{made['id']}")
    eventually(lambda: 200 not in pair.statuses(made["token"]))


def test_what_commands_make_and_revoke_holds_on_all_hosts(pair: Pair) -> None:
    done = roost("token", "create", "by-command", "--expires", "1h", "--json", *pair.where)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    eventually(lambda: pair.statuses(made["token"]) == [200, 200])
    done = roost("token", "revoke", "by-command", *pair.where)
    assert done.returncode == 0, done.stderr
    eventually(lambda: 200 not in pair.statuses(made["token"]))


def test_all_hosts_show_one_card_and_one_set_of_keys(pair: Pair) -> None:
    """But for where each of them is."""

    def kids(people: People) -> list[str]:
        found = people.operator.ask("GET", "/agents/desk/.well-known/jwks.json").json()
        return [key["kid"] for key in found["keys"]]

    here, there = pair.people
    assert here.operator.ask("GET", f"/agents/desk{CARD}").json()["signatures"]
    assert len(kids(here)) == 1
    assert kids(here) == kids(there)
    here.operator.admin("POST", "keys/desk:rotate", {})
    assert len(kids(here)) == 2
    eventually(lambda: kids(there) == kids(here))


def test_hosts_add_up_the_requests_of_one_caller(pair: Pair) -> None:
    here, there = pair.people
    secret = here.operator.make(name="often")["token"]
    eventually(lambda: there.with_headers(bearer(secret)).status("nobody") == 404)
    first, second = (people.with_headers(bearer(secret)) for people in (here, there))
    counted = 0
    while first.status() == 200:
        counted += 1
        assert counted <= 2 * RATE
    admitted = 0
    while second.status() == 200:
        admitted += 1
        assert admitted < RATE, "the other host has not heard of it"
        time.sleep(0.2 if admitted < RATE / 2 else 60 / RATE)  # slower than the rate, it can be asked for ever
    found = refusal(second.ask("GET", "/agents/desk/tasks"))
    assert (found.reason, found.metadata["quota"]) == ("TOO_MANY_REQUESTS", "rate")


def test_hosts_add_up_the_tasks_of_one_caller(pair: Pair) -> None:
    here, there = pair.people
    secret = here.operator.make(name="busy")["token"]
    eventually(lambda: pair.statuses(secret) == [200, 200])
    first, second = (people.with_headers(bearer(secret)) for people in (here, there))
    task = first.rest.begin("never", "turns")
    full = eventually(
        lambda: found if (found := second.rest.call("SendMessage", sending(), "teller")).status_code != 200 else None
    )
    assert refusal(full).metadata["quota"] == "concurrency"
    first.rest.ok("CancelTask", {"id": task["id"]}, "turns")
    eventually(lambda: second.rest.call("SendMessage", sending(), "teller").status_code == 200)


@contextmanager
def unreachable(server: Postgres, database: str) -> Iterator[None]:
    """A database that nobody can connect to, and that those who were connected are thrown out of."""
    name = urlsplit(database).path[1:]
    _run(server, f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
    try:
        _run(server, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        yield
    finally:
        _run(server, f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')


def _run(server: Postgres, command: str) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(server.url)
        try:
            await connection.execute(command)
        finally:
            await connection.close()

    asyncio.run(run())


def test_a_host_that_has_lost_its_store_trusts_no_token(pair: Pair, postgres_server: Postgres) -> None:
    """Its cache is stale, so the token may have been revoked. Nor may the host say that the token is invalid."""
    here, _ = pair.people
    person, key = here.new(), here.operator.make()["token"]
    with unreachable(postgres_server, pair.database):
        # The directory is in memory: it is refused for the token alone.
        eventually(lambda: person.ask("GET", "/agents/").status_code == 503)
        for answer in (
            person.ask("GET", "/agents/desk/tasks"),
            person.rpc.call("ListTasks", {}, "desk"),
            person.ask("GET", "/agents/"),
            here.with_headers({"X-API-Key": key}).ask("GET", "/agents/desk/tasks"),
            here.operator.ask("GET", "/api/v2/admin/tokens"),
            here.operator.ask("GET", "/metrics"),
        ):
            assert refusal(answer).reason == "UNAVAILABLE"
        assert here.with_headers({}).status() == 401
        assert here.operator.ask("GET", f"/agents/desk{CARD}").status_code == 200
    eventually(lambda: person.status() == 200)
