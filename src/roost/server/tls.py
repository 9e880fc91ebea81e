"""TLS: certificates that are reloaded when their files change, and handshakes with a time limit."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

from cryptography import x509

from roost.doors.counters import REFUSED
from roost.server.http import ConnectionWatch
from roost.server.sockets import BACKLOG, CannotServe
from roost.settings import Settings

log = logging.getLogger("roost.server")

LOOK_S = 10.0
"""Seconds between two looks at the files."""
ACCEPTS = 100
"""The most connections that are accepted in one turn of the event loop."""
PAUSE_S = 1.0
"""Seconds until the next attempt to accept, after the system had no file descriptor left."""
OPEN_TO_OTHERS = 0o027
"""Mode bits that a private key's file must not have. Its group may read it."""

Stamp = tuple[int, ...]


def open_tls(settings: Settings) -> TLS | None:
    """None if the settings ask for no TLS."""
    if bool(settings.tls_cert) != bool(settings.tls_key):
        missing = "--tls-key" if settings.tls_cert else "--tls-cert"
        raise CannotServe(f"TLS needs a certificate and its key, and one is missing: give {missing} too")
    if settings.client_ca and not settings.tls_cert:
        raise CannotServe("client_ca needs TLS: give --tls-cert and --tls-key too")
    if not settings.tls_cert:
        return None
    return TLS(
        Path(settings.tls_cert), Path(settings.tls_key), Path(settings.client_ca) if settings.client_ca else None
    )


class TLS:
    def __init__(self, cert: Path, key: Path, client_ca: Path | None) -> None:
        self.cert = cert
        self.key = key
        self.client_ca = client_ca
        self.stamps = self._stamps()
        self.context = self._load()
        """Used for new connections. It is replaced as a whole, so that a CA that was removed is no longer trusted."""
        self.looked = 0.0

    def look(self, now: float) -> bool:
        """Reload the files if they have changed, and keep the old ones if the new ones cannot be used.

        Returns True if new files are in use.
        """
        if now - self.looked < LOOK_S:
            return False
        self.looked = now
        stamps = self._stamps()
        if stamps == self.stamps:
            return False
        self.stamps = stamps
        try:
            self.context = self._load()
        except CannotServe as error:
            log.error("the TLS files have changed and cannot be used; the previous ones stay in use: %s", error)
            return False
        log.info("the TLS files have changed; new connections use them")
        return True

    def _stamps(self) -> list[Stamp]:
        return [_stamp(path) for path in (self.cert, self.key, self.client_ca) if path is not None]

    def _load(self) -> ssl.SSLContext:
        certificate = _read(self.cert)
        _read(self.key)
        if self.key.stat().st_mode & OPEN_TO_OTHERS:
            raise CannotServe(f"other users can read or write {self.key}. Change that: chmod 600 {self.key}")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self.cert, self.key, self._no_password)
        except ssl.SSLError as error:
            raise CannotServe(self._unusable(certificate, error)) from error
        if self.client_ca is not None:
            _read(self.client_ca)
            try:
                context.load_verify_locations(self.client_ca)
            except ssl.SSLError as error:
                raise CannotServe(f"{self.client_ca} does not hold certificates in PEM") from error
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def _no_password(self) -> str:
        raise CannotServe(f"{self.key} has a password. Remove it: openssl pkey -in {self.key} -out FILE")

    def _unusable(self, certificate: bytes, error: ssl.SSLError) -> str:
        if error.reason == "KEY_VALUES_MISMATCH":
            return f"{self.key} is not the key of {self.cert}"
        try:
            x509.load_pem_x509_certificates(certificate)
        except ValueError:
            return f"{self.cert} does not hold a certificate in PEM"
        return f"{self.key} does not hold a private key in PEM that can be used with {self.cert}: {error.reason}"


class TLSServer:
    """Accepts connections and does a limited number of handshakes at a time. asyncio's own servers have no limit."""

    def __init__(
        self, listener: socket.socket, tls: TLS, watch: ConnectionWatch, make: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self.listener = listener
        self.tls = tls
        self.watch = watch
        self.make = make
        self.loop = asyncio.get_running_loop()
        self.pause: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        listener.listen(BACKLOG)
        self._resume()

    def close(self) -> None:
        self.loop.remove_reader(self.listener)
        if self.pause is not None:
            self.pause.cancel()

    async def wait_closed(self) -> None:
        """Part of the interface of asyncio's servers. There is nothing to wait for."""

    def _resume(self) -> None:
        self.loop.add_reader(self.listener, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS):
            try:
                connection, _ = self.listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("cannot accept connections: %s", error.strerror)
                self.loop.remove_reader(self.listener)
                self.pause = self.loop.call_later(PAUSE_S, self._resume)
                return
            self._begin(connection)

    def _begin(self, connection: socket.socket) -> None:
        if len(self.watch.handshakes) >= self.watch.limits.max_connections:
            REFUSED["connections"] += 1
            connection.close()
            return
        connection.setblocking(False)
        handshake = self.loop.create_task(self._agree(connection))
        self.watch.handshakes.add(handshake)
        handshake.add_done_callback(self.watch.handshakes.discard)

    async def _agree(self, connection: socket.socket) -> None:
        try:
            await self.loop.connect_accepted_socket(
                self.make, connection, ssl=self.tls.context, ssl_handshake_timeout=self.watch.limits.head_s
            )
        except OSError as error:
            REFUSED["tls"] += 1
            log.debug("a TLS handshake failed: %s", error)


def _stamp(path: Path) -> Stamp:
    """A value that changes whenever the file does; () while there is no file."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_ino, found.st_size, found.st_mode


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CannotServe(f"cannot read {path}: {error.strerror}") from error
