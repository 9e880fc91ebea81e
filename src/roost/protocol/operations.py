"""The operations of A2A, each declared once. Every binding, OpenAPI, the docs and the tests read this table.

A row names the operation's types, the method that carries it out (doors/operations.py), and what each binding calls it:
JSON-RPC and gRPC of 1.0 use `name`, HTTP+JSON uses `rest`, and A2A 0.3 uses the names in `old`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from roost.protocol import types


class RestRoute(NamedTuple):
    """A method and path of an operation over HTTP+JSON."""

    method: str
    template: str
    """The path below the agent's base path. `{name}` stands for one segment, or for its part before a `:verb`."""


class OldNames(NamedTuple):
    """The names of an operation in A2A 0.3. An empty name means that the binding does not have it."""

    rpc: str = ""
    grpc: str = ""
    rest: tuple[RestRoute, ...] = ()


class Operation(NamedTuple):
    name: str
    method: str
    """The name of the method of `Operations` that carries it out."""
    request: type[Any]
    response: type[Any] | None
    """The response, or one event of the stream. None: the response is empty."""
    summary: str
    rest: tuple[RestRoute, ...]
    old: OldNames = OldNames()
    streams: bool = False
    resumes: bool = False
    """The stream can be resumed with Last-Event-ID."""


TASK, CONFIGS = "/tasks/{id}", "/tasks/{taskId}/pushNotificationConfigs"
CONFIG = CONFIGS + "/{id}"


def _old_rest(*routes: tuple[str, str]) -> tuple[RestRoute, ...]:
    return tuple(RestRoute(method, "/v1" + template) for method, template in routes)


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "SendMessage",
        "send",
        types.SendMessageRequest,
        types.SendMessageResponse,
        "Send a message and wait for the task",
        (RestRoute("POST", "/message:send"),),
        OldNames("message/send", "SendMessage", _old_rest(("POST", "/message:send"))),
    ),
    Operation(
        "SendStreamingMessage",
        "stream",
        types.SendMessageRequest,
        types.StreamResponse,
        "Send a message and stream the task",
        (RestRoute("POST", "/message:stream"),),
        OldNames("message/stream", "SendStreamingMessage", _old_rest(("POST", "/message:stream"))),
        streams=True,
    ),
    Operation(
        "ListTasks",
        "list_tasks",
        types.ListTasksRequest,
        types.ListTasksResponse,
        "List the caller's tasks",
        (RestRoute("GET", "/tasks"),),
        OldNames("", "", _old_rest(("GET", "/tasks"))),
    ),
    Operation(
        "GetTask",
        "get",
        types.GetTaskRequest,
        types.Task,
        "Read a task",
        (RestRoute("GET", TASK),),
        OldNames("tasks/get", "GetTask", _old_rest(("GET", TASK))),
    ),
    Operation(
        "CancelTask",
        "cancel",
        types.CancelTaskRequest,
        types.Task,
        "Cancel a task",
        (RestRoute("POST", TASK + ":cancel"),),
        OldNames("tasks/cancel", "CancelTask", _old_rest(("POST", TASK + ":cancel"))),
    ),
    Operation(
        "SubscribeToTask",
        "subscribe",
        types.SubscribeToTaskRequest,
        types.StreamResponse,
        "Follow a task",
        (RestRoute("GET", TASK + ":subscribe"), RestRoute("POST", TASK + ":subscribe")),
        OldNames(
            "tasks/resubscribe",
            "TaskSubscription",
            _old_rest(("GET", TASK + ":subscribe"), ("POST", TASK + ":subscribe")),
        ),
        streams=True,
        resumes=True,
    ),
    Operation(
        "CreateTaskPushNotificationConfig",
        "create_push_config",
        types.TaskPushNotificationConfig,
        types.TaskPushNotificationConfig,
        "Set a webhook of a task",
        (RestRoute("POST", CONFIGS),),
        OldNames("tasks/pushNotificationConfig/set", "CreateTaskPushNotificationConfig", _old_rest(("POST", CONFIGS))),
    ),
    Operation(
        "ListTaskPushNotificationConfigs",
        "list_push_configs",
        types.ListTaskPushNotificationConfigsRequest,
        types.ListTaskPushNotificationConfigsResponse,
        "List the webhooks of a task",
        (RestRoute("GET", CONFIGS),),
        OldNames("tasks/pushNotificationConfig/list", "ListTaskPushNotificationConfig", _old_rest(("GET", CONFIGS))),
    ),
    Operation(
        "GetTaskPushNotificationConfig",
        "get_push_config",
        types.GetTaskPushNotificationConfigRequest,
        types.TaskPushNotificationConfig,
        "Read a webhook of a task",
        (RestRoute("GET", CONFIG),),
        OldNames("tasks/pushNotificationConfig/get", "GetTaskPushNotificationConfig", _old_rest(("GET", CONFIG))),
    ),
    Operation(
        "DeleteTaskPushNotificationConfig",
        "delete_push_config",
        types.DeleteTaskPushNotificationConfigRequest,
        None,
        "Delete a webhook of a task",
        (RestRoute("DELETE", CONFIG),),
        OldNames(
            "tasks/pushNotificationConfig/delete", "DeleteTaskPushNotificationConfig", _old_rest(("DELETE", CONFIG))
        ),
    ),
    Operation(
        "GetExtendedAgentCard",
        "extended_card",
        types.GetExtendedAgentCardRequest,
        types.AgentCard,
        "Read the card with what only this caller may know",
        (RestRoute("GET", "/extendedAgentCard"),),
        OldNames("agent/getAuthenticatedExtendedCard", "GetAgentCard", _old_rest(("GET", "/card"))),
    ),
)

BY_NAME = {operation.name: operation for operation in OPERATIONS}
BY_OLD_RPC = {operation.old.rpc: operation for operation in OPERATIONS if operation.old.rpc}
