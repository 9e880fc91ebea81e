"""The protocol that `roost serve` answers with."""

from __future__ import annotations

import asyncio
import os
import pwd
import socket
from contextlib import AsyncExitStack, ExitStack, suppress

import pytest
import uvloop

from roost.doors.counters import REFUSED
from roost.identity.peers import Peer
from roost.server.http import SINGLE, Corked
from roost.server.sockets import Listeners
from tests.processes import FLEET, running
from tests.server.inprocess import LARGE, connected, serving, until_cut
from tests.waiting import PATIENCE_S, until


@pytest.fixture
def event_loop_policy():
    return uvloop.EventLoopPolicy()


async def pair():
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
    return loop, transport, theirs


async def test_writes_of_one_turn_leave_together():
    loop, transport, theirs = await pair()
    corked = Corked(transport, loop)
    corked.write(b"head ")
    corked.write(b"body")
    assert await loop.sock_recv(theirs, 100) == b"head body"
    transport.close()
    theirs.close()


async def test_what_is_written_to_a_client_that_has_gone_is_dropped_and_not_an_error():
    """uvloop's transport raises when it is written to after its end."""
    loop, transport, theirs = await pair()
    failures = []
    loop.set_exception_handler(lambda _, context: failures.append(context))
    corked = Corked(transport, loop)
    corked.write(b"too late")
    transport.abort()
    theirs.close()
    while corked.pending:
        await _turn()
    await _turn()
    corked.write(b"later still")
    while corked.pending:
        await _turn()
    await _turn()
    assert failures == []


async def _turn():
    await asyncio.sleep(0)


@pytest.fixture
def refused():
    """How often each kind of refusal was counted since the test began."""
    before = dict(REFUSED)
    return lambda: {kind: count - before[kind] for kind, count in REFUSED.items() if count != before[kind]}


def request(path="/", *lines, body=b""):
    head = [f"POST {path} HTTP/1.1", "Host: localhost", *lines]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def check_error(answer, status, grpc, reason, field=None):
    assert answer.status == status
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["connection"] == "close"
    error = answer.json["error"]
    assert (error["code"], error["status"]) == (status, grpc)
    assert error["message"]
    info, *fields = error["details"]
    assert [found["fieldViolations"][0]["field"] for found in fields] == ([] if field is None else [field])
    assert (info["reason"], info["domain"]) == (reason, "roost")


# The time that a head and a body may take


async def test_a_head_that_drips_beyond_its_time_is_answered_408(refused):
    async with serving() as server, connected(server) as client:
        head = b"GET / HTTP/1.1\r\nX-Slow: "
        client.write(head)
        for drops in range(10):
            await server.until_received(len(head) + drops)
            server.pass_time(PATIENCE_S / 10)
            client.write(b"a")
        check_error(await client.answer(), 408, "DEADLINE_EXCEEDED", "REQUEST_TIMEOUT")
        assert await client.closed()
        assert server.app.scopes == []
        assert refused() == {"head_time": 1}


async def test_a_head_in_many_pieces_within_its_time_is_served(refused):
    async with serving() as server, connected(server) as client:
        for byte in request("/pieces", "Content-Length: 2", body=b"ok"):
            client.write(bytes([byte]))
            await client.writer.drain()
        assert (await client.answer()).json == {"path": "/pieces", "bytes": 2}
        assert refused() == {}


async def test_a_second_head_has_its_own_time():
    async with serving() as server, connected(server) as client:
        assert (await client.get("/first")).status == 200
        client.write(b"GET /second HT")
        await server.until_received(len(b"GET /second HT"))
        server.pass_time()
        check_error(await client.answer(), 408, "DEADLINE_EXCEEDED", "REQUEST_TIMEOUT")
        assert await client.closed()


async def test_a_client_that_never_says_a_word_is_left_without_one(refused):
    async with serving() as server, connected(server) as client:
        await until(lambda: server.watch.connections)
        server.pass_time()
        assert await client.closed()
        assert refused() == {"head_time": 1}


async def test_a_kept_connection_between_requests_is_not_cut_and_an_empty_line_there_is_no_head():
    async with serving() as server, connected(server) as client:
        assert (await client.get("/one")).status == 200
        client.write(b"\r\n")
        await until_cut(server)
        assert (await client.get("/two")).json["path"] == "/two"


async def test_empty_lines_do_not_keep_a_connection_from_its_keep_alive_timeout():
    async with serving() as server:
        server.config.timeout_keep_alive = 1
        async with connected(server) as client:
            assert (await client.get("/")).status == 200
            end = asyncio.create_task(client.closed())
            while not end.done():
                client.write(b"\r\n")
                await asyncio.wait([end], timeout=0.05)
            assert end.result()


async def test_a_body_that_stops_is_answered_408_and_its_app_is_told(refused):
    async with serving() as server, connected(server) as client:
        client.write(request("/", "Content-Length: 100", body=b"some"))
        await until(lambda: server.app.read == len(b"some"))
        server.pass_time()
        check_error(await client.answer(), 408, "DEADLINE_EXCEEDED", "REQUEST_TIMEOUT")
        assert await client.closed()
        await asyncio.wait_for(server.app.gone.wait(), PATIENCE_S)
        assert refused() == {"body_time": 1}


async def test_a_body_that_goes_on_may_take_longer_than_a_head():
    async with serving() as server, connected(server) as client:
        client.write(request("/slow", "Transfer-Encoding: chunked"))
        for pieces in range(1, 21):
            client.write(b"1\r\nx\r\n")
            await until(lambda pieces=pieces: server.app.read == pieces)
            server.pass_time(PATIENCE_S / 10)
        client.write(b"0\r\n\r\n")
        assert (await client.answer()).json == {"path": "/slow", "bytes": 20}


async def test_a_client_that_waits_for_us_to_read_is_not_cut():
    body = b"x" * 4_000_000
    async with serving() as server, connected(server) as client:
        server.app.gate.clear()
        client.write(request("/big", f"Content-Length: {len(body)}", body=body))
        await until_cut(server)
        server.app.gate.set()
        assert (await client.answer()).json == {"path": "/big", "bytes": len(body)}


async def test_half_a_request_behind_a_long_answer_does_not_cut_that_answer():
    async with serving() as server, connected(server) as client:
        server.app.gate.clear()
        client.write(request("/long", "Content-Length: 0") + b"GET /half")
        await until_cut(server)
        server.app.gate.set()
        assert (await client.answer()).json["path"] == "/long"
        server.pass_time()
        check_error(await client.answer(), 408, "DEADLINE_EXCEEDED", "REQUEST_TIMEOUT")


# The size of a head


@pytest.mark.parametrize(
    "endless",
    [
        pytest.param((b"GET /", b"a" * 1000), id="line"),
        pytest.param((b"GET / HTTP/1.1\r\nX: ", b"a" * 1000), id="value"),
        pytest.param((b"GET / HTTP/1.1\r\nX", b"a" * 1000), id="name"),
        pytest.param((b"GET / HTTP/1.1\r\n", b"X: a\r\n" * 10), id="headers"),
        pytest.param((b"", b"\r\n" * 500), id="empty lines"),
    ],
)
async def test_a_head_without_end_is_answered_431_and_the_answer_arrives(endless, refused):
    begin, more = endless
    async with serving(max_head_bytes=8192) as server, connected(server) as client:
        client.write(begin)
        answer = asyncio.create_task(client.answer())
        sent = 0
        while not answer.done():
            client.write(more)
            sent += len(more)
            await asyncio.wait([answer], timeout=0.001)
        check_error(answer.result(), 431, "RESOURCE_EXHAUSTED", "HEADERS_TOO_LARGE")
        assert sent > 8192 - len(begin)
        assert server.app.scopes == []
        assert refused() == {"head_size": 1}


async def test_the_answer_arrives_at_a_client_that_has_sent_far_too_much():
    async with serving() as server, connected(server) as client:
        client.write(b"GET / HTTP/1.1\r\nX: " + b"a" * 3_000_000 + b"\r\n\r\n")
        check_error(await client.answer(), 431, "RESOURCE_EXHAUSTED", "HEADERS_TOO_LARGE")
        assert await client.closed()


def sized(path, size):
    head = request(path, "Content-Length: 0", "X: ")
    return head.replace(b"X: ", b"X: " + b"a" * (size - len(head)))


@pytest.mark.parametrize("before", [b"", request("/before", "Content-Length: 9000", body=b"x" * 9000)])
async def test_the_size_of_a_head_is_counted_to_the_byte_alone_and_behind_another_request(before, refused):
    async with serving(max_head_bytes=8192) as server:
        async with connected(server) as client:
            client.write(before + sized("/fits", 8192))
            answers = [await client.answer() for _ in range(2 if before else 1)]
            assert answers[-1].json["path"] == "/fits"
        async with connected(server) as client:
            client.write(before + sized("/long", 8193))
            if before:
                assert (await client.answer()).json["path"] == "/before"
            else:
                check_error(await client.answer(), 431, "RESOURCE_EXHAUSTED", "HEADERS_TOO_LARGE")
            assert await client.closed()
        assert "/long" not in [scope["path"] for scope in server.app.scopes]
        assert refused() == {"head_size": 1}


async def test_too_many_headers_are_answered_431(refused):
    async with serving(max_headers=10) as server:
        async with connected(server) as client:
            client.write(request("/ten", "Content-Length: 0", *(f"X-{n}: y" for n in range(8))))
            assert (await client.answer()).status == 200
            client.write(request("/eleven", "Content-Length: 0", *(f"X-{n}: y" for n in range(9))))
            check_error(await client.answer(), 431, "RESOURCE_EXHAUSTED", "TOO_MANY_HEADERS")
            assert await client.closed()
        assert [scope["path"] for scope in server.app.scopes] == ["/ten"]
        assert refused() == {"headers": 1}


async def test_trailers_do_not_become_headers():
    async with serving() as server, connected(server) as client:
        chunked = b"2\r\nok\r\n0\r\nAuthorization: Bearer late\r\n\r\n"
        client.write(request("/", "Transfer-Encoding: chunked", body=chunked))
        assert (await client.answer()).json["bytes"] == 2
        (scope,) = server.app.scopes
        assert [name for name, _ in scope["headers"]] == [b"host", b"transfer-encoding"]


@pytest.mark.parametrize(
    "endless",
    [
        pytest.param((b"0\r\n", b"X: a\r\n" * 100), id="trailers"),
        pytest.param((b"0\r\nX: ", b"a" * 1000), id="trailer"),
        pytest.param((b"1;", b"a" * 1000), id="chunk extension"),
    ],
)
async def test_what_is_no_body_between_pieces_of_one_has_an_end_too(endless, refused):
    begin, more = endless
    async with serving() as server, connected(server) as client:
        client.write(request("/", "Transfer-Encoding: chunked", body=b"2\r\nok\r\n" + begin))
        answer = asyncio.create_task(client.answer())
        while not answer.done():
            client.write(more)
            await asyncio.wait([answer], timeout=0.001)
        check_error(answer.result(), 431, "RESOURCE_EXHAUSTED", "HEADERS_TOO_LARGE")
        await asyncio.wait_for(server.app.gone.wait(), PATIENCE_S)
        assert refused() == {"head_size": 1}


# Requests one behind the other


async def test_pipelined_requests_are_answered_in_their_order():
    async with serving() as server, connected(server) as client:
        paths = [f"/{number}" for number in range(20)]
        client.write(b"".join(request(path, "Content-Length: 3", body=b"abc") for path in paths))
        assert [(await client.answer()).json for _ in paths] == [{"path": path, "bytes": 3} for path in paths]


@pytest.mark.parametrize("bad", [b"no HTTP at all\r\n\r\n", sized("/long", 40_000), b"GET * HTTP/9.9\r\n\r\n"])
async def test_a_bad_request_behind_a_good_one_leaves_the_good_ones_answer_whole(bad):
    async with serving() as server, connected(server) as client:
        server.app.gate.clear()
        client.write(request("/good", "Content-Length: 0") + bad)
        await until(lambda: server.app.scopes)
        server.app.gate.set()
        assert (await client.answer()).json["path"] == "/good"
        assert await client.closed()


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"\x16\x03\x01 hello\r\n\r\n", id="TLS"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="HTTP/2"),
        pytest.param(b"GET / HTTP/1.1\r\nX: a\x00b\r\n\r\n", id="NUL"),
        pytest.param(b"GET /\xff HTTP/1.1\r\n\r\n", id="path"),
        pytest.param(request("/", "Content-Length: 1", "Content-Length: 2", body=b"ab"), id="two lengths"),
        pytest.param(request("/", "Content-Length: 1", "Transfer-Encoding: chunked", body=b"0\r\n\r\n"), id="both"),
        pytest.param(b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n", id="CONNECT"),
    ],
)
async def test_what_is_not_http_is_answered_400(sent, refused):
    async with serving() as server, connected(server) as client:
        client.write(sent)
        check_error(await client.answer(), 400, "INVALID_ARGUMENT", "INVALID_REQUEST")
        assert await client.closed()
        assert refused() == {"malformed": 1}


async def test_an_upgrade_that_is_not_known_is_passed_over():
    """Java's HTTP client asks for h2c with its first request."""
    upgrade = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAEAAEAA")
    async with serving() as server, connected(server) as client:
        client.write(request("/first", *upgrade, "Content-Length: 2", body=b"ok"))
        assert (await client.answer()).json == {"path": "/first", "bytes": 2}
        assert (await client.get("/second")).json["path"] == "/second"
        third = request("/third", *upgrade, "Transfer-Encoding: chunked", body=b"2\r\nok\r\n0\r\n\r\n")
        client.write(third + third + request("/fifth", "Content-Length: 0"))
        answers = [(await client.answer()).json for _ in range(3)]
        assert answers == [{"path": "/third", "bytes": 2}] * 2 + [{"path": "/fifth", "bytes": 0}]


@pytest.mark.parametrize("chunk", [b"zz\r\n", b"1\r\nxy\r\n"])
async def test_a_body_that_breaks_is_answered_400_and_its_app_is_told(chunk, refused):
    async with serving() as server, connected(server) as client:
        client.write(request("/", "Transfer-Encoding: chunked"))
        await until(lambda: server.app.scopes)
        client.write(chunk)
        check_error(await client.answer(), 400, "INVALID_ARGUMENT", "INVALID_REQUEST")
        await asyncio.wait_for(server.app.gone.wait(), PATIENCE_S)
        assert refused() == {"malformed": 1}


async def test_a_body_that_breaks_before_its_client_was_told_to_go_on_leaves_no_traceback(refused, caplog):
    head = request("/", "Expect: 100-continue", "Transfer-Encoding: chunked")
    async with serving() as server, connected(server) as client:
        client.write(head + b"zz\r\n")
        check_error(await client.answer(), 400, "INVALID_ARGUMENT", "INVALID_REQUEST")
        await asyncio.wait_for(server.app.gone.wait(), PATIENCE_S)
    assert refused() == {"malformed": 1}
    assert not [record for record in caplog.records if record.exc_info]


# Answers before the end of the request

FAR = "Content-Length: 7000000"
CHUNKED = "Transfer-Encoding: chunked"


async def until_gone(server, client):
    """Go on sending, as the client's slow body does, until its connection is no more."""
    server.pass_time()
    with suppress(ConnectionError):
        while True:
            client.write(b"1")
            await client.writer.drain()
            await asyncio.sleep(0)
    assert not server.watch.leaving
    assert not server.watch.connections


@pytest.mark.parametrize("length", [FAR, CHUNKED])
async def test_slow_bodies_that_nobody_reads_cost_their_connections(length):
    async with serving() as server, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(server)) for _ in range(50)]
        for client in clients:
            client.write(request("/early", length, body=b"1\r\nx\r\n"))
            answer = await client.answer()
            assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert len(server.watch.leaving) == 50
        for client in clients:
            await until_gone(server, client)


async def test_a_client_that_sends_all_of_a_large_body_can_read_the_answer():
    async with serving() as server, connected(server) as client:
        client.write(request("/early", FAR, body=b"x" * 7_000_000))
        await client.writer.drain()
        answer = await client.answer()
        assert (answer.json["path"], answer.headers["connection"]) == ("/early", "close")
        assert await client.closed()


async def test_a_connection_survives_a_small_body_that_comes_after_its_answer():
    async with serving() as server, connected(server) as client:
        for path in ("/early/1", "/early/2"):
            client.write(request(path, "Content-Length: 4", body=b"so"))
            answer = await client.answer()
            assert "connection" not in answer.headers
            client.write(b"me")
        assert (await client.get("/next")).json["path"] == "/next"
        assert not server.watch.leaving
        await until_cut(server)
        assert (await client.get("/last")).json["path"] == "/last"


async def test_a_small_body_that_does_not_come_after_its_answer_costs_the_connection():
    async with serving() as server, connected(server) as client:
        client.write(request("/early", "Content-Length: 4", body=b"so"))
        assert (await client.answer()).status == 200
        server.pass_time()
        assert await client.closed()
        await until(lambda: not server.watch.leaving)


@pytest.mark.parametrize("length", [FAR, CHUNKED])
async def test_a_large_body_that_has_arrived_costs_nothing(length):
    body = b"x" * 7_000_000 if length == FAR else b"3\r\nabc\r\n0\r\n\r\n"
    async with serving() as server, connected(server) as client:
        client.write(request("/read", length, body=body))
        answer = await client.answer()
        assert answer.json["bytes"] == (len(body) if length == FAR else 3)
        assert "connection" not in answer.headers
        assert (await client.get("/next")).json["path"] == "/next"


async def test_who_asks_before_sending_a_body_gets_the_answer_and_is_not_told_to_go_on():
    async with serving() as server, connected(server) as client:
        client.write(request("/early", "Content-Length: 4", "Expect: 100-continue"))
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await client.closed()


async def test_the_body_of_a_request_that_ends_its_connection_is_dropped_too():
    async with serving() as server, connected(server) as client:
        client.write(request("/early", FAR, "Connection: close"))
        assert (await client.answer()).status == 200
        await until_gone(server, client)


async def test_an_answer_that_is_read_slowly_comes_whole_although_the_body_did_not():
    async with serving() as server, connected(server) as client:
        client.write(request("/early/large", FAR))
        read = 0
        while piece := await client.reader.read(1024 * 1024):
            read += len(piece)
            server.pass_time(PATIENCE_S / 10)
        assert read > LARGE


async def test_a_server_that_stops_waits_for_no_slow_body():
    async with serving() as server, connected(server) as early, connected(server) as later:
        early.write(request("/early", FAR))
        assert (await early.answer()).status == 200
        server.app.gate.clear()
        later.write(request("/early", FAR))
        await until(lambda: len(server.app.scopes) == 2)
        server.should_exit = True
        await until(lambda: server.watch.closed)
        server.app.gate.set()
        assert (await later.answer()).status == 200
        assert await later.closed()
        assert await early.closed()


# Heads that others could read differently


@pytest.mark.parametrize("upgrade", [(), ("Connection: Upgrade", "Upgrade: websocket")])
@pytest.mark.parametrize("name", sorted(SINGLE - {b"host", b"content-length"}))
async def test_a_header_that_can_have_one_value_is_refused_twice(name, upgrade, refused):
    twice = (f"{name.decode()}: a", "X: y", f"{name.decode().upper()}: a")
    async with serving() as server, connected(server) as client:
        client.write(request("/", *twice, *upgrade).replace(b"POST", b"GET"))
        answer = await client.answer()
        check_error(answer, 400, "INVALID_ARGUMENT", "INVALID_REQUEST", name.decode())
        assert name.decode() in answer.json["error"]["message"]
        assert await client.closed()
        assert server.app.scopes == []
        assert refused() == {"malformed": 1}


@pytest.mark.parametrize("second", ["localhost", "example.com"])
async def test_two_hosts_are_refused(second):
    async with serving() as server, connected(server) as client:
        client.write(request("/", f"Host: {second}", "Content-Length: 0"))
        check_error(await client.answer(), 400, "INVALID_ARGUMENT", "INVALID_REQUEST", "host")


async def test_a_header_that_is_a_list_may_be_there_twice():
    lists = ("Accept", "A2A-Extensions", "X-Forwarded-For", "Forwarded", "Cookie", "Via")
    async with serving() as server, connected(server) as client:
        client.write(request("/", "Content-Length: 0", *(f"{name}: a" for name in lists * 2)))
        assert (await client.answer()).status == 200
        (scope,) = server.app.scopes
        assert [name for name, _ in scope["headers"]].count(b"via") == 2


async def test_a_request_of_http_1_1_names_its_host_and_one_of_http_1_0_need_not(refused):
    async with serving() as server:
        async with connected(server) as client:
            client.write(b"GET / HTTP/1.1\r\n\r\n")
            answer = await client.answer()
            check_error(answer, 400, "INVALID_ARGUMENT", "INVALID_REQUEST")
            assert "Host" in answer.json["error"]["message"]
            assert await client.closed()
        async with connected(server) as client:
            client.write(b"GET /old HTTP/1.0\r\n\r\n")
            assert (await client.answer()).json["path"] == "/old"
            assert await client.closed()
        assert refused() == {"malformed": 1}


@pytest.mark.parametrize("version", ["2.0", "0.9"])
async def test_a_version_of_http_that_is_not_spoken_is_refused(version):
    async with serving() as server, connected(server) as client:
        client.write(f"GET / HTTP/{version}\r\nHost: localhost\r\n\r\n".encode())
        answer = await client.answer()
        check_error(answer, 400, "INVALID_ARGUMENT", "INVALID_REQUEST")
        assert version in answer.json["error"]["message"]
        assert await client.closed()
        assert server.app.scopes == []


# Who does not read


async def test_an_answer_that_is_not_read_is_not_kept_for_ever(refused):
    async with serving() as server, connected(server) as client:
        client.writer.transport.pause_reading()
        client.write(request("/large", "Content-Length: 0"))
        await until(lambda: any(there.transport.get_write_buffer_size() for there in server.watch.connections))
        server.pass_time()
        assert refused() == {"write_time": 1}
        await until(lambda: not server.server_state.connections)


async def test_an_answer_that_is_read_slowly_comes_whole(refused):
    """Each piece in much less than the time for all, and the whole in much more."""
    async with serving() as server, connected(server) as client:
        client.write(request("/large", "Content-Length: 0", "Connection: close"))
        read = 0
        while piece := await client.reader.read(1024 * 1024):
            read += len(piece)
            server.pass_time(PATIENCE_S / 10)
    assert server.clock.passed_s > PATIENCE_S
    assert read > LARGE
    assert refused() == {}


# How many connections


async def test_a_connection_too_many_is_answered_503_until_another_ends(refused):
    async with serving(max_connections=2) as server:
        async with connected(server) as first, connected(server) as second:
            assert (await first.get("/1")).status == 200
            assert (await second.get("/2")).status == 200
            async with connected(server) as third:
                answer = await third.get("/3")
                check_error(answer, 503, "UNAVAILABLE", "TOO_MANY_CONNECTIONS")
                assert answer.headers["retry-after"] == "1"
                assert await third.closed()
            assert (await first.get("/1")).status == 200
        await until(lambda: not server.server_state.connections)
        async with connected(server) as fourth:
            assert (await fourth.get("/4")).status == 200
        assert [scope["path"] for scope in server.app.scopes] == ["/1", "/2", "/1", "/4"]
        assert refused() == {"connections": 1}


async def test_far_too_many_connections_are_closed_without_a_word(refused, monkeypatch):
    monkeypatch.setattr("roost.server.http.LINGER_S", PATIENCE_S)
    async with serving(max_connections=1) as server, connected(server) as first, connected(server) as second:
        assert (await first.get("/1")).status == 200
        assert (await second.answer()).status == 503
        async with connected(server) as third:
            assert await third.closed()
        assert refused() == {"connections": 2}


async def test_a_refused_client_that_does_not_leave_is_left():
    async with serving(max_connections=1) as server, connected(server) as first, connected(server) as second:
        assert (await first.get("/1")).status == 200
        assert (await second.answer()).status == 503
        second.write(b"more and more")
        server.pass_time()
        await until(lambda: not server.watch.leaving)
        assert (await first.get("/1")).status == 200


# Who is at the other end


async def test_there_is_no_peer_on_plain_tcp():
    async with serving() as server, connected(server) as client:
        await client.get("/")
        assert "roost.peer" not in server.app.scopes[0]


async def test_a_user_on_a_unix_socket_is_known_in_every_request(tmp_path):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "socket"))
    async with serving(listeners=Listeners([listener])) as server, connected(server) as client:
        await client.get("/1")
        await client.get("/2")
        user = pwd.getpwuid(os.getuid()).pw_name
        assert [scope["roost.peer"] for scope in server.app.scopes] == [Peer(None, os.getuid(), user)] * 2
        assert server.app.scopes[0]["client"] is None


# The host


def test_the_settings_of_a_host_are_its_limits():
    limits = ("--head-s", "1", "--max-headers", "20", "--max-head-bytes", "2048", "--max-connections", "2")
    with running(FLEET / "hello.py", args=limits) as server, ExitStack() as stack:

        def answered(sent):
            with socket.create_connection(("127.0.0.1", server.port), PATIENCE_S) as client:
                client.sendall(sent)
                return int(client.makefile("rb").readline().split()[1])

        assert answered(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n") == 200
        assert answered(b"GET / HTTP/1.1\r\n") == 408
        assert answered(b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 21 + b"\r\n") == 431
        assert answered(b"GET /" + b"a" * 2048) == 431
        for _ in range(2):
            kept = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), PATIENCE_S))
            kept.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert kept.recv(1000).startswith(b"HTTP/1.1 200 ")
        assert answered(b"") == 503
        assert "Traceback" not in server.stderr
