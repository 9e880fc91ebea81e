"""Each agent is a tool: what there is, what a call gives, and what a wrong one does not change."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import mcp_types as mcp
import pytest
from mcp.shared.exceptions import MCPError

from tests.doors.wire import Rest, text_of
from tests.mcp_door.clients import Progress, connected, data, each_version, open_gate, says, task_of, text
from tests.processes import Server


@each_version
async def test_every_agent_is_a_tool_and_says_what_it_is_for(server: Server, mode: str) -> None:
    async with connected(server.url, mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert {"list_tasks", "get_task", "cancel_task", "release", "interview"} <= tools.keys()
    assert tools["release"].description == "Opens the gate that its message names."
    assert tools["release"].input_schema["required"] == ["text"]
    assert tools["get_task"].annotations is not None
    assert tools["get_task"].annotations.read_only_hint is True
    for tool in tools.values():
        for schema in (tool.input_schema, tool.output_schema):
            jsonschema_rs.meta.validate(schema)


@each_version
async def test_the_server_says_who_it_is_and_how_to_go_on(server: Server, mode: str) -> None:
    async with connected(server.url, "auto" if mode != "legacy" else mode) as client:
        assert client.session.protocol_version == ("2025-11-25" if mode == "legacy" else mode)
        assert client.session.instructions is not None
        assert "taskId" in client.session.instructions


@each_version
async def test_a_call_is_a_task_and_its_result_says_which(server: Server, rest: Rest, mode: str) -> None:
    async with connected(server.url, mode) as client:
        result = await client.call_tool("release", {"text": "nothing"})
    assert not result.is_error
    assert text(result) == "open"
    task = rest.get(task_of(result), "release")
    assert data(result) == {
        "agent": "release",
        "taskId": task["id"],
        "contextId": task["contextId"],
        "state": "completed",
        "artifacts": task["artifacts"],
    }


@each_version
async def test_names_that_no_tool_can_have_and_those_of_our_own_tools(server: Server, mode: str) -> None:
    async with connected(server.url, mode) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert len(names) == len({*names})
        (dotted,) = [name for name in names if name.startswith("a_dotted_name_")]
        (taken,) = [name for name in names if name.startswith("get_task_")]
        assert text(await client.call_tool(dotted, {"text": "?"})) == "dots"
        assert text(await client.call_tool(taken, {"text": "?"})) == "an agent all the same"
        listed = await client.call_tool("list_tasks", {"agent": "a.dotted.name"})
        assert {task["agent"] for task in data(listed)["tasks"]} == {"a.dotted.name"}


@each_version
async def test_parts_of_every_kind_are_content(server: Server, mode: str) -> None:
    async with connected(server.url, mode) as client:
        result = await client.call_tool("parts", {"text": "?"})
    kinds = [type(block) for block in result.content]
    assert kinds == [
        mcp.TextContent,
        mcp.ImageContent,
        mcp.AudioContent,
        mcp.EmbeddedResource,
        mcp.ResourceLink,
        mcp.TextContent,
    ]
    first, image, _, file, link, last = result.content
    assert isinstance(first, mcp.TextContent)
    assert first.text == "some text"
    assert isinstance(image, mcp.ImageContent)
    assert image.mime_type == "image/png"
    assert isinstance(file, mcp.EmbeddedResource)
    assert isinstance(file.resource, mcp.BlobResourceContents)
    assert (file.resource.blob, file.resource.mime_type) == ("AAE=", "application/zip")
    assert isinstance(link, mcp.ResourceLink)
    assert (link.uri, link.name) == ("https://example.com/a.txt", "a.txt")
    assert isinstance(last, mcp.TextContent)
    assert last.text == '{"answer":42}'


@each_version
async def test_data_goes_with_the_text_and_a_context_goes_on(server: Server, rest: Rest, mode: str) -> None:
    async with connected(server.url, mode) as client:
        first = await client.call_tool("reader", {"text": "look", "data": {"a": [1, None]}})
        assert data(first)["artifacts"][0]["parts"][0]["data"] == {
            "text": "look",
            "parts": 2,
            "data": [{"a": [1, None]}],
        }
        second = await client.call_tool("reader", {"text": "more", "contextId": data(first)["contextId"]})
        assert data(second)["contextId"] == data(first)["contextId"]
        assert task_of(second) != task_of(first)


@each_version
async def test_an_answer_without_a_task(server: Server, mode: str) -> None:
    async with connected(server.url, mode) as client:
        result = await client.call_tool("direct", {"text": "hello"})
    assert text(result) == "you said hello"
    assert data(result)["state"] == "answered"
    assert "taskId" not in data(result)


@each_version
async def test_progress_is_told_to_those_who_ask_for_it(server: Server, mode: str) -> None:
    progress = Progress()
    gate = f"progress-{mode}"
    async with connected(server.url, mode) as client:
        await open_gate(server, gate)
        result = await client.call_tool("hold", {"text": gate}, progress_callback=progress)
        steps = await client.call_tool("steps", {"text": "?"}, progress_callback=(told := Progress()))
    assert text(result) == "one two three four five six"
    assert progress.numbers == sorted({*progress.numbers})
    assert "three" in progress.said
    assert "six" in progress.said
    assert "step 0" in told.said
    assert text(steps) == "done"


@each_version
async def test_a_task_that_fails_or_is_rejected_is_an_error_of_the_tool(server: Server, mode: str) -> None:
    async with connected(server.url, mode) as client:
        failed = await client.call_tool("boom", {"text": "?"})
        rejected = await client.call_tool("reject", {"text": "?"})
        assert failed.is_error
        assert data(failed)["state"] == "failed"
        assert "hunter2" not in text(failed)
        assert rejected.is_error
        assert text(rejected) == "Not my work"
        read = await client.call_tool("get_task", {"taskId": task_of(rejected)})
        assert not read.is_error
        assert data(read) == data(rejected)


@each_version
async def test_a_call_that_does_not_wait(server: Server, rest: Rest, mode: str) -> None:
    gate = f"later-{mode}"
    async with connected(server.url, mode) as client:
        result = await client.call_tool("hold", {"text": gate, "wait": False})
        assert data(result)["state"] in ("submitted", "working")
        assert "get_task" in text(result)
        await open_gate(server, gate)
        task = rest.until(task_of(result), "hold", "COMPLETED")
        assert text_of(task) == "one two three four five six"
        assert text(await client.call_tool("get_task", {"taskId": task["id"]})) == text_of(task)


@each_version
async def test_tasks_are_listed_read_and_canceled(server: Server, rest: Rest, mode: str) -> None:
    async with connected(server.url, mode) as client:
        begun = [await client.call_tool("plodder", {"text": str(number), "wait": False}) for number in range(3)]
        ids = [task_of(one) for one in begun]
        listed = await client.call_tool("list_tasks", {"limit": 100})
        assert {*ids} <= {task["taskId"] for task in data(listed)["tasks"]}
        assert all(task_id in text(listed) for task_id in ids)
        page = await client.call_tool("list_tasks", {"agent": "plodder", "limit": 2})
        assert len(data(page)["tasks"]) == 2
        token = data(page)["nextPageToken"]
        rest_of = await client.call_tool("list_tasks", {"agent": "plodder", "limit": 100, "pageToken": token})
        both = [task["taskId"] for found in (page, rest_of) for task in data(found)["tasks"]]
        assert len(both) == len({*both})
        assert {*ids} <= {*both}
        of_one = await client.call_tool("list_tasks", {"contextId": data(begun[0])["contextId"]})
        assert [task["taskId"] for task in data(of_one)["tasks"]] == ids[:1]
        for task_id in ids:
            canceled = await client.call_tool("cancel_task", {"taskId": task_id})
            assert data(canceled)["state"] == "canceled"
        again = await client.call_tool("cancel_task", {"taskId": ids[0]})
        assert again.is_error
        assert "TASK_NOT_CANCELABLE" in text(again)
        over = await client.call_tool("list_tasks", {"agent": "plodder", "state": "canceled", "limit": 100})
        assert {*ids} <= {task["taskId"] for task in data(over)["tasks"]}


# What is wrong

WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("reader", {}, "text"),
    ("reader", {"text": ""}, "text"),
    ("reader", {"text": 5}, "text"),
    ("reader", {"text": None}, "text"),
    ("reader", {"text": "a", "Text": "b"}, "Text"),
    ("reader", {"text": "a", "wait": "perhaps"}, "wait"),
    ("reader", {"text": "a", "taskId": 7}, "taskId"),
    ("reader", {"text": "a", "contextId": "c" * 2000}, "contextId"),
    ("reader", {"text": "a", "taskId": "nothing"}, "TASK_NOT_FOUND"),
    ("plodder", {"text": "a", "data": {}}, "CONTENT_TYPE_NOT_SUPPORTED"),
    ("strict", {"text": "a"}, "EXTENSION_SUPPORT_REQUIRED"),
    ("get_task", {}, "taskId"),
    ("get_task", {"taskId": "nothing"}, "TASK_NOT_FOUND"),
    ("get_task", {"taskId": ["a"]}, "taskId"),
    ("cancel_task", {"taskId": "nothing"}, "TASK_NOT_FOUND"),
    ("list_tasks", {"agent": "nobody"}, "agent"),
    ("list_tasks", {"state": "asleep"}, "state"),
    ("list_tasks", {"limit": 0}, "limit"),
    ("list_tasks", {"limit": 101}, "limit"),
    ("list_tasks", {"pageToken": "x"}, "pageToken"),
    ("list_tasks", {"agent": "reader", "pageToken": "x"}, "pageToken"),
]


@each_version
@pytest.mark.parametrize(("tool", "arguments", "named"), WRONG)
async def test_wrong_arguments_are_named_and_change_nothing(
    server: Server, mode: str, tool: str, arguments: dict[str, Any], named: str
) -> None:
    async with connected(server.url, mode) as client:
        before = data(await client.call_tool("list_tasks", {"limit": 100}))
        result = await client.call_tool(tool, arguments)
        assert result.is_error
        assert named in text(result)
        assert data(await client.call_tool("list_tasks", {"limit": 100})) == before


@each_version
async def test_a_tool_that_is_none(server: Server, mode: str) -> None:
    async with connected(server.url, mode) as client:
        with pytest.raises(MCPError, match="Unknown tool: nothing") as raised:
            await client.call_tool("nothing", {"text": "?"})
        assert raised.value.code == mcp.INVALID_PARAMS
        with pytest.raises(MCPError, match="cursor"):
            await client.list_tools(cursor="nothing")


@each_version
async def test_a_task_that_works_takes_no_answer(server: Server, mode: str) -> None:
    async with connected(server.url, mode) as client:
        begun = await client.call_tool("plodder", {"text": "?", "wait": False})
        answered = await client.call_tool("plodder", {"text": "!", "taskId": task_of(begun)})
        assert answered.is_error
        assert "UNSUPPORTED_OPERATION" in text(answered)
        of_another = await client.call_tool("reader", {"text": "!", "taskId": task_of(begun)})
        assert "TASK_NOT_FOUND" in text(of_another)
        await client.call_tool("cancel_task", {"taskId": task_of(begun)})


# Questions


@each_version
async def test_a_question_is_asked_of_the_user(server: Server, mode: str) -> None:
    asked: list[str] = []
    answers = says("Ann", "blue")

    async def answer(context: Any, params: mcp.ElicitRequestParams) -> mcp.ElicitResult:
        asked.append(params.message)
        return await answers(context, params)

    gate = f"asked-{mode}"
    await open_gate(server, gate)
    async with connected(server.url, mode, elicitation_callback=answer) as client:
        result = await client.call_tool("interview", {"text": gate})
    assert text(result) == "Welcome. Hello, Ann. blue, then."
    assert data(result)["state"] == "completed"
    assert asked == ["Your name?", "Your color?"]


@each_version
async def test_a_client_that_cannot_ask_is_told_how_to_answer(server: Server, mode: str) -> None:
    gate = f"told-{mode}"
    await open_gate(server, gate)
    async with connected(server.url, mode) as client:
        first = await client.call_tool("interview", {"text": gate})
        assert not first.is_error
        assert (data(first)["state"], data(first)["message"]) == ("input-required", "Your name?")
        assert task_of(first) in text(first)
        second = await client.call_tool("interview", {"text": "Ann", "taskId": task_of(first)})
        assert data(second)["message"] == "Your color?"
        third = await client.call_tool("interview", {"text": "blue", "taskId": task_of(first)})
        assert text(third) == "Welcome. Hello, Ann. blue, then."


@each_version
async def test_a_user_who_declines_can_answer_later(server: Server, rest: Rest, mode: str) -> None:
    gate = f"declined-{mode}"
    await open_gate(server, gate)
    async with connected(server.url, mode, elicitation_callback=says(None, "blue")) as client:
        declined = await client.call_tool("interview", {"text": gate})
        assert data(declined)["state"] == "input-required"
        answered = await client.call_tool("interview", {"text": "Ann", "taskId": task_of(declined)})
        assert text(answered) == "Welcome. Hello, Ann. blue, then."


@each_version
async def test_an_authorization_is_not_asked_for_in_a_form(server: Server, mode: str) -> None:
    async with connected(server.url, mode, elicitation_callback=says()) as client:
        result = await client.call_tool("login", {"text": "?"})
        assert (data(result)["state"], data(result)["message"]) == ("auth-required", "Please sign in")
        done = await client.call_tool("login", {"text": "signed in", "taskId": task_of(result)})
        assert text(done) == "signed in"
