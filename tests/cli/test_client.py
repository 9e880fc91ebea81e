"""`roost agents`, `card`, `tasks` and `cancel`, and what every client does when it gets no answer."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from roost.cli.client import HostClient, default_agent
from roost.cli.errors import CommandFailed
from tests.processes import FLEET, Server, roost, running

TOKEN = "s3cr3t-token"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(FLEET, data=tmp_path_factory.mktemp("data")) as server:
        yield server


def listed(server: Server, *words: str) -> list[dict[str, Any]]:
    done = roost("tasks", *words, "--json", url=server.url)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["tasks"]
    return found


# agents and card


def test_agents_is_a_table(fleet: Server) -> None:
    done = roost("agents", url=fleet.url)
    assert done.returncode == 0
    rows = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    assert rows[0][0] == "AGENT"
    assert [row[0] for row in rows[1:]] == ["ask", "files", "hello", "job", "stream", "tck"]
    assert rows[3][1].strip() == "Greets whoever writes to it."


def test_agents_json_is_the_directory(fleet: Server) -> None:
    done = roost("agents", "--json", url=fleet.url)
    assert json.loads(done.stdout)["agents"][0]["name"] == "ask"
    assert done.stderr == ""


def test_card_of_an_agent_and_of_the_fleet(fleet: Server) -> None:
    done = roost("card", "hello", url=fleet.url)
    assert done.stdout.splitlines()[0] == "hello 1.0.0"
    assert f"{fleet.url}/agents/hello" in done.stdout
    assert json.loads(roost("card", "--json", url=fleet.url).stdout)["name"] == "Roost fleet"


# tasks


def test_tasks_newest_first_over_all_agents(fleet: Server) -> None:
    first, second, third = (fleet.send(agent, "order")["id"] for agent in ("hello", "stream", "hello"))
    found = [(item["agent"], item["task"]["id"]) for item in listed(fleet)]
    assert found[:3] == [("hello", third), ("stream", second), ("hello", first)]
    assert [item["task"]["id"] for item in listed(fleet, "hello")][:2] == [third, first]


def test_tasks_follows_pages_up_to_the_limit(tmp_path: Path) -> None:
    """More than one page of the host's, which holds 100."""
    with running(FLEET / "hello.py", data=tmp_path) as server:
        for number in range(105):
            server.send("hello", str(number))
        assert default_agent(HostClient(server.url, "")) == "hello"  # the only one
        found = listed(server, "--limit", "103")
        texts = [item["task"]["history"][0]["parts"][0]["text"] for item in found]
        assert texts == [str(number) for number in range(104, 1, -1)]
        newest = server.send("hello", "a [bold]message[/bold]\nof two lines")["id"]
        done = roost("tasks", "--limit", "2", url=server.url)
        head, row, _ = done.stdout.splitlines()
        assert head.split() == ["TASK", "AGENT", "STATE", "AGE", "MESSAGE"]
        assert row.split()[:3] == [newest, "hello", "completed"]
        assert row.strip().endswith("a [bold]message[/bold] of two lines")
        assert done.stderr == "there are more: --limit 4\n"


def test_tasks_by_state_and_context(fleet: Server) -> None:
    context = fleet.send("ask", "one")["contextId"]
    fleet.send("hello", "two", context=context)
    assert [item["agent"] for item in listed(fleet, "--context", context)] == ["hello", "ask"]
    waiting = listed(fleet, "--state", "input-required")
    assert {item["task"]["status"]["state"] for item in waiting} == {"TASK_STATE_INPUT_REQUIRED"}
    wrong = roost("tasks", "--state", "asleep", url=fleet.url)
    assert wrong.returncode == 2
    assert "input-required" in wrong.stderr


def test_no_tasks_is_no_error(fleet: Server) -> None:
    done = roost("tasks", "files", url=fleet.url)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "there are no tasks\n")


# cancel


def test_cancel_finds_the_agent_by_itself(fleet: Server) -> None:
    task = fleet.send("ask", "hi")["id"]
    done = roost("cancel", task, "--json", url=fleet.url)
    assert json.loads(done.stdout)["status"]["state"] == "TASK_STATE_CANCELED"
    again = roost("cancel", task, "--agent", "ask", url=fleet.url)
    assert again.returncode == 1
    assert "TASK_NOT_CANCELABLE" in again.stderr


# What goes wrong


def test_nothing_answers() -> None:
    for words in (("send", "x", "y"), ("watch", "x", "--agent", "y")):
        done = roost(*words, "--url", "http://127.0.0.1:9")
        assert done.returncode == 1
        assert done.stdout == ""
        assert done.stderr == (
            "roost: nothing answers at http://127.0.0.1:9; start it with `roost serve ...` or set --url\n"
        )


def test_unknown_agent_lists_those_there_are(fleet: Server) -> None:
    done = roost("send", "x", "hello", url=fleet.url)
    assert done.returncode == 1
    assert done.stderr == f"roost: There is no agent 'x' here; {fleet.url} has ask, files, hello, job, stream, tck\n"


def test_unknown_task_says_how_to_find_tasks(fleet: Server) -> None:
    for words in (("watch", "x"), ("cancel", "x", "--agent", "job")):
        done = roost(*words, url=fleet.url)
        assert done.returncode == 1
        assert f"`roost tasks --url {fleet.url}` lists the tasks" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8080",
        "ftp://x",
        "http://",
        "http://u:pw@127.0.0.1:9",
        "http://u:pw@127.0.0.1:99999",
        "http://127.0.0.1:99999",
        "http://127.0.0.1:0",
        "http://[::1",
        "http://a b",
        "http://127.0.0.1/?x=1",
    ],
)
def test_url_that_is_none_is_a_usage_error(url: str) -> None:
    with pytest.raises(CommandFailed, match="--url") as caught:
        HostClient(url, "")
    assert caught.value.code == 2
    assert "pw" not in str(caught.value)


class Recorder(BaseHTTPRequestHandler):
    """Stands in for a host that asks for credentials, which ours does not do yet."""

    def do_GET(self) -> None:
        self.server.seen.append(self.headers)  # type: ignore[attr-defined]
        body = self.server.body  # type: ignore[attr-defined]
        self.send_response(401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return None


@contextmanager
def recording(body: bytes, handler: type[BaseHTTPRequestHandler] = Recorder) -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.seen, server.body = [], body  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


def test_token_and_version_are_sent_and_the_token_is_never_shown() -> None:
    error = b'{"error":{"code":401,"message":"Who are you?","details":[{"reason":"UNAUTHENTICATED"}]}}'
    with recording(error) as server:
        done = roost("agents", "--token", TOKEN, "--url", f"http://127.0.0.1:{server.server_port}")
        (seen,) = server.seen  # type: ignore[attr-defined]
    assert (seen["Authorization"], seen["A2A-Version"]) == (f"Bearer {TOKEN}", "1.0")
    assert done.returncode == 1
    assert done.stderr == "roost: Who are you? (UNAUTHENTICATED); give a credential with --token or ROOST_TOKEN\n"


def test_token_that_no_header_can_carry_is_not_shown_either() -> None:
    for ending in ("\nnext", "ü", " x"):
        with pytest.raises(CommandFailed) as caught:
            HostClient("http://127.0.0.1:9", TOKEN + ending)
        assert TOKEN not in str(caught.value)


def test_a_web_server_that_is_no_host() -> None:
    with recording(b"<html>hello</html>") as server:
        done = roost("agents", url=f"http://127.0.0.1:{server.server_port}", env={"ROOST_TOKEN": TOKEN})
        (seen,) = server.seen  # type: ignore[attr-defined]
    assert seen["Authorization"] == f"Bearer {TOKEN}"
    assert done.returncode == 1
    assert "not as a Roost host does (HTTP 401)" in done.stderr


# Proxies


class Proxy(Recorder):
    """Answers every request as the host would that it is for."""

    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers["Proxy-Authorization"]))  # type: ignore[attr-defined]
        body = b'{"agents":[]}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadingHTTPServer]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with recording(b"", Proxy) as server:
        yield server


def test_another_machine_is_called_through_the_proxy_of_the_environment(
    proxy: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://me:secret@127.0.0.1:{proxy.server_port}")
    assert HostClient("http://roost.example", "").agents() == []
    login = base64.b64encode(b"me:secret").decode()
    assert proxy.seen == [("http://roost.example/agents/", f"Basic {login}")]  # type: ignore[attr-defined]


def test_a_proxy_may_be_for_all_schemes_and_be_named_without_one(
    proxy: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", f"127.0.0.1:{proxy.server_port}")
    assert HostClient("http://roost.example:8080", "").agents() == []
    assert proxy.seen == [("http://roost.example:8080/agents/", None)]  # type: ignore[attr-defined]


def test_this_machine_and_exceptions_are_called_without_the_proxy(
    proxy: ThreadingHTTPServer, fleet: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.server_port}")
    assert len(HostClient(fleet.url, "").agents()) == 6
    monkeypatch.setenv("no_proxy", "127.0.0.2.invalid")
    with pytest.raises(CommandFailed, match=r"nothing answers at http://127\.0\.0\.2\.invalid"):
        HostClient("http://127.0.0.2.invalid", "").agents()
    assert proxy.seen == []  # type: ignore[attr-defined]


def test_a_proxy_that_cannot_be_used_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:9")
    with pytest.raises(CommandFailed, match="its scheme is 'socks5'"):
        HostClient("http://roost.example", "")
