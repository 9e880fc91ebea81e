"""TLS and client certificates, with a real CA of the test's own."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import os
import resource
import socket
import ssl
import time
from pathlib import Path

import httpx
import pytest
import trustme
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from roost.doors.counters import REFUSED
from roost.identity.peers import NamesNobody, certified
from roost.server.http import _peer
from roost.server.sockets import CannotServe
from roost.server.tls import LOOK_S, TLS, open_tls
from roost.settings import Settings
from tests.cli.test_serve import refusal
from tests.processes import FLEET, roost, running
from tests.server.inprocess import Client, Running, connected, serving
from tests.waiting import PATIENCE_S, until

SPIFFE = x509.UniformResourceIdentifier("spiffe://example.org/billing")
DNS = x509.DNSName("client.example.org")
HOUR = datetime.timedelta(hours=1)


@pytest.fixture
def event_loop_policy():
    return uvloop.EventLoopPolicy()


class Files:
    """A server certificate of `ca`, and the CA of clients, in a folder."""

    def __init__(self, folder: Path, ca: trustme.CA) -> None:
        self.ca = ca
        self.cert, self.key, self.client_ca = folder / "cert.pem", folder / "key.pem", folder / "ca.pem"
        self.replace()
        ca.cert_pem.write_to_path(self.client_ca)

    def replace(self) -> None:
        made = self.ca.issue_cert("localhost", "127.0.0.1")
        self.cert.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        made.private_key_pem.write_to_path(self.key)
        self.key.chmod(0o600)

    def tls(self, *, clients: bool = True) -> TLS:
        return TLS(self.cert, self.key, self.client_ca if clients else None)

    @property
    def args(self) -> tuple[str, ...]:
        return ("--tls-cert", str(self.cert), "--tls-key", str(self.key))

    @property
    def serial(self) -> int:
        return x509.load_pem_x509_certificate(self.cert.read_bytes()).serial_number


@pytest.fixture(scope="session")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def files(tmp_path: Path, ca: trustme.CA) -> Files:
    return Files(tmp_path, ca)


def trusting(ca: trustme.CA, client: trustme.LeafCert | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    ca.configure_trust(context)
    if client is not None:
        client.configure_cert(context)
    return context


def der(subject: str = "", *names: x509.GeneralName, days: int = 1) -> bytes:
    """A certificate; who signed it does not matter here."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)] if subject else [])
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - HOUR).not_valid_after(now + datetime.timedelta(days=days))
    if names:
        made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


# What a certificate says of its owner


@pytest.mark.parametrize(
    ("names", "subject"),
    [
        ((DNS, SPIFFE), "spiffe://example.org/billing"),
        ((x509.RFC822Name("a@example.org"), DNS, x509.DNSName("other.example.org")), "client.example.org"),
        ((x509.RFC822Name("a@example.org"),), "CN=Billing\\, Inc."),
        ((), "CN=Billing\\, Inc."),
    ],
)
def test_a_certificate_stands_for_its_uri_or_its_dns_name_or_its_subject(names, subject):
    data = der("Billing, Inc.", *names)
    peer = certified(data)
    assert (peer.uid, peer.user) == (None, "")
    assert peer.certificate.subject == subject
    assert peer.certificate.fingerprint == hashlib.sha256(data).hexdigest()
    assert peer.certificate.not_after == int(x509.load_der_x509_certificate(data).not_valid_after_utc.timestamp())


@pytest.mark.parametrize("data", [b"", b"no certificate", der(), der("", x509.RFC822Name("a@example.org"))])
def test_a_certificate_without_a_name_stands_for_nobody(data):
    with pytest.raises(NamesNobody):
        certified(data)


def test_a_certificate_that_nobody_verified_is_none():
    class Unverified:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

        def getpeercert(self, binary_form):
            return der("mallory")

        def get_extra_info(self, name):
            return self if name == "ssl_object" else None

    assert _peer(Unverified()) is None


# Clients with and without one


async def test_a_client_without_a_certificate_is_served_and_has_no_peer(files, ca):
    async with serving(tls=files.tls()) as server, connected(server, trusting(ca)) as client:
        assert (await client.get("/")).status == 200
        (scope,) = server.app.scopes
        assert scope["scheme"] == "https"
        assert scope["client"] == client.writer.get_extra_info("sockname")
        assert scope["server"] == server.address
        assert "roost.peer" not in scope


async def test_a_client_with_a_certificate_is_known_in_every_request(files, ca):
    own = ca.issue_cert("client.example.org")
    async with serving(tls=files.tls()) as server, connected(server, trusting(ca, own)) as client:
        assert (await client.get("/1")).status == 200
        assert (await client.get("/2")).status == 200
        data = ssl.PEM_cert_to_DER_cert(own.cert_chain_pems[0].bytes().decode())
        assert [scope["roost.peer"] for scope in server.app.scopes] == [certified(data)] * 2
        assert server.app.scopes[0]["roost.peer"].certificate.subject == "client.example.org"


async def test_a_certificate_of_a_foreign_ca_ends_the_handshake(files, ca):
    before = REFUSED["tls"]
    foreign = trusting(ca, trustme.CA().issue_cert("client.example.org"))
    async with serving(tls=files.tls()) as server:
        with pytest.raises((ssl.SSLError, ConnectionResetError, asyncio.IncompleteReadError)):
            async with connected(server, foreign) as client:
                await client.get("/")
        await until(lambda: not server.watch.handshakes)
        assert server.app.scopes == []
        assert REFUSED["tls"] == before + 1


async def test_certificates_are_not_asked_for_without_a_client_ca(files, ca):
    own = ca.issue_cert("client.example.org")
    async with serving(tls=files.tls(clients=False)) as server, connected(server, trusting(ca, own)) as client:
        assert (await client.get("/")).status == 200
        assert "roost.peer" not in server.app.scopes[0]


async def test_http_1_1_is_what_is_agreed_upon(files, ca):
    context = trusting(ca)
    context.set_alpn_protocols(["h2", "http/1.1"])
    async with serving(tls=files.tls()) as server, connected(server, context) as client:
        assert client.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"


async def test_tls_1_1_is_refused(files, ca):
    context = trusting(ca)
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    async with serving(tls=files.tls()) as server:
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            async with connected(server, context):
                pass


async def test_requests_one_behind_the_other_and_bodies_come_through_tls(files, ca):
    async with serving(tls=files.tls()) as server, connected(server, trusting(ca)) as client:
        body = b"x" * 1_000_000
        head = b"POST /%d HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
        for number in range(3):
            client.write(head % (number, len(body)) + body)
        answers = [(await client.answer()).json for _ in range(3)]
        assert answers == [{"path": f"/{number}", "bytes": len(body)} for number in range(3)]


# Limits


async def test_a_handshake_has_its_time(files, ca):
    before = REFUSED["tls"]
    async with serving(tls=files.tls(), head_s=0.5) as server, connected(server) as silent:
        assert await silent.closed()
        await until(lambda: not server.watch.handshakes)
        assert REFUSED["tls"] == before + 1


async def test_a_slow_head_is_answered_408_on_tls_too(files, ca):
    async with serving(tls=files.tls()) as server, connected(server, trusting(ca)) as client:
        client.write(b"GET / HT")
        await server.until_received(len(b"GET / HT"))
        server.pass_time()
        assert (await client.answer()).status == 408
        server.pass_time()
        assert await client.closed()


async def test_handshakes_have_their_number(files, ca):
    before = REFUSED["connections"]
    async with serving(tls=files.tls(), max_connections=1) as server, connected(server):
        await until(lambda: server.watch.handshakes)
        async with connected(server) as second:
            assert await second.closed()
        assert REFUSED["connections"] == before + 1


async def test_a_connection_too_many_is_answered_503_on_tls_too(files, ca):
    async with serving(tls=files.tls(), max_connections=1) as server, connected(server, trusting(ca)) as first:
        assert (await first.get("/1")).status == 200
        async with connected(server, trusting(ca)) as second:
            assert (await second.answer()).status == 503
            server.pass_time()
            assert await second.closed()
        assert (await first.get("/1")).status == 200


async def test_a_connection_that_no_file_is_left_for_is_taken_later(files, ca, caplog):
    context = trusting(ca)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with serving(tls=files.tls()) as server:
        waiting = socket.create_connection(server.address)
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
        try:
            await until(lambda: "cannot accept connections" in caplog.text)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        client = Client(*await asyncio.open_connection(sock=waiting, ssl=context, server_hostname="localhost"))
        assert (await client.get("/")).status == 200
        client.writer.transport.abort()


async def test_plain_http_on_a_tls_port_is_closed(files):
    async with serving(tls=files.tls()) as server, connected(server) as client:
        client.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await client.closed()


async def test_the_server_stops_at_once_with_handshakes_open(files):
    async with serving(tls=files.tls()) as server, connected(server) as silent:
        await until(lambda: server.watch.handshakes)
        server.should_exit = True
        assert await silent.closed()


# Files that change


async def served_serial(server: Running, ca: trustme.CA) -> int:
    async with connected(server, trusting(ca)) as client:
        data = client.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(data).serial_number


def look_later(tls: TLS, looks: int = 1) -> None:
    tls.look(max(tls.looked, time.monotonic()) + LOOK_S * looks)


async def test_new_files_are_served_and_open_connections_go_on(files, ca):
    async with serving(tls=files.tls()) as server, connected(server, trusting(ca)) as before:
        first, context = await served_serial(server, ca), server.tls.context
        assert first == files.serial
        files.replace()
        server.tls.looked = 0.0  # long ago, for the server's own sweep
        await until(lambda: server.tls.context is not context)
        assert await served_serial(server, ca) == files.serial != first
        assert (await before.get("/")).status == 200


async def test_files_are_looked_at_no_more_often_than_that(files, ca):
    tls = files.tls()
    look_later(tls)
    context = tls.context
    files.replace()
    tls.look(tls.looked + LOOK_S / 2)
    assert tls.context is context
    tls.look(tls.looked + LOOK_S)
    assert tls.context is not context


async def test_broken_new_files_are_told_once_and_the_old_ones_stay(files, ca, caplog):
    async with serving(tls=files.tls()) as server:
        first = await served_serial(server, ca)
        files.key.write_text("broken")
        for _ in range(3):
            look_later(server.tls)
        assert await served_serial(server, ca) == first
        (said,) = [record.getMessage() for record in caplog.records if record.name == "roost.server"]
        assert str(files.key) in said
        files.key.unlink()
        look_later(server.tls)
        assert await served_serial(server, ca) == first
        files.replace()
        look_later(server.tls)
        assert await served_serial(server, ca) == files.serial != first


async def test_a_ca_that_is_taken_out_of_its_file_is_out(files, ca):
    other = trustme.CA()
    files.client_ca.write_bytes(ca.cert_pem.bytes() + other.cert_pem.bytes())
    context = trusting(ca, other.issue_cert("client.example.org"))
    async with serving(tls=files.tls()) as server:
        async with connected(server, context) as client, connected(server, trusting(ca)) as without:
            assert (await client.get("/")).status == 200
            ca.cert_pem.write_to_path(files.client_ca)
            server.tls.looked = 0.0  # long ago, for the server's own sweep
            assert await client.closed(), "it has to show its certificate again"
            assert (await without.get("/")).status == 200
        with pytest.raises((ssl.SSLError, ConnectionResetError, asyncio.IncompleteReadError)):
            async with connected(server, context) as client:
                await client.get("/")


# Files that cannot be used


def failure(files: Files, **changes: str) -> str:
    given = {"tls_cert": str(files.cert), "tls_key": str(files.key), "client_ca": str(files.client_ca)}
    with pytest.raises(CannotServe) as raised:
        open_tls(Settings(**(given | changes)))
    return str(raised.value)


def test_a_certificate_and_its_key_come_together(files):
    assert "--tls-key" in failure(files, tls_key="")
    assert "--tls-cert" in failure(files, tls_cert="")
    assert "--tls-cert" in failure(files, tls_cert="", tls_key="")
    assert open_tls(Settings()) is None


@pytest.mark.parametrize("name", ["tls_cert", "tls_key", "client_ca"])
def test_a_file_that_is_not_there_or_is_something_else_is_named(files, tmp_path, name):
    assert f"cannot read {tmp_path}/nowhere" in failure(files, **{name: str(tmp_path / "nowhere")})
    assert f"cannot read {tmp_path}: " in failure(files, **{name: str(tmp_path)})
    other = tmp_path / "other.pem"
    other.touch(mode=0o600)
    for content in ("", "no PEM", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        other.write_text(content)
        assert failure(files, **{name: str(other)}).startswith(f"{other} does not hold")


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o620, 0o777])
def test_a_key_that_others_can_read_or_write_is_refused_with_the_command_to_run(files, mode):
    files.key.chmod(mode)
    assert failure(files).endswith(f"chmod 600 {files.key}")


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o640, 0o440])
def test_a_keys_group_may_read_it(files, mode):
    files.key.chmod(mode)
    assert files.tls().context.verify_mode == ssl.CERT_OPTIONAL


def test_the_key_of_another_certificate_is_refused(files, ca):
    ca.issue_cert("other").private_key_pem.write_to_path(files.key)
    assert failure(files) == f"{files.key} is not the key of {files.cert}"


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(files):
    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    locked = serialization.BestAvailableEncryption(b"secret")
    pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    files.key.write_bytes(key.private_bytes(*pem, locked))
    assert "has a password" in failure(files)


# The host


def test_a_host_with_tls_says_https_and_answers_there(files, ca):
    with running(FLEET / "hello.py", args=files.args) as server:
        assert server.url.startswith("https://127.0.0.1:")
        assert f"curl -s {server.url}/" in server.stderr
        answer = httpx.get(f"{server.url}/healthz", verify=trusting(ca), timeout=PATIENCE_S)
        assert answer.status_code == 200
        assert "Traceback" not in server.stderr


def test_a_host_whose_files_cannot_be_used_says_so_in_one_line(files):
    files.key.chmod(0o644)
    said = refusal(roost("serve", FLEET / "hello.py", "--memory", "--port", "0", *files.args))
    assert said.endswith(f"chmod 600 {files.key}")
