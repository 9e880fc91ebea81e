"""Checks of setting values that are more than a type and bounds.

Each takes the text of a setting and raises a ValueError that says what to write instead.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_network
from urllib.parse import urlsplit

from roost.identity.scopes import SCHEMES, parse_scopes


def words(text: str) -> list[str]:
    """The items of a comma-separated list."""
    return [item.strip() for item in text.split(",") if item.strip()]


def each(check: Callable[[str], object]) -> Callable[[str], None]:
    """Check every item of a comma-separated list."""

    def check_all(text: str) -> None:
        for item in words(text):
            check(item)

    return check_all


def parse_place(text: str) -> tuple[str, int]:
    """Split host:port or [v6]:port."""
    host, _, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not bare or not port.isascii() or not port.isdigit() or int(port) > 65535 or (":" in bare) != (bare != host):
        raise ValueError("give host:port or [v6]:port")
    return bare, int(port)


def listener(text: str) -> None:
    if text.startswith("unix:"):
        if text == "unix:":
            raise ValueError("unix: needs a path")
        return
    try:
        parse_place(text)
    except ValueError:
        raise ValueError(f"{text!r} is no address: give host:port, [v6]:port or unix:PATH") from None


def scheme(text: str) -> None:
    if text not in SCHEMES:
        raise ValueError(f"{text!r} is not one of {', '.join(SCHEMES)}")


def scopes(text: str) -> None:
    parse_scopes(text.split(","))


def mode(text: str) -> None:
    if len(text) not in (3, 4) or any(digit not in "01234567" for digit in text):
        raise ValueError("give permissions in octal, such as 600 or 660")


def network(text: str) -> None:
    ip_network(text)


def origin(text: str) -> None:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or text != f"{parts.scheme}://{parts.netloc}":
        raise ValueError(f"{text!r} is not an origin: give https://host[:port], without a path or *")


def http_url(text: str) -> None:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("give a URL, http(s)://host[:port]")


def base_url(text: str) -> None:
    http_url(text)
    parts = urlsplit(text)
    if parts.query or parts.fragment:
        raise ValueError("give a URL without a query and without a fragment")


def postgres_url(text: str) -> None:
    parts = urlsplit(text)
    if parts.scheme not in ("postgresql", "postgres") or len(parts.path) < 2:
        raise ValueError("give postgresql://user@host/database, or a folder with --data")


def nats_url(text: str) -> None:
    if urlsplit(text).scheme not in ("nats", "tls"):
        raise ValueError("give nats://host:port")
