"""A real host calls a real webhook: everything arrives, in order, with the right headers, and slows nothing else."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.doors.serving import AGENTS, healthy
from tests.doors.wire import Door, Rest, metrics, sending
from tests.processes import FLEET, roost, running
from tests.push.conftest import LOCAL
from tests.push.receiver import Call, Receiver, receiving
from tests.push.test_configs import CREATE, DELETE, LIST
from tests.waiting import eventually

FAST = (*LOCAL, "--push-retry-s", "0.01", "--push-attempts", "2")


def with_hook(url: str, **more: Any) -> dict[str, Any]:
    return {"taskPushNotificationConfig": {"url": url, **more}}


def open_gate(door: Door, name: str) -> None:
    door.task(name, "release")


def signed(call: Call, secret: str) -> bool:
    """Verify a signature as docs/push.md describes."""
    fields = dict(item.split("=", 1) for item in call.headers["x-aiwg-signature"].split(","))
    expected = hmac.new(secret.encode(), fields["t"].encode() + b"." + call.body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected, fields["v1"]) and abs(time.time() - int(fields["t"])) < 300


def test_a_message_may_bring_a_webhook_that_hears_of_everything(door: Door, hook: Receiver) -> None:
    sent = door.ok("SendMessage", sending("a b c", configuration=with_hook(hook.url())), "stream")["task"]
    words = hook.wait_said("COMPLETED")
    assert words[0] == "SUBMITTED"
    assert "".join(word for word in words if word.islower() or word.strip() in "abc").split() == ["a", "b", "c"]
    frames = door.ok("GetTask", {"id": sent["id"]}, "stream")
    assert frames["status"]["state"] == "TASK_STATE_COMPLETED"
    (config,) = door.ok(LIST, {"taskId": sent["id"]}, "stream")["configs"]
    assert (config["url"], config["taskId"]) == (hook.url(), sent["id"])


def test_a_webhook_is_sent_the_bytes_of_the_stream(door: Door, hook: Receiver) -> None:
    params = sending("one two three", configuration=with_hook(hook.url()))
    streamed = [frame.data for frame in door.stream("SendStreamingMessage", params, "stream")]
    hook.wait_said("COMPLETED")
    calls = hook.at()
    assert [call.json for call in calls][1:] == streamed[1:]
    assert calls[0].said == "SUBMITTED"
    assert {call.headers["content-type"] for call in calls} == {"application/a2a+json"}


def test_nothing_is_missing_out_of_order_or_sent_twice(door: Door, hook: Receiver) -> None:
    sent = door.ok("SendMessage", sending("200 20", configuration=with_hook(hook.url())), "flood")["task"]
    said = hook.wait_said("COMPLETED")
    numbers = [int(word.split(" ")[0]) for word in said if word[0].isdigit()]
    assert numbers == list(range(200))
    ids = [call.headers["x-roost-delivery-id"] for call in hook.at()]
    assert len(set(ids)) == len(ids)
    assert {call.json[next(iter(call.json))]["taskId"] for call in hook.at()} == {sent["id"]}


def test_a_webhook_that_is_set_later_hears_what_comes_after(door: Door, hook: Receiver) -> None:
    gate = f"later-{door.name}"
    task = door.begin(gate, "hold")
    eventually(lambda: "three" in str(door.get(task["id"], "hold")))
    door.ok(CREATE, {"taskId": task["id"], "url": hook.url()}, "hold")
    open_gate(door, gate)
    assert hook.wait_said("COMPLETED") == ["four ", "five ", "six", "COMPLETED"]


def test_who_asks_after_the_end_still_hears_of_it(door: Door, hook: Receiver) -> None:
    task = door.task()
    door.ok(CREATE, {"taskId": task["id"], "url": hook.url()})
    assert hook.wait_said("COMPLETED") == ["COMPLETED"]


def test_a_webhook_that_is_deleted_hears_no_more(door: Door, hook: Receiver) -> None:
    gate = f"deleted-{door.name}"
    task = door.begin(
        gate,
        "hold",
    )
    for name in ("kept", "deleted"):
        door.ok(CREATE, {"taskId": task["id"], "id": name, "url": hook.url(f"/{name}")}, "hold")
    door.ok(DELETE, {"taskId": task["id"], "id": "deleted"}, "hold")
    open_gate(door, gate)
    hook.wait_said("COMPLETED", "/kept")
    assert "COMPLETED" not in hook.said("/deleted")


def test_a_task_that_asks_and_goes_on_takes_its_webhook_along(door: Door, hook: Receiver) -> None:
    gate = f"goes-on-{door.name}"
    open_gate(door, gate)
    task = door.ok("SendMessage", sending(gate, configuration=with_hook(hook.url())), "interview")["task"]
    hook.wait_said("INPUT_REQUIRED")
    door.ok("SendMessage", sending("Ada", taskId=task["id"]), "interview")
    eventually(lambda: hook.said().count("INPUT_REQUIRED") == 2)
    door.ok("SendMessage", sending("Blue", taskId=task["id"]), "interview")
    said = hook.wait_said("COMPLETED")
    states = [word for word in said if word.replace("_", "").isupper()]
    assert states == [
        *("SUBMITTED", "WORKING", "INPUT_REQUIRED", "WORKING", "INPUT_REQUIRED", "WORKING", "COMPLETED"),
    ]  # fmt: skip
    assert [word for word in said if word not in states] == ["Welcome. ", "Hello, Ada. ", "Blue, then."]


def test_an_answer_may_bring_a_webhook_too(door: Door, hook: Receiver) -> None:
    gate = f"answer-{door.name}"
    open_gate(door, gate)
    task = door.task(gate, "interview")
    params = sending("Ada", taskId=task["id"], configuration=with_hook(hook.url()))
    door.ok("SendMessage", params, "interview")
    assert hook.wait_said("INPUT_REQUIRED") == ["WORKING", "Hello, Ada. ", "INPUT_REQUIRED"]


def test_a_webhook_is_told_who_calls(door: Door, hook: Receiver) -> None:
    authentication = {"scheme": "Bearer", "credentials": "cr3dentials"}
    configuration = with_hook(hook.url(), id="mine", token="t0ken", authentication=authentication)
    door.ok("SendMessage", sending(configuration=configuration))
    hook.wait_said("COMPLETED")
    for call in hook.at():
        headers = call.headers
        assert headers["authorization"] == "Bearer cr3dentials"
        assert headers["x-a2a-notification-token"] == "t0ken"
        assert headers["a2a-version"] == "1.0"
        assert headers["user-agent"].startswith("roost/")
        assert abs(int(headers["x-roost-timestamp"]) - time.time()) < 60
        assert "x-aiwg-signature" not in headers


def test_a_webhook_with_a_secret_of_its_own_is_sent_signatures(door: Door, hook: Receiver) -> None:
    authentication = {"scheme": "HMAC-SHA256", "credentials": "s3cret"}
    door.ok("SendMessage", sending(configuration=with_hook(hook.url(), authentication=authentication)))
    hook.wait_said("COMPLETED")
    assert all(signed(call, "s3cret") for call in hook.at())
    assert not any("authorization" in call.headers for call in hook.at())


def test_a_host_with_a_secret_signs_every_call(http: httpx.Client, hook: Receiver) -> None:
    with healthy(args=(*LOCAL, "--push-secret", "h0st")) as host:
        door = Rest(http, host.url)
        bearer = {"scheme": "Bearer", "credentials": "b"}
        own = {"scheme": "hmac-sha256", "credentials": "0wn"}
        for path, authentication in (("/plain", None), ("/bearer", bearer), ("/own", own)):
            door.ok("SendMessage", sending(configuration=with_hook(hook.url(path), authentication=authentication)))
            hook.wait_said("COMPLETED", path)
    for path, secret in (("/plain", "h0st"), ("/bearer", "h0st"), ("/own", "0wn")):
        assert all(signed(call, secret) for call in hook.at(path))
    assert hook.at("/bearer")[0].headers["authorization"] == "Bearer b"


def test_a_redirect_is_a_failure_and_followed_nowhere(http: httpx.Client, hook: Receiver, tmp_path: Path) -> None:
    hook.answers = {
        "/metadata": (302, {"Location": "http://169.254.169.254/latest/meta-data"}),
        "/elsewhere": (307, {"Location": hook.url("/target")}),
    }
    with healthy(data=tmp_path, args=FAST) as host:
        door = Rest(http, host.url)
        for path in hook.answers:
            door.ok("SendMessage", sending(configuration=with_hook(hook.url(path))))
        eventually(lambda: metrics(http, host.url).get(("roost_push_dead_letters", frozenset()), 0) >= 4)
        listed = roost("push", "list", "--failing", "--data", tmp_path).stdout
        assert "it answered 302, redirects are not followed" in listed
        assert "it answered 307, redirects are not followed" in listed
    assert hook.at("/target") == []


def test_a_webhook_that_never_answers_slows_no_stream_and_no_other_webhook(
    http: httpx.Client, door: Door, hook: Receiver
) -> None:
    hook.held = {f"/stuck-{number}": threading.Event() for number in range(12)}
    with receiving() as other:
        for path in hook.held:
            door.ok("SendMessage", sending(configuration=with_hook(hook.url(path))))
        stuck = door.ok("SendMessage", sending("5 20", configuration=with_hook(hook.url("/stuck-0"))), "flood")
        assert stuck["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        frames = door.stream("SendStreamingMessage", sending("a b", configuration=with_hook(other.url())), "stream")
        assert frames[-1].data["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
        other.wait_said("COMPLETED")
        under_way = sum(len(hook.at(path)) for path in hook.held)
        assert under_way <= 8, "no more than --push-per-host"


def test_what_no_webhook_takes_waits_for_the_operator(http: httpx.Client, hook: Receiver, tmp_path: Path) -> None:
    hook.answers["/hook"] = 500
    with healthy(data=tmp_path, args=FAST) as host:
        door = Rest(http, host.url)
        task = door.ok("SendMessage", sending("a b c d", configuration=with_hook(hook.url(), id="mine")), "stream")
        task_id = task["task"]["id"]

        def listed() -> list[dict[str, Any]]:
            """Return the webhooks that fail: none until the first attempt is recorded."""
            done = roost("push", "list", "--failing", "--json", "--data", tmp_path)
            assert done.returncode == 0, done.stderr
            configs = httpx.Response(200, text=done.stdout).json()["configs"]
            assert isinstance(configs, list)
            return configs

        eventually(lambda: [found["state"] for found in listed()] == ["paused"])
        (found,) = listed()
        assert (found["task"], found["config"], found["agent"]) == (task_id, "mine", "stream")
        assert (found["host"], found["deadLetters"], found["error"]) == (
            f"127.0.0.1:{hook.port}",
            3,
            "it answered 500",
        )
        words = roost("push", "list", "--data", tmp_path).stdout.split()
        assert {"TASK", "paused", "mine", f"127.0.0.1:{hook.port}"} <= set(words)
        key = frozenset({("outcome", "dead")})
        assert metrics(http, host.url)["roost_push_deliveries_total", key] == 3

        hook.answers.clear()
        hook.calls.clear()
        retried = roost("push", "retry", task_id, "mine", "--data", tmp_path)
        assert retried.stdout.startswith("1 webhook is due now")
        said = hook.wait_said("COMPLETED")
        assert said[0] == "SUBMITTED"
        assert len(said) == len(set(said))
        eventually(lambda: "at rest" in roost("push", "list", "--data", tmp_path).stdout)
        assert "no webhook fails" in roost("push", "list", "--failing", "--data", tmp_path).stderr
        assert "none of these webhooks fails" in roost("push", "retry", "--all", "--data", tmp_path).stderr


@pytest.mark.parametrize("words", [("retry",), ("retry", "task", "--all")])
def test_a_retry_says_of_what(words: tuple[str, ...], tmp_path: Path) -> None:
    done = roost("push", *words, "--data", tmp_path)
    assert (done.returncode, "name the webhooks" in done.stderr) == (2, True)


def test_without_a_journal_there_is_nothing_to_list(tmp_path: Path) -> None:
    done = roost("push", "list", "--data", tmp_path / "none")
    assert (done.returncode, "there is no journal" in done.stderr) == (1, True)
    assert not (tmp_path / "none").exists()


def test_what_was_pending_at_a_crash_arrives_after_it(http: httpx.Client, tmp_path: Path) -> None:
    with receiving() as hook:
        hook.held["/hook"] = threading.Event()
        port = hook.port
        with running(FLEET, AGENTS, data=tmp_path, args=FAST) as host:
            door = Rest(http, host.url)
            task = door.ok("SendMessage", sending("a b c", configuration=with_hook(hook.url())), "stream")["task"]
            hook.wait(1)
            host.kill()
    with receiving(port) as hook, running(FLEET, AGENTS, data=tmp_path, args=FAST) as host:
        said = hook.wait_said("COMPLETED")
        assert said[0] == "SUBMITTED"
        assert len(said) == len(set(said))
        assert Rest(http, host.url).get(task["id"], "stream")["status"]["state"] == "TASK_STATE_COMPLETED"


def test_what_a_task_does_after_a_crash_arrives_too(http: httpx.Client, tmp_path: Path, hook: Receiver) -> None:
    with running(FLEET, AGENTS, data=tmp_path, args=LOCAL) as host:
        door = Rest(http, host.url)
        door.ok("SendMessage", sending("5", configuration={**with_hook(hook.url()), "returnImmediately": True}), "job")
        hook.wait_said("WORKING")
        host.kill()
    with running(FLEET, AGENTS, data=tmp_path, args=LOCAL):
        said = hook.wait_said("COMPLETED")
    assert said.count("COMPLETED") == 1


def test_secrets_are_neither_in_the_store_nor_in_the_log(http: httpx.Client, hook: Receiver, tmp_path: Path) -> None:
    secrets = ("t0kent0ken", "cr3dentials", "qu3rystring")
    url = hook.url("/in?key=qu3rystring")
    hook.answers["/in?key=qu3rystring"] = 500
    with healthy(data=tmp_path, args=(*FAST, "--log-level", "debug")) as host:
        door = Rest(http, host.url)
        authentication = {"scheme": "Bearer", "credentials": "cr3dentials"}
        configuration = with_hook(url, token="t0kent0ken", authentication=authentication)
        task = door.ok("SendMessage", sending(configuration=configuration))["task"]
        door.ok(CREATE, {"taskId": task["id"], **configuration["taskPushNotificationConfig"]})
        eventually(lambda: "is paused" in host.stderr)
        stored = b"".join(file.read_bytes() for file in tmp_path.glob("journal.db*"))
        key = (tmp_path / "secret.key").read_bytes().strip()
        text = http.get(f"{host.url}/metrics").text
    stored += b"".join(file.read_bytes() for file in tmp_path.glob("journal.db*"))
    assert task["id"].encode() in stored
    for secret in secrets:
        assert secret.encode() not in stored
        assert base64.b64encode(secret.encode()) not in stored
        assert secret not in host.stderr
        assert secret not in text
    assert key not in stored
    assert (tmp_path / "secret.key").stat().st_mode & 0o777 == 0o600
    assert f"127.0.0.1:{hook.port}" in host.stderr


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    done = roost("secret", tmp_path / "key")
    assert done.returncode == 0, done.stderr
    (tmp_path / "key").chmod(0o644)
    done = roost("serve", FLEET, "--port", "0", "--data", tmp_path / "data", "--secret-file", tmp_path / "key")
    assert (done.returncode, f"chmod 600 {tmp_path / 'key'}" in done.stderr) == (1, True)
    assert "Traceback" not in done.stderr


def test_what_comes_within_the_window_is_one_task(http: httpx.Client, hook: Receiver) -> None:
    with healthy(args=(*LOCAL, "--push-coalesce-ms", "300")) as host:
        door = Rest(http, host.url)
        sent = door.ok("SendMessage", sending("100 20", configuration=with_hook(hook.url())), "flood")["task"]
        eventually(lambda: hook.said() and _state(hook.at()[-1]) == "TASK_STATE_COMPLETED")
        assert len(hook.at()) < 20
        last = hook.at()[-1].json["task"]
        assert last == door.get(sent["id"], "flood")


def _state(call: Call) -> str:
    state: str = call.json["task"]["status"]["state"]
    return state


def test_a_host_that_is_told_to_stop_leaves_what_is_pending_to_the_next(
    http: httpx.Client, hook: Receiver, tmp_path: Path
) -> None:
    hook.answers["/hook"] = 503
    with running(FLEET, AGENTS, data=tmp_path, args=LOCAL) as host:
        door = Rest(http, host.url)
        door.ok("SendMessage", sending(configuration=with_hook(hook.url())))
        hook.wait(1)
        host.stop()
        assert "Traceback" not in host.stderr
    hook.answers.clear()
    hook.calls.clear()
    with running(FLEET, AGENTS, data=tmp_path, args=LOCAL):
        assert hook.wait_said("COMPLETED")[0] == "SUBMITTED"


def test_nothing_is_called_through_a_proxy(http: httpx.Client, hook: Receiver) -> None:
    proxy = {"http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9", "all_proxy": "http://127.0.0.1:9"}
    with running(FLEET, args=LOCAL, env={**os.environ, **proxy}) as host:
        Rest(http, host.url).ok("SendMessage", sending(configuration=with_hook(hook.url())))
        hook.wait_said("COMPLETED")


def test_a_webhook_hears_that_a_task_that_waited_is_canceled(door: Door, hook: Receiver) -> None:
    asked = door.ok("SendMessage", sending("hi", configuration=with_hook(hook.url())), "ask")["task"]
    hook.wait_said("INPUT_REQUIRED")
    door.ok("CancelTask", {"id": asked["id"]}, "ask")
    assert hook.wait_said("CANCELED")[-1] == "CANCELED"
