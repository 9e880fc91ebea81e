"""Hosts an a2a-sdk AgentExecutor unchanged: its events become entries of our journal."""

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
from roost.engine.run import Run
from roost.protocol.codec import convert, encode
from roost.protocol.states import SETTLED, TERMINAL
from roost.protocol.types import (
    AgentExtension,
    AgentProvider,
    AgentSkill,
    Message,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
)

log = logging.getLogger("roost.agents")

_parse: Callable[..., Any] = json_format.Parse
_to_dict: Callable[..., Any] = json_format.MessageToDict


class SDKAgent:
    """An AgentExecutor of a2a-sdk as a member of the fleet.

    id: its name in paths.
    executor: called as the SDK's own server calls it.
    card: an SDK AgentCard for name, description, version, skills and modes; its URLs are ours.
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
        )


class HostedExecutor:
    def __init__(self, profile: Profile, executor: AgentExecutor) -> None:
        self.profile = profile
        self.executor = executor
        self.contexts: dict[str, RequestContext] = {}

    async def run(self, run: Run) -> None:
        run.ordinal = run.barrier  # an answer goes on where the executor paused: nothing is said a second time
        context = _context(run)
        self.contexts[run.live.new.id] = context
        try:
            await self.executor.execute(context, _JournalQueue(run))
        finally:
            self.contexts.pop(run.live.new.id, None)

    async def cancel(self, run: Run) -> None:
        context = self.contexts.get(run.live.new.id)
        if context is not None:
            await self.executor.cancel(context, _JournalQueue(run))


class _JournalQueue(EventQueue):
    """The queue that the executor fills; nothing waits in it."""

    def __init__(self, run: Run) -> None:
        self._run = run

    async def enqueue_event(self, event: Any) -> None:
        run = self._run
        if run.live.state in TERMINAL and not run.dead:
            log.warning("task %s is over; what its executor still says is ignored", run.live.new.id, extra=run.about)
            return
        if isinstance(event, pb.Message):
            self._message(convert(Message, _json(event)))
        elif isinstance(event, pb.Task):
            self._task(convert(Task, _json(event)))
        elif isinstance(event, pb.TaskStatusUpdateEvent):
            self._status(convert(TaskStatusUpdateEvent, self._addressed(event)))
        elif isinstance(event, pb.TaskArtifactUpdateEvent):
            update = convert(TaskArtifactUpdateEvent, self._addressed(event))
            run.artifact(
                update.artifact,
                append=update.append is True,
                last_chunk=update.last_chunk,
                metadata=update.metadata,
            )
        await run.pace() if run.live.state not in SETTLED else await run.live.commit()

    def _addressed(self, event: Any) -> dict[str, Any]:
        return {**_json(event), "taskId": self._run.live.new.id, "contextId": self._run.live.new.context_id}

    def _message(self, message: Message) -> None:
        """A message and no task if it is the first thing; later it is how the task ended."""
        message.context_id = message.context_id or self._run.live.new.context_id
        self._run.reply(message)

    def _task(self, task: Task) -> None:
        self._run.decide_task()
        for artifact in task.artifacts:
            self._run.artifact(artifact, append=False)
        if task.status.state is not TaskState.SUBMITTED:
            self._run.status(task.status.state, task.status.message, task.metadata)

    def _status(self, event: TaskStatusUpdateEvent) -> None:
        if event.status.state is TaskState.SUBMITTED:
            self._run.decide_task()  # the journal has said so already
        else:
            self._run.status(event.status.state, event.status.message, event.metadata)


def _context(run: Run) -> RequestContext:
    received = run.received[-1]
    request = pb.SendMessageRequest()
    body: dict[str, Any] = {"message": received.message, "metadata": received.metadata or {}}
    body["configuration"] = {"acceptedOutputModes": received.accepted_output_modes}
    _parse(encode(body), request)
    task = pb.Task()
    _parse(encode(run.live.task), task)
    call = ServerCallContext(user=UnauthenticatedUser(), requested_extensions=set(received.extensions))
    follow_up = len(run.received) > 1
    return RequestContext(
        call_context=call,
        request=request,
        task_id=run.live.new.id,
        context_id=run.live.new.context_id,
        task=task if follow_up else None,
    )


def _json(message: Any) -> dict[str, Any]:
    found: dict[str, Any] = _to_dict(message)
    return found
