"""Where a host listens: several addresses at once, and Unix sockets that are safe to bind and leave nothing behind."""

from __future__ import annotations

import os
import pwd
import resource
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import uvloop

from roost.identity.peers import Peer, local_user
from roost.server.sockets import TCP, CannotServe, Unix, addresses, open_listeners, places
from roost.settings import Settings
from tests.cli.test_serve import refusal
from tests.processes import FLEET, environment, roost, running
from tests.server.inprocess import connected, serving

HELLO = FLEET / "hello.py"


@pytest.fixture
def event_loop_policy():
    return uvloop.EventLoopPolicy()


def settings(listen: str, **others: str) -> Settings:
    return Settings(listen=listen, **others)


def failure(listen: str, **others: str) -> str:
    with pytest.raises(CannotServe) as raised:
        open_listeners(settings(listen, **others))
    return str(raised.value)


# Addresses


@pytest.mark.parametrize(
    ("listen", "expected"),
    [
        ("127.0.0.1:8080", [TCP("127.0.0.1", 8080)]),
        ("localhost:0", [TCP("localhost", 0)]),
        ("[::1]:80", [TCP("::1", 80)]),
        ("unix:/run/roost.sock", [Unix(Path("/run/roost.sock"))]),
        ("unix:./a:b", [Unix(Path("a:b"))]),
        (
            " 127.0.0.1:1 ,unix:x, [::1]:65535",
            [TCP("127.0.0.1", 1), Unix(Path("x")), TCP("::1", 65535)],
        ),
    ],
)
def test_addresses_are_read(listen, expected):
    assert addresses(settings(listen)) == expected


def test_host_and_port_are_the_address_without_listen():
    assert addresses(Settings(host="::1", port=9)) == [TCP("::1", 9)]


@pytest.mark.parametrize(
    "listen",
    ["8080", ":8080", "localhost", "localhost:", "localhost:http", "a:65536", "a:-1", "a:²", "::1:80", "[a]:80"],
)
@pytest.mark.parametrize("form", ["{}", "127.0.0.1:0,{}", "{},127.0.0.1:0"])
def test_what_is_no_address_is_refused(listen, form):
    said = failure(form.format(listen))
    assert "--listen" in said
    assert "unix:PATH" in said


@pytest.mark.parametrize("listen", ["[::1]", "unix:", ",", "127.0.0.1:0,"])
def test_what_is_only_half_an_address_is_refused(listen):
    said = failure(listen)
    assert "--listen" in said
    assert "unix:PATH" in said


def test_places_have_the_scheme_and_the_port_that_was_found(tmp_path):
    given = settings(f"localhost:0,[::1]:0,unix:{tmp_path}/s", tls_cert="cert.pem")
    listeners = open_listeners(settings(f"localhost:0,127.0.0.1:0,unix:{tmp_path}/s"))
    first, second = (listener.getsockname()[1] for listener in listeners.sockets[:2])
    found = places(given, listeners.sockets)
    assert found == [f"https://localhost:{first}", f"https://[::1]:{second}", f"unix:{tmp_path}/s"]
    listeners.close()


def test_all_addresses_or_none(tmp_path):
    path = tmp_path / "socket"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = failure(f"unix:{path},127.0.0.1:{port}")
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in said
    assert "use --listen 127.0.0.1:" in said
    assert not path.exists()


# Unix sockets


@pytest.mark.parametrize("mode", ["600", "660", "0666"])
def test_the_file_of_a_socket_has_its_mode_whatever_the_umask(tmp_path, mode):
    path = tmp_path / "socket"
    before = os.umask(0o077)
    try:
        listeners = open_listeners(settings(f"unix:{path}", unix_mode=mode))
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == int(mode, 8)
    listeners.close()


def test_a_socket_of_a_dead_server_is_replaced(tmp_path):
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    before = path.stat().st_ino
    keep = path.with_name("keep")
    os.link(path, keep)  # so that its inode is not used again
    listeners = open_listeners(settings(f"unix:{path}"))
    assert path.stat().st_ino != before
    listeners.close()
    assert not path.exists()


def test_a_socket_of_a_living_server_is_refused(tmp_path):
    path = tmp_path / "socket"
    listeners = open_listeners(settings(f"unix:{path}"))
    said = failure(f"unix:{path}")
    assert "another server" in said
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    listeners.close()


@pytest.mark.parametrize("kind", ["file", "folder", "link", "link to a socket"])
def test_what_is_no_socket_is_never_removed(tmp_path, kind):
    path = tmp_path / "socket"
    if kind == "file":
        path.write_text("precious")
    elif kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(tmp_path / "nowhere")
    else:
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(tmp_path / "other"))
        path.symlink_to(tmp_path / "other")
    before = path.lstat()
    assert "a file that is not a socket" in failure(f"unix:{path}")
    assert path.lstat().st_ino == before.st_ino


def test_a_folder_that_is_not_there_and_a_path_that_is_too_long_are_told(tmp_path):
    assert "No such file or directory" in failure(f"unix:{tmp_path}/nowhere/socket")
    assert "path too long" in failure(f"unix:{tmp_path}/{'x' * 120}")


def test_a_file_that_another_server_has_put_there_since_is_not_removed(tmp_path):
    path = tmp_path / "socket"
    first = open_listeners(settings(f"unix:{path}"))
    path.unlink()
    second = open_listeners(settings(f"unix:{path}"))
    first.close()
    assert path.exists()
    second.close()
    assert not path.exists()


def test_users_have_their_name_or_their_number():
    assert local_user(0) == Peer(None, 0, pwd.getpwuid(0).pw_name)
    assert local_user(3_999_999_999) == Peer(None, 3_999_999_999, "3999999999")


async def test_tcp_and_unix_are_served_at_once(tmp_path):
    listeners = open_listeners(settings(f"unix:{tmp_path}/socket,127.0.0.1:0"))
    async with serving(listeners=listeners) as server:
        async with connected(server) as client:
            assert (await client.get("/unix")).status == 200
        listeners.sockets.reverse()
        async with connected(server) as client:
            assert (await client.get("/tcp")).status == 200
        assert [(scope["path"], "roost.peer" in scope) for scope in server.app.scopes] == [
            ("/unix", True),
            ("/tcp", False),
        ]
    assert not (tmp_path / "socket").exists()


# The host


def over(path: Path) -> httpx.Client:
    return httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://localhost", timeout=30)


def test_a_host_on_several_addresses_answers_on_all_and_cleans_up(tmp_path):
    path = tmp_path / "socket"
    with running(HELLO, args=("--listen", f"127.0.0.1:0,unix:{path},127.0.0.2:0")) as server:
        listening = next(line for line in server.stderr.splitlines() if "Listening on" in line)
        first, second, third = listening.split("Listening on ")[1].split(", ")
        assert first == server.url
        assert second == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert httpx.get(f"{first}/healthz").status_code == 200
        assert httpx.get(f"{third}/healthz").status_code == 200
        with over(path) as client:
            assert client.get("/healthz").status_code == 200
        assert server.stop() == -signal.SIGTERM
    assert not path.exists()


def test_a_host_on_a_unix_socket_alone_shows_a_command_that_works(tmp_path):
    path = tmp_path / "a socket"
    with running(HELLO, args=("--listen", f"unix:{path}")) as server:
        assert f"curl -s --unix-socket '{path}' http://localhost/agents/hello/message:send" in server.stderr
        said = refusal(roost("serve", HELLO, "--memory", "--listen", f"unix:{path}"))
        assert "another server" in said
        with over(path) as client:
            assert client.get("/healthz").status_code == 200


def test_a_host_that_was_killed_can_be_started_again_on_its_socket(tmp_path):
    path = tmp_path / "socket"
    for _ in range(2):
        with running(HELLO, args=("--listen", f"unix:{path}")) as server:
            with over(path) as client:
                assert client.get("/healthz").status_code == 200
            server.kill()
        assert path.exists()


@pytest.mark.parametrize(("hard", "room"), [(10_000, "1000"), (700, "500"), (150, "1")])
def test_as_many_connections_as_the_system_has_files_for(hard, room):
    code = "from roost.server.server import room_for; print(room_for(1000))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard)),
        capture_output=True,
        text=True,
        env=environment(),
        check=True,
    )
    assert done.stdout.strip() == room
