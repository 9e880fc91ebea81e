"""`SDKAgent`: an AgentExecutor of a2a-sdk, unchanged. Its events become the emissions of a turn."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from a2a.auth.user import UnauthenticatedUser
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events.event_queue import EventQueue
from a2a.types import a2a_pb2 as pb
from google.protobuf import json_format

from roost.agents.agent import ID, AgentDefinitionError
from roost.engine.hosted import AgentLimits, Profile
from roost.engine.turn import Turn, Unwind
from roost.protocol.codec import convert, encode
from roost.protocol.states import SETTLED
from roost.protocol.types import (
    AgentExtension,
    AgentProvider,
    AgentSkill,
    JSONObject,
    Message,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

log = logging.getLogger("roost.agents")

_parse: Callable[..., Any] = json_format.Parse
_to_dict: Callable[..., Any] = json_format.MessageToDict


class SDKAgent:
    """An AgentExecutor of a2a-sdk as a member of the fleet.

    id: the agent's name in paths.
    executor: the executor, which is called as the SDK's own server calls it.
    card: an AgentCard of the SDK for name, description, version, skills and modes. The host sets the URLs.
    concurrency, queue, wall_s, silence_s: the same as for `Agent`.
    """

    def __init__(
        self,
        id: str,
        executor: AgentExecutor,
        card: pb.AgentCard | None = None,
        *,
        concurrency: int = AgentLimits().concurrency,
        queue: int = AgentLimits().queue,
        wall_s: float | None = None,
        silence_s: float | None = None,
    ) -> None:
        if not ID.fullmatch(id):
            raise AgentDefinitionError(f"{id!r} cannot be an agent's id")
        self.id = id
        self.executor = executor
        self.card = card
        self.limits = AgentLimits(concurrency, queue, wall_s, silence_s)

    def hosted(self) -> HostedExecutor:
        return HostedExecutor(self.profile, self.executor)

    @property
    def profile(self) -> Profile:
        described = type(self.executor).__doc__ or f"The agent {self.id}."
        card = self.card or pb.AgentCard()
        given = _json(card)
        name = card.name or self.id
        description = card.description or " ".join(described.split())
        provider = given.get("provider")
        return Profile(
            id=self.id,
            name=name,
            description=description,
            version=card.version or "0.1.0",
            skills=convert(list[AgentSkill], given.get("skills", []))
            or [AgentSkill(id=self.id, name=name, description=description, tags=[self.id])],
            input_modes=list(card.default_input_modes) or ["*/*"],
            output_modes=list(card.default_output_modes) or ["*/*"],
            extensions=convert(list[AgentExtension], given.get("capabilities", {}).get("extensions", [])),
            provider=convert(AgentProvider, provider) if provider else None,
            documentation_url=given.get("documentationUrl"),
            icon_url=given.get("iconUrl"),
            streaming=True,
            direct=True,
            parallel=False,
            resume=False,
            announce=False,
            limits=self.limits,
            replays=False,
        )


class HostedExecutor:
    """An executor and the requests that it is working on."""

    def __init__(self, profile: Profile, executor: AgentExecutor) -> None:
        self.profile = profile
        self.executor = executor
        self.contexts: dict[Turn, RequestContext] = {}

    async def run(self, turn: Turn) -> None:
        context = self.contexts[turn] = await _context(turn)
        try:
            await self.executor.execute(context, _TurnQueue(turn))
        finally:
            del self.contexts[turn]

    async def cancel(self, turn: Turn) -> None:
        context = self.contexts.get(turn)
        if context is not None:
            await self.executor.cancel(context, _TurnQueue(turn))


class _TurnQueue(EventQueue):
    """The queue that the executor fills. Nothing waits in it: each event is emitted at once."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._settled = False
        """The last status that was emitted has ended or paused the task."""

    async def enqueue_event(self, event: Any) -> None:
        try:
            self._emit(event)
        except Unwind:
            if self._turn.closed:
                raise
            log.warning(
                "task %s has ended; an event of its executor is ignored", self._turn.task_id, extra=self._turn.about
            )
            return
        await (self._turn.commit() if self._settled else self._turn.pace())

    def _emit(self, event: Any) -> None:
        if isinstance(event, pb.Message):
            self._message(convert(Message, _json(event)))
        elif isinstance(event, pb.Task):
            self._task(convert(Task, _json(event)))
        elif isinstance(event, pb.TaskStatusUpdateEvent):
            update = convert(TaskStatusUpdateEvent, self._addressed(event))
            self._status(update.status, update.metadata)
        elif isinstance(event, pb.TaskArtifactUpdateEvent):
            piece = convert(TaskArtifactUpdateEvent, self._addressed(event))
            self._turn.artifact(
                piece.artifact, append=piece.append is True, last_chunk=piece.last_chunk, metadata=piece.metadata
            )

    def _addressed(self, event: Any) -> dict[str, Any]:
        return {**_json(event), "taskId": self._turn.task_id, "contextId": self._turn.context_id}

    def _message(self, message: Message) -> None:
        """Reply with the message and no task, if it is the first event; later, the message ends the task."""
        message.context_id = message.context_id or self._turn.context_id
        self._turn.reply(message)
        self._settled = True

    def _task(self, task: Task) -> None:
        self._turn.become_task()
        for artifact in task.artifacts:
            self._turn.artifact(artifact, append=False)
        self._status(task.status, task.metadata)

    def _status(self, status: TaskStatus, metadata: JSONObject | None) -> None:
        if status.state is TaskState.SUBMITTED:
            self._turn.become_task()  # the engine has emitted this status already
            return
        self._turn.status(status.state, status.message, metadata)
        self._settled = status.state in SETTLED


async def _context(turn: Turn) -> RequestContext:
    """The request as the SDK's own server would give it to the executor."""
    received = turn.latest
    request = pb.SendMessageRequest()
    body: dict[str, Any] = {"message": received.message, "metadata": received.metadata or {}}
    body["configuration"] = {"acceptedOutputModes": received.accepted_output_modes}
    _parse(encode(body), request)
    task = None
    if len(turn.messages) > 1:
        task = pb.Task()
        _parse(encode(await turn.read_task()), task)
    return RequestContext(
        call_context=ServerCallContext(user=UnauthenticatedUser(), requested_extensions=set(turn.extensions)),
        request=request,
        task_id=turn.task_id,
        context_id=turn.context_id,
        task=task,
    )


def _json(message: Any) -> dict[str, Any]:
    found: dict[str, Any] = _to_dict(message)
    return found
