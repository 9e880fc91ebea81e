"""The addresses that strangers can make this host dial, with real sockets on loopback; `Names` resolves names."""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st

from roost import egress
from roost.addresses import own_addresses
from roost.egress import Egress, EgressFailed, EgressRefused, Policy, policy
from tests.waiting import PATIENCE_S, until

LOOPBACK = policy("", "127.0.0.0/8")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Names:
    """The name server of a test. Each name has a list of answers, the last of which is repeated."""

    def __init__(self) -> None:
        self.answers: dict[str, list[list[str]]] = {}
        self.asked: list[str] = []
        self.real = socket.getaddrinfo

    def __call__(self, host: Any, port: Any, *args: Any, **options: Any) -> Any:
        self.asked.append(host)
        if host not in self.answers:
            return self.real(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        answers = self.answers[host]
        addresses = answers.pop(0) if len(answers) > 1 else answers[0]
        return [item for address in addresses for item in self.real(address, port, type=socket.SOCK_STREAM)]


class Server:
    """Accepts connections, each of which `talk` handles."""

    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        self.port = 0
        self.requests: list[str] = []
        self.open = self.connections = 0
        self.changed = asyncio.Condition()
        self.writers: list[asyncio.StreamWriter] = []

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        await self._count(1)
        try:
            await self.talk(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            await self._count(-1)

    async def until_closed(self) -> None:
        async with asyncio.timeout(PATIENCE_S), self.changed:
            await self.changed.wait_for(lambda: self.connections and not self.open)

    async def hang_up(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
        async with asyncio.timeout(PATIENCE_S), self.changed:
            await self.changed.wait_for(lambda: not self.open)

    async def head(self, reader: asyncio.StreamReader) -> str:
        """Read a request with its body, and return its head."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next((line[15:] for line in head.lower().split("\r\n") if line.startswith("content-length:")), "0")
        self.requests.append(head + (await reader.readexactly(int(length))).decode())
        return head

    async def _count(self, change: int) -> None:
        async with self.changed:
            self.open += change
            self.changed.notify_all()


@asynccontextmanager
async def serving(
    what: bytes | Talk, *, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Server]:
    """A server that responds to every request with these bytes, or calls a function."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert isinstance(what, bytes)
        while True:
            await server.head(reader)
            writer.write(what)
            await writer.drain()

    server = Server(answer if isinstance(what, bytes) else what)
    listening = await asyncio.start_server(server.connected, host, port, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        await server.hang_up()


@asynccontextmanager
async def dialler(policy: Policy = LOOPBACK, **options: Any) -> AsyncIterator[Egress]:
    dialling = Egress(policy, **options)
    try:
        yield dialling
    finally:
        await dialling.close()


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    names = Names()
    monkeypatch.setattr(socket, "getaddrinfo", names)
    return names


def url_of(address: str) -> str:
    return f"http://[{address}]/" if ":" in address else f"http://{address}/"


def words(text: str) -> list[str]:
    return text.split()


async def verdict(policy: Policy, url: str) -> str:
    """Return why the URL must not be dialled; empty if it may be."""
    try:
        await Egress(policy).check(url)
    except EgressRefused as refused:
        return refused.detail
    return ""


NOT_PUBLIC = words("""
    0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.127.255.255 127.0.0.1 127.255.255.254 169.254.0.1 172.16.0.1
    172.31.255.255 192.0.0.1 192.0.0.170 192.0.2.1 192.88.99.1 192.168.1.1 198.18.0.1 198.19.255.255 198.51.100.1
    203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255
    :: ::1 ::2 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:0:8.8.8.8 64:ff9b::10.0.0.1
    64:ff9b::a9fe:a9fe 64:ff9b:1::8.8.8.8 64:ff9b:1::10.0.0.1 100::1 2001::1 2001:0:808:808::f7f7:f7f7 2001:2::1
    2001:10::1 2001:20::1 2001:db8::1 2002:808:808::1 2002:a9fe:a9fe:: 2002:7f00:1::1 3fff::1 4000::1 5f00::1
    fc00::1 fd12:3456::1 fe80::1 fec0::1 feff::1 ff02::1 ff0e::1
    2606:4700::5efe:10.0.0.1 2606:4700::200:5efe:10.0.0.1
""")

METADATA = words("""
    169.254.169.254 169.254.170.2 169.254.170.23 169.254.42.42 100.100.100.200 168.63.129.16 192.0.0.192
    fd00:ec2::254 fd00:ec2::23 fd20:ce::254 fd00:42::42 fe80::a9fe:a9fe
    ::ffff:169.254.169.254 64:ff9b::168.63.129.16 ::ffff:168.63.129.16
""")

PUBLIC = words("""
    1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 172.15.255.255 172.32.0.0 192.0.1.1
    198.17.255.255 198.20.0.0 223.255.255.255 2606:4700::1111 2a00:1450::1 2001:4860::8888 2001:200::1
    ::ffff:8.8.8.8 64:ff9b::8.8.8.8 2606:4700::5efe:8.8.8.8
""")


@pytest.mark.parametrize("address", [*NOT_PUBLIC, *METADATA])
async def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    assert await verdict(Policy(), url_of(address))


@pytest.mark.parametrize("address", PUBLIC)
async def test_a_public_address_is_not(address: str) -> None:
    assert await verdict(Policy(), url_of(address)) == ""


def embedded(inner: IPv4Address) -> list[IPv6Address]:
    bits = int(inner)
    return [
        IPv6Address(prefix | bits << shift)
        for prefix, shift in (
            (int(IPv6Address("::ffff:0:0")), 0),
            (0, 0),
            (int(IPv6Address("64:ff9b::")), 0),
            (int(IPv6Address("64:ff9b:1::")), 0),
            (int(IPv6Address("2002::")), 80),
            (int(IPv6Address("2001:0:0:0:0:0:f7f7:f7f7")), 64),
            (int(IPv6Address("2606:4700::5efe:0:0")), 0),
        )
    ] + [IPv6Address(int(IPv6Address("2001:0:808:808::")) | bits ^ 0xFFFFFFFF)]


@settings(max_examples=80, deadline=None)
@given(st.ip_addresses(v=4).filter(lambda it: not it.is_global or it.is_multicast or it.is_reserved))
def test_no_wrapping_makes_an_address_public(inner: IPv4Address) -> None:
    """Even if the operator has allowed the outer form."""
    outside = Policy(networks=(ip_network("2001::/32"), ip_network("2002::/16"), ip_network("64:ff9b:1::/48")))

    async def refused() -> list[bool]:
        return [bool(await verdict(outside, url_of(str(address)))) for address in (inner, *embedded(inner))]

    assert all(asyncio.run(refused()))


@pytest.mark.parametrize("address", ["64:ff9b:1::8.8.8.8", "2002:808:808::1", "2001:0:808:808::f7f7:f7f7"])
async def test_an_opened_outer_form_leads_to_public_addresses(address: str) -> None:
    opened = policy("", "64:ff9b:1::/48, 2002::/16, 2001::/32")
    assert await verdict(opened, url_of(address)) == ""


@pytest.mark.parametrize(
    "host",
    words("""
        0x7f.1 0x7f000001 2130706433 017700000001 127.1 127.0.1 0 localhost localhost. LOCALHOST 127.0.0.1. 0177.0.0.1
        %31%32%37.0.0.1 127%2e0.0.1 １２７.0.0.1 127。0。0。1 ①②⑦.0.0.1 [::ffff:7f00:1] [0:0:0:0:0:0:0:1]
        [::1%25lo] [::1%lo]
    """),
)
async def test_no_spelling_reaches_loopback(host: str) -> None:
    async with serving(OK) as server, dialler(Policy()) as dialling:
        with pytest.raises(EgressRefused):
            await dialling.request("GET", f"http://{host}:{server.port}/")
        assert server.connections == 0


BAD_URLS = [
    "",
    "secret",
    "//secret.example/",
    "ftp://example.com/secret",
    "file:///etc/secret",
    "http:secret",
    "http://",
    "http:///secret",
    "http://:80/secret",
    "http://user:secret@example.com/",
    "http://secret@example.com/",
    "http://@example.com/secret",
    "http://example.com\\@secret/",
    "http://example.com/a\\secret",
    "http://example.com:0/secret",
    "http://example.com:65536/secret",
    "http://example.com:-1/secret",
    "http://example.com:+80/secret",
    "http://example.com:8_0/secret",
    "http://example.com:٨٠/secret",
    "http://exa mple.com/secret",
    "http://example.com/sec ret",
    "http://example.com/\r\nX: secret",
    "http://example.com/secret\x00",
    "http://example.com/secret\u00a0",
    "http://example.com/secret\ud800",
    " http://example.com/secret",
    "http://example..com/secret",
    "http://exa,mple/secret",
    "http://[::1/secret",
    "http://[1.2.3.4]/secret",
    "http://[v1.x]/secret",
    "http://" + "a" * 64 + ".example/secret",
    "http://" + "a." * 127 + "a/secret",
    "http://example.com/secret" + "x" * 2048,
]


@pytest.mark.parametrize("url", BAD_URLS)
async def test_a_bad_url_is_refused_before_anyone_is_asked(names: Names, url: str) -> None:
    with pytest.raises(EgressRefused) as caught:
        await Egress(LOOPBACK).check(url)
    assert names.asked == []
    assert "secret" not in str(caught.value)


async def test_an_international_name_is_looked_up_in_ascii(names: Names) -> None:
    names.answers["xn--bcher-kva.example"] = [["127.0.0.1"]]
    await Egress(LOOPBACK).check("https://BÜCHER.example./ü?ü")
    assert names.asked == ["xn--bcher-kva.example"]


async def test_errors_show_neither_path_nor_query_nor_the_address(names: Names) -> None:
    names.answers["inside.example"] = [["10.9.8.7"]]
    with pytest.raises(EgressRefused) as refused:
        await Egress(Policy()).check("https://inside.example:8443/secret?secret#secret")
    assert str(refused.value).startswith("https://inside.example:8443 leads to an address that is not public")
    assert "secret" not in str(refused.value)
    assert "10.9.8.7" not in str(refused.value)
    assert refused.value.detail == "10.9.8.7 is not public: private"


async def test_a_refused_connection_is_a_failure_that_shows_no_address(names: Names) -> None:
    async with serving(OK) as server:
        pass
    names.answers["gone.example"] = [["127.0.0.1"]]
    async with dialler() as dialling:
        with pytest.raises(EgressFailed, match="connection could not be made") as failed:
            await dialling.request("GET", f"http://gone.example:{server.port}/secret")
    assert "secret" not in str(failed.value)
    assert "127.0.0.1" not in str(failed.value)


async def test_a_name_that_is_judged_and_answered_anew_is_judged_anew(names: Names) -> None:
    names.answers["rebind.example"] = [["8.8.8.8"], ["127.0.0.1"]]
    async with serving(OK) as server, dialler(Policy()) as dialling:
        url = f"http://rebind.example:{server.port}/"
        await dialling.check(url)
        with pytest.raises(EgressRefused):
            await dialling.request("POST", url, body=b"{}")
        assert server.connections == 0


async def test_the_dialled_address_is_the_judged_one(names: Names) -> None:
    names.answers["rebind.example"] = [["127.0.0.1"], ["127.0.0.2"]]
    async with (
        serving(OK) as judged,
        serving(OK, host="127.0.0.2", port=judged.port) as other,
        dialler(policy("", "127.0.0.1/32")) as dialling,
    ):
        answer = await dialling.request("GET", f"http://rebind.example:{judged.port}/")
        assert answer.body == b"ok"
        assert names.asked == ["rebind.example"]
        assert (judged.connections, other.connections) == (1, 0)


@pytest.mark.parametrize("answers", [["8.8.8.8", "10.0.0.1"], ["10.0.0.1", "8.8.8.8"], ["8.8.8.8", "::1"]])
async def test_one_bad_address_among_good_ones_refuses_all(names: Names, answers: list[str]) -> None:
    names.answers["mixed.example"] = [answers]
    assert await verdict(Policy(), "http://mixed.example/")


async def test_the_next_judged_address_is_tried_when_one_does_not_answer(names: Names) -> None:
    names.answers["two.example"] = [["127.0.0.2", "127.0.0.1"]]
    async with serving(OK) as server, dialler() as dialling:
        assert (await dialling.request("GET", f"http://two.example:{server.port}/")).status == 200
    assert names.asked == ["two.example"]


async def test_a_redirect_is_an_answer(names: Names) -> None:
    redirect = b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest\r\nContent-Length: 0\r\n\r\n"
    async with serving(redirect) as server, dialler() as dialling:
        answer = await dialling.request("POST", f"http://127.0.0.1:{server.port}/")
    assert answer.status == 302
    assert answer.headers["location"] == "http://169.254.169.254/latest"
    assert names.asked == ["127.0.0.1"]


@pytest.mark.parametrize("before", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n"])
async def test_a_server_that_drips_is_cut_off(before: bytes) -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(before)
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    async with serving(drip) as server, dialler(total_s=0.3, max_connections=1) as dialling:
        for _ in range(2):
            with pytest.raises(EgressFailed, match="no complete response within"):
                await dialling.request("GET", f"http://127.0.0.1:{server.port}/")
        await server.until_closed()


async def test_a_server_that_never_shakes_hands_is_hung_up_on() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(4096):
            pass

    context = ssl.create_default_context()
    async with serving(silent) as server, dialler(total_s=0.3, context=context) as dialling:
        with pytest.raises(EgressFailed):
            await dialling.request("GET", f"https://127.0.0.1:{server.port}/")
        await server.until_closed()


async def test_an_answer_without_end_is_cut_and_hung_up_on() -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 10_000)
            await writer.drain()

    async with serving(endless) as server, dialler() as dialling:
        answer = await dialling.request("GET", f"http://127.0.0.1:{server.port}/", limit=25_000)
        assert answer.body == b"x" * 25_000
        await server.until_closed()


async def test_a_compressed_answer_is_not_inflated() -> None:
    bomb = gzip.compress(bytes(5_000_000))
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(bomb)}\r\n\r\n"
    async with serving(head.encode() + bomb) as server, dialler() as dialling:
        answer = await dialling.request("GET", f"http://127.0.0.1:{server.port}/")
    assert answer.body == bomb
    assert "Accept-Encoding: identity" in server.requests[0]


@pytest.mark.parametrize("what", [b"SSH-2.0-OpenSSH_9.6\r\n\r\n", b"HTTP/1.1 101 Switching Protocols\r\n\r\n", b""])
async def test_an_answer_that_is_not_http_is_a_failure(what: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.head(reader)
        writer.write(what)

    async with serving(talk) as server, dialler() as dialling:
        with pytest.raises(EgressFailed):
            await dialling.request("GET", f"http://127.0.0.1:{server.port}/")


async def test_proxy_variables_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(OK) as proxy, serving(OK) as server, dialler() as dialling:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        await dialling.request("GET", f"http://127.0.0.1:{server.port}/")
        assert (proxy.connections, server.connections) == (0, 1)


async def test_a_connection_is_kept_judged_and_without_cookies(names: Names) -> None:
    names.answers["kept.example"] = [["127.0.0.1"], ["10.0.0.1"]]
    cookie = OK.replace(b"\r\n\r\n", b"\r\nSet-Cookie: a=b\r\n\r\n", 1)
    async with serving(cookie) as server, dialler() as dialling:
        for number in range(3):
            await dialling.request("POST", f"http://kept.example:{server.port}/{number}", body=b"{}")
        assert (server.connections, names.asked) == (1, ["kept.example"])
        assert not any("cookie" in request.lower() for request in server.requests)
        await dialling.close()
        await server.until_closed()


async def test_an_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress, "IDLE_S", 0.05)
    async with serving(OK) as server, dialler() as dialling:
        assert (await dialling.request("GET", f"http://127.0.0.1:{server.port}/")).status == 200
        await server.until_closed()


async def test_only_so_many_connections_are_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress, "MAX_IDLE", 0)
    async with serving(OK) as server, dialler() as dialling:
        assert (await dialling.request("GET", f"http://127.0.0.1:{server.port}/")).status == 200
        await server.until_closed()


async def test_a_connection_that_the_server_closed_is_dialled_anew() -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.head(reader)
        writer.write(OK)

    async with serving(once) as server, dialler() as dialling:
        for _ in range(2):
            assert (await dialling.request("GET", f"http://127.0.0.1:{server.port}/")).status == 200
            await server.until_closed()
        assert server.connections == 2


async def test_connections_are_limited() -> None:
    under_way: list[int] = [0]
    gate = asyncio.Event()

    async def held(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.head(reader)
        under_way.append(under_way[-1] + 1)
        await gate.wait()
        under_way.append(under_way[-1] - 1)
        writer.write(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))

    async with serving(held) as server, serving(OK) as other, dialler(max_connections=2) as dialling:
        requests = [dialling.request("GET", f"http://127.0.0.1:{server.port}/") for _ in range(6)]
        answers = asyncio.gather(*requests)
        await until(lambda: under_way[-1] == 2)
        async with dialler() as later:  # a third connection would have been made before this one
            assert (await later.request("GET", f"http://127.0.0.1:{other.port}/")).status == 200
        gate.set()
        await answers
    assert server.connections == 6
    assert max(under_way) == 2


async def test_a_request_is_framed_by_us() -> None:
    given = [("Host", "evil"), ("content-length", "999"), ("Transfer-Encoding", "chunked"), ("X-A", "1"), ("X-A", "2")]
    async with serving(OK) as server, dialler() as dialling:
        await dialling.request("POST", f"http://127.0.0.1:{server.port}/p?q#f", given, b'{"a": 1}')
        await dialling.request("GET", f"http://127.0.0.1:{server.port}", {"X-B": "3"})
    ours = f"Host: 127.0.0.1:{server.port}\r\nAccept-Encoding: identity\r\n"
    assert server.requests == [
        f'POST /p?q HTTP/1.1\r\n{ours}Content-Length: 8\r\nX-A: 1\r\nX-A: 2\r\n\r\n{{"a": 1}}',
        f"GET / HTTP/1.1\r\n{ours}X-B: 3\r\n\r\n",
    ]


@pytest.mark.parametrize("header", [("X", "secret\r\nY: 1"), ("X\r\nY", "secret"), ("X", "sécret"), ("", "secret")])
async def test_a_header_that_would_split_the_request_is_refused(header: tuple[str, str]) -> None:
    async with serving(OK) as server, dialler() as dialling:
        with pytest.raises(EgressRefused) as refused:
            await dialling.request("GET", f"http://127.0.0.1:{server.port}/", [header])
    assert server.requests == []
    assert "cret" not in str(refused.value)


async def test_a_name_that_does_not_resolve_may_be_tried_again(names: Names) -> None:
    with pytest.raises(EgressFailed, match=r"^https://nowhere\.example: the name does not resolve$"):
        await Egress(Policy()).check("https://nowhere.example/secret")


async def test_a_name_server_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **options: over.wait(PATIENCE_S))
    try:
        with pytest.raises(EgressFailed, match="does not resolve"):
            await Egress(Policy(), connect_s=0.1).check("https://slow.example/")
    finally:
        over.set()


@pytest.mark.parametrize(
    ("allowed", "url"),
    [
        ("inside.example", "http://inside.example/"),
        ("INSIDE.example", "http://Inside.Example./"),
        ("inside.example:8080", "http://inside.example:8080/"),
        ("inside.example:443", "https://inside.example/"),
        ("*.example", "http://inside.example/"),
        ("*.example:80", "http://inside.example/"),
        ("other.example, inside.example", "http://inside.example/"),
        ("10.1.2.3", "http://10.1.2.3/"),
        ("[fd00::1]:81", "http://[FD00:0::1]:81/"),
    ],
)
async def test_an_allowed_host_may_be_inside(names: Names, allowed: str, url: str) -> None:
    names.answers["inside.example"] = [["10.1.2.3"]]
    opened = policy(allowed, "")
    assert await verdict(opened, url) == ""
    assert await verdict(Policy(), url)


@pytest.mark.parametrize(
    ("allowed", "url"),
    [
        ("example", "http://inside.example/"),
        ("*.inside.example", "http://inside.example/"),
        ("inside.example:8080", "http://inside.example/"),
        ("*.example:443", "http://inside.example/"),
        ("side.example", "http://inside.example/"),
        ("localhost", "http://127.0.0.1/"),
    ],
)
async def test_another_allowed_host_opens_nothing(names: Names, allowed: str, url: str) -> None:
    names.answers["inside.example"] = [["10.1.2.3"]]
    assert await verdict(policy(allowed, ""), url)


@pytest.mark.parametrize(
    "item",
    ["*", "*.", "http://x", "10.0.0.0/8", "a:0", "a:70000", "a:", "a b", "x@y", "*.*.x", "::1", "*.[::1]", "a?b"],
)
def test_a_bad_host_in_the_settings_is_named(item: str) -> None:
    with pytest.raises(ValueError) as caught:
        policy(f"good.example, {item}", "")
    assert repr(item) in str(caught.value)


@pytest.mark.parametrize("item", ["10.0.0.1/8", "10.0.0.0/33", "example.com", "10.0.0.0/8 11.0.0.0/8"])
def test_a_bad_network_in_the_settings_is_named(item: str) -> None:
    with pytest.raises(ValueError) as caught:
        policy("", f"10.0.0.0/8, {item}")
    assert repr(item) in str(caught.value)


@pytest.mark.parametrize("address", ["10.1.2.3", "::1", "fd00::1", "::ffff:10.1.2.3", "64:ff9b::10.1.2.3"])
async def test_an_allowed_network_is_open_for_every_host(names: Names, address: str) -> None:
    names.answers["any.example"] = [[address]]
    opened = policy("", "10.0.0.0/8, ::1/128, fd00::/8")
    assert await verdict(opened, "http://any.example/") == ""
    assert await verdict(opened, "http://192.168.0.1/")


@pytest.mark.parametrize("address", METADATA)
async def test_metadata_is_opened_by_its_very_address_only(names: Names, address: str) -> None:
    names.answers["inside.example"] = [[address]]
    url = "http://inside.example/"
    wide = policy("inside.example, *.example", "0.0.0.0/0, 169.254.0.0/16, ::/0, fd00:ec2::/64")
    assert "metadata" in await verdict(wide, url)
    inner = ip_address(address)
    if isinstance(inner, IPv6Address) and (inner.ipv4_mapped or address.startswith("64:ff9b::")):
        inner = IPv4Address(int(inner) & 0xFFFFFFFF)
    assert await verdict(policy("", f"{inner}"), url) == ""


async def test_this_machines_addresses_are_refused_though_public(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress, "own_addresses", lambda: [ip_network("8.8.8.8")])
    own = policy("", "", own=("9.9.9.9", "2606:4700::1"))
    for address in ("8.8.8.8", "9.9.9.9", "2606:4700::1", "::ffff:8.8.8.8", "64:ff9b::9.9.9.9"):
        assert "of this host" in await verdict(own, url_of(address))
    assert await verdict(own, "http://8.8.4.4/") == ""


async def test_this_machines_address_is_opened_by_name_or_by_that_very_address(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egress, "own_addresses", lambda: [ip_network("10.0.0.5")])
    names.answers["self.example"] = [["10.0.0.5"]]
    url = "http://self.example/"
    assert "of this host" in await verdict(policy("", "10.0.0.0/8"), url)
    assert await verdict(policy("self.example", ""), url) == ""
    assert await verdict(policy("", "10.0.0.5"), url) == ""


def test_this_machines_addresses_are_known() -> None:
    """An address that can be bound belongs to this machine."""
    known = own_addresses()
    assert any(IPv4Address("127.0.0.1") in network for network in known)
    for network in known:
        if network.num_addresses == 1 and not network.is_link_local:
            family = socket.AF_INET6 if network.version == 6 else socket.AF_INET
            with socket.socket(family, socket.SOCK_DGRAM) as bound:
                bound.bind((str(network.network_address), 0))


async def test_new_addresses_of_this_machine_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    dialling = Egress(Policy())
    await dialling.check("http://8.8.8.8/")
    monkeypatch.setattr(egress, "own_addresses", lambda: [ip_network("8.8.8.8")])
    await dialling.check("http://8.8.8.8/")
    monkeypatch.setattr(egress, "OWN_S", -1.0)
    with pytest.raises(EgressRefused):
        await dialling.check("http://8.8.8.8/")


class Authority:
    """Certifies names, for the contexts of a server and of a client that trusts it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Test authority")])
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        self.certificate = (
            self._builder(self.name, self.key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .sign(self.key, hashes.SHA256())
        )

    def server(self, name: str) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            self._builder(x509.Name([]), key)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        file = self.folder / "server.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def client(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.certificate.public_bytes(serialization.Encoding.PEM).decode())

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return x509.CertificateBuilder(
            self.name, subject, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1)
        ).add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)


async def test_tls_verifies_the_name_though_an_address_is_dialled(names: Names, tmp_path: Path) -> None:
    names.answers["hooks.example"] = names.answers["other.example"] = [["127.0.0.1"]]
    authority = Authority(tmp_path)
    context = authority.server("hooks.example")
    asked_for: list[str | None] = []
    context.set_servername_callback(lambda tls, name, _: asked_for.append(name))
    async with serving(OK, tls=context) as server, dialler(context=authority.client()) as dialling:
        assert (await dialling.request("GET", f"https://hooks.example:{server.port}/")).body == b"ok"
        assert asked_for == ["hooks.example"]
        with pytest.raises(EgressFailed, match="certificate is not accepted: Hostname mismatch"):
            await dialling.request("GET", f"https://other.example:{server.port}/")
        with pytest.raises(EgressFailed, match="certificate is not accepted: IP address mismatch"):
            await dialling.request("GET", f"https://127.0.0.1:{server.port}/")
        assert len(server.requests) == 1


async def test_tls_believes_known_authorities_only(names: Names, tmp_path: Path) -> None:
    names.answers["hooks.example"] = [["127.0.0.1"]]
    async with serving(OK, tls=Authority(tmp_path).server("hooks.example")) as server, dialler() as dialling:
        with pytest.raises(EgressFailed, match="certificate is not accepted"):
            await dialling.request("GET", f"https://hooks.example:{server.port}/")
        assert server.requests == []
