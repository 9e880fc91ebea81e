"""A hostile server on this machine: an issuer of JWTs, and a receiver of webhooks."""

from __future__ import annotations

import base64
import json
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import OKPAlgorithm

LIFE_S = 86_400
PIECE = b"x" * 65536


class Issuer:
    """Serves its own key, or the `keys` and the `card` that a case sets. Webhooks get the response in `receipt`."""

    def __init__(self) -> None:
        self.key = Ed25519PrivateKey.generate()
        self.keys: bytes | None = None
        """The answer of /keys; None for the own key."""
        self.slow_s = 0.0
        """The seconds that /keys takes."""
        self.card = b""
        self.receipt = "ok"
        self.asked = 0
        self.called = 0
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.answer(self)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                issuer.acknowledge(self)

            def log_message(self, *args: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def token(self, **changed: Any) -> str:
        now = time.time()
        claims = {"iss": self.url, "aud": "roost", "sub": "alice", "exp": now + LIFE_S, "iat": now - 5, **changed}
        return jwt.encode(claims, self.key, "EdDSA", {"kid": "own"})

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer a request for the configuration or the keys."""
        self.asked += 1
        if "openid" in handler.path:
            body = json.dumps({"issuer": self.url, "jwks_uri": f"{self.url}/keys"}).encode()
        elif "card" in handler.path:
            body = self.card
        else:
            time.sleep(self.slow_s)
            body = self.keys or json.dumps({"keys": [self.own()]}).encode()
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        with suppress(OSError):
            handler.wfile.write(body)

    def own(self) -> dict[str, Any]:
        return {**OKPAlgorithm.to_jwk(self.key.public_key(), as_dict=True), "kid": "own"}

    def acknowledge(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer the call of a webhook as `receipt` says."""
        self.called += 1
        with suppress(OSError):
            handler.send_response(200)
            if self.receipt == "many headers":
                for number in range(5000):
                    handler.send_header(f"X-Header-{number}", "x" * 1000)
            if self.receipt == "endless body":
                handler.end_headers()
                until = time.monotonic() + 5
                while time.monotonic() < until:
                    handler.wfile.write(PIECE)
                return
            if self.receipt == "a length of 10 GB":
                handler.send_header("Content-Length", str(10**10))
                handler.end_headers()
                handler.wfile.write(PIECE)
                return
            handler.send_header("Content-Length", "0")
            handler.end_headers()

    def close(self) -> None:
        self.server.shutdown()


def segment(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
