"""A real issuer of JWTs on this machine: its OpenID configuration and its keys, over HTTP."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.identity.issuer import AUDIENCE, Fields, Signer, signer


class Issuer:
    """Signs with the first of its keys. `up` says whether its pages can be had."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.keys: list[Signer] = [signer("EdDSA", "first")]
        self.up = True
        self.asked: list[str] = []

    def claims(self, **changed: Any) -> Fields:
        """Those of a good token; None takes one away."""
        now = time.time()
        good = {"iss": self.url, "aud": AUDIENCE, "sub": "alice", "exp": now + 600, "iat": now - 5}
        return {name: value for name, value in {**good, **changed}.items() if value is not None}

    def token(self, **changed: Any) -> str:
        return self.keys[0].sign(self.claims(**changed))

    def page(self, path: str) -> bytes | None:
        self.asked.append(path)
        if not self.up:
            return None
        if path == "/.well-known/openid-configuration":
            return json.dumps({"issuer": self.url, "jwks_uri": f"{self.url}/keys"}).encode()
        return json.dumps({"keys": [key.jwk() for key in self.keys]}).encode() if path == "/keys" else None


@contextmanager
def issuing() -> Iterator[Issuer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = issuer.page(self.path)
            self.send_response(200 if found is not None else 503)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(found or b"")))
            self.end_headers()
            self.wfile.write(found or b"")

        def log_message(self, *args: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        issuer = Issuer(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield issuer
        finally:
            server.shutdown()
            thread.join()
