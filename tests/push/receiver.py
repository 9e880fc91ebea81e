"""A real webhook, in a thread: it notes every call and answers as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from tests.waiting import PATIENCE_S


class Call(NamedTuple):
    path: str
    headers: dict[str, str]
    """The headers by lower-case name."""
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def said(self) -> str:
        """The state of a status, or the text of an artifact."""
        if "statusUpdate" in self.json:
            state: str = self.json["statusUpdate"]["status"]["state"]
            return state.removeprefix("TASK_STATE_")
        if "artifactUpdate" in self.json:
            return "".join(part["text"] for part in self.json["artifactUpdate"]["artifact"]["parts"])
        return next(iter(self.json))


class Receiver:
    """`answers` by path: a status, or (status, headers). `held` paths answer only when they are let go."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.server = server
        self.calls: list[Call] = []
        self.answers: dict[str, int | tuple[int, dict[str, str]]] = {}
        self.held: dict[str, threading.Event] = {}
        self.told = threading.Condition()

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])

    def url(self, path: str = "/hook") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def at(self, path: str = "/hook") -> list[Call]:
        with self.told:
            return [call for call in self.calls if call.path == path]

    def said(self, path: str = "/hook") -> list[str]:
        return [call.said for call in self.at(path)]

    def wait(self, count: int, path: str = "/hook") -> list[Call]:
        """Until there were so many calls."""
        with self.told:
            self.told.wait_for(lambda: len(self.at(path)) >= count, PATIENCE_S)
        found = self.at(path)
        assert len(found) >= count, [call.said for call in found]
        return found

    def wait_said(self, last: str, path: str = "/hook") -> list[str]:
        with self.told:
            self.told.wait_for(lambda: last in self.said(path), PATIENCE_S)
        found = self.said(path)
        assert last in found, found
        return found

    def note(self, call: Call) -> int | tuple[int, dict[str, str]]:
        with self.told:
            self.calls.append(call)
            self.told.notify_all()
        held = self.held.get(call.path)
        if held is not None:
            held.wait(PATIENCE_S)
        return self.answers.get(call.path, 204)


@contextmanager
def receiving(port: int = 0) -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = receiver.note(Call(self.path, headers, body))
            status, more = answer if isinstance(answer, tuple) else (answer, {})
            self.send_response(status)
            for name, value in {"Content-Length": "0", **more}.items():
                self.send_header(name, value)
            self.end_headers()

        def do_GET(self) -> None:
            receiver.note(Call(self.path, {}, b'{"got": 1}'))
            self.send_error(404)

        def log_message(self, *args: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        server.daemon_threads = True
        receiver = Receiver(server)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield receiver
        finally:
            for event in receiver.held.values():
                event.set()
            server.shutdown()
            thread.join()
