"""Callers whom the connection itself tells: by a client certificate, or by the user at the end of a Unix socket."""

from __future__ import annotations

import os
import pwd
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trustme

from tests.access.people import ADMIN_SECRET, AGENTS, CARD, OPERATOR, People, Person, api_key, bearer, refusal
from tests.doors.wire import text_of
from tests.processes import running

USER = pwd.getpwuid(os.getuid()).pw_name


def trusting(ca: trustme.CA, client: trustme.LeafCert | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    ca.configure_trust(context)
    if client is not None:
        client.configure_cert(context)
    return context


# Client certificates


class Secure:
    def __init__(self, people: People, ca: trustme.CA) -> None:
        self.people = people
        self.ca = ca
        self.certified = self.person({}, ca.issue_cert("client.example.org"))
        self.plain = self.person({})
        self.operator = self.person(bearer(ADMIN_SECRET))

    def person(self, headers: dict[str, str], certificate: trustme.LeafCert | None = None) -> Person:
        return self.people.with_headers(headers, verify=trusting(self.ca, certificate))


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    folder, ca = tmp_path_factory.mktemp("tls"), trustme.CA()
    own = ca.issue_cert("localhost", "127.0.0.1")
    cert, key, clients = folder / "cert.pem", folder / "key.pem", folder / "clients.pem"
    cert.write_bytes(b"".join(blob.bytes() for blob in own.cert_chain_pems))
    key.touch(mode=0o600)
    key.write_bytes(own.private_key_pem.bytes())
    ca.cert_pem.write_to_path(clients)
    files = ("--tls-cert", str(cert), "--tls-key", str(key), "--client-ca", str(clients))
    args = (*files, "--mtls-scopes", "agent:desk,agent:teller", "--drain-s", "0")
    with running(AGENTS, args=args, env=OPERATOR) as server, People(server) as people:
        yield Secure(people, ca)


def test_a_certificate_is_a_credential_by_the_name_in_it(secure: Secure) -> None:
    for door in secure.certified.doors:
        assert text_of(door.task("hi", "teller")) == "mtls:client.example.org default hi"
    other = secure.person({}, secure.ca.issue_cert("other.example.org"))
    assert secure.certified.rest.ok("ListTasks", {}, "teller")["totalSize"] == 2
    assert other.rest.ok("ListTasks", {}, "teller")["totalSize"] == 0


def test_it_opens_what_the_operator_gives_to_certificates(secure: Secure) -> None:
    assert refusal(secure.certified.ask("GET", "/agents/other/tasks")).metadata == {"scope": "agent:other"}
    assert refusal(secure.certified.ask("GET", "/api/v2/admin/tokens")).reason == "FORBIDDEN"


def test_without_one_a_token_does_and_nothing_else(secure: Secure) -> None:
    answer = secure.plain.ask("GET", "/agents/desk/tasks")
    assert refusal(answer).reason == "UNAUTHENTICATED"
    assert [said.split()[0] for said in answer.headers.get_list("www-authenticate")] == ["Bearer", "ApiKey", "Mutual"]
    secret = secure.operator.make("agent:other")["token"]
    assert secure.person(api_key(secret)).status("other") == 200


def test_a_bad_token_is_not_passed_over_for_a_good_certificate(secure: Secure) -> None:
    both = secure.person(bearer("roost_wrong-one"), secure.ca.issue_cert("client.example.org"))
    assert refusal(both.ask("GET", "/agents/desk/tasks")).metadata == {"cause": "unknown"}


def test_a_good_token_counts_before_the_certificate(secure: Secure) -> None:
    """The certificate may be that of a gateway, for example."""
    secret = secure.operator.make("agent:teller", name="guest")["token"]
    both = secure.person(bearer(secret), secure.ca.issue_cert("client.example.org"))
    assert text_of(both.rest.task("hi", "teller")) == "roost:guest default hi"


def test_the_certificate_of_another_ca_is_no_connection(secure: Secure) -> None:
    stranger = trustme.CA().issue_cert("client.example.org")
    with pytest.raises(httpx.TransportError):
        secure.person({}, stranger).status()


def test_a_header_that_claims_a_certificate_is_none(secure: Secure) -> None:
    claims = {"X-Client-Cert": "client.example.org", "X-SSL-Client-S-DN": "CN=client.example.org"}
    assert secure.plain.ask("GET", "/agents/desk/tasks", **claims).status_code == 401


def test_the_card_declares_it(secure: Secure) -> None:
    card = secure.plain.ask("GET", f"/agents/desk{CARD}").json()
    assert card["securitySchemes"]["mtls"] == {"mtlsSecurityScheme": {}}
    assert [*card["securityRequirements"][-1]["schemes"]] == ["mtls"]
    assert all(interface["url"].startswith("https://") for interface in card["supportedInterfaces"])


def test_browsers_are_told_to_stay_with_tls(secure: Secure) -> None:
    for answer in (
        secure.plain.ask("GET", "/healthz"),
        secure.plain.ask("GET", "/agents/desk/tasks"),
        secure.certified.ask("GET", "/agents/desk/tasks"),
    ):
        assert answer.headers["strict-transport-security"] == "max-age=31536000"


# Unix sockets


class Local:
    def __init__(self, people: People, path: Path) -> None:
        self.people = people
        self.tcp = people.with_headers({})
        self.user = self.at_socket({}, path)
        self.path = path

    def at_socket(self, headers: dict[str, str], path: Path) -> Person:
        transport = httpx.HTTPTransport(uds=str(path))
        person = self.people.with_headers(headers, transport=transport)
        person.base = person.rest.base = person.rpc.base = "http://localhost"
        return person


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    """A host at a socket and at a port, which has no credentials at first."""
    path = tmp_path_factory.mktemp("socket") / "roost.sock"
    args = ("--listen", f"127.0.0.1:0,unix:{path}", "--unix-scopes", "agent:desk,agent:teller,operate")
    with running(AGENTS, args=(*args, "--drain-s", "0"), env=OPERATOR) as server, People(server) as people:
        yield Local(people, path)


def test_the_user_at_the_socket_is_known_although_the_host_is_open(local: Local) -> None:
    for door in local.user.doors:
        assert text_of(door.task("hi", "teller")) == f"unix:{USER} default hi"
    assert text_of(local.tcp.rest.task("hi", "teller")) == "roost:local default hi"
    assert local.user.rest.ok("ListTasks", {}, "teller")["totalSize"] == 2
    assert local.tcp.rest.ok("ListTasks", {}, "teller")["totalSize"] == 1


def test_the_user_has_the_scopes_that_the_operator_gives_to_sockets(local: Local) -> None:
    assert refusal(local.user.ask("GET", "/agents/other/tasks")).metadata == {"scope": "agent:other"}
    assert local.tcp.status("other") == 200
    task = local.tcp.rest.task("hi", "desk")["id"]
    state = local.user.ask("GET", f"/api/v2/admin/tasks/{task}")
    assert (state.status_code, state.json()["owner"]) == (200, "roost:local")
    assert refusal(local.user.ask("GET", "/api/v2/admin/tokens")).reason == "FORBIDDEN"
    assert refusal(local.tcp.ask("GET", f"/api/v2/admin/tasks/{task}")).reason == "UNAUTHENTICATED"


def test_a_bad_token_at_the_socket_is_refused(local: Local) -> None:
    with_token = local.at_socket(bearer("roost_wrong-one"), local.path)
    assert refusal(with_token.ask("GET", "/agents/desk/tasks")).metadata == {"cause": "unknown"}


def test_only_its_owner_may_come_to_the_socket(local: Local) -> None:
    assert local.path.stat().st_mode & 0o777 == 0o600


def test_a_token_closes_the_port_and_not_the_socket(local: Local) -> None:
    """The last test of this host. What the socket takes is in no card: A2A has no word for it."""
    made = local.people.operator.make("agent:teller", name="guest")
    assert local.tcp.status() == 401
    assert local.user.status() == 200
    guest = local.at_socket(bearer(made["token"]), local.path)
    assert text_of(guest.rest.task("hi", "teller")) == "roost:guest default hi"
    card = local.tcp.ask("GET", f"/agents/desk{CARD}").json()
    assert [*card["securitySchemes"]] == ["bearer", "apiKey"]
