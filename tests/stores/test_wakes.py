"""Wake-ups between hosts: they reach the others, delay nobody, and work again after the server restarts."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

import pytest
from tools.services import Nats, Postgres, nats, postgres

from roost.engine.ids import new_id
from roost.stores import wakes
from roost.stores.postgres_pool import DriverMissing
from roost.stores.wakes import NatsWakes, PostgresWakes
from tests.waiting import until

Bus = PostgresWakes | NatsWakes


class Recorder:
    """A host that records the wake-ups that it receives."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.calls = 0
        self.ids: list[str] = []

    def record(self, task_ids: Sequence[str]) -> None:
        self.calls += 1
        self.ids += task_ids

    async def have(self, *task_ids: str) -> None:
        async def arrived() -> bool:
            return set(task_ids) <= set(self.ids)

        await until(arrived)


class Buses:
    """Hosts that use the same kind of wake-ups."""

    def __init__(self, make: Callable[[], Bus]) -> None:
        self.make = make
        self.made: list[Bus] = []

    async def join(self) -> Recorder:
        recorder = Recorder(self.make())
        self.made.append(recorder.bus)
        await recorder.bus.listen(recorder.record)
        return recorder

    async def gather(self, number: int) -> list[Recorder]:
        """Start a number of hosts and wait until all are connected."""
        found = [await self.join() for _ in range(number)]

        async def connected() -> bool:
            return all(recorder.bus.connected for recorder in found)

        await until(connected)
        return found

    async def close(self) -> None:
        for bus in self.made:
            await bus.close()


def make_bus(server: Postgres | Nats, group: str) -> Bus:
    return PostgresWakes(server.url) if isinstance(server, Postgres) else NatsWakes(server.url, group)


@pytest.fixture(params=["postgresql", "nats"])
async def buses(request: pytest.FixtureRequest) -> AsyncIterator[Buses]:
    if request.param == "postgresql":
        url = request.getfixturevalue("database")
        found = Buses(lambda: PostgresWakes(url))
    else:
        server = request.getfixturevalue("nats_server")
        group = new_id()
        found = Buses(lambda: NatsWakes(server.url, group))
    yield found
    await found.close()


@pytest.fixture(params=["postgresql", "nats"])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Postgres | Nats]:
    """A server that can be stopped."""
    for variable in ("ROOST_TEST_POSTGRES", "ROOST_TEST_NATS"):
        monkeypatch.delenv(variable, raising=False)
    with postgres(fsync=False) if request.param == "postgresql" else nats() as started:
        yield started


async def test_others_hear_and_the_one_who_tells_does_not(buses: Buses) -> None:
    one, two, three = await buses.gather(3)
    one.bus.tell(["a", "b"])
    two.bus.tell(["ä 任务"])
    await two.have("a", "b")
    await one.have("ä 任务")
    await three.have("a", "b", "ä 任务")
    assert set(one.ids) == {"ä 任务"}
    assert set(two.ids) == {"a", "b"}


async def test_many_ids_are_told_together_and_none_is_lost(buses: Buses) -> None:
    one, two = await buses.gather(2)
    ids = [new_id() for _ in range(1000)]
    for task_id in ids:
        one.bus.tell([task_id])
        one.bus.tell([task_id])
    await two.have(*ids)
    assert len(two.ids) == len(ids)
    assert two.calls < 20


async def test_an_id_that_cannot_be_sent_does_not_keep_others_from_it(buses: Buses) -> None:
    one, two = await buses.gather(2)
    one.bus.tell(["x" * 9000, "a\0b", "a\nb", "y" * 3000, "fine", "z" * 3000])
    await two.have("fine", "y" * 3000, "z" * 3000)
    assert len(two.ids) == 3


async def test_what_waits_to_be_sent_is_bounded(buses: Buses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakes, "PENDING", 10)
    one, two = await buses.gather(2)
    one.bus.tell([str(number) for number in range(50)])
    assert len(one.bus.pending) == 10
    await two.have(*(str(number) for number in range(10)))
    one.bus.tell(["later"])
    await two.have("later")
    assert len(two.ids) == 11


async def test_a_listener_that_fails_goes_on_listening(buses: Buses, caplog: pytest.LogCaptureFixture) -> None:
    one, two = await buses.gather(2)
    record = two.record

    def fail_once(task_ids: Sequence[str]) -> None:
        two.bus.on_wake = record
        raise ValueError("for once")

    async def failed() -> bool:
        one.bus.tell(["first"])
        return two.bus.on_wake != fail_once

    two.bus.on_wake = fail_once
    await until(failed)
    one.bus.tell(["second"])
    await two.have("second")
    assert "a wake-up could not be handled" in caplog.text


async def test_a_server_that_goes_and_comes_back_is_listened_to_again(server: Postgres | Nats) -> None:
    buses = Buses(lambda: make_bus(server, "group"))
    one, two = await buses.gather(2)
    for name, stop in (("killed", server.kill), ("stopped", server.stop)):
        stop()

        async def lost() -> bool:
            one.bus.tell(["into the void"])
            return not one.bus.connected and not two.bus.connected

        await until(lost)
        server.start()

        async def arrived(name: str = name) -> bool:
            one.bus.tell([name])
            two.bus.tell([name])
            return name in one.ids and name in two.ids

        await until(arrived)
    await buses.close()


async def test_a_host_starts_without_the_server_and_hears_once_it_is_there(
    server: Postgres | Nats, caplog: pytest.LogCaptureFixture
) -> None:
    server.stop()
    buses = Buses(lambda: make_bus(server, "group"))
    one, two = await buses.join(), await buses.join()
    one.bus.tell(["nobody hears this"])
    assert "wake-ups between hosts do not work" in caplog.text
    server.start()

    async def arrived() -> bool:
        one.bus.tell(["hello"])
        return "hello" in two.ids

    await until(arrived)
    await buses.close()


async def test_databases_of_one_server_do_not_hear_each_other(
    postgres_server: Postgres, nats_server: Nats, database: str
) -> None:
    makers = [
        (lambda: PostgresWakes(database), lambda: PostgresWakes(postgres_server.url)),
        (lambda: NatsWakes(nats_server.url, database), lambda: NatsWakes(nats_server.url, postgres_server.url)),
    ]
    for ours, theirs in makers:
        here, there = Buses(ours), Buses(theirs)
        [one, two], [stranger] = await here.gather(2), await there.gather(1)
        stranger.bus.tell(["theirs"])
        one.bus.tell(["ours"])
        await two.have("ours")
        assert two.ids == ["ours"]
        assert stranger.ids == []
        await here.close()
        await there.close()


def test_hosts_that_know_one_database_under_different_names_meet() -> None:
    urls = ["postgresql://a:x@10.0.0.1/roost", "postgresql://b@db.internal:5433/roost?sslmode=require"]
    assert len({NatsWakes("nats://127.0.0.1", url).subject for url in urls}) == 1
    assert NatsWakes("nats://127.0.0.1", "postgresql://a@10.0.0.1/other").subject != NatsWakes("", urls[0]).subject


@pytest.mark.parametrize(
    "bus",
    [
        lambda: PostgresWakes("postgresql://roost:s3cret@127.0.0.1:1/db"),
        lambda: NatsWakes("nats://roost:s3cret@127.0.0.1:1", "group"),
    ],
)
async def test_the_log_does_not_tell_the_password(bus: Callable[[], Bus], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    made = bus()
    await made.listen(lambda task_ids: None)
    await made.close()
    assert "127.0.0.1:1" in caplog.text
    assert "s3cret" not in caplog.text


def test_without_the_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nats.aio.client", None)
    with pytest.raises(DriverMissing, match=r"pip install 'roost\[nats\]'"):
        NatsWakes("nats://127.0.0.1", "group")
