"""The limit: uvicorn and msgspec turn a message into a task, without an engine between them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks import serving
from roost.engine.ids import new_id, now_us, timestamp
from roost.protocol.codec import decoder, encode
from roost.protocol.types import Artifact, Part, SendMessageRequest, Task, TaskState, TaskStatus

decode = decoder(SendMessageRequest)


async def app(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    if scope["type"] != "http":
        return
    if scope["method"] == "GET":
        await _bytes(send, int(scope["path"].rpartition("/")[2]))
        return
    message = decode((await receive())["body"]).message
    now = now_us()
    task = Task(
        id=new_id(),
        context_id=new_id(),
        status=TaskStatus(state=TaskState.COMPLETED, timestamp=timestamp(now)),
        artifacts=[Artifact(artifact_id="output", parts=[Part(text=str(now * 1000))])],
        history=[message],
    )
    body = b'{"task":%b}' % encode(task)
    headers = [(b"content-type", b"application/a2a+json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _bytes(send: Callable[[dict[str, Any]], Awaitable[None]], size: int) -> None:
    """Answer GET /SIZE with that many bytes, which need no work."""
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % size)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b" " * size})


if __name__ == "__main__":
    serving.run(app)
