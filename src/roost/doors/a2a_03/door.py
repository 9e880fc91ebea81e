"""Which requests are A2A 0.3's, by version and path, and where its operations are."""

from __future__ import annotations

from roost.doors.a2a_03.loading import load
from roost.doors.cards import OLD_CARD_PATHS
from roost.doors.guard import SUPPORTED_VERSION, negotiate_extensions, version_of
from roost.doors.http import Request
from roost.doors.openai.door import ALIAS as OPENAI_ALIAS
from roost.doors.rest import Call, Handler
from roost.doors.routes import AGENT, Match, Route, find
from roost.engine.hosted import Profile
from roost.protocol.errors import VersionNotSupported

VERSION = "0.3"
PREFIX = "/v1/"


def _by(module: str, name: str) -> Handler:
    async def handler(call: Call) -> None:
        await getattr(await load(module), name)(call)

    return handler


ROUTES: tuple[Route, ...] = (
    Route("POST", "/v1/message:send", _by("rest", "send_message"), "A2A 0.3: send a message"),
    Route("POST", "/v1/message:stream", _by("rest", "stream_message"), "A2A 0.3: send a message and stream the task"),
    Route("GET", "/v1/tasks", _by("rest", "list_tasks"), "A2A 0.3: the caller's tasks, the last hundred"),
    Route("GET", "/v1/tasks/{id}", _by("rest", "get_task"), "A2A 0.3: read a task"),
    Route("POST", "/v1/tasks/{id}:cancel", _by("rest", "cancel_task"), "A2A 0.3: cancel a task"),
    Route("GET", "/v1/tasks/{id}:subscribe", _by("rest", "subscribe_to_task"), "A2A 0.3: follow a task"),
    Route("POST", "/v1/tasks/{id}:subscribe", _by("rest", "subscribe_to_task"), "A2A 0.3: follow a task"),
    Route(
        "POST",
        "/v1/tasks/{taskId}/pushNotificationConfigs",
        _by("rest", "create_push_config"),
        "A2A 0.3: set a webhook of a task",
    ),
    Route(
        "GET",
        "/v1/tasks/{taskId}/pushNotificationConfigs",
        _by("rest", "list_push_configs"),
        "A2A 0.3: list the webhooks of a task",
    ),
    Route(
        "GET",
        "/v1/tasks/{taskId}/pushNotificationConfigs/{id}",
        _by("rest", "get_push_config"),
        "A2A 0.3: read a webhook of a task",
    ),
    Route(
        "DELETE",
        "/v1/tasks/{taskId}/pushNotificationConfigs/{id}",
        _by("rest", "delete_push_config"),
        "A2A 0.3: delete a webhook of a task",
    ),
    Route("GET", "/v1/card", _by("rest", "extended_card"), "A2A 0.3: the card with what only this caller may know"),
)
CARD_ROUTES: tuple[tuple[str, str, str], ...] = tuple(
    ("GET", prefix + path, summary)
    for prefix, summary in (("", "The same card, as A2A 0.3 has it"), (AGENT, "An agent's card, as A2A 0.3 has it"))
    for path in OLD_CARD_PATHS
)
RPC_MATCH = Match(Route("POST", "/", _by("jsonrpc", "serve"), "A2A 0.3: JSON-RPC, every operation"), {}, ())


def claims_rpc(request: Request) -> bool:
    """A request to the JSON-RPC path, where the version alone decides. One that is not served is refused here."""
    version = version_of(request)
    return version != SUPPORTED_VERSION and not version.startswith(SUPPORTED_VERSION + ".")


def claims(request: Request, agent: str, below: str) -> bool:
    """A request below an agent's `/v1/`, where the dialect of agentic-sandbox has not claimed it.

    An agent whose id is `v1` has the paths of A2A 1.0 with a tenant there.
    """
    if not below.startswith(PREFIX) or below == OPENAI_ALIAS:
        return False
    return agent != PREFIX.strip("/") or is_old(version_of(request))


def match(method: str, below: str) -> Match:
    return find(ROUTES, method, below)


def is_old(version: str) -> bool:
    return version in ("", VERSION) or version.startswith(VERSION + ".")


def require_old(version: str) -> None:
    if not is_old(version):
        raise VersionNotSupported(
            f"A2A version {version!r} is not supported here. A request without one is of 0.3",
            metadata={"requestedVersion": version, "supportedVersions": f"{VERSION}, {SUPPORTED_VERSION}"},
        )


def admit(request: Request, profile: Profile, tenants: str) -> None:
    require_old(version_of(request))
    negotiate(request, profile, tenants)


def negotiate(request: Request, profile: Profile, tenants: str) -> None:
    """Under the name that the header had, too."""
    negotiate_extensions(request, profile, tenants)
    if request.extensions:
        request.answer_headers.append((b"x-a2a-extensions", ", ".join(request.extensions).encode("latin-1", "replace")))
