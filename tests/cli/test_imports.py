"""Commands start fast because they import little: which packages each of them does without."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.processes import FLEET, environment, running

LISTING = """
import json, sys
from roost.cli.main import main
try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""

SLOW = {
    "a2a",
    "asyncio",
    "cryptography",
    "google",
    "grpc",
    "httpx",
    "joserfc",
    "mcp",
    "prometheus_client",
    "rich",
    "roost.agents",
    "roost.conform",
    "roost.doors",
    "roost.engine",
    "roost.evidence",
    "roost.host",
    "roost.server",
    "roost.settings",
    "roost.stores",
    "sqlite3",
    "uvicorn",
    "watchfiles",
}
"""Packages that take long to import, or that bring such packages with them."""


def imported(*words: str) -> set[str]:
    """All modules that a command has imported when it ends well."""
    done = subprocess.run(
        [sys.executable, "-c", LISTING, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment(),
        check=True,
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


def test_the_version_needs_no_more_than_the_table_of_commands() -> None:
    modules = imported("--version")
    assert {name for name in modules if name.startswith("roost")} == {
        "roost",
        "roost._version",
        "roost.cli",
        "roost.cli.main",
    }
    assert not modules & {*SLOW, "msgspec", "typer", "click", "httpcore", "pydantic"}


def test_a_message_is_sent_without_the_host_and_without_slow_packages() -> None:
    with running(FLEET / "hello.py") as server:
        assert not imported("send", "hello", "Ada", "--url", server.url) & SLOW
