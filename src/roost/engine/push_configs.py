"""The four operations on the webhooks of a task, and the webhook that comes with a message."""

from __future__ import annotations

import base64
import binascii
import logging
from typing import TYPE_CHECKING

from msgspec.structs import replace

from roost.engine.ids import new_id
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

if TYPE_CHECKING:
    from roost.engine.engine import Engine
    from roost.engine.push import Pusher

log = logging.getLogger("roost.push")

MAX_CONFIGS = 10
INLINE = "configuration.taskPushNotificationConfig."


async def create(engine: Engine, principal: Principal, agent: str, config: TaskPushNotificationConfig) -> bytes:
    """From now on; of a task that is over or waits, its last status too, so that who asks late hears of it."""
    pusher = _pusher(engine)
    if not config.task_id:
        raise InvalidParams("taskId: whose webhook is it?", field="taskId")
    check_config(config, "")
    live = await engine.find(principal, agent, config.task_id)
    try:
        await _check_url(pusher, config.url, "")
        config = replace(config, id=config.id or new_id())
        known = {push.config.id for push in await engine.store.read_pushes(config.task_id)}
        if len(known) >= MAX_CONFIGS and config.id not in known:
            raise InvalidParams(f"the task has {MAX_CONFIGS} webhooks, the most there can be", field="taskId")
        seq, settled = await live.read(lambda task, seq: (seq, task.status.state in SETTLED))
        cursor = seq - 1 if settled else seq
        if not await pusher.put(sealed(pusher.seal, config.task_id, config, cursor)):
            raise TaskNotFound(metadata={"taskId": config.task_id})
    finally:
        engine.unhold(live)
    return encode(config)


async def get(engine: Engine, principal: Principal, agent: str, request: GetTaskPushNotificationConfigRequest) -> bytes:
    pusher = _pusher(engine)
    for push in await _read(engine, principal, agent, request.task_id):
        if push.config.id == request.id:
            return encode(_shown(pusher, push))
    raise TaskNotFound(
        f"The task has no webhook {request.id[:128]!r}", metadata={"taskId": request.task_id, "configId": request.id}
    )


async def list_configs(
    engine: Engine, principal: Principal, agent: str, request: ListTaskPushNotificationConfigsRequest
) -> bytes:
    """In the order in which they were made."""
    pusher = _pusher(engine)
    after = _place(request.page_token) if request.page_token else None
    found = sorted(await _read(engine, principal, agent, request.task_id), key=_key)
    if after is not None:
        found = [push for push in found if _key(push) > after]
    page = found[: request.page_size or len(found)]
    token = _token(page[-1]) if len(page) < len(found) else ""
    configs = [_shown(pusher, push) for push in page]
    return encode(ListTaskPushNotificationConfigsResponse(configs=configs, next_page_token=token))


async def delete(
    engine: Engine, principal: Principal, agent: str, request: DeleteTaskPushNotificationConfigRequest
) -> None:
    """What is not there need not be deleted."""
    pusher = _pusher(engine)
    engine.unhold(await engine.find(principal, agent, request.task_id))
    await pusher.delete(request.task_id, request.id)


async def prepare(engine: Engine, agent: str, task_id: str, config: TaskPushNotificationConfig) -> PushConfig:
    """The webhook that comes with the message that makes the task: it hears of everything."""
    pusher = _pusher(engine)
    if config.tenant and config.tenant != agent:
        raise InvalidParams(
            f"{INLINE}tenant names the agent {config.tenant[:128]!r}, the message is for {agent!r}",
            field=f"{INLINE}tenant",
        )
    check_config(config, INLINE)
    await _check_url(pusher, config.url, INLINE)
    return sealed(pusher.seal, task_id, replace(config, id=config.id or new_id(), task_id=task_id), 0)


async def attach(engine: Engine, task_id: str, config: TaskPushNotificationConfig, seq: int) -> None:
    """The webhook that comes with an answer, from there on. Clients send theirs with each: that is the same one."""
    pusher = _pusher(engine)
    known = await engine.store.read_pushes(task_id)
    same = next((push.config.id for push in known if _url(pusher, push) == config.url), None)
    config = replace(config, id=config.id or same or new_id(), task_id=task_id)
    if config.id in {push.config.id for push in known} or len(known) < MAX_CONFIGS:
        await pusher.put(sealed(pusher.seal, task_id, config, seq))
    else:
        log.warning("task %s has %d webhooks: the one that came with an answer is left out", task_id, MAX_CONFIGS)


def _url(pusher: Pusher, push: Push) -> str | None:
    try:
        return opened(pusher.seal, push.config).config.url
    except WrongKey:
        return None


def _pusher(engine: Engine) -> Pusher:
    if engine.pusher is None:
        raise PushNotificationNotSupported
    return engine.pusher


async def _check_url(pusher: Pusher, url: str, at: str) -> None:
    try:
        await pusher.sender.check(url)
    except Undeliverable as error:
        raise InvalidParams(f"{at}url: {error}", field=f"{at}url") from None


async def _read(engine: Engine, principal: Principal, agent: str, task_id: str) -> list[Push]:
    engine.unhold(await engine.find(principal, agent, task_id))
    return await engine.store.read_pushes(task_id)


def _shown(pusher: Pusher, push: Push) -> TaskPushNotificationConfig:
    """As it was set, without the credentials: who has to know them does."""
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
