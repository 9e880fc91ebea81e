"""The properties of `task` that describe the message."""

from __future__ import annotations

from typing import Any

import pytest

from roost import Agent, AgentExtension, Part
from roost.testing import client
from tests.agents.talk import KINDS, of_kind, send


class Seen(dict[str, Any]):
    """An agent that looks at its task, and what it saw."""

    def __init__(self, kind: str = "coroutine", **options: Any) -> None:
        self.agent = Agent("looking", input_modes=["*/*"], **options)

        async def async_generator(task):
            self.look(task)
            yield "looked"

        async def coroutine(task):
            self.look(task)

        def generator(task):
            self.look(task)
            yield "looked"

        def function(task):
            self.look(task)

        self.agent.on_message(of_kind(kind, async_generator, coroutine, generator, function))

    def look(self, task: Any) -> None:
        for name in ("id", "context_id", "message", "text", "parts", "data", "metadata", "extensions"):
            self[name] = getattr(task, name)
        self["accepts"] = [kind for kind in ("text/plain", "image/png", "application/json") if task.accepts(kind)]


def body(*parts: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return {"message": {"messageId": "m1", "role": "ROLE_USER", "parts": list(parts)}, **rest}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_task_tells_its_ids_and_its_message(kind):
    seen = Seen(kind)
    async with client(seen.agent) as host:
        task = await send(host, "hello")
    assert (seen["id"], seen["context_id"]) == (task.id, task.context_id)
    assert (seen["text"], seen["parts"]) == ("hello", [Part(text="hello")])
    assert seen["message"].message_id == task.history[0].message_id


async def test_text_is_all_text_parts_joined_by_newlines_and_data_the_first_data_part():
    seen = Seen()
    async with client(seen.agent) as host:
        parts = [{"text": "a"}, {"data": {"n": 1}}, {"raw": "AAE="}, {"text": "b"}, {"data": 2}]
        response = await host.http.post("/agents/looking/message:send", json=body(*parts))
    assert response.status_code == 200
    assert (seen["text"], seen["data"]) == ("a\nb", {"n": 1})
    assert [part.raw for part in seen["parts"] if isinstance(part.raw, bytes)] == [b"\x00\x01"]


async def test_without_text_or_data_there_are_empty_values():
    seen = Seen()
    async with client(seen.agent) as host:
        response = await host.http.post("/agents/looking/message:send", json=body({"url": "https://example.com/"}))
    assert response.status_code == 200
    assert (seen["text"], seen["data"], seen["metadata"], seen["extensions"]) == ("", None, {}, [])


async def test_metadata_is_the_requests_and_the_message_has_its_own():
    seen = Seen()
    request = body({"text": "hi"}, metadata={"of": "request"})
    request["message"]["metadata"] = {"of": "message"}
    async with client(seen.agent) as host:
        assert (await host.http.post("/agents/looking/message:send", json=request)).status_code == 200
    assert (seen["metadata"], seen["message"].metadata) == ({"of": "request"}, {"of": "message"})


@pytest.mark.parametrize(
    ("modes", "accepted"),
    [
        ([], ["text/plain", "image/png", "application/json"]),
        (["image/*"], ["image/png"]),
        (["text/plain", "application/json"], ["text/plain", "application/json"]),
        (["*/*"], ["text/plain", "image/png", "application/json"]),
    ],
)
async def test_accepts_says_what_the_client_takes(modes, accepted):
    seen = Seen()
    request = body({"text": "hi"}, configuration={"acceptedOutputModes": modes})
    async with client(seen.agent) as host:
        assert (await host.http.post("/agents/looking/message:send", json=request)).status_code == 200
    assert seen["accepts"] == accepted


async def test_extensions_are_those_that_the_client_named_and_the_agent_has():
    seen = Seen(extensions=[AgentExtension(uri="urn:a"), AgentExtension(uri="urn:b")])
    async with client(seen.agent) as host:
        response = await host.http.post(
            "/agents/looking/message:send", json=body({"text": "hi"}), headers={"A2A-Extensions": "urn:b, urn:unknown"}
        )
    assert response.headers["a2a-extensions"] == "urn:b"
    assert seen["extensions"] == ["urn:b"]


async def test_what_an_agent_does_to_its_message_does_not_reach_the_history():
    agent = Agent("changing")

    @agent.on_message
    async def change(task):
        task.data["changed"] = True
        task.message.parts.append(Part(text="mine"))
        task.metadata["changed"] = True
        yield "done"

    async with client(agent) as host:
        request = body({"data": {"n": 1}}, metadata={"m": 1})
        task = (await host.http.post("/agents/changing/message:send", json=request)).json()["task"]
    assert task["history"][0]["parts"] == [{"data": {"n": 1}}]
    assert task["metadata"] == {"m": 1}


async def test_the_context_of_a_client_is_kept_and_its_own_made_where_it_names_none():
    seen = Seen()
    async with client(seen.agent) as host:
        await send(host, "hi", context="mine")
        assert seen["context_id"] == "mine"
        await send(host, "hi")
        assert seen["context_id"] not in ("", "mine")
