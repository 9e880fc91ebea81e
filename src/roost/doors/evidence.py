"""Evidence over HTTP: bundles for those with the scope `audit`, and the keys that they are signed with for everyone."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable

from roost.doors.context import Context
from roost.doors.http import NOT_KEPT, Headers, Request, Response
from roost.evidence.export import Source, TooMuch, export
from roost.evidence.export_selection import NothingFound, Selection, parse_since
from roost.fleet.cards import MAX_AGE_S
from roost.identity.clock import now_ms
from roost.identity.keys import Keyring, NoKey, key_set
from roost.protocol.errors import InvalidParams, TaskNotFound, Unavailable

KEYS_PATH = "/.well-known/evidence-jwks.json"
MEDIA_TYPE = "application/gzip"
FIELDS = ("task", "since", "agent", "redact")
MOST_TASKS = 1000
PIECE = 64 * 1024


class Exports:
    """One at a time: each is made in a file before it is sent."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.turn = asyncio.Lock()

    async def serve(self, request: Request, did: Callable[[str], Awaitable[None]]) -> None:
        """`did` puts it on record, before anything is sent."""
        selection = _selection(request)
        if self.turn.locked():
            raise Unavailable("another bundle is being made: try again", retry_after=5)
        async with self.turn:
            cards, base = self.context.cards, self.context.base(request)
            served = {profile.id: await cards.document(base, profile.id) for profile in cards.profiles}
            source = Source(self.context.engine.store, cards.keyring, served)
            with tempfile.TemporaryFile() as file:
                try:
                    await export(source, selection, file)
                except NothingFound as error:
                    raise TaskNotFound(str(error)) from None
                except TooMuch as error:
                    raise InvalidParams(str(error), field="task" if selection.tasks else "since") from None
                except NoKey as error:
                    raise Unavailable(str(error)) from None
                await did(" ".join(selection.tasks) or f"since {request.query['since']}")
                size = file.tell()
                file.seek(0)
                await _send(request, size, lambda: file.read(PIECE))


async def evidence_keys(keyring: Keyring) -> Response:
    headers: Headers = [(b"cache-control", b"public, max-age=%d" % MAX_AGE_S)]
    return Response(200, key_set(await keyring.evidence_keys()), b"application/jwk-set+json", headers)


def _selection(request: Request) -> Selection:
    query = request.query
    for name in query:
        if name not in FIELDS:
            raise InvalidParams(f"there is no {name[:64]!r}: {', '.join(FIELDS)} are known", field=name[:64])
    tasks = tuple(item for item in query.get("task", "").split(",") if item)
    if bool(tasks) == ("since" in query):
        raise InvalidParams("say which tasks: `task` with ids, or `since` with a time or a checkpoint", field="task")
    if len(tasks) > MOST_TASKS:
        raise InvalidParams(f"at most {MOST_TASKS} tasks can be named", field="task")
    redact = query.get("redact", "false")
    if redact not in ("", "true", "false", "1", "0"):
        raise InvalidParams("redact is true or false", field="redact")
    since_ms, checkpoint = None, None
    if "since" in query:
        try:
            since_ms, checkpoint = parse_since(query["since"], now_ms())
        except ValueError as error:
            raise InvalidParams(str(error), field="since") from None
    return Selection(tasks, since_ms, checkpoint, query.get("agent", ""), redact in ("", "true", "1"))


async def _send(request: Request, size: int, read: Callable[[], bytes]) -> None:
    headers: Headers = [
        *NOT_KEPT,
        *request.answer_headers,
        (b"content-type", MEDIA_TYPE.encode()),
        (b"content-length", b"%d" % size),
        (b"content-disposition", b'attachment; filename="evidence.tar.gz"'),
    ]
    request.status = 200
    await request.send({"type": "http.response.start", "status": 200, "headers": headers})
    while piece := read():
        await request.send({"type": "http.response.body", "body": piece, "more_body": True})
    await request.send({"type": "http.response.body", "body": b""})
