"""Credentials, quotas and certificates: the rules of HTTP, in gRPC's form."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import pytest
import trustme
from a2a.types import a2a_pb2 as pb

from roost.doors.grpc_server import Certificates
from tests.access.people import AGENTS, OPERATOR, People
from tests.grpc.wire import GRPC, Refusal, calling, message, place_of, refusal, rest, text_of
from tests.processes import Server, running
from tests.server.test_tls import Files

LISTING = pb.ListTasksRequest(tenant="teller")
FORBIDDEN = grpc.StatusCode.PERMISSION_DENIED
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED


def bearer(secret: str) -> tuple[str, str]:
    return ("authorization", f"Bearer {secret}")


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, People]]:
    env = {**OPERATOR, "AGENT_GATES": str(tmp_path_factory.mktemp("gates"))}
    args = (*GRPC, "--auth", "required", "--drain-s", "0", "--auth-failures", "1000")
    with (
        running(AGENTS, args=args, data=tmp_path_factory.mktemp("data"), env=env) as server,
        People(server) as people,
    ):
        yield server, people


@pytest.fixture
def place(closed: tuple[Server, People]) -> str:
    return place_of(closed[0])


@pytest.fixture
def people(closed: tuple[Server, People]) -> People:
    return closed[1]


async def test_without_a_credential_all_is_refused_and_what_is_taken_is_said(place: str) -> None:
    async with calling(place) as nobody:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await nobody.ask("ListTasks", LISTING)
        for method, request in (
            ("SendMessage", pb.SendMessageRequest(tenant="teller", message=message())),
            ("SendStreamingMessage", pb.SendMessageRequest(tenant="teller", message=message())),
            ("GetTask", pb.GetTaskRequest(tenant="nobody", id="x")),
            ("GetTask", pb.GetTaskRequest(id="x")),
        ):
            assert (await nobody.refused(method, request)).code == UNAUTHENTICATED
    assert refusal(caught.value).reason == "UNAUTHENTICATED"
    challenges = [str(value) for name, value in caught.value.trailing_metadata() if name == "www-authenticate"]
    assert [challenge.split()[0] for challenge in challenges] == ["Bearer", "ApiKey"]


async def test_a_token_is_a_credential_in_both_places(place: str, people: People) -> None:
    secret = people.operator.make("agent:teller", name="guest")["token"]
    for credential in (bearer(secret), ("x-api-key", secret)):
        async with calling(place, credential) as guest:
            assert text_of(await guest.send("teller", "hi")) == "roost:guest default hi"


@pytest.mark.parametrize(
    ("metadata", "cause"),
    [
        ((bearer("roost_wrong"),), "unknown"),
        ((("authorization", "Basic x"),), "malformed"),
        ((("x-api-key", "roost_wrong"),), "unknown"),
        ((bearer("roost_a"), bearer("roost_b")), "malformed"),
    ],
)
async def test_a_bad_credential_is_refused(place: str, metadata: tuple[tuple[str, str], ...], cause: str) -> None:
    async with calling(place, *metadata) as stranger:
        refused = await stranger.refused("ListTasks", LISTING)
    assert (refused.code, refused.metadata) == (UNAUTHENTICATED, {"cause": cause})


async def test_scopes_and_owners_are_kept(place: str, people: People) -> None:
    async with (
        calling(place, bearer(people.operator.make("agent:teller")["token"])) as one,
        calling(place, bearer(people.operator.make("agent:*")["token"])) as other,
    ):
        refused = await one.refused("ListTasks", pb.ListTasksRequest(tenant="other"))
        assert (refused.code, refused.metadata) == (FORBIDDEN, {"scope": "agent:other"})
        task = await one.send("teller")
        assert (await one.task("teller", task.id)).id == task.id
        missing = await other.refused("GetTask", pb.GetTaskRequest(tenant="teller", id=task.id))
        assert missing.reason == "TASK_NOT_FOUND"


async def test_an_agent_takes_the_schemes_that_it_names(place: str, people: People) -> None:
    secret = people.operator.make("agent:*", name="keyholder")["token"]
    async with calling(place, bearer(secret)) as by_token, calling(place, ("x-api-key", secret)) as by_key:
        listing = pb.ListTasksRequest(tenant="keyed")
        assert (await by_token.refused("ListTasks", listing)).metadata == {"cause": "scheme"}
        assert text_of(await by_key.send("keyed")) == "roost:keyholder"


async def test_a_tenant_is_chosen_by_metadata(place: str, people: People) -> None:
    secret = people.operator.make("agent:*", name="both", tenants=["red", "blue"])["token"]
    async with calling(place, bearer(secret), ("x-tenant-id", "blue")) as blue:
        assert text_of(await blue.send("teller", "hi")) == "roost:both blue hi"
    async with calling(place, bearer(secret), ("x-tenant-id", "?")) as odd:
        refused = await odd.refused("ListTasks", LISTING)
        assert (refused.code, refused.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["X-Tenant-Id"])


async def test_a_stream_ends_with_its_credential_and_says_so(place: str, people: People) -> None:
    made = people.operator.make("agent:*")
    async with calling(place, bearer(made["token"])) as caller:
        stream = caller.stream("turns", "never")
        while (await stream.read()).WhichOneof("payload") != "artifact_update":
            pass
        people.operator.admin("DELETE", f"tokens/{made['id']}")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await rest(stream)
    assert refusal(caught.value).code == UNAUTHENTICATED


async def test_the_extended_card_is_signed_and_for_its_caller(
    place: str, people: People, closed: tuple[Server, People]
) -> None:
    secret = people.operator.make("agent:*", name="keys")["token"]
    async with calling(place, bearer(secret)) as keys:
        card: pb.AgentCard = await keys.ask("GetExtendedAgentCard", pb.GetExtendedAgentCardRequest(tenant="desk"))
    assert {"vault", "keys"} <= {skill.id for skill in card.skills}
    assert card.signatures
    assert {face.protocol_binding: face.url for face in card.supported_interfaces} == {
        "JSONRPC": f"{closed[0].url}/agents/desk",
        "HTTP+JSON": f"{closed[0].url}/agents/desk",
        "GRPC": place,
    }
    assert card.security_schemes["bearer"].http_auth_security_scheme.scheme == "Bearer"


# Limits


async def refused_by(quotas: str, *calls: str) -> list[Refusal]:
    with running(AGENTS, args=(*GRPC, "--quotas", quotas)) as server:
        async with calling(place_of(server)) as caller:
            found = []
            for method in calls:
                request = (
                    LISTING if method == "ListTasks" else pb.SendMessageRequest(tenant="teller", message=message())
                )
                try:
                    await caller.ask(method, request)
                except grpc.aio.AioRpcError as error:
                    found.append(refusal(error))
            return found


@pytest.mark.parametrize("quota", ["surface:a2a.rate=2", "principal.rate=2", "agent:teller.rate=2"])
async def test_a_rate_that_is_used_up_says_when_to_come_back(quota: str) -> None:
    refused = (await refused_by(quota, "ListTasks", "SendMessage", *["ListTasks"] * 5))[0]
    assert (refused.code, refused.reason) == (EXHAUSTED, "TOO_MANY_REQUESTS")
    assert refused.metadata["limit"] == "2"
    assert refused.retry_s is not None


async def test_streams_are_counted_while_they_are_open(tmp_path: Path) -> None:
    with running(
        AGENTS, args=(*GRPC, "--quotas", "agent:turns.streams=1"), env={"AGENT_GATES": str(tmp_path)}
    ) as server:
        async with calling(place_of(server)) as caller:
            first = caller.stream("turns", "open")
            task = (await first.read()).task.id
            again = pb.SubscribeToTaskRequest(tenant="turns", id=task)
            assert (await caller.refused("SubscribeToTask", again)).code == EXHAUSTED
            (tmp_path / "open").touch()
            await rest(first)
            await rest(caller.subscribe("turns", task, 1))


async def test_refused_credentials_are_counted_with_those_of_http() -> None:
    with running(AGENTS, args=(*GRPC, "--auth", "required", "--auth-failures", "2")) as server:
        wrong = {"Authorization": "Bearer roost_wrong", "A2A-Version": "1.0"}
        assert httpx.get(f"{server.url}/agents/desk/tasks", headers=wrong).status_code == 401
        async with calling(place_of(server), bearer("roost_wrong")) as stranger:
            assert (await stranger.refused("ListTasks", LISTING)).code == UNAUTHENTICATED
            refused = await stranger.refused("ListTasks", LISTING)
        assert (refused.code, refused.reason) == (EXHAUSTED, "TOO_MANY_REQUESTS")


async def test_an_open_host_is_not_reached_through_a_stranger() -> None:
    with running(AGENTS, args=GRPC) as server:
        async with calling(place_of(server), ("x-forwarded-for", "203.0.113.1")) as proxied:
            refused = await proxied.refused("ListTasks", LISTING)
        assert (refused.code, refused.reason) == (FORBIDDEN, "FORBIDDEN")


# TLS


def credentials(ca: trustme.CA, client: trustme.LeafCert | None = None) -> grpc.ChannelCredentials:
    root = ca.cert_pem.bytes()
    if client is None:
        return grpc.ssl_channel_credentials(root)
    chain = b"".join(blob.bytes() for blob in client.cert_chain_pems)
    return grpc.ssl_channel_credentials(root, client.private_key_pem.bytes(), chain)


async def test_tls_with_the_certificate_of_http(tmp_path: Path) -> None:
    ca = trustme.CA()
    files = Files(tmp_path, ca)
    with running(AGENTS, args=(*GRPC, *files.args)) as server:
        place = place_of(server)
        async with calling(place, credentials=credentials(ca)) as caller:
            assert text_of(await caller.send("teller", "hi")) == "roost:local default hi"
        async with calling(place) as plain:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await plain.ask("ListTasks", LISTING)
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


async def test_a_client_certificate_is_a_credential_and_there_must_be_one(tmp_path: Path) -> None:
    ca = trustme.CA()
    files = Files(tmp_path, ca)
    args = (*GRPC, *files.args, "--client-ca", str(files.client_ca))
    with running(AGENTS, args=args) as server:
        place = place_of(server)
        known = credentials(ca, ca.issue_cert("client.example.org"))
        async with calling(place, credentials=known) as caller:
            assert text_of(await caller.send("teller", "hi")) == "mtls:client.example.org default hi"
        async with calling(place, bearer("roost_wrong"), credentials=known) as both:
            assert (await both.refused("ListTasks", LISTING)).metadata == {"cause": "unknown"}
        for stranger in (credentials(ca), credentials(ca, trustme.CA().issue_cert("client.example.org"))):
            async with calling(place, credentials=stranger) as caller:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await caller.ask("ListTasks", LISTING)
                assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


async def test_where_certificates_are_no_credential_none_is_asked_for(tmp_path: Path) -> None:
    ca = trustme.CA()
    files = Files(tmp_path, ca)
    args = (*GRPC, *files.args, "--client-ca", str(files.client_ca), "--security-scheme", "bearer,apiKey")
    with running(AGENTS, args=args, env=OPERATOR) as server:
        async with calling(place_of(server), credentials=credentials(ca)) as caller:
            assert (await caller.refused("ListTasks", LISTING)).code == UNAUTHENTICATED


def test_certificates_are_read_again_when_their_files_change(tmp_path: Path) -> None:
    files = Files(tmp_path, trustme.CA())
    found = Certificates(files.cert, files.key, None)
    assert found._changed() is None
    found.looked = float("-inf")
    assert found._changed() is None, "they are the same"
    files.replace()
    assert found._changed() is None, "it has just looked"
    found.looked = float("-inf")
    assert found._changed() is not None
    files.cert.unlink()
    found.looked = float("-inf")
    assert found._changed() is None, "the ones before stay"
