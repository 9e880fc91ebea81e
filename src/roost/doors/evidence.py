"""Evidence over HTTP: bundles for callers with the scope `audit`."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import IO, Any
from urllib.parse import parse_qsl

from roost.doors.context import Context
from roost.doors.http import NOT_KEPT, Headers, Request
from roost.evidence.export import Exporter, ExportTooLarge, TaskChanged
from roost.evidence.export_selection import NothingFound, Selection, parse_since
from roost.identity.keys import NoKey
from roost.identity.ports import now_ms
from roost.protocol.errors import InvalidParams, TaskNotFound, Unavailable

MEDIA_TYPE = "application/gzip"
EXPORT_QUERY: dict[str, dict[str, Any]] = {
    "task": {"type": "string", "description": "Ids, comma separated"},
    "since": {
        "type": "string",
        "description": "A time (RFC 3339), an age (7d), or a checkpoint: number or number:digest",
    },
    "agent": {"type": "string"},
    "redact": {"type": "boolean"},
}
FIELDS = tuple(EXPORT_QUERY)
MOST_TASKS = 1000
PIECE = 64 * 1024


class Exports:
    """Exports bundles. One is made at a time, in a file; then it is sent at the reader's pace."""

    def __init__(self, context: Context, exporter: Exporter) -> None:
        self.context = context
        self.exporter = exporter
        self.turn = asyncio.Lock()

    async def serve(
        self, request: Request, tenants: tuple[str, ...] | None, record: Callable[[str], Awaitable[None]]
    ) -> None:
        """Export tasks of these tenants, or of all for None. `record` is called before anything is sent."""
        selection = _selection(request, tenants)
        if self.turn.locked():
            raise Unavailable("another bundle is being made: try again in a moment", retry_after=5)
        with tempfile.TemporaryFile() as file:
            async with self.turn:
                await self._make(request, selection, file)
            await record(selection.describe())
            size = file.tell()
            file.seek(0)
            await _send(request, size, lambda: file.read(PIECE))

    async def _make(self, request: Request, selection: Selection, file: IO[bytes]) -> None:
        cards, base = self.context.cards, self.context.base(request)
        served = {profile.id: await cards.document(base, profile.id) for profile in cards.agents.profiles()}
        try:
            await self.exporter.export(selection, file, served)
        except NothingFound as error:
            if error.field == "task":
                raise TaskNotFound(str(error)) from None
            raise InvalidParams(str(error), field=error.field) from None
        except ExportTooLarge as error:
            raise InvalidParams(str(error), field="task" if selection.tasks else "since") from None
        except TaskChanged as error:
            raise Unavailable(str(error), retry_after=5) from None
        except NoKey as error:
            raise Unavailable(str(error)) from None


def _selection(request: Request, tenants: tuple[str, ...] | None) -> Selection:
    query = request.query
    given = parse_qsl(request.scope.get("query_string", b"").decode(), keep_blank_values=True)
    for name, times in Counter(name for name, _ in given).items():
        if name not in FIELDS:
            raise InvalidParams(f"there is no parameter {name[:64]!r}; there are {', '.join(FIELDS)}", field=name[:64])
        if times > 1:
            raise InvalidParams(f"{name} occurs more than once: separate several tasks with commas", field=name)
    tasks = tuple(item for item in query.get("task", "").split(",") if item)
    if bool(tasks) == ("since" in query):
        raise InvalidParams("name the tasks: `task` with ids, or `since` with a time or a checkpoint", field="task")
    if tasks and "agent" in query:
        raise InvalidParams("agent can be used with `since`, but not with ids of tasks", field="agent")
    if len(tasks) > MOST_TASKS:
        raise InvalidParams(f"at most {MOST_TASKS} tasks can be named", field="task")
    redact = query.get("redact", "false")
    if redact not in ("", "true", "false", "1", "0"):
        raise InvalidParams("redact must be true or false", field="redact")
    chosen = Selection(tasks, agent=query.get("agent", ""), redact=redact in ("", "true", "1"), tenants=tenants)
    if tasks:
        return chosen
    try:
        since_ms, checkpoint, digest = parse_since(query["since"], now_ms())
    except ValueError as error:
        raise InvalidParams(str(error), field="since") from None
    return chosen._replace(since_ms=since_ms, since_checkpoint=checkpoint, checkpoint_digest=digest)


async def _send(request: Request, size: int, read: Callable[[], bytes]) -> None:
    headers: Headers = [
        *NOT_KEPT,
        *request.response_headers,
        (b"content-type", MEDIA_TYPE.encode()),
        (b"content-length", b"%d" % size),
        (b"content-disposition", b'attachment; filename="evidence.tar.gz"'),
    ]
    request.status = 200
    await request.send({"type": "http.response.start", "status": 200, "headers": headers})
    while piece := read():
        await request.send({"type": "http.response.body", "body": piece, "more_body": True})
    await request.send({"type": "http.response.body", "body": b""})
