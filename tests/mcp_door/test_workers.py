"""Several processes behind one port: no session is opened that the next request would not find."""

from __future__ import annotations

import secrets
from pathlib import Path

from tests.doors import serving
from tests.mcp_door.clients import Progress, connected, data, each_version, task_of, text
from tests.processes import running


@each_version
async def test_every_request_may_come_to_another_process(database: str, tmp_path: Path, mode: str) -> None:
    key = tmp_path / "secret.key"
    key.touch(mode=0o600)
    key.write_text(secrets.token_hex(32))
    store = ("--store", database, "--secret-file", str(key))
    with running(serving.AGENTS, store=store, args=("--workers", "2", "--drain-s", "0")) as server:
        async with connected(server.url, mode) as client:
            for _ in range(10):
                async with connected(server.url, mode) as other:
                    assert "interview" in {tool.name for tool in (await other.list_tools()).tools}
            progress = Progress()
            stepped = await client.call_tool("steps", {"text": "?"}, progress_callback=progress)
            assert text(stepped) == "done"
            assert progress.said
            asked = await client.call_tool("interview", {"text": "?"})
            assert data(asked)["state"] == "input-required"
            read = await client.call_tool("get_task", {"taskId": task_of(asked)})
            assert data(read)["message"] == "Your name?"
