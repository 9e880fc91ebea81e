"""Requests that cannot be served are refused in OpenAI's form, with the field, and change nothing."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.doors.serving import healthy
from tests.doors.wire import Rest, entries
from tests.openai_door.conftest import AGENTS
from tests.processes import Server, running
from tests.waiting import PATIENCE_S

USER = {"role": "user", "content": "x"}
CHAT, RESPONSES = "chat/completions", "responses"


def error(response: httpx.Response) -> dict[str, Any]:
    assert response.headers["content-type"] == "application/json"
    assert response.json().keys() == {"error"}
    found: dict[str, Any] = response.json()["error"]
    assert found.keys() == {"message", "type", "param", "code"}
    assert found["message"]
    return found


def refused(rest: Rest, path: str, body: Any = None, **more: Any) -> tuple[int, dict[str, Any]]:
    """Nothing was written."""
    before = entries(rest.http, rest.base)
    content = {"json": body} if "content" not in more else {}
    response = rest.http.post(f"{rest.base}/openai/v1/{path}", **content, **more)
    found = error(response)
    assert entries(rest.http, rest.base) == before
    return response.status_code, found


def content(part: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, part]}]}


def item(part: dict[str, Any]) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": [part]}]}


WRONG: list[tuple[str, dict[str, Any], str]] = [
    (CHAT, {}, "messages"),
    (CHAT, {"messages": []}, "messages"),
    (CHAT, {"messages": "x"}, "messages"),
    (CHAT, {"messages": [USER], "model": None}, "model"),
    (CHAT, {"messages": [USER], "model": 7}, "model"),
    (CHAT, {"messages": [{"content": "x"}]}, "messages[0].role"),
    (CHAT, {"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
    (CHAT, {"messages": [{"role": "system", "content": "x"}]}, "messages"),
    (CHAT, {"messages": [USER, {"role": "assistant", "content": "x"}]}, "messages[1].role"),
    (CHAT, {"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
    (CHAT, {"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
    (CHAT, {"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
    (CHAT, content({"type": "video", "video": "x"}), "messages[0].content[1].type"),
    (CHAT, content({"type": "text"}), "messages[0].content[1].text"),
    (CHAT, content({"type": "image_url", "image_url": "x"}), "messages[0].content[1].image_url"),
    (CHAT, content({"type": "image_url", "image_url": {"url": "file:///x"}}), "messages[0].content[1].image_url.url"),
    (CHAT, content({"type": "image_url", "image_url": {"url": "http://["}}), "messages[0].content[1].image_url.url"),
    (CHAT, content({"type": "image_url", "image_url": {"url": "data:x"}}), "messages[0].content[1].image_url.url"),
    (
        CHAT,
        content({"type": "image_url", "image_url": {"url": "data:image/png;base64,?"}}),
        "messages[0].content[1].image_url.url",
    ),
    (CHAT, content({"type": "image_url", "image_url": {"url": "data:image/png,x"}}), "messages[0].content[1]"),
    (CHAT, content({"type": "file", "file": {"file_id": "f"}}), "messages[0].content[1].file.file_id"),
    (CHAT, content({"type": "file", "file": {}}), "messages[0].content[1].file.file_data"),
    (CHAT, {"messages": [USER], "stream": "yes"}, "stream"),
    (CHAT, {"messages": [USER], "metadata": {"a": 1}}, "metadata[]"),
    (CHAT, {"messages": [USER], "metadata": {"a": "x" * 70_000}}, "metadata"),
    (CHAT, {"messages": [USER], "metadata": {"tenant_id": "no tenant"}}, "metadata.tenant_id"),
    (CHAT, {"messages": [USER], "session_id": ""}, "session_id"),
    (CHAT, {"messages": [USER], "session_id": "x" * 257}, "session_id"),
    (CHAT, {"messages": [USER], "n": 2}, "n"),
    (CHAT, {"messages": [USER], "tools": [{"type": "function"}]}, "tools"),
    (CHAT, {"messages": [USER], "functions": [{}]}, "functions"),
    (CHAT, {"messages": [USER], "logprobs": True}, "logprobs"),
    (CHAT, {"messages": [USER], "stop": ["x"]}, "stop"),
    (CHAT, {"messages": [USER], "response_format": {"type": "json_object"}}, "response_format"),
    (CHAT, {"messages": [USER], "modalities": ["text", "audio"]}, "modalities"),
    (RESPONSES, {}, "input"),
    (RESPONSES, {"input": []}, "input"),
    (RESPONSES, {"input": [{"type": "message"}]}, "input[0].role"),
    (RESPONSES, {"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
    (RESPONSES, {"input": [{"type": "item_reference", "id": "msg_x"}, USER]}, "input[0].type"),
    (RESPONSES, {"input": [{"type": "reasoning", "content": 7}, {"role": "king", "content": "x"}]}, "input[1].role"),
    (RESPONSES, {"input": [{"type": "mcp_call"}]}, "input"),
    (RESPONSES, item({"type": "input_image", "file_id": "f"}), "input[0].content[0].file_id"),
    (RESPONSES, item({"type": "input_image"}), "input[0].content[0].image_url"),
    (RESPONSES, item({"type": "input_file", "filename": "x"}), "input[0].content[0].file_data"),
    (RESPONSES, item({"type": "input_file", "file_url": "x"}), "input[0].content[0].file_url"),
    (RESPONSES, {"input": "x", "tools": [{"type": "web_search"}]}, "tools"),
    (RESPONSES, {"input": "x", "text": {"format": {"type": "json_schema"}}}, "text.format"),
    (RESPONSES, {"input": "x", "prompt": {"id": "p"}}, "prompt"),
    (RESPONSES, {"input": "x", "top_logprobs": 3}, "top_logprobs"),
    (RESPONSES, {"input": "x", "conversation": 7}, "conversation"),
    (RESPONSES, {"input": "x", "conversation": "a", "session_id": "b"}, "session_id"),
    (RESPONSES, {"input": "x", "conversation": "a", "previous_response_id": "b"}, "previous_response_id"),
]


@pytest.mark.parametrize(("path", "body", "param"), WRONG)
def test_a_wrong_field_is_named(rest: Rest, path: str, body: dict[str, Any], param: str) -> None:
    status, found = refused(rest, path, {"model": "words", **body})
    assert (status, found["param"], found["type"]) == (400, param, "invalid_request_error")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "invalid_json"),
        (b"", "invalid_json"),
        (b"\xff", "invalid_json"),
        (b"[]", "invalid_params"),
        (b'"x"', "invalid_params"),
        (b'{"model":"words","messages":[{"role":"user","content":"\\ud800"}]}', "invalid_json"),
        (b"[" * 200, "invalid_params"),
    ],
)
def test_what_is_no_object_is_refused(rest: Rest, body: bytes, code: str) -> None:
    headers = {"Content-Type": "application/json"}
    assert refused(rest, CHAT, content=body, headers=headers)[1]["code"] == code


def test_what_is_no_json_is_refused_by_its_type(rest: Rest) -> None:
    status, found = refused(rest, CHAT, content=b"model=words", headers={"Content-Type": "text/plain"})
    assert (status, found["param"]) == (400, "Content-Type")


def test_unknown_and_tuning_parameters_are_passed_over(rest: Rest) -> None:
    tuning = {"temperature": 0.5, "top_p": 1, "max_tokens": 1, "seed": 7, "user": "u", "reasoning_effort": "low"}
    empty = {"tools": [], "n": 1, "stop": None, "logprobs": False, "response_format": {"type": "text"}}
    body = {"model": "words", "messages": [USER], **tuning, **empty, "never_heard_of": {"a": [1]}}
    assert rest.http.post(f"{rest.base}/openai/v1/{CHAT}", json=body).status_code == 200


def test_a_model_that_is_no_agent(rest: Rest) -> None:
    for path, said in ((CHAT, {"messages": [USER]}), (RESPONSES, {"input": "x"})):
        status, found = refused(rest, path, {"model": "gpt-9", **said})
        assert (status, found["code"], found["param"]) == (404, "model_not_found", "model")
        assert "gpt-9" in found["message"]
    alias = rest.http.post(f"{rest.base}/agents/nobody/v1/chat/completions", json={"messages": [USER]})
    assert (alias.status_code, error(alias)["code"]) == (404, "model_not_found")


def test_sessions_that_differ_are_refused(rest: Rest) -> None:
    body = {"model": "words", "messages": [USER], "session_id": "a"}
    status, found = refused(rest, CHAT, body, headers={"X-Session-ID": "b"})
    assert (status, found["param"]) == (400, "session_id")


def test_a_response_of_another_agent_or_session_is_none_to_go_on_from(rest: Rest) -> None:
    made = rest.http.post(f"{rest.base}/openai/v1/{RESPONSES}", json={"model": "words", "input": "x"}).json()
    _, found = refused(rest, RESPONSES, {"model": "given", "input": "x", "previous_response_id": made["id"]})
    assert found["code"] == "previous_response_not_found"
    body = {"model": "words", "input": "x", "previous_response_id": made["id"], "session_id": "another"}
    assert refused(rest, RESPONSES, body)[1]["param"] == "previous_response_id"


@pytest.mark.parametrize("value", ["-1", "x", "1.5", "9" * 30, "²"])
def test_a_place_in_a_stream_must_be_a_number(rest: Rest, value: str) -> None:
    made = rest.http.post(f"{rest.base}/openai/v1/{RESPONSES}", json={"model": "words", "input": "x"}).json()
    place = f"{rest.base}/openai/v1/{RESPONSES}/{made['id']}"
    answer = rest.http.get(place, params={"stream": "true", "starting_after": value})
    assert (answer.status_code, error(answer)["param"]) == (400, "starting_after")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/openai/v1/chat/completions", 405),
        ("DELETE", "/openai/v1/models", 405),
        ("GET", "/openai/v1/embeddings", 404),
        ("POST", "/openai/v1/", 404),
        ("PUT", "/openai/v1/responses/resp_x", 405),
        ("GET", "/agents/words/v1/chat/completions", 405),
    ],
)
def test_what_is_not_there(rest: Rest, method: str, path: str, status: int) -> None:
    answer = rest.http.request(method, rest.base + path)
    assert answer.status_code == status
    assert error(answer)["type"] == "invalid_request_error"
    assert ("allow" in answer.headers) == (status == 405)


def test_a_body_that_is_too_long_and_parts_that_are_too_many() -> None:
    args = ("--max-body", "1000", "--max-parts", "2", "--max-metadata", "100")
    with healthy(AGENTS, args=args) as server, httpx.Client(timeout=PATIENCE_S) as http:
        rest = Rest(http, server.url)
        long = {"model": "words", "messages": [{"role": "user", "content": "x" * 2000}]}
        assert refused(rest, CHAT, long)[0] == 413
        many = {"model": "words", "messages": [USER] * 3}
        assert refused(rest, CHAT, many)[1]["param"] == "messages"
        told = {"model": "words", "messages": [{"role": "system", "content": "x" * 200}, USER]}
        found = refused(rest, CHAT, told)[1]
        assert found["param"] == "messages"
        assert "system" in found["message"]
        assert found["message"].endswith("longer than 100 bytes, the host's setting max_metadata")
        told = {"model": "words", "input": "x", "instructions": "x" * 200}
        assert refused(rest, RESPONSES, told)[1]["param"] == "instructions"


def test_the_door_can_be_shut() -> None:
    with running(AGENTS, args=("--drain-s", "0", "--no-openai")) as server:
        for path in ("/openai/v1/models", "/agents/words/v1/chat/completions"):
            answer = httpx.get(server.url + path)
            assert answer.status_code == 404
            assert "details" in answer.json()["error"], "no such path, as the host says it"
        document: dict[str, Any] = httpx.get(f"{server.url}/openapi.json").json()
        assert not [path for path in document["paths"] if "openai" in path]


def test_an_image_for_an_agent_that_takes_text_only(rest: Rest, server: Server) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAEC"}}
    _, found = refused(rest, CHAT, {"model": "words", **content(image)})
    assert (found["param"], found["code"]) == ("messages[0].content[1]", "content_type_not_supported")
    assert found["message"].startswith("messages[0].content[1]: agent 'words' does not take image/png")


def test_the_alias_at_the_root_refuses_in_the_same_form() -> None:
    with running(AGENTS, args=("--root", "words")) as server:
        for path in ("/v1/chat/completions", "/agents/words/v1/chat/completions"):
            refused = httpx.post(f"{server.url}{path}", json={"messages": []})
            assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")
            assert refused.headers["content-type"] == "application/json"
