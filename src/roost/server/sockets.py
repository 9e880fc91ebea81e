"""The addresses on which the host listens: `host:port`, `[v6]:port` and `unix:PATH`."""

from __future__ import annotations

import logging
import os
import socket
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from roost.settings import Settings
from roost.settings_checks import parse_place

log = logging.getLogger("roost.server")

BACKLOG = 2048
PROBE_S = 1.0


class CannotServe(Exception):
    """The server cannot listen as the settings say. The message says what to change."""


class TCP(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Unix(NamedTuple):
    path: Path

    def __str__(self) -> str:
        return f"unix:{self.path}"


class Listeners:
    """Bound sockets, in the order of the addresses. A worker inherits its parent's, and removes no files."""

    def __init__(self, sockets: Sequence[socket.socket] = ()) -> None:
        self.sockets = [*sockets]
        self.files: dict[Path, tuple[int, int]] = {}
        """Socket files that this process made, with their device and inode."""

    def open(self, address: TCP | Unix, settings: Settings) -> None:
        if isinstance(address, TCP):
            self.sockets.append(_bind(address, settings))
            return
        self.sockets.append(_bind_unix(address, int(settings.unix_mode, 8)))
        made = address.path.stat()
        self.files[address.path.absolute()] = made.st_dev, made.st_ino

    def remove_files(self) -> None:
        while self.files:
            path, made = self.files.popitem()
            try:
                found = path.lstat()
                if (found.st_dev, found.st_ino) == made:
                    path.unlink()
            except FileNotFoundError:
                pass
            except OSError as error:
                log.warning("cannot remove %s: %s", path, error.strerror)

    def close(self) -> None:
        self.remove_files()
        for listener in self.sockets:
            listener.close()


def addresses(settings: Settings) -> list[TCP | Unix]:
    if not settings.listen:
        return [TCP(settings.host, settings.port)]
    return [_address(item.strip()) for item in settings.listen.split(",")]


def open_listeners(settings: Settings) -> Listeners:
    """Listen on all addresses, or raise and listen on none."""
    listeners = Listeners()
    try:
        for address in addresses(settings):
            listeners.open(address, settings)
    except BaseException:
        listeners.close()
        raise
    return listeners


def places(settings: Settings, sockets: Sequence[socket.socket]) -> list[str]:
    """The addresses as a user gives them to a client, with the actual port where port 0 was given."""
    scheme = "https" if settings.tls_cert else "http"
    return [
        str(address) if isinstance(address, Unix) else f"{scheme}://{address._replace(port=listener.getsockname()[1])}"
        for address, listener in zip(addresses(settings), sockets, strict=True)
    ]


def _address(text: str) -> TCP | Unix:
    kind, _, path = text.partition(":")
    if kind == "unix" and path:
        return Unix(Path(path))
    try:
        return TCP(*parse_place(text))
    except ValueError:
        raise CannotServe(
            f"--listen cannot be {text!r}: give host:port, [v6]:port or unix:PATH, comma separated"
        ) from None


def _bind(address: TCP, settings: Settings) -> socket.socket:
    listener = socket.socket(_family(address))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        flag = "--listen" if settings.listen else "--port"
        raise CannotServe(_taken(address, flag, error)) from error
    return listener


def _family(address: TCP) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address.host else socket.AF_INET


def _taken(address: TCP, flag: str, error: OSError) -> str:
    said = f"cannot listen on {address}: {error.strerror}."
    with socket.socket(_family(address)) as probe:
        for port in range(address.port + 1, min(address.port + 100, 65536)):
            free = address._replace(port=port)
            try:
                probe.bind(free)
            except OSError:
                continue
            return f"{said} Port {port} is free: use {flag} {port if flag == '--port' else free}"
    return f"{said} Choose another with {flag}, 0 for any port"


def _bind_unix(address: Unix, mode: int) -> socket.socket:
    """Bind a Unix socket whose file has the right permissions from the first moment."""
    if not hasattr(socket, "SO_PEERCRED"):
        raise CannotServe(
            f"cannot listen on {address}: this system cannot identify callers of a Unix socket. Listen on host:port"
        )
    _remove_stale(address)
    listener = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o777 & ~mode)
    try:
        listener.bind(str(address.path))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise CannotServe(f"cannot listen on {address}: {error.strerror or error}. Choose another path") from error
    finally:
        os.umask(mask)
    return listener


def _remove_stale(address: Unix) -> None:
    """Remove the socket file that a killed server left behind."""
    try:
        found = address.path.lstat()
    except OSError:
        return  # it does not exist; any other error comes again from bind
    if not stat.S_ISSOCK(found.st_mode):
        raise CannotServe(f"cannot listen on {address}: a file that is not a socket is there. Choose another path")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(PROBE_S)
        try:
            probe.connect(str(address.path))
        except ConnectionRefusedError:
            pass
        except OSError as error:
            raise CannotServe(
                f"cannot listen on {address}: cannot probe the socket there: {error.strerror or error}"
            ) from error
        else:
            raise CannotServe(f"cannot listen on {address}: another server is there. Stop it, or choose another path")
    try:
        address.path.unlink()
    except OSError as error:
        raise CannotServe(f"cannot replace the socket {address.path} of a dead server: {error.strerror}") from error
