"""`roost serve` that cannot serve: one line that says what to do, exit code 1, no traceback."""

from __future__ import annotations

import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.processes import FLEET, SERVES, roost, running

AGENT = 'from roost import Agent\nagent = Agent("one")\n@agent.on_message\nasync def one(task): return "one"\n'


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 1
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("roost: ")
    return lines[0]


def test_port_taken_names_a_free_one() -> None:
    with running(FLEET / "hello.py") as server:
        said = refusal(roost("serve", FLEET / "hello.py", "--memory", "--port", str(server.port)))
        assert f"127.0.0.1:{server.port}" in said
        suggested = int(said.rpartition("--port ")[2])
        socket.create_server(("127.0.0.1", suggested)).close()


def test_journal_in_use_until_the_host_stops(tmp_path: Path) -> None:
    with running(FLEET / "hello.py", data=tmp_path) as server:
        said = refusal(roost("serve", FLEET / "hello.py", "--port", "0", "--data", tmp_path))
        assert server.stop() == -signal.SIGTERM
        assert "Traceback" not in server.stderr
    assert "in use" in said
    assert "--data" in said


def test_journal_where_no_folder_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = refusal(roost("serve", FLEET / "hello.py", "--port", "0", "--data", tmp_path / "file"))
    assert "--data" in said


def test_missing_file(tmp_path: Path) -> None:
    said = refusal(roost("serve", tmp_path / "nowhere.py"))
    assert "nowhere.py: there is no such file" in said


def test_syntax_error_names_the_line(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("x = 1\ndef (:\n")
    said = refusal(roost("serve", file))
    assert "broken.py: line 2" in said


def test_file_without_an_agent(tmp_path: Path) -> None:
    file = tmp_path / "empty.py"
    file.write_text("x = 1\n")
    said = refusal(roost("serve", file))
    assert "this file defines no agent" in said
    assert "roost new" in said


def test_two_agents_with_one_id_names_both_files(tmp_path: Path) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(AGENT)
    said = refusal(roost("serve", tmp_path))
    assert "two agents are called 'one'" in said
    assert "a.py" in said
    assert "b.py" in said


@pytest.mark.parametrize("name", ["x-scitex-agent-container", "x-orochi", "x-sac", "x-SAC"])
def test_member_of_the_card_that_only_the_host_may_write(tmp_path: Path, name: str) -> None:
    file = tmp_path / "one.py"
    file.write_text(AGENT.replace('"one")', f'"one", card_extras={{"x-team": 1, "{name}": {{}}}})', 1))
    said = refusal(roost("serve", str(file), "--memory", "--port", "0"))
    assert f"card_extras of agent 'one' cannot have '{name}'" in said
    assert "Remove it, or choose a name of your own" in said


def test_address_that_others_can_reach() -> None:
    said = refusal(roost("serve", FLEET, "--memory", "--port", "0", "--host", "0.0.0.0"))
    assert "0.0.0.0" in said
    assert "--host 127.0.0.1" in said


def test_reload_serves_the_changed_file_without_a_word_of_alarm(tmp_path: Path) -> None:
    file = tmp_path / "one.py"
    file.write_text(AGENT)
    with running(file, args=("--reload",)) as server:
        # Of another length: Python takes a file of the same second and length for the one that it has compiled.
        file.write_text(AGENT.replace('return "one"', 'return "another"'))
        server.wait_said(SERVES, times=2)
        (artifact,) = server.send("one", "hi")["artifacts"]
        assert artifact["parts"] == [{"text": "another"}]
        server.stop()
        assert "Traceback" not in server.stderr
