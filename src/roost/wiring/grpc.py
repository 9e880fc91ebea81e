"""Wires the gRPC server to a host: where it listens, with which certificates, and what cards say of it.

gRPC is an extra: its modules are imported only where the setting asks for it.
"""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import TYPE_CHECKING

from roost.settings import Settings
from roost.wiring.identity import IdentityServices

if TYPE_CHECKING:
    from roost.doors.app import App
    from roost.doors.grpc_server import GrpcServer


SILENT = {"GRPC_VERBOSITY": "NONE", "GRPC_ENABLE_FORK_SUPPORT": "0"}
"""gRPC's library writes to stderr by itself, of what we tell in our own words, and of every process that is started."""


class GrpcSetupError(Exception):
    """gRPC cannot be served like this; the message says what to change."""


def open_grpc(settings: Settings, gate: IdentityServices) -> GrpcServer | None:
    """A server that listens and does not answer yet; cards speak of it from now on."""
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
        client_ca = Path(settings.client_ca) if "mtls" in gate.access.rules.schemes else None
        certificates = Certificates(Path(settings.tls_cert), Path(settings.tls_key), client_ca)
    limits = GrpcLimits(
        settings.max_body, settings.max_head_bytes, settings.max_connections, settings.head_s, settings.write_s
    )
    try:
        server = GrpcServer(host, port, limits, certificates, gate.access.token_cache, shared=settings.workers > 1)
    except CannotListen as error:
        raise GrpcSetupError(str(error)) from None
    agents = [profile.id for profile in gate.cards.profiles]
    gate.cards.terms = gate.cards.terms._replace(
        grpc=_on_cards(settings, host, server.port), grpc_03=agents[0] if len(agents) == 1 else settings.root
    )
    return server


async def start_grpc(server: GrpcServer, app: App) -> None:
    from roost.doors.grpc import GrpcDoor

    kinds = [GrpcDoor]
    if app.a2a_03:
        from roost.doors.a2a_03.grpc import OldGrpcDoor

        kinds.append(OldGrpcDoor)
    doors = [kind(app.context, app.guard, app.requests, app.root, server.calls) for kind in kinds]

    async def ready() -> bool:
        return (await app.observability.readiness()).status == 200

    await server.start({door.name: door.service() for door in doors}, ready)


def _on_cards(settings: Settings, host: str, port: int) -> str:
    if settings.grpc_public:
        return settings.grpc_public
    if settings.public_url or _is_wildcard(host):
        return f":{port}"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
