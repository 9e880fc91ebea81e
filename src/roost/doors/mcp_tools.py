"""The tools of /mcp: one for each agent that the caller may use, and three for its tasks."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import mcp_types as mcp
from mcp.server.context import ServerRequestContext
from mcp.shared.dispatcher import as_request_id, coerce_request_id
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from roost.doors import mcp_results as results
from roost.doors.access import confined
from roost.doors.admission import Call, Negotiate, speaks_any
from roost.doors.context import Context
from roost.doors.errors import known
from roost.doors.http import Request
from roost.doors.mcp import DATA
from roost.doors.mcp_arguments import INPUT, LISTING, OF_TASK, AgentArguments, ListArguments, TaskArguments, arguments
from roost.doors.mcp_call import AgentCall, Outcome
from roost.engine.hosted import Profile
from roost.engine.store_types import MOST_BYTES
from roost.identity.principal import Principal
from roost.protocol.errors import AgentNotFound, InvalidParams, TaskNotFound
from roost.protocol.raw import raw_decoder
from roost.protocol.types import CancelTaskRequest, GetTaskRequest, ListTasksRequest, ListTasksResponse, Task

ASKED = "roost.request"
"""The key under which a scope carries our own Request."""
SESSION = b"mcp-session-id"
PAGE = 100
MOST_AGENTS = 100
"""The most agents whose tasks are listed in one call."""
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The tool names that every client accepts; MCP itself allows more."""

Asked = ServerRequestContext[Any, Any]
Key = tuple[str, str, mcp.RequestId | None]


class TaskTool(NamedTuple):
    shown: mcp.Tool
    call: Callable[[Tools, Request, dict[str, Any] | None], Awaitable[mcp.CallToolResult]]


class Tools:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.calls: dict[Key, AgentCall] = {}
        """Calls in progress in sessions."""
        self.left: set[asyncio.Task[None]] = set()
        """Calls whose client has left and that are still cleaning up."""
        self.closing = False

    # The list of tools

    async def list(self, asked: Asked, params: mcp.PaginatedRequestParams | None) -> mcp.ListToolsResult:
        principal = await self.context.access.caller(_request(asked))
        usable = {name_of(profile.id): profile for profile in self._usable(principal)}
        names = sorted(usable)
        cursor = params.cursor if params is not None else None
        if cursor is not None and cursor not in names:
            raise MCPError(mcp.INVALID_PARAMS, "cursor: this host did not issue it")
        first = 0 if cursor is None else names.index(cursor) + 1
        page = names[first : first + PAGE]
        tools = [_agent_tool(name, usable[name]) for name in page]
        if cursor is None:
            tools = [*(tool.shown for tool in TASK_TOOLS.values()), *tools]
        more = page[-1] if first + PAGE < len(names) else None
        return mcp.ListToolsResult(tools=tools, next_cursor=more)

    # Calls

    async def call(self, asked: Asked, params: mcp.CallToolRequestParams) -> Outcome:
        """Call a tool. Errors of its work are results, which the model can read; others are errors of the protocol."""
        request = _request(asked)
        profile, tool = self._by_name(params.name), TASK_TOOLS.get(params.name)
        if profile is None and tool is None:
            raise MCPError(mcp.INVALID_PARAMS, f"Unknown tool: {params.name[:128]}")
        try:
            if tool is not None:
                return await tool.call(self, request, params.arguments)
            assert profile is not None
            return await self._call_agent(asked, request, profile, params)
        except MCPError:
            raise
        except Exception as error:
            return results.failed(known(error, request))

    async def _call_agent(
        self, asked: Asked, request: Request, profile: Profile, params: mcp.CallToolRequestParams
    ) -> Outcome:
        admitted = await self._admit(request, profile.id, speaks_any)
        given = arguments(AgentArguments, params.arguments)
        given.data = request.scope.get(DATA, given.data)
        call = AgentCall(admitted, profile, asked)
        key = key_of(request, admitted.principal, asked.request_id)
        if SESSION in request.headers and not call.is_modern:
            self.calls[key] = call
        try:
            outcome = await call.run(given, params)
            call.check_credential()
            return outcome
        except asyncio.CancelledError:
            leaves = asked.protocol_version in MODERN_PROTOCOL_VERSIONS  # in this version of MCP, to leave is to cancel
            self._leave(call, cancel=call.given_up or (leaves and not self.closing))
            raise
        except MCPError:
            raise
        except Exception as error:
            return results.failed(known(error, request), call.task_id)
        finally:
            if self.calls.get(key) is call:
                del self.calls[key]

    def _leave(self, call: AgentCall, *, cancel: bool) -> None:
        leaving = asyncio.get_running_loop().create_task(call.leave(cancel=cancel))
        self.left.add(leaving)
        leaving.add_done_callback(self.left.discard)

    async def close(self) -> None:
        for leaving in self.left:
            leaving.cancel()
        await asyncio.gather(*self.left, return_exceptions=True)

    # Tasks

    async def list_tasks(self, request: Request, given: dict[str, Any] | None) -> mcp.CallToolResult:
        wanted = arguments(ListArguments, given)
        if wanted.agent:
            agents = [self._named(wanted.agent)]
        else:
            agents = [profile.id for profile in self._usable(await self.context.access.caller(request))]
            if wanted.page_token:
                raise InvalidParams("pageToken: it belongs to the list of one agent: name the agent", field="pageToken")
            if len(agents) > MOST_AGENTS:
                raise InvalidParams(f"agent: {len(agents)} agents are too many for one list; name one", field="agent")
        found: list[tuple[str, Task]] = []
        page = ListTasksResponse()
        size = 0
        for agent in agents:
            call = await self._admit(request, agent)
            asking = ListTasksRequest(
                context_id=wanted.context_id,
                status=wanted.status,
                page_size=wanted.limit,
                page_token=wanted.page_token,
                history_length=0,
                include_artifacts=False,
            )
            while True:
                body = await self.context.engine.list_tasks(call.principal, agent, asking, reader=call.reader)
                page = raw_decoder(ListTasksResponse)(body)
                found += [(agent, task) for task in page.tasks]
                asking.page_size = (asking.page_size or 0) - len(page.tasks)
                asking.page_token = page.next_page_token
                size += len(body)
                if wanted.agent or not page.next_page_token or asking.page_size <= 0:
                    break
                if size > MOST_BYTES:
                    raise InvalidParams("agent: the tasks are too large for one list; name one agent", field="agent")
        found.sort(key=lambda one: one[1].status.timestamp or "", reverse=True)
        return results.of_tasks(found[: wanted.limit], page.next_page_token if wanted.agent else "")

    async def get_task(self, request: Request, given: dict[str, Any] | None) -> mcp.CallToolResult:
        wanted = arguments(TaskArguments, given)
        call = await self._of_task(request, wanted.task_id)
        asking = GetTaskRequest(id=wanted.task_id, history_length=0)
        body = await self.context.engine.get(call.principal, call.agent, asking, reader=call.reader)
        return results.of_task(call.agent, raw_decoder(Task)(body), read=True)

    async def cancel_task(self, request: Request, given: dict[str, Any] | None) -> mcp.CallToolResult:
        wanted = arguments(TaskArguments, given)
        call = await self._of_task(request, wanted.task_id)
        asking = CancelTaskRequest(id=wanted.task_id)
        body = await self.context.engine.cancel(call.principal, call.agent, asking, reader=call.reader)
        return results.of_task(call.agent, raw_decoder(Task)(body), read=True)

    async def _of_task(self, request: Request, task_id: str) -> Call:
        """Admit the caller to the agent of a task. For callers who may not use the agent, the task does not exist.

        The tenant is checked first: for one task as for another, whether it exists or not.
        """
        principal = confined(request, await self.context.access.caller(request))
        agent = await self.context.engine.agent_of(principal, task_id)
        profile = self.context.agents.profile(agent)
        if not (principal.may_call(agent) if profile is None else self.context.access.may_use(principal, profile)):
            raise TaskNotFound(metadata={"taskId": task_id})
        return await self._admit(request, agent)

    async def _admit(self, request: Request, agent: str, negotiate: Negotiate | None = None) -> Call:
        principal = await self.context.access.caller(request)
        call = await self.context.admission.agent(self.context, request, principal, agent, negotiate)
        return call._replace(converts=True)

    def _usable(self, principal: Principal) -> Sequence[Profile]:
        """Return the agents that the caller may use."""
        access = self.context.access
        return [profile for profile in self.context.agents.profiles() if access.may_use(principal, profile)]

    def _by_name(self, tool: str) -> Profile | None:
        """Return the agent of a tool."""
        return next((profile for profile in self.context.agents.profiles() if name_of(profile.id) == tool), None)

    def _named(self, agent: str) -> str:
        """Return the id of an agent that a caller names by its id or its tool."""
        if agent in self.context.agents:
            return agent
        profile = self._by_name(agent)
        if profile is None:
            raise AgentNotFound(f"agent: there is no agent {agent[:128]!r} here", field="agent")
        return profile.id


TASK_TOOLS = {
    "list_tasks": TaskTool(
        mcp.Tool(
            name="list_tasks",
            title="List tasks",
            description="Lists your tasks, of one agent or of all, the most recently changed first.",
            input_schema=LISTING,
            output_schema=results.TASKS,
            annotations=mcp.ToolAnnotations(read_only_hint=True, open_world_hint=False),
        ),
        Tools.list_tasks,
    ),
    "get_task": TaskTool(
        mcp.Tool(
            name="get_task",
            title="Read a task",
            description="Reads a task: its state, what the agent says or asks, and its results so far.",
            input_schema=OF_TASK,
            output_schema=results.TASK,
            annotations=mcp.ToolAnnotations(read_only_hint=True, open_world_hint=False),
        ),
        Tools.get_task,
    ),
    "cancel_task": TaskTool(
        mcp.Tool(
            name="cancel_task",
            title="Cancel a task",
            description="Cancels a task that has not ended.",
            input_schema=OF_TASK,
            output_schema=results.TASK,
            annotations=mcp.ToolAnnotations(destructive_hint=True, open_world_hint=False),
        ),
        Tools.cancel_task,
    ),
}


def key_of(request: Request, principal: Principal, request_id: object) -> Key:
    """Identify a call by its caller, session and id. The ids 1 and "1" are the same, as in the SDK."""
    known_id = as_request_id(request_id)
    return principal.name, request.header(SESSION), None if known_id is None else coerce_request_id(known_id)


def name_of(agent: str) -> str:
    """Return the name of an agent's tool: its id, unless that is no valid name or the name of one of our tools."""
    if NAME.fullmatch(agent) and agent not in TASK_TOOLS:
        return agent
    mark = hashlib.sha256(agent.encode()).hexdigest()[:6]
    return f"{agent[:57].replace('.', '_')}_{mark}"


def _agent_tool(name: str, profile: Profile) -> mcp.Tool:
    skills = [f"- {skill.name}: {skill.description}" for skill in profile.skills if skill.id != profile.id]
    described = profile.description + ("\n\nSkills:\n" + "\n".join(skills) if skills else "")
    return mcp.Tool(
        name=name, title=profile.name, description=described, input_schema=INPUT, output_schema=results.TASK
    )


def _request(asked: Asked) -> Request:
    assert asked.request is not None
    found: Request = asked.request.scope[ASKED]
    return found
