"""An issuer of JWTs: PyJWT signs them, and a function that counts its calls serves the keys."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, SECP384R1
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as new_ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as new_rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER = "https://idp.example"
AUDIENCE = "roost-host"
JWKS = "https://idp.example/keys"
NOW = 1_800_000_000.0

Fields = dict[str, Any]


class Clock:
    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Signer:
    """A key pair of the issuer."""

    def __init__(self, algorithm: str, private: Any, kid: str) -> None:
        self.algorithm = algorithm
        self.private = private
        self.kid = kid

    def jwk(self, **fields: object) -> Fields:
        makers = {"R": RSAAlgorithm, "P": RSAAlgorithm, "ES": ECAlgorithm, "Ed": OKPAlgorithm}
        maker: Any = makers.get(self.algorithm[:2]) or makers[self.algorithm[0]]
        made = maker.to_jwk(self.private.public_key(), as_dict=True)
        return {name: value for name, value in {**made, "kid": self.kid, **fields}.items() if value is not None}

    def sign(self, claims: Fields, algorithm: str = "", **header: Any) -> str:
        head = {name: value for name, value in {"kid": self.kid, **header}.items() if value is not None}
        return jwt.PyJWS().encode(json.dumps(claims).encode(), self.private, algorithm or self.algorithm, head)


@cache
def signer(algorithm: str = "EdDSA", kid: str = "k1") -> Signer:
    """Return the same key for the same arguments, because keys take long to make."""
    if algorithm.startswith("ES"):
        return Signer(algorithm, new_ec(SECP256R1() if algorithm == "ES256" else SECP384R1()), kid)
    if algorithm == "EdDSA":
        return Signer(algorithm, Ed25519PrivateKey.generate(), kid)
    return Signer(algorithm, new_rsa(public_exponent=65537, key_size=2048), kid)


def claims(**changed: Any) -> Fields:
    """Return the claims of a valid token; None removes a claim."""
    good = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": NOW + 3600, "iat": NOW - 5}
    return {name: value for name, value in {**good, **changed}.items() if value is not None}


def forge(header: Fields, payload: object, secret: bytes | None = None) -> str:
    """Make a token that no library would make, signed by HMAC-SHA256 if there is a secret."""
    signed = ".".join(encoded(json.dumps(part).encode()) for part in (header, payload))
    return f"{signed}.{encoded(b'' if secret is None else hmac.digest(secret, signed.encode(), hashlib.sha256))}"


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Served:
    """The content at URLs. `gate` delays responses while it is not set."""

    def __init__(self, *keys: Fields) -> None:
        self.pages: dict[str, bytes | Exception] = {}
        self.asked: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.publish(*keys)

    def publish(self, *keys: Fields) -> None:
        self.pages[JWKS] = json.dumps({"keys": list(keys)}).encode()

    async def fetch(self, url: str) -> bytes:
        self.asked.append(url)
        await self.gate.wait()
        page = self.pages[url]
        if isinstance(page, Exception):
            raise page
        return page
