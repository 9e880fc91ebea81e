"""The gRPC server: its address, limits and certificates, and how it starts and stops."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from roost.doors.grpc_calls import FreeMethodLimits, GrpcCalls
from roost.doors.grpc_errors import CLIENT_GONE
from roost.doors.grpc_health import HealthService, Ready
from roost.identity.principal import Principal

log = logging.getLogger("roost.doors")
library_log = logging.getLogger("grpc._cython.cygrpc")

PING_MS, PONG_MS = 30_000, 20_000
"""Milliseconds until a silent client is pinged, and until it must have answered. Otherwise its calls end."""
PING_EVERY_MS = 10_000
"""Clients that ping more often are disconnected."""
IDLE_MS = 300_000
"""Milliseconds until a connection without a call is closed."""
CALLS = 1000
"""The most concurrent calls on one connection; clients hold further ones back."""
LOOK_S = 10.0
LEAST_GRACE_S = 1.0
"""Seconds that streams have to end."""
HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name


class CannotListen(Exception):
    pass


class GrpcLimits(NamedTuple):
    """The settings of the same names."""

    max_body: int
    max_head_bytes: int
    max_connections: int
    head_s: float
    write_s: float


class Certificates:
    """The certificate files, read again when they change. With `client_ca` every client must have a certificate."""

    def __init__(self, cert: Path, key: Path, client_ca: Path | None) -> None:
        self.files = [cert, key, *([client_ca] if client_ca else [])]
        self.stamps = self._stamps()
        self.looked = time.monotonic()

    def credentials(self) -> grpc.ServerCredentials:
        return grpc.dynamic_ssl_server_credentials(
            self._load(), cast(Any, self._changed), require_client_authentication=len(self.files) > 2
        )

    def _changed(self) -> grpc.ServerCertificateConfiguration | None:
        """Return changed certificates, or None to keep those in use. gRPC asks at each handshake, in its own thread."""
        now = time.monotonic()
        if now - self.looked < LOOK_S:
            return None
        self.looked = now
        try:
            stamps = self._stamps()
            if stamps == self.stamps:
                return None
            made = self._load()
        except OSError as error:
            log.error("the TLS files have changed and cannot be used; the previous ones stay in use: %s", error)
            return None
        self.stamps = stamps
        return made

    def _stamps(self) -> list[tuple[int, int]]:
        return [(found.st_mtime_ns, found.st_ino) for found in (file.stat() for file in self.files)]

    def _load(self) -> grpc.ServerCertificateConfiguration:
        cert, key, *client_ca = (file.read_bytes() for file in self.files)
        return grpc.ssl_server_certificate_configuration([(key, cert)], client_ca[0] if client_ca else None)


class GrpcServer:
    """Serves gRPC on one port. With `shared`, other processes of this host listen on the same port."""

    def __init__(
        self,
        host: str,
        port: int,
        limits: GrpcLimits,
        certificates: Certificates | None,
        holds: Callable[[Principal], bool],
        *,
        shared: bool,
    ) -> None:
        library_log.addFilter(_is_news)
        self.loop = asyncio.get_running_loop()
        self.calls = GrpcCalls(limits.max_connections, limits.head_s, limits.write_s, holds)
        self.server = grpc.aio.server(interceptors=[FreeMethodLimits(limits.head_s)], options=_options(limits, shared))
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if certificates is None:
                self.port = self.server.add_insecure_port(place)
            else:
                self.port = self.server.add_secure_port(place, certificates.credentials())
        except RuntimeError as error:
            raise CannotListen(
                f"cannot listen on {place} for gRPC: another server uses it, or it is not an address of this machine."
                " Choose another with --grpc, port 0 for any"
            ) from error
        self.place = f"{place.rpartition(':')[0]}:{self.port}"
        self.health: HealthService | None = None
        self.stopping: asyncio.Task[None] | None = None

    async def start(self, services: dict[str, grpc.GenericRpcHandler], ready: Ready) -> None:
        """Begin to serve these services, and health and reflection for them."""
        self.server.add_generic_rpc_handlers(tuple(services.values()))
        self.health = HealthService(services, ready)
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self.server)
        reflection.enable_server_reflection((*services, HEALTH, reflection.SERVICE_NAME), self.server)
        await self.server.start()

    def drain(self, grace_s: float) -> None:
        """Accept no new calls, and give those in progress `grace_s` seconds. May be called from a signal handler."""
        self.loop.call_soon_threadsafe(self._stop, grace_s)

    async def close(self) -> None:
        self._stop(0.0)
        assert self.stopping is not None
        await self.stopping

    def _stop(self, grace_s: float) -> None:
        if self.stopping is None:
            self.stopping = self.loop.create_task(self._stopped(max(grace_s, LEAST_GRACE_S)))

    async def _stopped(self, grace_s: float) -> None:
        if self.health is not None:
            self.health.stop()
        await self.server.stop(grace_s)


def _is_news(record: logging.LogRecord) -> bool:
    """Drop log records about clients that left while they were written to."""
    return record.exc_info is None or not isinstance(record.exc_info[1], CLIENT_GONE)


def _options(limits: GrpcLimits, shared: bool) -> list[tuple[str, Any]]:
    return [
        ("grpc.so_reuseport", int(shared)),
        ("grpc.max_receive_message_length", limits.max_body),
        ("grpc.max_metadata_size", limits.max_head_bytes),
        ("grpc.absolute_max_metadata_size", limits.max_head_bytes),
        ("grpc.max_allowed_incoming_connections", limits.max_connections),
        ("grpc.max_concurrent_streams", CALLS),
        ("grpc.server_handshake_timeout_ms", round(limits.head_s * 1000)),
        ("grpc.keepalive_time_ms", PING_MS),
        ("grpc.keepalive_timeout_ms", PONG_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", PING_EVERY_MS),
        ("grpc.max_connection_idle_ms", IDLE_MS),
    ]
