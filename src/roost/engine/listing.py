"""ListTasks: a page of one owner's tasks, newest status first."""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

from roost.engine.bodies import LARGE, BodyReader, Made
from roost.engine.extension import ReaderView
from roost.engine.ids import timestamp
from roost.engine.live_tasks import LiveTasks
from roost.engine.store_types import ListQuery, Scope, Stored, TaskPage
from roost.engine.views import split, trim_body
from roost.protocol.codec import encode
from roost.protocol.errors import InvalidParams, TaskNotFound
from roost.protocol.states import SETTLED
from roost.protocol.types import ListTasksRequest, TaskState

DEFAULT_PAGE = 50


async def list_tasks(
    lives: LiveTasks,
    scope: Scope,
    request: ListTasksRequest,
    view: ReaderView | None,
    reader: BodyReader | None,
) -> bytes:
    """Return a page. It ends early when its tasks have MOST_BYTES, but not before the first one."""
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
    if reader is None:
        return await _page(lives, request, query, await lives.store.list_tasks(query), view)
    found = await lives.store.list_tasks(query._replace(unread=LARGE))

    async def make() -> Made:
        return Made(await _page(lives, request, query, await lives.store.list_tasks(query), view))

    if found.size > LARGE:
        return (await reader.read(found.size, None, make)).data
    bodies = [Made(await _page(lives, request, query, found, view))]  # tasks at work may be larger than was stored
    return (await reader.read(len(bodies[0].data), None, make, bodies)).data


async def _page(
    lives: LiveTasks, request: ListTasksRequest, query: ListQuery, found: TaskPage, view: ReaderView | None
) -> bytes:
    page = found.tasks[: query.limit - 1]
    more = found.cut or len(found.tasks) > len(page)
    shown: list[_Shown] = []
    size = 0
    for index, stored in enumerate(page):
        task = await _show(lives, stored, request, query)
        if task is None:
            continue
        size += len(task.body)
        if shown and size > query.most:
            page, more = page[:index], True
            break
        shown.append(task)
    token = _token(page[-1]) if more else ""
    shown.sort(key=lambda task: task.task_id)
    shown.sort(key=lambda task: task.status_time, reverse=True)
    body = b'{"tasks":[%b],"nextPageToken":%b,"pageSize":%d,"totalSize":%d}' % (
        b",".join([task.body for task in shown]),
        encode(token),
        query.limit - 1,
        found.total,
    )
    return body if view is None else view.page(body)


class _Shown(NamedTuple):
    status_time: str
    task_id: str
    body: bytes


async def _show(lives: LiveTasks, stored: Stored, request: ListTasksRequest, query: ListQuery) -> _Shown | None:
    """A task as it is now: it may have moved on since its row was read, and then out of what was asked for."""
    snapshot, head = stored.snapshot, stored.head
    if snapshot is not None and head.state in SETTLED:
        state, when = head.state, timestamp(head.status_time * 1000)
        body, artifacts = snapshot.body, snapshot.artifacts
    else:
        try:
            status, body, artifacts = await lives.read(stored.new.id, lambda task, _: (task.status, *split(task)))
        except TaskNotFound:
            return None  # its retention ended between the two reads
        state, when = status.state, status.timestamp or ""
    if query.state not in (TaskState.UNSPECIFIED, state):
        return None
    body = trim_body(body, request.history_length)
    if query.artifacts:
        body = b'%b,"artifacts":%b}' % (body[:-1], artifacts)
    return _Shown(when, stored.new.id, body)


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
