"""Nobody gets more than their quota, on any number of hosts, and a caller who waits as advised is admitted."""

from __future__ import annotations

import gc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.identity.limiter import MAX_KEYS, Windows
from roost.identity.quotas import MAX_FIGURES, MAX_WANTED, Meter, QuotaExceeded, QuotaSlot, parse, with_tenant_defaults
from tests.identity.issuer import Clock

MINUTE = 1_800_000_000.0
"""A full minute by the clock."""


def metered(text: str, clock: Clock | None = None) -> Meter:
    return Meter(parse(text), clock or Clock(MINUTE))


def requests(meter: Meter, count: int = 1, tenant: str = "acme", agent: str = "trip") -> int:
    """Return how many of a number of requests are admitted."""
    admitted = 0
    for _ in range(count):
        try:
            meter.check_rate("a2a", "roost:ci", tenant, agent)
            admitted += 1
        except QuotaExceeded:
            pass
    return admitted


def refusal(meter: Meter) -> QuotaExceeded:
    with pytest.raises(QuotaExceeded) as refused:
        meter.check_rate("a2a", "roost:ci", "acme", "trip")
    return refused.value


# The setting


def test_quotas_are_read_by_kind_name_and_what() -> None:
    quotas = parse(
        " tenant.rate=100, tenant:acme.rate = 1000 ,agent:trip.v2.tasks=5,surface:admin.rate=0,"
        "principal:https%3A%2F%2Fidp.example:alice.streams=3,principal:roost:a=b.mb=7,"
    )
    assert quotas.limits == {
        ("tenant", "", "rate"): 100,
        ("tenant", "acme", "rate"): 1000,
        ("agent", "trip.v2", "tasks"): 5,
        ("surface", "admin", "rate"): 0,
        ("principal", "https%3A%2F%2Fidp.example:alice", "streams"): 3,
        ("principal", "roost:a=b", "mb"): 7,
    }
    assert quotas.limit("tenant", "acme", "rate") == 1000
    assert quotas.limit("tenant", "zeta", "rate") == 100
    assert quotas.limit("tenant", "zeta", "tasks") is None
    assert quotas.limit("surface", "admin", "rate") == 0
    assert parse("").limits == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tenant.rate", "write kind[:name].what=number"),
        ("tenant=5", "write kind[:name].what=number"),
        ("tenant.=5", "write kind[:name].what=number"),
        ("tenant.rate=", "write kind[:name].what=number"),
        ("=5", "write kind[:name].what=number"),
        (
            "agent.rate=1,user.rate=5",
            "'user.rate=5': 'user' is not a kind; the kinds are principal, tenant, agent, surface",
        ),
        ("tenant.rps=5", "'rps' cannot be limited; rate, tasks, streams, mb can"),
        ("tenant:.rate=5", "the name after the colon is missing; tenant.rate applies to all of them"),
        ("surface:a2a.tasks=5", "a surface has only a rate"),
        ("surface:web.rate=5", "'web' is not a surface; the surfaces are admin, a2a, observability"),
        ("tenant.rate=-1", "'-1' is not a whole number"),
        ("tenant.rate=1.5", "'1.5' is not a whole number"),
        ("tenant.rate=٣", "is not a whole number"),
        ("tenant.rate=1000000000000000", "is not a whole number of at most 12 digits"),
        ("tenant.rate=5,tenant.rate=6", "tenant.rate has two limits"),
    ],
)
def test_a_quota_that_is_wrong_is_named_with_what_is_right(text: str, said: str) -> None:
    with pytest.raises(ValueError) as error:
        parse(text)
    assert said in str(error.value)
    assert text.rpartition(",")[2] in str(error.value)


def test_tenants_have_defaults_unless_anything_is_said_about_tenants() -> None:
    plain = with_tenant_defaults(parse("agent.tasks=3"))
    assert plain.limit("tenant", "acme", "rate") == 100
    assert plain.limit("tenant", "acme", "tasks") == 10
    assert plain.limit("agent", "trip", "tasks") == 3
    assert with_tenant_defaults(parse("tenant:acme.mb=3")).limit("tenant", "acme", "rate") is None


def test_without_quotas_there_is_nothing_to_check_and_nothing_is_kept() -> None:
    meter = metered("")
    assert meter.idle
    assert not metered("surface.rate=1").idle
    assert requests(meter, 1000) == 1000
    with meter.admit_task("roost:ci", "acme", "trip"), meter.open_stream("roost:ci", "acme", "trip"):
        assert not meter.held
    assert not meter.windows.counts


# Rates


def test_a_minute_has_room_for_so_many_requests() -> None:
    clock = Clock(MINUTE)
    meter = metered("tenant.rate=10", clock)
    assert requests(meter, 15) == 10
    refused = refusal(meter)
    assert (refused.kind, refused.name, refused.quota, refused.limit) == ("tenant", "acme", "rate", 10)
    assert (refused.window_seconds, refused.retry_after_seconds) == (60, 61)
    assert requests(meter, 15, tenant="zeta") == 10
    assert meter.refusals == {("tenant", "rate"): 11}


def test_the_window_slides() -> None:
    clock = Clock(MINUTE)
    meter = metered("tenant.rate=60", clock)
    assert requests(meter, 60) == 60
    clock.now = MINUTE + 59
    assert requests(meter) == 0
    clock.now = MINUTE + 60 + 15  # three quarters of the last minute still count
    assert requests(meter, 60) == 15
    clock.now = MINUTE + 120 + 30
    assert requests(meter, 100) == 53  # 60 less half of 15
    clock.now = MINUTE + 300
    assert requests(meter, 100) == 60


def test_a_limit_of_one_is_one_a_minute() -> None:
    clock = Clock(MINUTE)
    meter = metered("tenant.rate=1", clock)
    admitted = 0
    for _ in range(600):
        admitted += requests(meter)
        clock.now += 1
    assert admitted == 10


def test_a_limit_of_zero_lets_nobody_in() -> None:
    clock = Clock(MINUTE)
    meter = metered("tenant:acme.rate=0", clock)
    clock.now += 600
    assert refusal(meter).retry_after_seconds == 60


def test_refused_requests_are_not_counted_and_whoever_hammers_gets_in_again() -> None:
    clock = Clock(MINUTE)
    meter = metered("tenant.rate=60", clock)
    admitted = 0
    for _ in range(10 * 600):
        admitted += requests(meter)
        clock.now += 0.1
    assert 9 * 60 <= admitted <= 10 * 60 + 1


@given(
    st.integers(1, 50),
    st.lists(st.tuples(st.floats(0, 40), st.integers(0, 60)), max_size=8),
    st.floats(0, 59.99),
    st.integers(0, 200),
)
def test_whoever_waits_as_long_as_told_gets_in(
    limit: int, bursts: list[tuple[float, int]], start: float, others: int
) -> None:
    clock = Clock(MINUTE + start)
    windows: Windows[str] = Windows(clock)
    windows.others = {"a": {int(MINUTE // 60): others}}
    for pause, count in bursts:
        clock.now += pause
        for _ in range(count):
            if not windows.wait("a", limit):
                windows.add("a")
    wait_s = windows.wait("a", limit)
    assert 0 <= wait_s <= 121
    clock.now += wait_s
    assert windows.wait("a", limit) == 0


def test_a_request_counts_with_all_that_it_belongs_to_or_with_none() -> None:
    clock = Clock(MINUTE)
    meter = metered("tenant.rate=10,agent.rate=4,principal.rate=8,surface:a2a.rate=9", clock)
    assert requests(meter, 6, agent="trip") == 4
    assert requests(meter, 6, agent="other") == 4  # the principal has had 8
    assert refusal(meter).kind in ("agent", "principal")
    assert {key: count for key, _, count in meter.windows.recent()} == {
        ("surface", "a2a"): 8,
        ("principal", "roost:ci"): 8,
        ("tenant", "acme"): 8,
        ("agent", "trip"): 4,
        ("agent", "other"): 4,
    }


def test_the_longest_wait_is_told() -> None:
    clock = Clock(MINUTE)
    meter = metered("tenant.rate=20,agent.rate=10", clock)
    assert requests(meter, 10) == 10
    assert requests(meter, 20, agent="other") == 10
    clock.now = MINUTE + 60
    assert requests(meter, 20, tenant="zeta") == 0
    clock.now = MINUTE + 66
    assert requests(meter, tenant="zeta") == 1
    refused = refusal(meter)
    assert (refused.kind, refused.retry_after_seconds) == ("agent", 1)


def test_names_that_are_not_known_are_nobodys() -> None:
    meter = metered("tenant.rate=1,agent.rate=1,principal.rate=1")
    for _ in range(5):
        meter.check_rate("observability", "", "", "")
    assert not meter.windows.counts


def test_only_so_many_keys_are_kept_and_the_longest_unused_goes_first() -> None:
    windows: Windows[int] = Windows(Clock(MINUTE))
    for key in range(MAX_KEYS):
        windows.add(key)
    windows.add(0)
    windows.add(MAX_KEYS)
    assert len(windows.counts) == MAX_KEYS
    assert 0 in windows.counts
    assert 1 not in windows.counts


def test_a_clock_that_is_set_back_locks_nobody_out() -> None:
    clock = Clock(MINUTE)
    meter = metered("tenant.rate=10", clock)
    assert requests(meter, 20) == 10
    clock.now -= 86_400
    assert requests(meter, 20) == 10
    clock.now += 86_400
    assert requests(meter, 20) == 10


# Tasks, streams and megabytes


def test_so_many_tasks_at_a_time() -> None:
    meter = metered("tenant.tasks=2")
    first, second = (meter.admit_task("roost:ci", "acme", "trip") for _ in range(2))
    with pytest.raises(QuotaExceeded) as refused:
        meter.admit_task("roost:other", "acme", "other")
    assert (refused.value.kind, refused.value.name, refused.value.quota) == ("tenant", "acme", "tasks")
    assert (refused.value.limit, refused.value.window_seconds) == (2, None)
    assert refused.value.retry_after_seconds > 0
    meter.admit_task("roost:ci", "zeta", "trip").leave()
    first.leave()
    first.leave()  # it was only one
    third = meter.admit_task("roost:ci", "acme", "trip")
    with pytest.raises(QuotaExceeded):
        meter.admit_task("roost:ci", "acme", "trip")
    for place in (second, third):
        place.leave()
    assert not meter.held
    assert meter.refusals == {("tenant", "tasks"): 2}


def test_a_task_that_is_refused_takes_no_place_anywhere() -> None:
    meter = metered("principal.tasks=5,tenant.tasks=5,agent:trip.tasks=1")
    with meter.admit_task("roost:ci", "acme", "trip"):
        for _ in range(10):
            with pytest.raises(QuotaExceeded):
                meter.admit_task("roost:ci", "acme", "trip")
        assert set(meter.held.values()) == {1}
    assert not meter.held


def test_a_task_that_was_admitted_before_counts_and_is_not_refused() -> None:
    meter = metered("tenant.tasks=1")
    places = [meter.resume_task("roost:ci", "acme", "trip") for _ in range(3)]
    for place in places:
        with pytest.raises(QuotaExceeded):
            meter.admit_task("roost:ci", "acme", "trip")
        place.leave()
    meter.admit_task("roost:ci", "acme", "trip").leave()


def test_streams_are_no_tasks() -> None:
    meter = metered("principal.streams=1,principal.tasks=1")
    with meter.open_stream("roost:ci", "acme", "trip"), meter.admit_task("roost:ci", "acme", "trip"):
        with pytest.raises(QuotaExceeded) as refused:
            meter.open_stream("roost:ci", "zeta", "other")
        assert refused.value.quota == "streams"
    meter.open_stream("roost:ci", "acme", "trip").leave()


def test_a_place_that_is_lost_is_left() -> None:
    meter = metered("tenant.tasks=1")
    place = meter.admit_task("roost:ci", "acme", "trip")
    assert meter.held
    del place
    gc.collect()
    assert not meter.held


def test_whoever_has_stored_too_much_begins_no_task() -> None:
    meter = metered("tenant.mb=2")
    meter.stored = {("tenant", "acme"): (2 << 20) - 1, ("tenant", "zeta"): 2 << 20}
    meter.admit_task("roost:ci", "acme", "trip").leave()
    with pytest.raises(QuotaExceeded) as refused:
        meter.admit_task("roost:ci", "zeta", "trip")
    assert (refused.value.name, refused.value.quota, refused.value.limit) == ("zeta", "mb", 2)
    meter.resume_task("roost:ci", "zeta", "trip").leave()
    meter.open_stream("roost:ci", "zeta", "trip").leave()


def test_stored_bytes_are_wanted_of_the_last_who_began_tasks_under_a_quota() -> None:
    meter = metered("tenant.mb=1,tenant.tasks=1")
    meter.admit_task("roost:ci", "first", "trip").leave()
    for number in range(MAX_WANTED - 1):
        meter.admit_task("roost:ci", str(number), "trip").leave()
    meter.admit_task("roost:ci", "first", "trip").leave()
    meter.admit_task("roost:ci", "last", "trip").leave()
    assert len(meter.wanted) == MAX_WANTED
    assert list(meter.wanted)[-2:] == [("tenant", "first"), ("tenant", "last")]
    assert ("tenant", "0") not in meter.wanted


moves = st.tuples(
    st.sampled_from(["task", "resume", "stream", "leave", "leave again", "lose", "fail"]),
    st.sampled_from(["acme", "zeta"]),
    st.sampled_from(["trip", "other"]),
    st.integers(0, 20),
)


@given(st.lists(moves, max_size=60))
def test_gauges_are_never_negative_and_return_to_zero(program: list[tuple[str, str, str, int]]) -> None:
    meter = metered("tenant.tasks=3,agent.tasks=4,principal.streams=2,tenant:acme.streams=1")
    inside: list[QuotaSlot] = []
    left: list[QuotaSlot] = []
    for move, tenant, agent, which in program:
        enter = {"task": meter.admit_task, "resume": meter.resume_task, "stream": meter.open_stream}.get(move)
        try:
            if enter is not None:
                inside.append(enter("roost:ci", tenant, agent))
            elif move == "leave again" and left:
                left[which % len(left)].leave()
            elif move == "leave" and inside:
                left.append(inside.pop(which % len(inside)))
                left[-1].leave()
            elif move == "lose" and inside:
                inside.pop(which % len(inside))
            elif move == "fail":
                with meter.admit_task("roost:ci", tenant, agent):
                    raise KeyError
        except (QuotaExceeded, KeyError):
            pass
        assert all(count > 0 for count in meter.held.values())
        assert sum(meter.held.values()) == sum(len(place.keys) for place in inside)
    for place in inside:
        place.leave()
    assert not meter.held


# Several hosts


def share(*meters: Meter) -> None:
    shared = {str(number): meter.figures() for number, meter in enumerate(meters)}
    for number, meter in enumerate(meters):
        meter.set_others({host: figures for host, figures in shared.items() if host != str(number)})


def test_hosts_share_a_rate() -> None:
    clock = Clock(MINUTE)
    one, two = (metered("tenant.rate=10", clock) for _ in range(2))
    assert requests(one, 6) == 6
    share(one, two)
    assert requests(two, 10) == 4
    share(one, two)
    assert requests(one, 10) == 0
    assert refusal(two).retry_after_seconds == 61
    clock.now = MINUTE + 90  # no host has shared anything new; half of everything still counts
    assert requests(one, 10) == 5
    share(one, two)
    assert requests(two, 10) == 0


def test_hosts_share_tasks_and_streams() -> None:
    one, two = (metered("agent.tasks=2,agent.streams=1") for _ in range(2))
    places = [one.admit_task("a", "b", "trip"), one.admit_task("a", "b", "trip"), one.open_stream("a", "b", "trip")]
    share(one, two)
    for enter in (two.admit_task, two.open_stream):
        with pytest.raises(QuotaExceeded):
            enter("a", "b", "trip")
        enter("a", "b", "other").leave()
    for place in places:
        place.leave()
    share(one, two)
    for enter in (two.admit_task, two.open_stream):
        enter("a", "b", "trip").leave()


def test_a_host_that_is_gone_is_forgotten() -> None:
    one, two, three = (metered("agent.tasks=2,tenant.rate=3") for _ in range(3))
    places = [meter.admit_task("a", "acme", "trip") for meter in (one, two)]
    assert requests(one, 2) + requests(two, 1) == 3
    share(one, two, three)
    assert requests(three) == 0
    with pytest.raises(QuotaExceeded):
        three.admit_task("a", "acme", "trip")
    three.set_others({"two": two.figures()})
    three.admit_task("a", "acme", "trip").leave()
    assert requests(three, 5) == 2
    three.set_others({})
    assert requests(three, 5) == 1
    for place in places:
        place.leave()


@pytest.mark.parametrize(
    "figures",
    [
        b"",
        b"[]",
        b"7",
        b"\xff\xff",
        b'{"v":2,"rates":[],"held":[]}',
        b'{"v":1,"rates":[["tenant","acme",30000000,-5]]}',
        b'{"v":1,"held":[["agent","trip","tasks",-5]]}',
        b'{"v":1,"held":[["agent","trip"]]}',
        b'{"v":1,"rates":{"tenant":1}}',
        b'{"v":1,"rates":' + b"[" * 5000,
        b'{"v":1,"rates":[],"held":[]}' + b" " * MAX_FIGURES,
    ],
)
def test_figures_of_another_release_are_ignored_and_the_others_count(figures: bytes) -> None:
    one, two = (metered("agent.tasks=1,tenant.rate=2") for _ in range(2))
    place = one.admit_task("a", "acme", "trip")
    assert requests(one) == 1
    two.set_others({"garbage": figures, "one": one.figures()})
    assert requests(two, 5) == 1
    with pytest.raises(QuotaExceeded):
        two.admit_task("a", "acme", "trip")
    place.leave()


def test_what_is_told_is_bounded_and_those_nearest_to_their_limits_are_told() -> None:
    meter = metered("tenant.rate=100,agent.tasks=10")
    place = meter.admit_task("a", "b", "trip")
    assert requests(meter, 50, tenant="busy") == 50
    for number in range(3000):
        requests(meter, tenant=f"{number:0>100}")
    assert requests(meter, 50, tenant="busier") == 50
    figures = meter.figures()
    assert len(figures) <= MAX_FIGURES
    rates = msgspec.json.decode(figures)["rates"]
    assert {rate[1] for rate in rates[:2]} == {"busy", "busier"}
    assert len(rates) > 100
    assert msgspec.json.decode(figures)["held"] == [["agent", "trip", "tasks", 1]]
    place.leave()


def test_what_is_past_is_not_told() -> None:
    clock = Clock(MINUTE)
    meter = metered("tenant.rate=100", clock)
    requests(meter, 10)
    clock.now += 60
    assert msgspec.json.decode(meter.figures())["rates"] == [["tenant", "acme", int(MINUTE // 60), 10]]
    clock.now += 60
    assert msgspec.json.decode(meter.figures())["rates"] == []
