"""ListTasks: a page of one owner's tasks, newest status first."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from roost.engine.ports import ListQuery, Scope, Stored
from roost.engine.views import trim_body
from roost.protocol.codec import encode
from roost.protocol.errors import InvalidParams, TaskNotFound
from roost.protocol.states import SETTLED
from roost.protocol.types import ListTasksRequest

if TYPE_CHECKING:
    from roost.engine.engine import Engine

DEFAULT_PAGE = 50


async def list_tasks(engine: Engine, scope: Scope, request: ListTasksRequest) -> bytes:
    size = request.page_size or DEFAULT_PAGE
    cursor = _cursor(request.page_token) if request.page_token else None
    query = ListQuery(
        scope,
        request.context_id,
        request.status,
        request.status_timestamp_after,
        cursor,
        size + 1,
        bool(request.include_artifacts),
    )
    found = await engine.store.list_tasks(query)
    page = found.tasks[:size]
    token = _token(page[-1]) if len(found.tasks) > size else ""
    bodies = []
    for stored in page:
        try:
            bodies.append(await _body(engine, stored, request.history_length, query.artifacts))
        except TaskNotFound:
            continue  # ended its retention between the two reads
    return b'{"tasks":[%b],"nextPageToken":%b,"pageSize":%d,"totalSize":%d}' % (
        b",".join(bodies),
        encode(token),
        size,
        found.total,
    )


async def _body(engine: Engine, stored: Stored, history_length: int | None, artifacts: bool) -> bytes:
    snapshot = stored.snapshot
    if snapshot is not None and stored.head.state in SETTLED:
        body, array = snapshot.body, snapshot.artifacts
    else:
        body, array = await engine.split_task(stored.new.id)
    body = trim_body(body, history_length)
    return b'%b,"artifacts":%b}' % (body[:-1], array) if artifacts else body


def _token(stored: Stored) -> str:
    return base64.urlsafe_b64encode(f"{stored.head.status_time}:{stored.new.id}".encode()).decode().rstrip("=")


def _cursor(token: str) -> tuple[int, str]:
    try:
        text = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True).decode()
        time, colon, task_id = text.partition(":")
        if not colon or not task_id:
            raise ValueError
        cursor = int(time), task_id
        if not 0 <= cursor[0] < 2**63:
            raise ValueError
        return cursor
    except (ValueError, binascii.Error, OverflowError):
        raise InvalidParams(
            "pageToken is not one that ListTasks returned; leave it out to begin at the first page", field="pageToken"
        ) from None
