"""Both bindings and the admin surface, with bodies that are nearly right: a refusal has the surface's own form."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import httpx
from hypothesis import strategies as st

from roost.protocol.operations import BY_NAME as METHODS
from tests.doors.wire import sending
from tests.fuzz import bodies
from tests.fuzz.attack import Attack
from tests.fuzz.bodies import mostly
from tests.fuzz.surface import check_events
from tests.fuzz.target import AGENTS, WEBHOOK, Target

TYPES = [
    "application/a2a+json",
    "application/json",
    "application/json; charset=utf-16",
    "text/plain",
    "",
    "a/b/c;;=",
    ",",
]
VERSIONS = ["1.0", "1.0.1", "0.3", "2", "", "1.0, 1.0", "x" * 100]
ACCEPTS = ["*/*", "application/json", "application/json;q=x, application/a2a+json;q=", "text/html", ";;,", ""]
QUERY_VALUES = [
    "",
    "²",
    "٣",
    "+1",
    " 1",
    "1_000",
    "1e3",
    "-0",
    "9" * 30,
    "null",
    "nan",
    "true",
    "TRUE",
    "0",
    "1",
    "\0",
    "🐦",
    "%",
]
TIMES = [
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59.999999999-23:59",
    "2020-01-01T00:00:00",
    "2020-02-30T00:00:00Z",
]
INTERNAL_ERROR = -32603


class Shot(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes


def attacks(target: Target) -> list[Attack]:
    found = []
    for method, params in right_params(target.tasks).items():
        envelope = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        found.append(_attack(target, f"JSON-RPC {method}", [f"/agents/{agent}" for agent in AGENTS], envelope, 2.0))
    for method, params in old_params(target.tasks).items():
        envelope = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        places = [f"/agents/{agent}" for agent in AGENTS]
        found.append(_attack(target, f"JSON-RPC 0.3 {method}", places, envelope, 1.0, "0.3"))
    for path, body in old_bodies(target.tasks).items():
        found.append(_attack(target, f"POST {_template(path)}", [path], body, 1.0, "0.3"))
    for path, body in right_bodies(target.tasks).items():
        found.append(_attack(target, f"POST {_template(path)}", [path], body, 1.0))
    for path, names in query_names(target.tasks).items():
        found.append(_query_attack(target, path, names))
    return found


def _attack(target: Target, name: str, paths: list[str], right: Any, weight: float, version: str = "1.0") -> Attack:
    headers = _headers(target, version)
    shots = st.builds(Shot, st.sampled_from(paths), headers, mostly(bodies.nearly(right), bodies.rubbish()))
    return Attack(name, shots, lambda shot: strike(target, shot), weight)


def _query_attack(target: Target, path: str, names: list[str]) -> Attack:
    odd = st.sampled_from([*QUERY_VALUES, *TIMES]) | st.text(max_size=20)
    queries = st.lists(st.tuples(mostly(st.sampled_from(names), odd), odd), max_size=4)
    caller = target.callers["admin" if path.startswith("/api/") else "user"]

    def ask(query: list[tuple[str, str]]) -> None:
        answer = target.http.get(target.url + path, params=query, headers=caller)
        target.count(f"GET {_template(path)}", answer.status_code)
        assert answer.status_code < 500, answer.text
        (check_admin if path.startswith("/api/") else check_rest)(answer)

    return Attack(f"GET {_template(path)} query", queries, ask)


def _template(path: str) -> str:
    """Without the id, which is another one in each run."""
    return re.sub(r"tasks/[0-9a-f-]+", "tasks/{id}", path)


def query_names(tasks: list[str]) -> dict[str, list[str]]:
    listed = [
        "contextId",
        "status",
        "pageSize",
        "pageToken",
        "historyLength",
        "statusTimestampAfter",
        "includeArtifacts",
    ]
    return {
        "/agents/ask/tasks": listed,
        f"/agents/ask/tasks/{tasks[0]}": ["historyLength"],
        f"/agents/ask/tasks/{tasks[0]}/pushNotificationConfigs": ["pageSize", "pageToken"],
        "/api/v2/admin/audit": ["before", "limit"],
    }


def _headers(target: Target, version: str) -> st.SearchStrategy[dict[str, str]]:
    usual = st.fixed_dictionaries({"Content-Type": st.sampled_from(TYPES[:2]), "A2A-Version": st.just(version)})
    odd = st.fixed_dictionaries(
        {"Content-Type": st.sampled_from(TYPES), "A2A-Version": st.sampled_from(VERSIONS)},
        optional={
            "Accept": st.sampled_from(ACCEPTS),
            "Last-Event-ID": st.sampled_from(["0", "1", "99999999999999999999", "-1", "x"]),
            "X-Tenant-Id": st.sampled_from(["default", "another", "", "a b", "x" * 200]),
            "A2A-Extensions": st.sampled_from(["", ",,,", "urn:x", "urn:roost:a2a:stream-resume:v1," * 50]),
            "Content-Encoding": st.sampled_from(["gzip", "identity", "x"]),
        },
    )
    callers = st.sampled_from(["user"] * 4 + ["admin"] * 4 + [*target.callers]).map(lambda name: target.callers[name])
    return st.builds(lambda headers, caller: {**headers, **caller}, mostly(usual, odd), callers)


def right_params(tasks: list[str]) -> dict[str, dict[str, Any]]:
    """The params of each JSON-RPC method, with a value in every field."""
    config = {"url": WEBHOOK, "id": "hook", "token": "t", "authentication": {"scheme": "Bearer", "credentials": "c"}}
    parts = [{"text": "hi"}, {"raw": "AAEC", "filename": "f", "mediaType": "a/b"}, {"url": "https://x"}, {"data": [1]}]
    message = {
        **sending("hi", configuration={"historyLength": 1, "acceptedOutputModes": ["*/*"], "returnImmediately": True}),
        "metadata": {"a": 1},
    }
    message["message"] |= {"parts": parts, "contextId": "c", "metadata": {"b": [2]}, "referenceTaskIds": tasks[:1]}
    message["configuration"]["taskPushNotificationConfig"] = config
    asked = {"status": "TASK_STATE_COMPLETED", "pageSize": 2, "historyLength": 0, "includeArtifacts": True}
    known: dict[str, dict[str, Any]] = {
        "SendMessage": message,
        "SendStreamingMessage": message,
        "GetTask": {"id": tasks[0], "historyLength": 1},
        "ListTasks": {**asked, "contextId": "", "pageToken": "", "statusTimestampAfter": "2020-01-01T00:00:00Z"},
        "CancelTask": {"id": tasks[0], "metadata": {"why": None}},
        "SubscribeToTask": {"id": tasks[0]},
        "CreateTaskPushNotificationConfig": {**config, "taskId": tasks[0]},
        "GetTaskPushNotificationConfig": {"taskId": tasks[0], "id": "hook"},
        "ListTaskPushNotificationConfigs": {"taskId": tasks[0], "pageSize": 1, "pageToken": ""},
        "DeleteTaskPushNotificationConfig": {"taskId": tasks[1], "id": "hook"},
        "GetExtendedAgentCard": {"tenant": ""},
    }
    assert known.keys() == METHODS.keys()
    return known


def old_params(tasks: list[str]) -> dict[str, dict[str, Any]]:
    """The same for the methods of A2A 0.3."""
    config = {"url": WEBHOOK, "id": "hook", "token": "t", "authentication": {"schemes": ["Bearer"], "credentials": "c"}}
    parts: list[dict[str, Any]] = [
        {"kind": "text", "text": "hi", "metadata": {"a": 1}},
        {"kind": "file", "file": {"bytes": "AAEC", "name": "f", "mimeType": "a/b"}},
        {"kind": "file", "file": {"uri": "https://x"}},
        {"kind": "data", "data": {"n": [1]}},
    ]
    message = {
        "message": {"kind": "message", "messageId": "m-old", "role": "user", "parts": parts, "metadata": {"b": [2]}},
        "configuration": {"blocking": False, "historyLength": 1, "pushNotificationConfig": config},
        "metadata": {"a": 1},
    }
    named = {"id": tasks[0], "pushNotificationConfigId": "hook"}
    return {
        "message/send": message,
        "message/stream": message,
        "tasks/get": {"id": tasks[0], "historyLength": 1},
        "tasks/cancel": {"id": tasks[1], "metadata": {"why": None}},
        "tasks/resubscribe": {"id": tasks[0]},
        "tasks/pushNotificationConfig/set": {"taskId": tasks[0], "pushNotificationConfig": config},
        "tasks/pushNotificationConfig/get": named,
        "tasks/pushNotificationConfig/list": {"id": tasks[0]},
        "tasks/pushNotificationConfig/delete": {**named, "id": tasks[1]},
        "agent/getAuthenticatedExtendedCard": {},
    }


def old_bodies(tasks: list[str]) -> dict[str, Any]:
    content = [{"text": "hi"}, {"file": {"fileWithBytes": "QUFFQw==", "mimeType": "a/b"}}, {"data": {"data": {"n": 1}}}]
    said = {"messageId": "m-old", "role": "ROLE_USER", "content": content, "metadata": {"b": [2]}}
    message = {"message": said, "configuration": {"blocking": False, "historyLength": 1}, "metadata": {"a": 1}}
    config = {"name": "x", "pushNotificationConfig": {"id": "hook", "url": WEBHOOK}}
    return {
        "/agents/files/v1/message:send": message,
        "/agents/files/v1/message:stream": message,
        f"/agents/ask/v1/tasks/{tasks[1]}:cancel": {},
        f"/agents/ask/v1/tasks/{tasks[0]}/pushNotificationConfigs": {"parent": "tasks/x", "config": config},
    }


def right_bodies(tasks: list[str]) -> dict[str, Any]:
    params = right_params(tasks)
    return {
        "/agents/files/message:send": params["SendMessage"],
        "/agents/files/message:stream": params["SendStreamingMessage"],
        f"/agents/ask/tasks/{tasks[1]}:cancel": {"metadata": {"why": None}},
        f"/agents/ask/tasks/{tasks[0]}:subscribe": {"tenant": ""},
        f"/agents/ask/tasks/{tasks[0]}/pushNotificationConfigs": params["CreateTaskPushNotificationConfig"],
        "/api/v2/admin/tokens": {
            "name": "n",
            "scopes": ["audit"],
            "tenants": ["t"],
            "subject": "s",
            "expiresIn": "1d",
        },
        "/api/v2/admin/keys/files:rotate": {"overlap": "1d"},
        **openai_bodies(tasks),
    }


def openai_bodies(tasks: list[str]) -> dict[str, Any]:
    image = {"url": "data:image/png;base64,AAEC", "detail": "low"}
    said = [
        {"role": "system", "content": "Be brief"},
        {"role": "assistant", "content": None},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "hi"},
                {"type": "image_url", "image_url": image},
                {"type": "file", "file": {"file_data": "AAEC", "filename": "f.pdf"}},
                {"type": "input_audio", "input_audio": {"data": "AAEC", "format": "wav"}},
            ],
        },
    ]
    items = [
        {"type": "mcp_call", "id": "x"},
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "hi"},
                {"type": "input_image", "image_url": "https://x/y.png"},
                {"type": "input_file", "file_data": "data:text/plain,a%20b", "filename": "f"},
            ],
        },
    ]
    common = {"model": "files", "metadata": {"a": "b"}, "session_id": "c", "stream": True, "tools": []}
    chat = {**common, "messages": said, "n": 1, "stream_options": {"include_usage": True}, "stop": None}
    return {
        "/openai/v1/chat/completions": chat,
        "/agents/files/v1/chat/completions": chat,
        "/openai/v1/responses": {
            **common,
            "stream": False,
            "input": items,
            "instructions": "Be brief",
            "conversation": {"id": "c"},
            "background": False,
            "text": {"format": {"type": "text"}},
        },
        f"/openai/v1/responses/resp_ask_{tasks[1]}_1/cancel": {},
    }


def strike(target: Target, shot: Shot) -> None:
    with target.http.stream("POST", target.url + shot.path, content=shot.body, headers=shot.headers) as response:
        target.count(f"POST {_template(shot.path)}", response.status_code)
        assert response.status_code < 500 or response.status_code == 503
        if response.headers.get("content-type") == "text/event-stream":
            first, _, _ = next(response.iter_raw()).partition(b"\n\n")
            check_events(first, is_old="/v1/" in shot.path and not shot.path.endswith("/completions"))
            return
        response.read()
    if response.status_code == 204:
        return
    if shot.path.startswith("/api/"):
        check_admin(response)
    elif shot.path.startswith("/openai/") or shot.path.endswith("/v1/chat/completions"):
        check_openai(response)
    elif shot.path.count("/") == 2:
        check_rpc(response)
    elif "/v1/" in shot.path:
        check_old(response)
    else:
        check_rest(response)


def check_rpc(response: httpx.Response) -> None:
    assert response.headers["content-type"] == "application/json"
    answer = response.json()
    assert answer["jsonrpc"] == "2.0"
    assert not isinstance(answer["id"], dict | list | bool)
    assert answer.keys() in ({"jsonrpc", "id", "result"}, {"jsonrpc", "id", "error"})
    if "error" in answer:
        assert answer["error"].keys() == {"code", "message", "data"}
        assert answer["error"]["code"] != INTERNAL_ERROR, answer
    else:
        assert response.status_code == 200


def check_old(response: httpx.Response) -> None:
    """REST of A2A 0.3, or by the version agentic-sandbox's."""
    answer = json.loads(response.content)
    if response.status_code >= 400 and "error" not in answer:
        assert answer.keys() == {"type", "code", "message", "data"}
        assert answer["code"] != INTERNAL_ERROR


def check_rest(response: httpx.Response) -> None:
    assert response.headers["content-type"] in ("application/a2a+json", "application/json")
    answer = json.loads(response.content)
    if response.status_code >= 400:
        assert answer.keys() == {"error"}
        assert answer["error"].keys() == {"code", "status", "message", "details"}
        assert answer["error"]["code"] == response.status_code


def check_openai(response: httpx.Response) -> None:
    assert response.headers["content-type"] == "application/json"
    answer = json.loads(response.content)
    if response.status_code >= 400:
        assert answer.keys() == {"error"}
        assert answer["error"].keys() == {"message", "type", "param", "code"}
    else:
        assert answer["object"] in ("chat.completion", "response")


def check_admin(response: httpx.Response) -> None:
    if response.status_code >= 400:
        assert response.headers["content-type"] == "application/problem+json"
        assert json.loads(response.content)["status"] == response.status_code
    else:
        assert response.headers["content-type"] == "application/json"
        json.loads(response.content)
