"""A webhook as its config describes it: what is valid, how it is kept, and what a call to it carries."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from msgspec.structs import asdict

from roost._version import VERSION
from roost.engine.store_types import PushConfig
from roost.identity.seal import Seal
from roost.protocol.codec import decoder, encode
from roost.protocol.errors import InvalidParams
from roost.protocol.types import TaskPushNotificationConfig

MAX_URL = 2048
MAX_SECRET = 4096
SIGNED = "hmac-sha256"
"""The authentication scheme whose credentials sign the calls, and are not sent."""

_ID = re.compile(r"[A-Za-z0-9._~@+=-]{1,128}")
_SCHEME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_PRINTABLE = re.compile(r"[\x20-\x7e]*")

Headers = list[tuple[str, str]]


class Undeliverable(Exception):
    """The call came to nothing. The message names no more of the URL than its host."""

    def __init__(self, message: str, *, final: bool) -> None:
        super().__init__(message)
        self.final = final
        """It never will: the address is not allowed."""


class Sender(Protocol):
    """Who makes the calls; it judges where they may go."""

    async def check(self, url: str) -> None:
        """Undeliverable if the URL may not be called, or cannot be found out to be allowed."""

    async def post(self, url: str, headers: Headers, body: bytes) -> int:
        """The status of the answer, whatever it is; Undeliverable if there is none."""


class Webhook(NamedTuple):
    task_id: str
    config: TaskPushNotificationConfig
    extensions: list[str] = []
    """URIs of extensions that add to what it receives: those that the request which created it had activated."""

    @property
    def host(self) -> str:
        """With its port; all of the URL that may be shown."""
        return host_of(self.config.url)

    def headers(self, seq: int, body: bytes, now: int, secret: str) -> Headers:
        """`secret` is the host's own; a config that has one is signed with that."""
        config = self.config
        headers = [
            ("Content-Type", "application/a2a+json"),
            ("A2A-Version", "1.0"),
            ("User-Agent", f"roost/{VERSION}"),
            ("X-Roost-Delivery-Id", delivery_id(self.task_id, config.id, seq)),
            ("X-Roost-Timestamp", str(now)),
        ]
        if config.token:
            headers.append(("X-A2A-Notification-Token", config.token))
        authentication = config.authentication
        if authentication is not None and authentication.credentials:
            if authentication.scheme.lower() == SIGNED:
                secret = authentication.credentials
            else:
                headers.append(("Authorization", f"{authentication.scheme} {authentication.credentials}"))
        if secret:
            headers.append(("X-AIWG-Signature", signature(secret, now, body)))
        return headers


def delivery_id(task_id: str, config_id: str, seq: int) -> str:
    """The same for every try of one event, and for every repeat."""
    return hashlib.sha256(f"{task_id}\n{config_id}\n{seq}".encode()).hexdigest()[:32]


def signature(secret: str, now: int, body: bytes) -> str:
    digest = hmac.new(secret.encode(), b"%d.%b" % (now, body), hashlib.sha256).hexdigest()
    return f"t={now},v1={digest}"


def host_of(url: str) -> str:
    parts = urlsplit(url)
    name = parts.hostname or ""
    shown = f"[{name}]" if ":" in name else name
    return f"{shown}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


class _Sealed(TaskPushNotificationConfig):
    """A config as it is stored, encrypted, with the extensions of the request that created it."""

    extensions: list[str] = []


def sealed(
    seal: Seal, task_id: str, config: TaskPushNotificationConfig, cursor: int, extensions: Sequence[str] = ()
) -> PushConfig:
    kept = _Sealed(**asdict(config), extensions=list(extensions))
    return PushConfig(task_id, config.id, seal.seal(encode(kept), _about(task_id, config.id)), cursor)


def opened(seal: Seal, config: PushConfig) -> Webhook:
    """Decrypt a webhook. WrongKey if it was encrypted with another key."""
    kept = asdict(decoder(_Sealed)(seal.open(config.sealed, _about(config.task_id, config.id))))
    extensions = kept.pop("extensions")
    return Webhook(config.task_id, TaskPushNotificationConfig(**kept), extensions)


def _about(task_id: str, config_id: str) -> bytes:
    return f"push\n{task_id}\n{config_id}".encode()


def check_config(config: TaskPushNotificationConfig, at: str) -> None:
    """InvalidParams names the field; `at` is where the config is in the request, with a dot at its end."""

    def require(field: str, holds: bool, what: str) -> None:
        if not holds:
            raise InvalidParams(f"{at}{field}: {what}", field=f"{at}{field}")

    require("id", not config.id or _ID.fullmatch(config.id) is not None,
        "at most 128 letters, digits and . _ ~ @ + = -")  # fmt: skip
    require("url", len(config.url) <= MAX_URL, f"longer than {MAX_URL} characters")
    require("url", _is_web(config.url), "a webhook is an http:// or https:// URL with a host")
    require("token", len(config.token) <= MAX_SECRET, f"longer than {MAX_SECRET} characters")
    require("token", _fits_header(config.token), "it is sent as a header: printable ASCII, no blanks around it")
    authentication = config.authentication
    if authentication is None:
        return
    scheme, credentials = authentication.scheme, authentication.credentials
    require("authentication.scheme", _SCHEME.fullmatch(scheme) is not None, "a scheme of HTTP is one word, like Bearer")
    require("authentication.credentials", len(credentials) <= MAX_SECRET, f"longer than {MAX_SECRET} characters")
    require("authentication.credentials", _fits_header(credentials),
        "they are sent as a header: printable ASCII, no blanks around them")  # fmt: skip
    require("authentication.credentials", bool(credentials) or scheme.lower() != SIGNED,
        f"{SIGNED} needs a secret to sign with")  # fmt: skip


def _fits_header(text: str) -> bool:
    return _PRINTABLE.fullmatch(text) is not None and text == text.strip()


def _is_web(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
