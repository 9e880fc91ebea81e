"""The operations on the webhooks of a task, and the webhook that comes with a message."""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Sequence

from msgspec.structs import replace

from roost.engine.extension import Extensions, Incoming
from roost.engine.ids import new_id
from roost.engine.live_tasks import LiveTasks
from roost.engine.ports import PushConfigs
from roost.engine.push import Pusher
from roost.engine.store_types import Push, PushConfig
from roost.engine.webhook import Undeliverable, check_config, opened, sealed
from roost.identity.principal import Principal
from roost.identity.seal import WrongKey
from roost.protocol.codec import encode
from roost.protocol.errors import InvalidParams, PushNotificationNotSupported, TaskNotFound, Unavailable
from roost.protocol.states import SETTLED
from roost.protocol.types import (
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    TaskPushNotificationConfig,
)

log = logging.getLogger("roost.push")

MAX_CONFIGS = 10
INLINE = "configuration.taskPushNotificationConfig."


class Webhooks:
    """The webhooks of tasks. `pusher` is None on a host that calls none."""

    def __init__(self, store: PushConfigs, lives: LiveTasks, pusher: Pusher | None, extensions: Extensions) -> None:
        self.store = store
        self.lives = lives
        self._pusher = pusher
        self.extensions = extensions

    @property
    def pusher(self) -> Pusher:
        if self._pusher is None:
            raise PushNotificationNotSupported
        return self._pusher

    # Operations

    async def create(
        self, principal: Principal, agent: str, config: TaskPushNotificationConfig, activated: Sequence[str] = ()
    ) -> bytes:
        """Create a webhook for what comes from now on. One of a task that waits or is over gets its last status too."""
        pusher = self.pusher
        if not config.task_id:
            raise InvalidParams("taskId: name the task of the webhook", field="taskId")
        check_config(config, "")
        live = await self.lives.find(principal, agent, config.task_id)
        try:
            await self._check_url(config.url, "")
            config = replace(config, id=config.id or new_id())
            known = {push.config.id for push in await self.store.read_pushes(config.task_id)}
            if len(known) >= MAX_CONFIGS and config.id not in known:
                raise InvalidParams(f"the task has {MAX_CONFIGS} webhooks, the most there can be", field="taskId")
            seq, settled = await live.read(lambda task, seq: (seq, task.status.state in SETTLED))
            cursor = seq - 1 if settled else seq
            if not await pusher.put(self._sealed(config.task_id, config, cursor, activated)):
                raise TaskNotFound(metadata={"taskId": config.task_id})
        finally:
            self.lives.unhold(live)
        return encode(config)

    async def get(self, principal: Principal, agent: str, request: GetTaskPushNotificationConfigRequest) -> bytes:
        pusher = self.pusher
        for push in await self._read(principal, agent, request.task_id):
            if push.config.id == request.id:
                return encode(_shown(pusher, push))
        raise TaskNotFound(
            f"The task has no webhook {request.id[:128]!r}",
            metadata={"taskId": request.task_id, "configId": request.id},
        )

    async def list_configs(
        self, principal: Principal, agent: str, request: ListTaskPushNotificationConfigsRequest
    ) -> bytes:
        """List webhooks in the order in which they were created."""
        pusher = self.pusher
        after = _place(request.page_token) if request.page_token else None
        found = sorted(await self._read(principal, agent, request.task_id), key=_key)
        if after is not None:
            found = [push for push in found if _key(push) > after]
        page = found[: request.page_size or len(found)]
        token = _token(page[-1]) if len(page) < len(found) else ""
        configs = [_shown(pusher, push) for push in page]
        return encode(ListTaskPushNotificationConfigsResponse(configs=configs, next_page_token=token))

    async def delete(self, principal: Principal, agent: str, request: DeleteTaskPushNotificationConfigRequest) -> None:
        """Delete a webhook. One that does not exist is no error."""
        pusher = self.pusher
        self.lives.unhold(await self.lives.find(principal, agent, request.task_id))
        await pusher.delete(request.task_id, request.id)

    async def _read(self, principal: Principal, agent: str, task_id: str) -> list[Push]:
        self.lives.unhold(await self.lives.find(principal, agent, task_id))
        return await self.store.read_pushes(task_id)

    # With a message

    async def prepare(self, incoming: Incoming, task_id: str) -> PushConfig | None:
        """Check the webhook that comes with a message, if any, and return it as the commit of a new task needs it."""
        config = _inline(incoming)
        if config is None:
            return None
        _ = self.pusher
        if config.tenant and config.tenant != incoming.agent:
            raise InvalidParams(
                f"{INLINE}tenant names the agent {config.tenant[:128]!r}, the message is for {incoming.agent!r}",
                field=f"{INLINE}tenant",
            )
        check_config(config, INLINE)
        await self._check_url(config.url, INLINE)
        config = replace(config, id=config.id or new_id(), task_id=task_id)
        return self._sealed(task_id, config, 0, incoming.activated)

    def hold_new(self, push: PushConfig) -> None:
        """Deliver a webhook that a commit has brought."""
        self.pusher.hold_new(push)

    async def attach(self, incoming: Incoming, task_id: str, seq: int) -> None:
        """Deliver the webhooks of a task that continues with an answer, and the one that came with the answer.

        Clients send theirs with each answer, so one with a known URL is the same webhook.
        """
        if self._pusher is None:
            return
        config = _inline(incoming)
        if config is not None:
            await self._attach(config, task_id, seq, incoming.activated)
        await self._pusher.hold_task(task_id)

    async def _attach(
        self, config: TaskPushNotificationConfig, task_id: str, seq: int, activated: Sequence[str]
    ) -> None:
        known = await self.store.read_pushes(task_id)
        same = next((push.config.id for push in known if self._url(push) == config.url), None)
        config = replace(config, id=config.id or same or new_id(), task_id=task_id)
        if config.id in {push.config.id for push in known} or len(known) < MAX_CONFIGS:
            await self.pusher.put(self._sealed(task_id, config, seq, activated))
        else:
            log.warning("task %s has %d webhooks: the one that came with an answer is left out", task_id, MAX_CONFIGS)

    def _url(self, push: Push) -> str | None:
        try:
            return opened(self.pusher.seal, push.config).config.url
        except WrongKey:
            return None

    def _sealed(
        self, task_id: str, config: TaskPushNotificationConfig, cursor: int, activated: Sequence[str]
    ) -> PushConfig:
        view = self.extensions.view(activated)
        return sealed(self.pusher.seal, task_id, config, cursor, [] if view is None else view.uris)

    async def _check_url(self, url: str, at: str) -> None:
        try:
            await self.pusher.sender.check(url)
        except Undeliverable as error:
            raise InvalidParams(f"{at}url: {error}", field=f"{at}url") from None


def _inline(incoming: Incoming) -> TaskPushNotificationConfig | None:
    configuration = incoming.request.configuration
    return None if configuration is None else configuration.task_push_notification_config


def _shown(pusher: Pusher, push: Push) -> TaskPushNotificationConfig:
    """Return a webhook as it was set, without its credentials."""
    try:
        config = opened(pusher.seal, push.config).config
    except WrongKey as error:
        log.error("webhook %s of task %s cannot be shown: %s", push.config.id, push.config.task_id, error)
        raise Unavailable("This webhook was set at a host that has another key; this one cannot read it") from None
    if config.authentication is None:
        return config
    return replace(config, authentication=replace(config.authentication, credentials=""))


def _key(push: Push) -> tuple[int, str]:
    return push.created, push.config.id


def _token(push: Push) -> str:
    return base64.urlsafe_b64encode(f"{push.created}:{push.config.id}".encode()).decode().rstrip("=")


def _place(token: str) -> tuple[int, str]:
    try:
        text = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True).decode()
        created, colon, config_id = text.partition(":")
        if not colon:
            raise ValueError
        return int(created), config_id
    except (ValueError, binascii.Error):
        raise InvalidParams(
            "pageToken is not one that ListTaskPushNotificationConfigs returned; leave it out to begin at the first",
            field="pageToken",
        ) from None
