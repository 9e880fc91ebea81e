"""The four operations on both bindings: what they answer, and what they refuse."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest

from roost.engine.push_configs import MAX_CONFIGS
from tests.doors.serving import healthy
from tests.doors.wire import Door, Rest, Rpc, sending
from tests.push.conftest import LOCAL
from tests.push.receiver import Receiver

CREATE = "CreateTaskPushNotificationConfig"
GET = "GetTaskPushNotificationConfig"
LIST = "ListTaskPushNotificationConfigs"
DELETE = "DeleteTaskPushNotificationConfig"

NOWHERE = "http://127.0.0.1:9/hook"


def listed(door: Door, task_id: str) -> list[dict[str, Any]]:
    configs: list[dict[str, Any]] = door.ok(LIST, {"taskId": task_id}).get("configs", [])
    return configs


def test_a_config_can_be_made_read_listed_and_deleted(door: Door, hook: Receiver) -> None:
    task = door.task()
    config = {
        "taskId": task["id"],
        "id": "mine",
        "url": hook.url("/in?key=k3y"),
        "token": "t0ken",
        "authentication": {"scheme": "Bearer", "credentials": "cr3dentials"},
    }
    assert door.ok(CREATE, config) == config
    shown = {**config, "authentication": {"scheme": "Bearer"}}
    assert door.ok(GET, {"taskId": task["id"], "id": "mine"}) == shown
    assert listed(door, task["id"]) == [shown]
    assert door.ok(DELETE, {"taskId": task["id"], "id": "mine"}) == {}
    assert listed(door, task["id"]) == []
    assert door.refused(GET, {"taskId": task["id"], "id": "mine"}).reason == "TASK_NOT_FOUND"


def test_a_config_without_an_id_is_given_one(door: Door, hook: Receiver) -> None:
    task = door.task()
    made = [door.ok(CREATE, {"taskId": task["id"], "url": hook.url()}) for _ in range(2)]
    assert [config["id"] for config in listed(door, task["id"])] == [config["id"] for config in made]
    assert made[0]["id"] != made[1]["id"]
    assert uuid.UUID(made[0]["id"])


def test_a_config_with_an_id_that_there_is_replaces_it(door: Door, hook: Receiver) -> None:
    task = door.task()
    for path in ("/first", "/other", "/second"):
        name = "other" if path == "/other" else "mine"
        door.ok(CREATE, {"taskId": task["id"], "id": name, "url": hook.url(path)})
    found = [(config["id"], config["url"]) for config in listed(door, task["id"])]
    assert found == [("mine", hook.url("/second")), ("other", hook.url("/other"))]


def test_the_list_comes_in_pages(door: Door, hook: Receiver) -> None:
    task = door.task()
    ids = [f"hook-{number}" for number in (3, 1, 4, 2, 5)]
    for name in ids:
        door.ok(CREATE, {"taskId": task["id"], "id": name, "url": hook.url()})
    found: list[str] = []
    page: dict[str, Any] = {"nextPageToken": ""}
    while "nextPageToken" in page:
        page = door.ok(LIST, {"taskId": task["id"], "pageSize": 2, "pageToken": page["nextPageToken"]})
        found += [config["id"] for config in page["configs"]]
    assert found == ids


def test_a_page_goes_on_where_the_last_ended_although_that_one_is_gone(door: Door, hook: Receiver) -> None:
    task = door.task()
    for name in ("a", "b", "c"):
        door.ok(CREATE, {"taskId": task["id"], "id": name, "url": hook.url()})
    page = door.ok(LIST, {"taskId": task["id"], "pageSize": 2})
    door.ok(DELETE, {"taskId": task["id"], "id": "b"})
    rest = door.ok(LIST, {"taskId": task["id"], "pageToken": page["nextPageToken"]})
    assert [config["id"] for config in rest["configs"]] == ["c"]


def test_what_is_deleted_twice_or_never_was_is_no_error(door: Door) -> None:
    task = door.task()
    for _ in range(2):
        assert door.ok(DELETE, {"taskId": task["id"], "id": "never"}) == {}


@pytest.mark.parametrize("operation", [CREATE, GET, LIST, DELETE])
def test_a_task_that_is_not_there_has_no_webhooks(door: Door, operation: str) -> None:
    params = {"taskId": str(uuid.uuid4())}
    if operation != LIST:
        params["id"] = "mine"
    if operation == CREATE:
        params["url"] = NOWHERE
    assert door.refused(operation, params).reason == "TASK_NOT_FOUND"


@pytest.mark.parametrize("operation", [CREATE, GET, LIST, DELETE])
def test_a_task_of_another_agent_is_not_there(door: Door, operation: str) -> None:
    params = {"taskId": door.task()["id"], "url": NOWHERE, "id": "mine"}
    if operation != CREATE:
        del params["url"]
    if operation == LIST:
        del params["id"]
    assert door.refused(operation, params, "stream").reason == "TASK_NOT_FOUND"


LONG = "x" * 5000

BAD: list[tuple[dict[str, Any], str]] = [
    ({"url": ""}, "url"),
    ({"url": "hooks.example.com/in"}, "url"),
    ({"url": "ftp://127.0.0.1/"}, "url"),
    ({"url": "http://"}, "url"),
    ({"url": "http://127.0.0.1:0/"}, "url"),
    ({"url": "http://127.0.0.1:99999/"}, "url"),
    ({"url": f"http://127.0.0.1/{LONG}"}, "url"),
    ({"url": "http://user:password@127.0.0.1/"}, "url"),
    ({"url": "http://127.0.0.1/\r\nX: 1"}, "url"),
    ({"url": "http://10.0.0.1/"}, "url"),
    ({"url": "http://169.254.169.254/latest/meta-data"}, "url"),
    ({"url": "http://[::1]:80/"}, "url"),
    ({"url": 5}, "url"),
    ({"id": "a/b"}, "id"),
    ({"id": "a b"}, "id"),
    ({"id": "x" * 129}, "id"),
    ({"token": "a\r\nX-Evil: 1"}, "token"),
    ({"token": " a"}, "token"),
    ({"token": "ü"}, "token"),
    ({"token": LONG}, "token"),
    ({"authentication": {}}, "authentication.scheme"),
    ({"authentication": {"scheme": ""}}, "authentication.scheme"),
    ({"authentication": {"scheme": "Bearer x"}}, "authentication.scheme"),
    ({"authentication": {"scheme": "Bearer", "credentials": "a\nb"}}, "authentication.credentials"),
    ({"authentication": {"scheme": "Bearer", "credentials": LONG}}, "authentication.credentials"),
    ({"authentication": {"scheme": "HMAC-SHA256"}}, "authentication.credentials"),
]


@pytest.mark.parametrize(("wrong", "field"), BAD, ids=[f"{field}-{number}" for number, (_, field) in enumerate(BAD)])
def test_a_wrong_config_is_refused_by_its_field_and_changes_nothing(
    door: Door, wrong: dict[str, Any], field: str
) -> None:
    task = door.task()
    config = {"taskId": task["id"], "id": "mine", "url": NOWHERE, **wrong}
    assert door.refused(CREATE, config).fields == [field]
    assert listed(door, task["id"]) == []
    del config["taskId"]
    inline = sending(configuration={"taskPushNotificationConfig": config})
    for operation in ("SendMessage", "SendStreamingMessage"):
        assert door.refused(operation, inline).fields == [f"configuration.taskPushNotificationConfig.{field}"]


@pytest.mark.parametrize(
    ("operation", "params", "field"),
    [
        (LIST, {"pageSize": -1}, "pageSize"),
        (LIST, {"pageToken": "nonsense!"}, "pageToken"),
        (LIST, {"pageToken": "bm9uc2Vuc2U"}, "pageToken"),
    ],
)
def test_a_wrong_page_is_refused(door: Door, operation: str, params: dict[str, Any], field: str) -> None:
    assert door.refused(operation, {"taskId": door.task()["id"], **params}).fields == [field]


def test_another_tenant_than_the_agent_is_refused(door: Door) -> None:
    task = door.task()
    config = {"url": NOWHERE, "tenant": "stream"}
    assert door.refused(CREATE, {"taskId": task["id"], **config}).fields == ["tenant"]
    inline = sending(configuration={"taskPushNotificationConfig": config})
    assert door.refused("SendMessage", inline).fields == ["configuration.taskPushNotificationConfig.tenant"]


def test_a_task_has_only_so_many_webhooks(door: Door) -> None:
    task = door.task()
    for number in range(MAX_CONFIGS):
        door.ok(CREATE, {"taskId": task["id"], "id": f"{number}", "url": NOWHERE})
    assert door.refused(CREATE, {"taskId": task["id"], "url": NOWHERE}).fields == ["taskId"]
    door.ok(CREATE, {"taskId": task["id"], "id": "0", "url": NOWHERE})
    assert len(listed(door, task["id"])) == MAX_CONFIGS


def test_what_is_not_public_is_refused_unless_the_operator_allows_it(http: httpx.Client, hook: Receiver) -> None:
    with healthy() as host:
        door = Rest(http, host.url)
        task = door.task()
        for url in (hook.url(), f"http://localhost:{hook.port}/hook", f"http://[::ffff:127.0.0.1]:{hook.port}/hook"):
            problem = door.refused(CREATE, {"taskId": task["id"], "url": url})
            assert problem.fields == ["url"]
            assert "not public" in problem.message
    assert hook.calls == []


def test_a_name_need_not_resolve_yet_but_what_it_resolves_to_is_judged(http: httpx.Client) -> None:
    with healthy() as host:
        door = Rest(http, host.url)
        task = door.task()
        assert door.ok(CREATE, {"taskId": task["id"], "url": "https://a.hooks.invalid/"})
        assert door.refused(CREATE, {"taskId": task["id"], "url": "https://localhost/"}).fields == ["url"]


def test_every_card_says_that_there_are_push_notifications(http: httpx.Client, door: Door) -> None:
    for place in ("", "/agents/hello"):
        card = http.get(f"{door.base}{place}/.well-known/agent-card.json").json()
        assert card["capabilities"]["pushNotifications"] is True


def test_a_host_that_calls_nobody_takes_no_webhook_and_keeps_those_there_are(
    tmp_path: Path, hook: Receiver, http: httpx.Client
) -> None:
    args = (*LOCAL, "--push-attempts", "1")
    with healthy(data=tmp_path, args=args) as host:
        task = Rest(http, host.url).task("hi", "ask")
        Rest(http, host.url).ok(CREATE, {"taskId": task["id"], "id": "mine", "url": hook.url()}, "ask")
        hook.wait(1)
    with healthy(data=tmp_path, args=("--no-push",)) as host:
        card = http.get(f"{host.url}/agents/ask/.well-known/agent-card.json").json()
        assert card["capabilities"]["pushNotifications"] is False
        for door in (Rest(http, host.url), Rpc(http, host.url)):
            named = {"taskId": task["id"], "id": "mine"}
            for operation in (CREATE, GET, LIST, DELETE):
                refused = door.refused(operation, {**named, "url": hook.url()} if operation == CREATE else named, "ask")
                assert refused.reason == "PUSH_NOTIFICATION_NOT_SUPPORTED"
            inline = sending("x", configuration={"taskPushNotificationConfig": {"url": hook.url()}})
            assert door.refused("SendMessage", inline).reason == "PUSH_NOTIFICATION_NOT_SUPPORTED"
        Rest(http, host.url).ok("CancelTask", {"id": task["id"]}, "ask")
    with healthy(data=tmp_path, args=args):
        last = hook.wait(2)[-1]
    assert "TASK_STATE_CANCELED" in str(last.body)
