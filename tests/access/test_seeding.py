"""The first tokens: brought by the operator, kept as hashes, and never the way back to an open host."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from roost.host import HostError
from roost.identity import token_cache
from roost.identity.ports import Changes
from roost.settings import Settings
from roost.stores.memory import MemoryStore
from tests.access.inside import inside, new_token
from tests.access.people import ADMIN_SECRET, AGENTS, OPERATOR, People, api_key, bearer, refusal
from tests.cli.test_serve import refusal as refused_start
from tests.doors.wire import text_of
from tests.processes import roost, running
from tests.waiting import eventually

SECRET = "the-operators-own-token"


async def status(http: httpx.AsyncClient, headers: dict[str, str]) -> int:
    return (await http.get("/agents/teller/tasks", headers=headers)).status_code


async def test_a_token_of_the_environment_is_seeded_once_and_survives_restarts(tmp_path: Path) -> None:
    settings = Settings(data=str(tmp_path), token=SECRET, admin_token=ADMIN_SECRET)
    for start in (settings, settings, Settings(data=str(tmp_path), admin_token=ADMIN_SECRET)):
        async with inside(start) as http:
            assert await status(http, {}) == 401
            assert await status(http, bearer(SECRET)) == await status(http, api_key(SECRET)) == 200
            tokens = (await http.get("/api/v2/admin/tokens", headers=bearer(ADMIN_SECRET))).json()["items"]
            assert [token["name"] for token in tokens] == ["ROOST_TOKEN", "ROOST_ADMIN_TOKEN"]
    assert not any(SECRET.encode() in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


async def test_the_last_token_revoked_never_opens_the_host_not_even_after_a_restart(tmp_path: Path) -> None:
    settings = Settings(data=str(tmp_path), token=SECRET, admin_token=ADMIN_SECRET)
    async with inside(settings) as http:
        (token,) = [
            token
            for token in (await http.get("/api/v2/admin/tokens", headers=bearer(ADMIN_SECRET))).json()["items"]
            if token["name"] == "ROOST_TOKEN"
        ]
        await http.delete(f"/api/v2/admin/tokens/{token['id']}", headers=bearer(ADMIN_SECRET))
        assert await status(http, bearer(SECRET)) == await status(http, {}) == 401
    async with inside(settings) as http:
        answer = await http.get("/agents/teller/tasks", headers=bearer(SECRET))
        assert refusal(answer).metadata["cause"] == "revoked"
        assert await status(http, {}) == 401
    async with inside(Settings(data=str(tmp_path), token="another-token-of-theirs")) as http:
        assert await status(http, bearer("another-token-of-theirs")) == 200
        assert await status(http, bearer(SECRET)) == 401


@pytest.mark.parametrize(
    "secret", ["short", "fifteen-letters", "with spaces in it!", "x" * 513, "ünicode-in-the-token"]
)
async def test_a_token_that_cannot_be_one_keeps_the_host_from_starting(secret: str) -> None:
    with pytest.raises(HostError, match=r"ROOST_TOKEN.*16 to 512") as error:
        async with inside(Settings(memory=True, token=secret)):
            pass
    assert secret not in str(error.value)


def test_a_short_token_is_refused_by_the_command_with_one_line_that_helps() -> None:
    done = roost("serve", AGENTS, "--memory", "--port", "0", env={"ROOST_TOKEN": "letmein"})
    said = refused_start(done)
    assert "openssl rand" in said
    assert "letmein" not in said


async def test_the_same_secret_for_both_is_one_token_the_first() -> None:
    """Roles are not added up: the token that is there stays as it is."""
    async with inside(Settings(memory=True, token=SECRET, admin_token=SECRET)) as http:
        assert await status(http, bearer(SECRET)) == 200
        answer = await http.get("/api/v2/admin/tokens", headers=bearer(SECRET))
        assert refusal(answer).reason == "FORBIDDEN"


def test_the_first_token_closes_a_running_host_and_its_card_says_so(tmp_path: Path) -> None:
    with running(AGENTS, args=("--drain-s", "0"), data=tmp_path, env=OPERATOR) as server, People(server) as people:
        anyone = people.with_headers({})
        before = anyone.ask("GET", "/agents/desk/.well-known/agent-card.json")
        assert not {"securitySchemes", "securityRequirements"} & before.json().keys()
        assert before.json()["capabilities"]["extendedAgentCard"] is False
        task = anyone.rest.task(agent="desk")["id"]
        assert text_of(anyone.rest.task("hi", "teller")) == "roost:local default hi"
        people.operator.make("metrics")
        assert anyone.status() == 200, "a token that opens no agent closes none"

        made = roost("token", "create", "first", "--data", tmp_path)
        eventually(lambda: anyone.status() == 401)
        assert refusal(anyone.rpc.call("GetTask", {"id": task}, "desk")).reason == "UNAUTHENTICATED"
        first = people.with_headers(bearer(made.stdout.strip()))
        assert refusal(first.rest.call("GetTask", {"id": task}, "desk")).reason == "TASK_NOT_FOUND"
        after = anyone.ask("GET", "/agents/desk/.well-known/agent-card.json")
        assert after.headers["etag"] != before.headers["etag"]
        card = after.json()
        assert card["securitySchemes"] == {
            "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
            "apiKey": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
        }
        assert card["securityRequirements"] == [{"schemes": {"bearer": {}}}, {"schemes": {"apiKey": {}}}]
        assert card["capabilities"]["extendedAgentCard"] is True

        listed = json.loads(roost("token", "list", "--json", "--data", tmp_path).stdout)["items"]
        (token,) = [token for token in listed if token["name"] == "first"]
        assert roost("token", "revoke", token["id"], "--data", tmp_path).returncode == 0
        eventually(lambda: first.status() == 401)
        assert anyone.status() == 401, "a host that was closed stays closed"


# A store that does not answer


class Stuck(MemoryStore):
    """Answers nothing about tokens any more, once it is told so."""

    stuck = False

    async def read_identities(self, after: int) -> Changes:
        if self.stuck:
            await asyncio.Event().wait()
        return await super().read_identities(after)


async def test_a_store_that_does_not_answer_is_503_and_no_failure_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Stuck()
    async with inside(Settings(memory=True, admin_token=ADMIN_SECRET), store=store) as http:
        made = await new_token(http)
        assert await status(http, bearer(made["token"])) == 200
        store.stuck = True
        monkeypatch.setattr(token_cache, "STALE_S", 0.0)
        monkeypatch.setattr(token_cache, "WAIT_S", 0.05)
        assert refusal(await http.get("/agents/", headers=bearer(made["token"]))).reason == "UNAVAILABLE"
        assert refusal(await http.get("/agents/", headers=api_key(made["token"]))).reason == "UNAVAILABLE"
