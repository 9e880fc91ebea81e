"""grpc.health.v1: what /readyz says, for whoever asks by gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from grpc_health.v1 import health
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

Ready = Callable[[], Awaitable[bool]]

LOOK_S = 1.0
"""While somebody watches."""


class Health(health.aio.HealthServicer):
    """The host ("") and its services stand and fall together."""

    def __init__(self, services: Iterable[str], ready: Ready) -> None:
        super().__init__()
        self.services = ("", *services)
        self.ready = ready
        self.watchers = 0
        self.looking: asyncio.Task[None] | None = None

    async def Check(self, request: HealthCheckRequest, context: Any) -> HealthCheckResponse:  # noqa: N802
        await self._look()
        return await super().Check(request, context)

    async def Watch(self, request: HealthCheckRequest, context: Any) -> None:  # noqa: N802
        await self._look()
        self.watchers += 1
        if self.looking is None:
            self.looking = asyncio.get_running_loop().create_task(self._keep_looking(), name="gRPC health")
        try:
            await super().Watch(request, context)
        finally:
            self.watchers -= 1
            if not self.watchers and self.looking is not None:
                self.looking.cancel()
                self.looking = None

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self._look()

    async def _look(self) -> None:
        serves = HealthCheckResponse.SERVING if await self.ready() else HealthCheckResponse.NOT_SERVING
        for service in self.services:
            await self.set(service, serves)
