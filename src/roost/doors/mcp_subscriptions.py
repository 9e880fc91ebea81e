"""subscriptions/listen of MCP 2026-07-28: streams that tell clients when the list of tools has changed.

The SDK serves each stream, with a comment every 15 s as a sign of life. It gets the changes of the registry by its bus.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mcp_types as mcp
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import (
    SUBSCRIPTION_ID_META_KEY,
    InMemorySubscriptionBus,
    ListenHandler,
    SubscriptionBus,
    ToolsListChanged,
)

from roost.doors.access import confined
from roost.doors.context import Context
from roost.doors.http import RequestHead
from roost.identity.principal import Principal
from roost.protocol.errors import TooManyRequests, Unavailable

RETRY_S = 60
"""Seconds for Retry-After when another stream has to end first."""


class Subscription:
    """One stream. It can be ended at any time, even before the SDK begins to serve it."""

    def __init__(self, bus: SubscriptionBus) -> None:
        self.handler = ListenHandler(bus, max_subscriptions=1)
        self.open = True

    async def serve(
        self, asked: ServerRequestContext[Any, Any], params: mcp.SubscriptionsListenRequestParams
    ) -> mcp.SubscriptionsListenResult:
        if not self.open:
            return mcp.SubscriptionsListenResult(_meta={SUBSCRIPTION_ID_META_KEY: asked.request_id})
        # the SDK acknowledges all that it is asked for, and this host has only tools
        wanted = mcp.SubscriptionFilter(tools_list_changed=params.notifications.tools_list_changed)
        return await self.handler(asked, mcp.SubscriptionsListenRequestParams(notifications=wanted))

    def close(self) -> None:
        """End the stream with its result, which tells the client that the end is no accident."""
        self.open = False
        self.handler.close()


class Subscriptions:
    """The streams of this host: at most `most`, and `most_own` of one principal."""

    def __init__(self, context: Context, *, most: int, most_own: int) -> None:
        self.admission = context.admission
        self.most = most
        self.most_own = most_own
        self.bus = InMemorySubscriptionBus()
        self.streams: dict[Subscription, str] = {}
        """The open streams, and the principal that each belongs to."""
        self.changed = asyncio.Event()
        context.agents.subscribe(lambda change: self.changed.set())

    async def publish(self) -> None:
        """Publish the changes of the registry for ever. Those that come together are one event."""
        while True:
            await self.changed.wait()
            self.changed.clear()
            await self.bus.publish(ToolsListChanged())

    @contextmanager
    def opened(self, head: RequestHead, principal: Principal) -> Iterator[Subscription]:
        """Open a stream for as long as the block lasts."""
        self._check_room(principal)
        stream = Subscription(self.bus)
        with self.admission.held_open(stream, confined(head, principal)):
            self.streams[stream] = principal.name
            try:
                yield stream
            finally:
                del self.streams[stream]

    def close(self) -> None:
        """End all streams."""
        for stream in list(self.streams):
            stream.close()

    def _check_room(self, principal: Principal) -> None:
        if list(self.streams.values()).count(principal.name) >= self.most_own:
            raise TooManyRequests(
                f"you have {self.most_own} open subscriptions, which is the limit: close some", retry_after=RETRY_S
            )
        if len(self.streams) >= self.most:
            raise Unavailable(
                f"this host has {self.most} open subscriptions, which is the limit: try again later",
                retry_after=RETRY_S,
            )
