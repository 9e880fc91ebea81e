"""A message sent twice, over the wire: the header, the body, the conflict, on both bindings and across a restart."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import httpx

from tests.doors.wire import VERSION, Door, sending
from tests.processes import FLEET, running

EXTENSION = "https://agentic-sandbox.aiwg.io/extensions/idempotency/v1"


def message(text: str = "Ada", message_id: str = "", **configuration: Any) -> dict[str, Any]:
    params = sending(configuration=configuration) if configuration else sending()
    params["message"]["messageId"] = message_id or str(uuid.uuid4())
    params["message"]["parts"] = [{"text": text}]
    return params


def post(http: httpx.Client, base: str, params: Any, verb: str = "send", **headers: str) -> httpx.Response:
    return http.post(f"{base}/agents/hello/message:{verb}", json=params, headers={**VERSION, **headers})


def rpc(http: httpx.Client, base: str, params: Any, **headers: str) -> httpx.Response:
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    return http.post(f"{base}/agents/hello", json=body, headers={**VERSION, **headers})


def test_a_repeat_is_answered_with_the_same_body_and_says_so(http: httpx.Client, door: Door) -> None:
    params = message()
    first, again = (post(http, door.base, params) for _ in range(2))
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert (again.status_code, again.content) == (first.status_code, first.content)
    over_rpc = rpc(http, door.base, params)
    assert over_rpc.headers["idempotent-replayed"] == "true"
    assert over_rpc.json()["result"] == first.json(), "the fingerprint is the same on every binding"


def test_a_stream_is_given_again_from_its_start(http: httpx.Client, door: Door) -> None:
    params = message()
    first, again = (post(http, door.base, params, "stream") for _ in range(2))
    assert again.headers["idempotent-replayed"] == "true"
    assert again.text == first.text
    sent = post(http, door.base, params)
    assert sent.headers["idempotent-replayed"] == "true"
    assert sent.json()["task"]["id"] in first.text


def test_another_content_is_refused_in_the_form_of_the_binding(http: httpx.Client, door: Door) -> None:
    params = message()
    assert post(http, door.base, params).status_code == 200
    other = message("Bo", params["message"]["messageId"])
    refused = post(http, door.base, other)
    assert refused.status_code == 422
    info = refused.json()["error"]["details"][0]
    assert info["reason"] == "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_PAYLOAD"
    assert set(info["metadata"]) == {"message_id", "original_request_hash", "submitted_request_hash"}
    assert info["metadata"]["message_id"] == params["message"]["messageId"]
    over_rpc = rpc(http, door.base, other).json()["error"]
    assert over_rpc["code"] == -32422
    assert over_rpc["data"][0]["metadata"] == info["metadata"]


def test_an_id_that_is_no_uuid_makes_a_new_message_each_time(http: httpx.Client, door: Door) -> None:
    params = message(message_id=f"order {uuid.uuid4()}")
    plain = [post(http, door.base, params).json()["task"]["id"] for _ in range(2)]
    assert plain[0] != plain[1]


def test_the_extension_is_echoed_and_refuses_an_id_that_is_no_uuid(http: httpx.Client, door: Door) -> None:
    params = message(message_id=str(uuid.uuid4()))
    headers = {"A2A-Extensions": EXTENSION.upper().replace("HTTPS", "https")}
    asked = [post(http, door.base, params, **headers) for _ in range(2)]
    assert [answer.headers["a2a-extensions"] for answer in asked] == [EXTENSION] * 2
    assert asked[1].headers["idempotent-replayed"] == "true"
    assert asked[0].content == asked[1].content
    for wrong in ("x" * 300, "order 1", f"order {uuid.uuid4()}"):
        malformed = post(http, door.base, message(message_id=wrong), **headers)
        assert malformed.status_code == 400
        assert malformed.json()["error"]["details"][0]["reason"] == "IDEMPOTENCY_MESSAGE_ID_MALFORMED"


def test_the_same_id_at_another_agent_is_another_message(door: Door) -> None:
    params = message()
    assert (
        door.ok("SendMessage", params, "hello")["task"]["id"] != door.ok("SendMessage", params, "stream")["task"]["id"]
    )


def test_a_message_that_was_refused_may_be_sent_again(door: Door) -> None:
    params = message()
    params["message"]["taskId"] = "nowhere"
    assert door.refused("SendMessage", params).reason == "TASK_NOT_FOUND"
    del params["message"]["taskId"]
    assert door.ok("SendMessage", params)["task"]


def test_a_repeat_after_a_restart_and_after_kill_9_is_still_a_repeat(http: httpx.Client, tmp_path: Path) -> None:
    params = message()
    now = message(returnImmediately=True)
    with running(FLEET, data=tmp_path) as host:
        first = post(http, host.url, params)
        at_once = post(http, host.url, now)
        host.kill()
    for _ in range(2):
        with running(FLEET, data=tmp_path) as host:
            again = post(http, host.url, params)
            assert (again.content, again.headers["idempotent-replayed"]) == (first.content, "true")
            assert post(http, host.url, now).content == at_once.content
            changed = message("Bo", params["message"]["messageId"])
            assert post(http, host.url, changed).status_code == 422


def test_it_can_be_for_all_messages_or_only_for_those_who_ask(http: httpx.Client) -> None:
    with running(FLEET, args=("--idempotency", "always")) as host:
        params = message(message_id="1")
        assert post(http, host.url, params).content == post(http, host.url, params).content
    with running(FLEET, args=("--idempotency", "asked")) as host:
        params = message()
        assert post(http, host.url, params).content != post(http, host.url, params).content


def test_repeats_are_counted(http: httpx.Client) -> None:
    with running(FLEET) as host:
        params = message()
        for _ in range(3):
            post(http, host.url, params)
        post(http, host.url, message("Bo", params["message"]["messageId"]))
        text = http.get(f"{host.url}/metrics").text
        assert "aiwg_idempotency_hit_total 2.0" in text
        assert "aiwg_idempotency_misses_total 1.0" in text
        assert "aiwg_idempotency_collisions_total 1.0" in text
