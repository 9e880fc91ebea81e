"""Servers on bare sockets, for responses that no framework sends."""

from __future__ import annotations

import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Serve = Callable[[socket.socket, str], None]


@contextmanager
def hostile(serve: Serve, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve every connection in its own thread. `serve` gets the connection and the path of its first request."""
    over = threading.Event()
    open_now: list[socket.socket] = []

    def one(connection: socket.socket) -> None:
        try:
            if tls is not None:
                connection = tls.wrap_socket(connection, server_side=True)
            serve(connection, read_request(connection))
        except OSError:
            pass
        finally:
            connection.close()

    def accept() -> None:
        while not over.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            open_now.append(connection)
            threading.Thread(target=one, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"{'https' if tls else 'http'}://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)
            for connection in open_now:
                connection.close()


def read_request(connection: socket.socket) -> str:
    """Read one whole request and return its path, or an empty string if the client has closed the connection."""
    data = b""
    while b"\r\n\r\n" not in data and (more := connection.recv(65536)):
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *(\d+)", head)
    missing = int(length.group(1)) - len(body) if length else 0
    while missing > 0 and (more := connection.recv(missing)):
        missing -= len(more)
    return head.split(b" ")[1].decode() if b" " in head else ""


def answer(body: bytes, kind: str = "application/json", status: str = "200 OK", headers: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body
