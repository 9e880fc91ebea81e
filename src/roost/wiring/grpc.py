"""Connects the gRPC server to a host: where it listens, with which certificates, and what cards say about it.

gRPC is an extra: its modules are imported only if the setting `grpc` asks for it.
"""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import TYPE_CHECKING

from roost.doors.access import Access
from roost.doors.context import Context
from roost.doors.counters import RequestCounts
from roost.doors.guard import Guard
from roost.doors.observability import Observability
from roost.settings import Settings

if TYPE_CHECKING:
    from roost.doors.grpc_server import GrpcServer


SILENT = {"GRPC_VERBOSITY": "NONE", "GRPC_ENABLE_FORK_SUPPORT": "0"}
"""Variables that silence gRPC's library: it writes to stderr what our log reports, and about every new process."""


class GrpcSetupError(Exception):
    """gRPC cannot be served with these settings; the message says what to change."""


def open_grpc(settings: Settings, access: Access) -> GrpcServer | None:
    """Open a server that listens but does not answer yet."""
    if not settings.grpc:
        return None
    for name, value in SILENT.items():
        os.environ.setdefault(name, value)
    try:
        from roost.doors.grpc_server import CannotListen, Certificates, GrpcLimits, GrpcServer
    except ModuleNotFoundError as error:
        raise GrpcSetupError(f"gRPC needs {error.name}: pip install 'roost[grpc]'") from None
    host, port = settings.grpc_address()
    certificates = None
    if settings.tls_cert:
        client_ca = Path(settings.client_ca) if "mtls" in access.rules.schemes else None
        certificates = Certificates(Path(settings.tls_cert), Path(settings.tls_key), client_ca)
    limits = GrpcLimits(
        settings.max_body, settings.max_head_bytes, settings.max_connections, settings.head_s, settings.write_s
    )
    try:
        return GrpcServer(host, port, limits, certificates, access.holds, shared=settings.workers > 1)
    except CannotListen as error:
        raise GrpcSetupError(str(error)) from None


async def start_grpc(
    server: GrpcServer,
    settings: Settings,
    context: Context,
    guard: Guard,
    counts: RequestCounts,
    observability: Observability,
) -> None:
    """Begin to answer."""
    from roost.doors.grpc import GrpcDoor

    kinds = [GrpcDoor]
    if settings.serves_a2a_03:
        from roost.doors.a2a_03.grpc import OldGrpcDoor

        kinds.append(OldGrpcDoor)
    doors = [kind(context, guard, counts, settings.root, server.calls) for kind in kinds]

    async def ready() -> bool:
        return (await observability.readiness()).status == 200

    await server.start({door.name: door.handlers() for door in doors}, ready)


def place_on_cards(settings: Settings, server: GrpcServer | None) -> str:
    """Return the host and port that cards give for gRPC, or only the port if it is on the card's own host."""
    if server is None:
        return ""
    if settings.grpc_public:
        return settings.grpc_public
    host = settings.grpc_address()[0]
    if settings.public_url or _is_wildcard(host):
        return f":{server.port}"
    return f"[{host}]:{server.port}" if ":" in host else f"{host}:{server.port}"


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
