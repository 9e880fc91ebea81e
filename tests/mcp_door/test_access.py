"""Access to tools, the ownership of sessions, and their limits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from mcp.shared.exceptions import MCPError

from tests.access.people import AGENTS as PEOPLE_AGENTS
from tests.access.people import OPERATOR, People, Person, refusal
from tests.doors.serving import AGENTS
from tests.doors.wire import sending
from tests.mcp_door.clients import Progress, connected, data, each_version, never, task_of, text
from tests.mcp_door.raw import HEADERS, Session, asking, modern, opening
from tests.processes import Server, running
from tests.waiting import PATIENCE_S

CLERK = Path(__file__).parent / "clerk.py"


def secret(person: Person) -> str:
    found: str = person.http.headers["authorization"].partition(" ")[2]
    return found


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    gates = tmp_path_factory.mktemp("gates")
    args = ("--drain-s", "0", "--auth-failures", "100000")
    with running(PEOPLE_AGENTS, CLERK, args=args, env={**OPERATOR, "AGENT_GATES": str(gates)}) as server:
        yield server
    assert "Traceback" not in server.stderr


@pytest.fixture(scope="module")
def people(host: Server) -> Iterator[People]:
    with People(host) as found:
        yield found


@each_version
async def test_the_tools_are_those_that_the_caller_may_use(host: Server, people: People, mode: str) -> None:
    own = {"list_tasks", "get_task", "cancel_task"}
    expected = {
        ("agent:desk",): {"desk"},
        ("agent:desk", "agent:t*"): {"desk", "teller", "turns"},
        ("agent:*",): {"clerk", "desk", "other", "teller", "turns"},  # `keyed` takes no bearer token
        ("metrics",): set(),
    }
    for scopes, agents in expected.items():
        async with connected(host.url, mode, secret(people.new(*scopes))) as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == own | agents


@each_version
async def test_a_tool_that_the_caller_may_not_use(host: Server, people: People, mode: str) -> None:
    async with connected(host.url, mode, secret(people.new("agent:desk"))) as client:
        refused = await client.call_tool("teller", {"text": "?"})
        assert refused.is_error
        assert "FORBIDDEN" in text(refused)
        wrong_kind = await client.call_tool("keyed", {"text": "?"})
        assert "UNAUTHENTICATED" in text(wrong_kind)
        assert data(await client.call_tool("list_tasks", {}))["tasks"] == []
        assert "FORBIDDEN" in text(await client.call_tool("list_tasks", {"agent": "teller"}))


@each_version
async def test_the_agent_knows_who_calls(host: Server, people: People, mode: str) -> None:
    async with connected(host.url, mode, secret(people.new(name=f"caller-{mode}"))) as client:
        assert text(await client.call_tool("teller", {"text": "hello"})) == f"roost:caller-{mode} default hello"


@each_version
async def test_the_tasks_of_others_are_not_there(host: Server, people: People, mode: str) -> None:
    owner, other = people.new(), people.new()
    async with connected(host.url, mode, secret(owner)) as client:
        asked = await client.call_tool("desk", {"text": "?"})
    async with connected(host.url, mode, secret(other)) as client:
        for tool in ("get_task", "cancel_task"):
            refused = await client.call_tool(tool, {"taskId": task_of(asked)})
            assert refused.is_error
            assert "TASK_NOT_FOUND" in text(refused)
        assert "TASK_NOT_FOUND" in text(await client.call_tool("desk", {"text": "!", "taskId": task_of(asked)}))
        assert data(await client.call_tool("list_tasks", {}))["tasks"] == []
    async with connected(host.url, mode, secret(people.new("agent:other"))) as client:
        assert "TASK_NOT_FOUND" in text(await client.call_tool("get_task", {"taskId": task_of(asked)}))
    assert owner.rest.get(task_of(asked), "desk")["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"


@each_version
@pytest.mark.parametrize("token", ["", "roost_" + "x" * 43])
async def test_a_client_without_a_credential(host: Server, mode: str, token: str) -> None:
    with pytest.raises((MCPError, ExceptionGroup)) as raised:
        async with connected(host.url, mode, token) as client:
            await client.list_tools()
    assert raised.group_contains(MCPError, match="credential") or "credential" in str(raised.value)


def test_a_client_without_a_credential_is_told_how_to_get_in(host: Server) -> None:
    for body, headers in ((asking("initialize", opening()), HEADERS), modern("tools/list", {})):
        answer = httpx.post(f"{host.url}/mcp", json=body, headers=headers)
        assert answer.status_code == 401
        assert refusal(answer).reason == "UNAUTHENTICATED"


def test_a_session_is_its_principals(host: Server, people: People) -> None:
    owner, other = people.new(), people.new()
    with Session(host.url, {"Authorization": f"Bearer {secret(owner)}"}) as session:
        with session.sent("tools/call", {"name": "turns", "arguments": {"text": "never"}}, 1):
            stolen = {**HEADERS, "Mcp-Session-Id": session.id, "Authorization": f"Bearer {secret(other)}"}
            cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
            for body in (asking("tools/list", {}), cancel, asking("initialize", opening())):
                answer = httpx.post(session.url, json=body, headers=stolen)
                assert (answer.status_code, answer.json()["error"]["message"]) == (404, "Session not found")
            assert httpx.delete(session.url, headers=stolen).status_code == 404
        (task,) = session.call("list_tasks", {"agent": "turns"})["structuredContent"]["tasks"]
        assert task["state"] == "working"
        canceled = session.call("cancel_task", {"taskId": task["taskId"]})
        assert canceled["structuredContent"]["state"] == "canceled"


def test_a_session_goes_on_with_another_token_of_the_same_principal(host: Server, people: People) -> None:
    first = people.operator.make(name="first", subject="same")["token"]
    second = people.operator.make(name="second", subject="same")["token"]
    with Session(host.url, {"Authorization": f"Bearer {first}"}) as session:
        session.http.headers["Authorization"] = f"Bearer {second}"
        assert session.call("list_tasks", {})["structuredContent"] == {"tasks": []}


@each_version
async def test_a_call_ends_with_its_credential(host: Server, people: People, mode: str) -> None:
    made = people.operator.make()
    progress = Progress()
    async with connected(host.url, mode, made["token"]) as client:
        await client.list_tools()
        call = asyncio.ensure_future(
            client.call_tool("turns", {"text": "never"}, progress_callback=progress),
        )
        await progress.wait_for("begun")
        await asyncio.to_thread(people.operator.admin, "DELETE", f"tokens/{made['id']}")
        result = await call
    assert result.is_error
    assert "UNAUTHENTICATED" in text(result)
    assert "begun" not in text(result)


@pytest.mark.parametrize("answered", [False, True])
async def test_a_call_that_waits_for_an_answer_ends_with_its_credential(
    host: Server, people: People, answered: bool
) -> None:
    made = people.operator.make(subject=f"waiting-{answered}")
    same = people.new(subject=f"waiting-{answered}")
    asked, progress = asyncio.Event(), Progress()
    async with connected(host.url, "legacy", made["token"], elicitation_callback=never(asked)) as client:
        call = asyncio.ensure_future(client.call_tool("clerk", {"text": "?"}, progress_callback=progress))
        await asyncio.wait_for(asked.wait(), PATIENCE_S)
        await asyncio.to_thread(people.operator.admin, "DELETE", f"tokens/{made['id']}")
        if answered:
            (task,) = same.rest.ok("ListTasks", {}, "clerk")["tasks"]
            same.rest.begin("a secret", "clerk", taskId=task["id"])
        result = await call
    assert "UNAUTHENTICATED" in text(result)
    assert "secret" not in progress.said + text(result)


def test_there_are_only_so_many_sessions_and_nobody_has_them_all() -> None:
    body = asking("initialize", opening())
    with running(PEOPLE_AGENTS, args=("--drain-s", "0"), env=OPERATOR) as server, People(server) as people:
        url = f"{server.url}/mcp"
        callers = [people.new("agent:desk").http for _ in range(5)]
        for http in callers[:4]:
            http.headers.update(HEADERS)
            with ThreadPoolExecutor(32) as threads:
                asked = [threads.submit(http.post, url, json=body) for _ in range(270)]
            answers = [one.result() for one in asked]
            opened = [answer for answer in answers if answer.status_code == 200]
            assert (len(opened), {answer.status_code for answer in answers}) == (250, {200, 429})
            one_more = http.post(url, json=body)
            assert (one_more.status_code, one_more.headers["retry-after"]) == (429, "60")
            assert "DELETE /mcp" in one_more.text
        callers[4].headers.update(HEADERS)
        assert callers[4].post(url, json=body).status_code == 503
        first = {"Mcp-Session-Id": opened[0].headers["mcp-session-id"]}
        assert callers[3].post(url, json=asking("ping", {}), headers=first).status_code == 200
        assert callers[3].delete(url, headers=first).status_code == 200
        assert callers[3].post(url, json=body).status_code == 200
        server.stop()
    assert "Traceback" not in server.stderr


@pytest.mark.parametrize("origin", ["https://evil.example.com", "null"])
def test_a_foreign_origin_is_refused(host: Server, people: People, origin: str) -> None:
    headers = {**HEADERS, "Authorization": f"Bearer {secret(people.new())}", "Origin": origin}
    answer = httpx.post(f"{host.url}/mcp", json=asking("initialize", opening()), headers=headers)
    assert answer.status_code == 403
    assert "foreign" in answer.json()["error"]["message"]


def test_a_page_of_an_allowed_origin_may_see_its_session() -> None:
    origin = "https://app.example.com"
    with running(PEOPLE_AGENTS, args=("--cors-origins", origin)) as server:
        asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        preflight = httpx.options(f"{server.url}/mcp", headers=asked)
        allowed = preflight.headers["access-control-allow-headers"]
        assert {"mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name"} <= {*allowed.split(", ")}
        headers = {**HEADERS, "Origin": origin}
        answer = httpx.post(f"{server.url}/mcp", json=asking("initialize", opening()), headers=headers)
        assert "mcp-session-id" in answer.headers["access-control-expose-headers"]
        assert answer.headers["access-control-allow-origin"] == origin


@each_version
async def test_quotas_are_those_of_the_other_doors(mode: str) -> None:
    limits = "agent:hold.streams=1,agent:release.rate=2"
    with running(AGENTS, args=("--drain-s", "0", "--quotas", limits)) as server:
        async with connected(server.url, mode) as client:
            await client.list_tools()
            progress = Progress()
            held = asyncio.ensure_future(client.call_tool("hold", {"text": "?"}, progress_callback=progress))
            await progress.wait_for("three")
            refused = await client.call_tool("hold", {"text": "?"})
            assert refused.is_error
            assert "TOO_MANY_REQUESTS" in text(refused)
            assert "Try again in" in text(refused)
            answers = [await client.call_tool("release", {"text": "?"}) for _ in range(8)]
            assert [answer.is_error for answer in answers[:2]] == [False, False]
            assert answers[-1].is_error, "the window slides: where a minute ends, one more may go through"
            task = {"taskId": task_of(answers[0])}
            for tool, given in (
                ("get_task", task),
                ("cancel_task", task),
                ("list_tasks", {"agent": "release"}),
                ("list_tasks", {}),
            ):
                assert "TOO_MANY_REQUESTS" in text(await client.call_tool(tool, given))
            assert not (await client.call_tool("list_tasks", {"agent": "turns"})).is_error
            assert not (await held).is_error


def test_a_principal_that_asks_too_often_is_told_to_wait_and_what_it_has_begun_goes_on() -> None:
    args = ("--drain-s", "0", "--quotas", "principal.rate=2")
    with (
        running(PEOPLE_AGENTS, args=args) as server,
        Session(server.url, elicitation={"form": {}}) as session,
        session.sent("tools/call", {"name": "desk", "arguments": {"text": "?"}}, 1) as answer,
    ):
        pings = (session.http.post(session.url, json=asking("ping", {}, number)) for number in range(2, 12))
        refused = next(answer for answer in pings if answer.status_code != 200)
        assert refused.status_code == 429, "the window slides: where a minute ends, one more may go through"
        assert refusal(refused).reason == "TOO_MANY_REQUESTS"
        messages = session.messages(answer)
        question = next(messages)
        assert question["method"] == "elicitation/create"
        said = {"action": "accept", "content": {"answer": "Ada"}}
        told = session.http.post(session.url, json={"jsonrpc": "2.0", "id": question["id"], "result": said})
        assert told.status_code == 202
        assert "hello Ada" in str(next(messages)["result"])
        session.tell("notifications/cancelled", {"requestId": 1})
        session.end()


@each_version
async def test_tenants(mode: str) -> None:
    args = ("--drain-s", "0", "--auth-failures", "100000")
    with running(PEOPLE_AGENTS, args=args, env=OPERATOR) as server, People(server) as people:
        made = people.operator.make(tenants=["acme", "globex"])["token"]
        body, headers = modern("tools/call", {"name": "teller", "arguments": {"text": "hello"}}, "teller")
        headers |= {"Authorization": f"Bearer {made}"}
        for tenant in ("acme", "globex"):
            answer = httpx.post(f"{server.url}/mcp", json=body, headers={**headers, "X-Tenant-Id": tenant})
            assert f" {tenant} " in answer.json()["result"]["content"][0]["text"]
        elsewhere = httpx.post(f"{server.url}/mcp", json=body, headers={**headers, "X-Tenant-Id": "initech"})
        assert elsewhere.json()["result"]["isError"]


def test_another_task_and_a_missing_one_have_one_answer_whatever_the_tenant(host: Server, people: People) -> None:
    owner = people.new(tenants=["acme"])
    theirs = owner.rest.ok("SendMessage", sending("?"), "desk")["task"]["id"]
    other = secret(people.new(tenants=["globex", "initech"]))

    def answers(task_id: str) -> list[str]:
        found = []
        for tool in ("get_task", "cancel_task"):
            body, headers = modern("tools/call", {"name": tool, "arguments": {"taskId": task_id}}, tool)
            for tenant in ({}, {"X-Tenant-Id": "globex"}, {"X-Tenant-Id": "acme"}, {"X-Tenant-Id": "-"}):
                given = {**headers, **tenant, "Authorization": f"Bearer {other}"}
                answer = httpx.post(f"{host.url}/mcp", json=body, headers=given)
                found.append(json.dumps(answer.json()).replace(task_id, "TASK"))
        return found

    missing = answers(theirs[:-4] + "0000")
    assert answers(theirs) == missing
    assert ["FORBIDDEN" in answer for answer in missing[:4]] == [False, False, True, False]
    assert owner.rest.get(theirs, "desk")["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
