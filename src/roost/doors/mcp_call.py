"""One call of an agent by a client of /mcp: its message, its progress, its questions, its result."""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import Any

import mcp_types as mcp
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import UNSET
from pydantic import ValidationError

from roost.doors import mcp_results as results
from roost.doors.access import TENANT
from roost.doors.admission import Call, OpenStream
from roost.doors.mcp_arguments import AgentArguments, word
from roost.doors.mcp_results import ANSWER, FORM
from roost.engine.hosted import Profile
from roost.engine.responses import SendResult, TaskStream
from roost.engine.ring import StreamFrame
from roost.extensions import multi_tenant
from roost.protocol.errors import A2AError, InvalidParams, Unauthenticated, UnsupportedOperation
from roost.protocol.raw import raw_decoder
from roost.protocol.types import (
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)

log = logging.getLogger("roost.doors")

Outcome = mcp.CallToolResult | mcp.InputRequiredResult

PAUSED = frozenset({TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED})
PROGRESS_CHARS = 500
ANSWERS = uuid.UUID("7f0d52b2-6a0f-4f0b-9b59-0f4f1a2c9e6d")
"""The UUID namespace of answers: an answer that a client of MCP 2026-07-28 sends again has the same id."""


class AgentCall:
    """One call of an agent's tool, which has been admitted."""

    def __init__(self, call: Call, profile: Profile, asked: ServerRequestContext[Any, Any]) -> None:
        self.call = call
        self.context = call.context
        self.engine = call.context.engine
        self.profile = profile
        self.asked = asked
        self.principal = call.principal
        self.agent = call.agent
        self.is_modern = asked.protocol_version in MODERN_PROTOCOL_VERSIONS
        self.reports = "progress_token" in (asked.meta or {})
        self.given_up = False
        """The client has cancelled the call."""
        self.task_id = ""
        self.beginning: asyncio.Task[TaskStream] | None = None
        """A message that is being accepted, whose task is not followed yet."""

    async def run(self, given: AgentArguments, params: mcp.CallToolRequestParams) -> Outcome:
        if params.request_state is not None:
            message = self._answer_in(params)
            if message is None:
                return results.of_task(self.agent, await self._read())
        else:
            data = [] if given.data is UNSET else [Part(data=given.data)]
            message = self._message(str(uuid.uuid4()), [Part(text=given.text), *data], given.task_id, given.context_id)
        if not given.wait or not self.profile.streaming:
            return await self._send(message, at_once=not given.wait)
        return await self._work(message)

    async def leave(self, *, cancel: bool) -> None:
        """Clean up when the client has left or cancelled, and cancel the task if the client asked for that."""
        try:
            if self.beginning is not None:
                async with self.call.stream(self.beginning) as stream:
                    self._note_task(stream.opening)
            if cancel and self.task_id:
                await self.engine.cancel(self.principal, self.agent, CancelTaskRequest(id=self.task_id))
        except A2AError as error:
            log.debug("cleaning up an abandoned call of %s failed: %s", self.agent, error)
        except Exception:
            log.exception("cleaning up an abandoned call of %s failed", self.agent)

    def check_credential(self) -> None:
        if not self.context.access.holds(self.principal):
            raise Unauthenticated("the credential of this call is no longer valid")

    # The work

    async def _send(self, message: Message, *, at_once: bool) -> mcp.CallToolResult:
        configuration = SendMessageConfiguration(history_length=0, return_immediately=at_once)
        request = SendMessageRequest(message=message, configuration=configuration)
        answer = await self.engine.send(
            self.principal, self.agent, request, self.call.head.extensions, self.call.reader
        )
        if answer.message is not None:
            return results.of_message(self.agent, raw_decoder(Message)(answer.message))
        return results.of_task(self.agent, raw_decoder(Task)(answer.task or b""))

    async def _work(self, message: Message) -> Outcome:
        """Run until the agent is done, or waits for something that this client cannot give."""
        reply = await self._turn(message)
        if reply is not None:
            return results.of_message(self.agent, reply)
        while True:
            task = await self._read()
            if task.status.state is not TaskState.INPUT_REQUIRED or not self._can_ask():
                return results.of_task(self.agent, task)
            if self.is_modern:
                return results.question(task, _state(task))
            answer = await self._ask(task)
            if answer is not None:
                await self._turn(self._message(str(uuid.uuid4()), [Part(text=answer)], task.id, task.context_id))
            elif not await self._rejoin(task):
                return results.of_task(self.agent, await self._read())

    async def _turn(self, message: Message) -> Message | None:
        """Send a message and follow its task. Return the message of an agent that replies directly."""
        async with self.call.stream(self._begin(message)) as stream:
            if stream.opening.message is not None:
                return raw_decoder(Message)(stream.opening.message)
            await self._follow(stream)
            return None

    async def _begin(self, message: Message) -> TaskStream:
        """Send a message. It is accepted even if the client gives up in the meantime: it may be stored already."""
        self.check_credential()
        request = SendMessageRequest(message=message, configuration=SendMessageConfiguration(history_length=0))
        sending = self.engine.stream(self.principal, self.agent, request, self.call.head.extensions)
        self.beginning = asyncio.get_running_loop().create_task(sending)
        stream = await asyncio.shield(self.beginning)
        self.beginning = None
        self._note_task(stream.opening)
        return stream

    def _note_task(self, opening: SendResult) -> None:
        if opening.task is not None:
            self.task_id = raw_decoder(Task)(opening.task).id

    async def _follow(self, stream: OpenStream) -> None:
        """Follow the task until it ends or pauses."""
        while (frames := await stream.batch()) is not None:
            if self.reports and frames:
                self.check_credential()
                await self.asked.session.report_progress(frames[-1].seq, message=_progress(frames))
            states = [frame.state for frame in frames if frame.state is not None]
            if states and states[-1] in PAUSED:
                return

    async def _read(self) -> Task:
        self.check_credential()
        request = GetTaskRequest(id=self.task_id, history_length=0)
        return raw_decoder(Task)(await self.engine.get(self.principal, self.agent, request, reader=self.call.reader))

    # Questions

    def _can_ask(self) -> bool:
        capabilities = self.asked.session.client_capabilities
        form = None if capabilities is None else capabilities.elicitation
        if form is None or (form.form is None and form.url is not None):
            return False
        return self.engine.accepting and (self.is_modern or self.asked.session.can_send_request)

    async def _ask(self, task: Task) -> str | None:
        """Ask the user. None if there is no answer, or if the question is no longer open."""
        loop = asyncio.get_running_loop()
        asking, moving = loop.create_task(self._elicit(task)), loop.create_task(self._moved(task))
        try:
            await asyncio.wait({asking, moving}, return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else moving.result()
        finally:
            asking.cancel()
            moving.cancel()

    async def _elicit(self, task: Task) -> str | None:
        try:
            result = await self.asked.session.elicit_form(results.asks(task), FORM, self.asked.request_id)
        except (MCPError, ValidationError):  # the client cannot ask, although it declared that it can
            return None
        return _said(result)

    async def _moved(self, task: Task) -> None:
        """Wait until another client has answered or cancelled, the caller's credential ends, or the host stops."""
        try:
            async with self.call.stream(self._subscribe()) as stream:
                if raw_decoder(Task)(stream.opening.task or b"").status == task.status:
                    while await stream.batch() == []:
                        pass
        except UnsupportedOperation:  # the task is over
            return

    async def _rejoin(self, task: Task) -> bool:
        """Follow the task again if it has continued. False if it has ended, or still waits for the same answer."""
        try:
            async with self.call.stream(self._subscribe()) as stream:
                now = raw_decoder(Task)(stream.opening.task or b"")
                if now.status.state in PAUSED:
                    return now.status != task.status
                await self._follow(stream)
                return True
        except UnsupportedOperation:  # the task is over
            return False

    async def _subscribe(self) -> TaskStream:
        self.check_credential()
        return await self.engine.subscribe(self.principal, self.agent, SubscribeToTaskRequest(id=self.task_id))

    # Messages

    def _message(self, message_id: str, parts: list[Part], task_id: str, context_id: str) -> Message:
        named = TENANT in self.call.head.headers and multi_tenant.URI in self.engine.extensions
        return Message(
            message_id=message_id,
            role=Role.USER,
            parts=parts,
            task_id=task_id,
            context_id=context_id,
            metadata={multi_tenant.KEY: self.principal.tenant} if named else None,
        )

    def _answer_in(self, params: mcp.CallToolRequestParams) -> Message | None:
        """Return the answer to the question of an earlier call; None if the user gives none."""
        state = params.request_state or ""
        self.task_id, _, question = state.partition(" ")
        answer = (params.input_responses or {}).get(ANSWER)
        if not question or not isinstance(answer, mcp.ElicitResult):
            raise InvalidParams("requestState: this host did not issue it, or its answer is missing")
        said = _said(answer)
        if said is None:
            return None
        return self._message(str(uuid.uuid5(ANSWERS, state)), [Part(text=said)], self.task_id, "")


def _state(task: Task) -> str:
    """Identify the question. The value need not be secret or trusted: the task is looked up as the caller's own."""
    return f"{task.id} {task.status.message.message_id if task.status.message else '-'}"


def _said(result: mcp.ElicitResult) -> str | None:
    answer = (result.content or {}).get(ANSWER)
    return str(answer) if result.action == "accept" and answer not in (None, "") else None


def _progress(frames: list[StreamFrame]) -> str:
    """Summarize a batch of events."""
    said: list[str] = []
    text = ""
    for frame in frames:
        event = raw_decoder(StreamResponse)(frame.data)
        if event.artifact_update is not None:
            text += "".join(part.text for part in event.artifact_update.artifact.parts if isinstance(part.text, str))
        elif event.status_update is not None:
            status = event.status_update.status
            said.append(status.message.text if status.message is not None else word(status.state))
    return "\n".join([*said, *([text] if text else [])])[:PROGRESS_CHARS]
