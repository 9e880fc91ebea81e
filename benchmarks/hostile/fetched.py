"""Things that the host fetches from others, or verifies: keys of an issuer, JWTs, responses of webhooks, cards."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.hostile.case import ACCEPTED, INVALID, LIMITED, Case, Stage, outcome
from benchmarks.hostile.issuer import segment
from benchmarks.hostile.senders import V1, call
from benchmarks.hostile.shapes import filled, nested, repeated
from benchmarks.servers import HERE

UNKNOWN = r"refused 401|refused 503|refused 429"
KEYS_S = 11.0
"""The time after which the host fetches the keys again for a token that names an unknown one."""


def cases() -> Iterator[Case]:
    for name in JWKS:
        yield Case(f"JWKS: {name}", "JWT", partial(_jwks, name), f"{ACCEPTED}|{UNKNOWN}", host="jwt")
    for name in TOKENS:
        yield Case(
            f"JWT: {name}", "JWT", partial(_tokens, name), f"{UNKNOWN}|{LIMITED}|{INVALID}|refused 431", host="jwt"
        )
    for receipt in ("endless body", "many headers", "a length of 10 GB"):
        yield Case(f"a webhook that answers with {receipt}", "webhook", partial(_webhook, receipt), "called")
    for name in CARDS:
        yield Case(f"a card with {name}", "card verify", partial(_card, name), "refused")


# Keys


def _rsa(number: int, size: int = 512) -> dict[str, str]:
    modulus = segment((number * 2 + 1 + (1 << (size * 8 - 1))).to_bytes(size, "big"))
    return {"kty": "RSA", "kid": f"k{number}", "n": modulus, "e": "AQAB"}


JWKS: dict[str, Callable[[], bytes]] = {
    "350 RSA keys": lambda: b",".join(json.dumps(_rsa(number)).encode() for number in range(350)),
    "8 MB": lambda: b",".join(json.dumps(_rsa(number, 1024)).encode() for number in range(6_000)),
    "100,000 levels": lambda: b'{"kty":"OKP","x":%b1%b}' % (b"[" * 100_000, b"]" * 100_000),
    "a key with 20,000 names": lambda: b'{"kty":"OKP",%b}' % filled(lambda n: b'"n%d":1' % n, 240_000),
    "slow": lambda: b"{}",
}
"""Keys that are served after the one that the issuer signs with."""


def _jwks(name: str, stage: Stage) -> str:
    """Make the host fetch hostile keys, by a token that names a key which it does not know."""
    issuer = stage.issuer
    own = json.dumps(issuer.own()).encode()
    issuer.keys, issuer.slow_s = b'{"keys":[%b,%b]}' % (own, JWKS[name]()), 5.0 if name == "slow" else 0.0
    asked, until = issuer.asked, time.monotonic() + 2 * KEYS_S
    found = ""
    try:
        while issuer.asked < asked + 2 and time.monotonic() < until:
            token = issuer.token().split(".")
            token[0] = segment(b'{"alg":"EdDSA","kid":"unknown-%d"}' % time.monotonic_ns())
            found = outcome(call(stage.port, "GET", "/agents/bench/tasks", None, _bearer(".".join(token))))
            time.sleep(0.3)
    finally:
        issuer.keys, issuer.slow_s = None, 0.0
    return found if issuer.asked >= asked + 2 else "the host did not fetch the keys"


def _bearer(token: str) -> dict[str, str]:
    return {**V1, "Authorization": f"Bearer {token}"}


TOKENS: dict[str, Callable[[], tuple[bytes, bytes]]] = {
    "30 KB of claims": lambda: (b'{"alg":"EdDSA","kid":"own"}', b'{"x":[%b1]}' % (b"1," * 10_000)),
    "5 KB of claims": lambda: (b'{"alg":"EdDSA","kid":"own"}', b'{"x":[%b1]}' % (b"1," * 2_500)),
    "claims in 2,500 levels": lambda: (b'{"alg":"EdDSA","kid":"own"}', b'{"x":%b}' % (b"[" * 2_500 + b"]" * 2_500)),
    "a header in 2,500 levels": lambda: (b'{"alg":%b}' % (b"[" * 2_500 + b"]" * 2_500), b"{}"),
    "30 KB of dots": lambda: (b"", b""),
}


def _tokens(name: str, stage: Stage) -> str:
    header, claims = TOKENS[name]()
    token = "." * 30_000 if not header else f"{segment(header)}.{segment(claims)}.{segment(bytes(64))}"
    return max(outcome(call(stage.port, "GET", "/agents/bench/tasks", None, _bearer(token))) for _ in range(50))


# Webhooks


def _webhook(receipt: str, stage: Stage) -> str:
    issuer = stage.issuer
    issuer.receipt, called = receipt, issuer.called
    try:
        for number in range(10):
            message = {
                "messageId": f"{time.monotonic_ns()}-{number}",
                "role": "ROLE_USER",
                "parts": [{"text": "20 20"}],
            }
            config = {"url": f"{issuer.url}/hook-{number}"}
            body = {
                "message": message,
                "configuration": {"taskPushNotificationConfig": config, "returnImmediately": True},
            }
            call(stage.port, "POST", "/agents/bench/message:send", json.dumps(body).encode())
        time.sleep(6)
    finally:
        issuer.receipt = "ok"
    return "called" if issuer.called > called else "not called"


# Cards


def _card(name: str, stage: Stage) -> str:
    """Verify a hostile card on the command line, which must refuse it in a short time."""
    stage.issuer.card = CARDS[name]()
    begun = time.monotonic()
    command = [str(HERE.command), "card", "verify", f"{stage.issuer.url}/card.json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    said = (done.stderr or done.stdout).strip().replace("\n", " ")[:100].replace(stage.issuer.url, "")
    seconds = time.monotonic() - begun
    if "Traceback" in done.stderr or not done.returncode:
        return f"exit code {done.returncode}: {said}"
    return f"refused in {seconds:.0f} s: {said}" if seconds < 20 else f"slow: {seconds:.0f} s"


def _refs() -> bytes:
    params = b'{"$ref":' * 50_000 + b'"#"' + b"}" * 50_000
    return b'{"name":"x","capabilities":{"extensions":[{"uri":"u","params":%b}]}}' % params


def _skills() -> bytes:
    skill = '{"id":"a","name":"a","description":"a","tags":["a"]}'
    return f'{{"name":"x","skills":[{",".join([skill] * 150_000)}]}}'.encode()


def _many_refs() -> bytes:
    """Return a card within all limits, with parameters of an extension that are full of references."""
    params = repeated(nested(b'{"$ref":', b'"#/params"', b"}", 80), 1_000_000)
    card = {
        "name": "x",
        "description": "x",
        "version": "1",
        "supportedInterfaces": [{"url": "https://x.example", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {"extensions": [{"uri": "u:x", "params": {"refs": ["%(refs)s"]}}]},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [],
    }
    return json.dumps(card).encode().replace(b'"%(refs)s"', params)


CARDS = {"$refs in 50,000 levels": _refs, "1 MB of $refs in 80 levels": _many_refs, "8 MB of skills": _skills}
