"""The service grpc.health.v1, which reports over gRPC what /readyz does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthServicer

Ready = Callable[[], Awaitable[bool]]

LOOK_S = 1.0
"""Seconds between two checks while a client watches."""


class HealthService(HealthServicer):
    """The host ("") and its services have the same state.

    The servicer of grpcio-health-checking is not used: there a watcher that does not read makes all others wait.
    """

    def __init__(self, services: Iterable[str], ready: Ready) -> None:
        self.services = frozenset(("", *services))
        self.ready = ready
        self.status: int = HealthCheckResponse.SERVING
        self.stopping = False
        self.changed = asyncio.Event()
        """An event that is set, and replaced, at each change."""
        self.watchers = 0
        self.looking: asyncio.Task[None] | None = None

    async def Check(self, request: HealthCheckRequest, context: Any) -> HealthCheckResponse:  # noqa: N802
        if request.service not in self.services:
            await context.abort(grpc.StatusCode.NOT_FOUND)
        await self._look()
        return HealthCheckResponse(status=self.status)

    async def Watch(self, request: HealthCheckRequest, context: Any) -> None:  # noqa: N802
        if request.service not in self.services:
            await context.write(HealthCheckResponse(status=HealthCheckResponse.SERVICE_UNKNOWN))
            await asyncio.get_running_loop().create_future()
        await self._look()
        self.watchers += 1
        if self.looking is None:
            self.looking = asyncio.get_running_loop().create_task(self._keep_looking(), name="gRPC health")
        try:
            while True:
                changed = self.changed
                await context.write(HealthCheckResponse(status=self.status))
                await changed.wait()
        finally:
            self.watchers -= 1
            if not self.watchers and self.looking is not None:
                self.looking.cancel()
                self.looking = None

    def stop(self) -> None:
        """Report NOT_SERVING from now on."""
        self.stopping = True
        self._say(HealthCheckResponse.NOT_SERVING)

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self._look()

    async def _look(self) -> None:
        serves = await self.ready() and not self.stopping
        self._say(HealthCheckResponse.SERVING if serves else HealthCheckResponse.NOT_SERVING)

    def _say(self, status: int) -> None:
        if status != self.status:
            self.status = status
            self.changed.set()
            self.changed = asyncio.Event()
