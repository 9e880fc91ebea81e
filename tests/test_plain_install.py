"""A plain installation, without any extra, serves everything that is on by default."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, requires

import httpx
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.processes import FLEET, ROOT, SERVES, Server, environment

PROJECT = ROOT / "pyproject.toml"

WITHOUT = """
import sys
absent = frozenset(sys.argv.pop(1).split(","))

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from roost.cli.main import main
main()
"""

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


def plain_installation() -> set[str]:
    """The distributions that `pip install roost` installs."""
    found: set[str] = set()
    wanted = [Requirement(text) for text in tomllib.loads(PROJECT.read_text())["project"]["dependencies"]]
    while wanted:
        requirement = wanted.pop()
        name = canonicalize_name(requirement.name)
        if name not in found:
            found.add(name)
            extras = ("", *requirement.extras)
            for further in map(Requirement, requires(name) or ()):
                if further.marker is None or any(further.marker.evaluate({"extra": extra}) for extra in extras):
                    wanted.append(further)
    return found


def absent_modules() -> set[str]:
    """Modules that are installed here for development, and that a plain installation does not have."""
    plain = plain_installation() | {"roost"}
    return {
        module
        for module, distributions in packages_distributions().items()
        if not plain & {canonicalize_name(distribution) for distribution in distributions}
    }


def test_every_door_that_is_on_by_default_answers_in_a_plain_installation() -> None:
    absent = absent_modules()
    assert {"asyncpg", "grpc", "nats", "pytest"} <= absent
    process = subprocess.Popen(
        [sys.executable, "-c", WITHOUT, ",".join(absent), "serve", str(FLEET), "--memory", "--port", "0"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        cwd=ROOT,
    )
    server = Server(process)
    try:
        server.wait_said(SERVES)
        assert server.send("hello", "Ada")["status"]["state"] == "TASK_STATE_COMPLETED"
        with httpx.Client(base_url=server.url, verify=False, timeout=30) as client:
            old = {"kind": "message", "messageId": "1", "role": "user", "parts": [{"kind": "text", "text": "Ada"}]}
            call = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": old}}
            assert client.post("/agents/hello", json=call).json()["result"]["status"]["state"] == "completed"
            chat = {"model": "hello", "messages": [{"role": "user", "content": "Ada"}]}
            assert client.post("/openai/v1/chat/completions", json=chat).status_code == 200
            accept = {"Accept": "application/json, text/event-stream"}
            assert client.post("/mcp", json=INITIALIZE, headers=accept).status_code == 200
            for path in ("/metrics", "/openapi.json", "/.well-known/agent-card.json"):
                assert client.get(path).status_code == 200, path
        server.stop()
        assert "Traceback" not in server.stderr
    finally:
        server.kill()
