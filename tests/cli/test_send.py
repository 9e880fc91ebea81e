"""`roost send`: what is shown where, what is asked, and how it ends."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shlex
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from roost.cli.errors import CommandFailed
from roost.cli.send import send
from tests.processes import FLEET, Server, begun, finish, roost, running
from tests.waiting import PATIENCE_S

CAST = '''
from roost import Agent, Artifact, Part

actor = Agent("actor", direct=True)
other = Agent("other")

@actor.on_message
async def act(task):
    """Does what it is told."""
    match task.text:
        case "direct":
            task.reply("A message, no task")
        case "status":
            task.status("Working on it")
            yield "result"
        case "done":
            task.done("All said")
        case "fail":
            yield "half"
            task.fail("It broke")
        case "reject":
            task.reject("Not my work")
        case "auth":
            answer = await task.ask("Which key?", auth=True)
            yield f"Thanks for {answer.text}"
        case "parts":
            yield "text"
            yield {"a": 1}
            yield Artifact(artifact_id="file", parts=[Part(raw=b"12345", filename="x.bin", media_type="a/b")])
            yield "more"
        case "escape":
            yield "\\x1b[31mred\\u2028[bold]\\x07"

@other.on_message
async def speak(task):
    """Speaks."""
    return "other"
'''


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(FLEET, data=tmp_path_factory.mktemp("data")) as server:
        yield server


@pytest.fixture(scope="module")
def cast(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    file = tmp_path_factory.mktemp("cast") / "cast.py"
    file.write_text(CAST)
    with running(file, args=("--root", "actor")) as server:
        yield server


def advised(stderr: str, start: str) -> list[str]:
    """The words of a command that the user was told to type, after `roost`."""
    found = re.search(rf"`roost ({start} [^`]*)`", stderr)
    assert found, stderr
    return shlex.split(found.group(1))


# What is shown


def test_answer_on_stdout_and_the_rest_on_stderr(cast: Server) -> None:
    done = roost("send", "status", url=cast.url)
    assert (done.returncode, done.stdout) == (0, "result\n")
    assert re.fullmatch(r"Working on it\ntask \S+ completed\n", done.stderr)


def test_agent_at_the_root_may_be_left_out_and_others_named(cast: Server) -> None:
    assert roost("send", "other", "hello", url=cast.url).stdout == "other\n"


def test_direct_message_is_printed(cast: Server) -> None:
    done = roost("send", "direct", url=cast.url)
    assert (done.returncode, done.stdout, done.stderr) == (0, "A message, no task\n", "")


def test_message_that_completes_a_task_is_its_answer(cast: Server) -> None:
    assert roost("send", "done", url=cast.url).stdout == "All said\n"


@pytest.mark.parametrize(
    ("text", "stdout", "end"), [("fail", "half\n", "failed: It broke"), ("reject", "", "rejected: Not my work")]
)
def test_task_that_does_not_complete_exits_1(cast: Server, text: str, stdout: str, end: str) -> None:
    done = roost("send", text, url=cast.url)
    assert (done.returncode, done.stdout) == (1, stdout)
    assert done.stderr.endswith(f"{end}\n")


def test_parts_that_are_no_text_get_lines_of_their_own(cast: Server) -> None:
    done = roost("send", "parts", url=cast.url)
    assert done.stdout == 'text\n{\n  "a": 1\n}\n[x.bin: a/b, 5 bytes]\nmore\n'


def test_agent_cannot_write_escape_sequences_to_a_terminal(cast: Server) -> None:
    with terminal("send", "escape", url=cast.url) as (_, master):
        shown = read_to_end(master)
    assert "red\u2028[bold]" in shown.replace("[31m", "")
    assert "\x07" not in shown
    assert "\x1b[31m" not in shown


def test_text_is_exact_where_no_terminal_is(cast: Server) -> None:
    """U+2028 is a line end to Python, not to the protocol."""
    assert roost("send", "escape", url=cast.url).stdout == "\x1b[31mred\u2028[bold]\x07\n"


def test_json_is_every_event_on_a_line(fleet: Server) -> None:
    done = roost("send", "stream", "a b", "--json", url=fleet.url)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [next(iter(event)) for event in events] == [
        "task",
        "statusUpdate",
        "artifactUpdate",
        "artifactUpdate",
        "statusUpdate",
    ]
    assert done.returncode == 0


# How it is called


def test_agent_left_out_where_there_are_several(fleet: Server) -> None:
    done = roost("send", "hello", url=fleet.url)
    assert done.returncode == 2
    assert "ask, files, hello, job, stream, tck" in done.stderr


def test_text_without_quotes_is_a_usage_error() -> None:
    with pytest.raises(CommandFailed, match="roost send hello 'dear world'") as caught:
        send(["hello", "dear", "world"])
    assert caught.value.code == 2


# Questions


def test_question_without_a_terminal_tells_the_command_to_answer(fleet: Server) -> None:
    asked = roost("send", "ask", "hi", url=fleet.url)
    assert (asked.returncode, asked.stdout) == (3, "")
    assert asked.stderr.startswith("What is your name?\n")
    words = advised(asked.stderr, "send")
    assert words[:3] == ["send", "ask", "your answer"]
    words[2] = "Ada"
    answered = roost(*words)
    assert (answered.returncode, answered.stdout) == (0, "Nice to meet you, Ada!\n")


def test_auth_required_is_a_question_too(cast: Server) -> None:
    asked = roost("send", "auth", url=cast.url)
    assert asked.returncode == 3
    assert asked.stderr.startswith("Which key?\n")
    assert advised(asked.stderr, "send")[:3] == ["send", "actor", "your answer"]


def test_question_at_a_terminal_is_answered_there(fleet: Server) -> None:
    with terminal("send", "ask", "hi", url=fleet.url) as (process, master):
        shown = read_until(master, "> ")
        assert "What is your name?" in shown
        os.write(master, b"\nAda\n")  # an empty line is no answer
        shown = read_to_end(master)
        assert "Nice to meet you, Ada!" in shown
        assert process.wait() == 0


def test_end_of_input_at_the_prompt_leaves_the_task_waiting(fleet: Server) -> None:
    with terminal("send", "ask", "hi", url=fleet.url) as (process, master):
        read_until(master, "> ")
        os.write(master, b"\x04")
        assert "waits for an answer" in read_to_end(master)
        assert process.wait() == 3


# Interruptions


def test_ctrl_c_at_the_prompt_leaves_the_task_waiting(fleet: Server) -> None:
    with terminal("send", "ask", "hi", url=fleet.url) as (process, master):
        read_until(master, "> ")
        process.send_signal(signal.SIGINT)
        assert "keeps waiting for an answer: `roost send ask 'your answer' --task" in read_to_end(master)
        assert process.wait() == 130


def test_ctrl_c_says_that_the_task_goes_on_and_how_to_end_it(fleet: Server) -> None:
    with begun("send", "job", "100000", url=fleet.url) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(3)] == ["1\n", "2\n", "3\n"]  # while it runs
        process.send_signal(signal.SIGINT)
        _, stderr = finish(process)
    assert process.returncode == 130
    assert "continues: " in stderr
    assert advised(stderr, "watch")
    canceled = roost(*advised(stderr, "cancel"))
    assert canceled.stdout.endswith("is canceled\n")


def test_stream_that_a_stopping_host_ends_is_resumed_and_the_message_not_sent_again(tmp_path: Path) -> None:
    with running(FLEET, data=tmp_path) as server, begun("send", "job", "12", url=server.url) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        server.stop()
        with running(FLEET, data=tmp_path, port=server.port) as again:
            stdout, stderr = finish(process)
            tasks = json.loads(roost("tasks", "job", "--json", url=again.url).stdout)["tasks"]
    assert first + stdout == "".join(f"{number}\n" for number in range(1, 13))
    assert process.returncode == 0
    assert "the connection was lost; reconnecting in 0.25 s" in stderr
    assert len(tasks) == 1


def test_connection_lost_before_the_host_confirmed_is_no_reason_to_send_twice() -> None:
    requests: list[bytes] = []

    def hang_up(listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                requests.append(connection.recv(65536))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=hang_up, args=(listener,), daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        done = roost("send", "hello", "hi", url=url)
        listener.shutdown(socket.SHUT_RDWR)
    assert done.returncode == 1
    assert "it was not sent again" in done.stderr
    assert advised(done.stderr, "tasks")
    assert len(requests) == 1


# Terminals


@contextmanager
def terminal(*words: str, url: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A command whose stdin, stdout and stderr are a terminal, and our end of that."""
    master, slave = pty.openpty()
    try:
        with begun(*words, url=url, stdin=slave, stdout=slave, stderr=slave) as process:
            os.close(slave)
            yield process, master
    finally:
        os.close(master)


def read_until(master: int, text: str) -> str:
    shown = ""
    while text not in shown:
        piece = read_piece(master)
        assert piece, f"it ended, and had shown only {shown!r}"
        shown += piece
    return shown


def read_to_end(master: int) -> str:
    shown = ""
    while piece := read_piece(master):
        shown += piece
    return shown


def read_piece(master: int) -> str:
    ready, _, _ = select.select([master], [], [], PATIENCE_S)
    assert ready, "nothing was shown for too long"
    try:
        return os.read(master, 65536).decode()
    except OSError:  # how Linux says that the other side is closed
        return ""
