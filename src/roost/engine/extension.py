"""The port for extensions of A2A. One class per extension; `wiring/extensions.py` lists them.

    card     declaration   what the agent's card says about the extension
    intake   accept        what is checked when a message arrives, and what is decided about it
    journal  stamp         what is recorded in the metadata of the message and of every event of its task
    reader   add_to_task,  what a reader gets who activated the extension
             add_to_event

The journal keeps base bytes. What an extension adds for a reader is added on the way out, for those who activated it:
a request's response and stream by the activations of that request, a webhook by those of the request that created it,
a repeated message by those of the repeat. Evidence is base bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Raw, Struct

from roost.engine.hosted import Profile
from roost.engine.store_types import Reservation, Scope
from roost.identity.principal import Principal
from roost.protocol.codec import decoder, encode
from roost.protocol.errors import ExtensionSupportRequired
from roost.protocol.raw import raw_decoder, read_folded
from roost.protocol.types import (
    AgentExtension,
    JSONObject,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatusUpdateEvent,
)


class Incoming(Struct, frozen=True):
    """A message at the intake, with what the extensions have decided about it. They return changed copies."""

    principal: Principal
    """The caller, confined to the tenant that the message is for."""
    agent: str
    request: SendMessageRequest
    activated: Sequence[str]
    """URIs of the extensions that the client has activated."""
    keyed: bool = False
    """The client has declared messageId to be an idempotency key, whatever its form."""
    stamped_by: tuple[Extension, ...] = ()
    """The extensions whose stamp is recorded."""
    reservation: Reservation | None = None
    """Recognises a repeat of the message."""

    @property
    def scope(self) -> Scope:
        return Scope(self.principal.tenant, self.principal.owner, self.agent)

    def stamp(self, scope: Scope) -> JSONObject | None:
        """The metadata that a task in this scope records; None for none."""
        if not self.stamped_by:
            return None
        return {name: value for extension in self.stamped_by for name, value in extension.stamp(scope).items()}


class Extension:
    """One extension that this host supports. Each method does nothing until it is overridden."""

    uri = ""

    def declaration(self, profile: Profile | None) -> AgentExtension | None:
        """Return what the card of an agent, or with None the fleet's card, declares; None to declare nothing."""
        return None

    def accept(self, incoming: Incoming) -> Incoming:
        """Check a message, and return it with what this extension decides. Raise an A2AError to refuse it."""
        return incoming

    def stamp(self, scope: Scope) -> JSONObject:
        """Return what is recorded in the metadata of a task in this scope, if `accept` has asked for it."""
        return {}

    def add_to_task(self, task: Task) -> None:
        """Add to a Task for a reader who activated the extension."""

    def add_to_event(self, event: TaskStatusUpdateEvent | TaskArtifactUpdateEvent) -> None:
        """Add to an event for a reader who activated the extension."""


def _overrides(extension: Extension, *methods: str) -> bool:
    return any(getattr(type(extension), method) is not getattr(Extension, method) for method in methods)


class Extensions:
    """The extensions of a host, in the order in which they see a message."""

    def __init__(self, extensions: Iterable[Extension] = ()) -> None:
        self._all = tuple(extensions)
        self._accepting = [one for one in self._all if _overrides(one, "accept")]
        self._stamping = [one for one in self._all if _overrides(one, "stamp")]
        self._adding = {one.uri: one for one in self._all if _overrides(one, "add_to_task", "add_to_event")}
        self._required = any(one.required for one in self.declared(None))

    def __contains__(self, uri: str) -> bool:
        return any(extension.uri == uri for extension in self._all)

    def declared(self, profile: Profile | None) -> list[AgentExtension]:
        """List what a card declares: the host's extensions, then the agent's own."""
        found = (extension.declaration(profile) for extension in self._all)
        return [*(one for one in found if one is not None), *(() if profile is None else profile.extensions)]

    def activate(self, asked: Sequence[str], profile: Profile | None) -> list[str]:
        """Return the URIs among `asked` that the agent has. Raise if a required one is missing."""
        if not asked and not self._required and (profile is None or not profile.extensions):
            return []
        wanted = {uri.lower() for uri in asked}
        declared = self.declared(profile)
        activated = [extension.uri for extension in declared if extension.uri.lower() in wanted]
        for extension in declared:
            if extension.required and extension.uri not in activated:
                raise ExtensionSupportRequired(
                    f"This agent requires the extension {extension.uri}: name it in A2A-Extensions",
                    metadata={"extension": extension.uri},
                )
        return activated

    def accept(self, incoming: Incoming) -> Incoming:
        for extension in self._accepting:
            incoming = extension.accept(incoming)
        return incoming

    def recorded_stamp(self, task: Task, scope: Scope) -> JSONObject | None:
        """Return the stamp that the events of a task from the journal carry; None for none."""
        metadata = task.metadata
        if not metadata or not self._stamping:
            return None
        stamps = (extension.stamp(scope) for extension in self._stamping)
        found = [stamp for stamp in stamps if stamp.items() <= metadata.items()]
        return {name: value for stamp in found for name, value in stamp.items()} or None

    def view(self, activated: Iterable[str]) -> ReaderView | None:
        """Return what shows tasks to a reader with these activations; None if they see base bytes."""
        if not self._adding:
            return None
        found = [self._adding[uri] for uri in activated if uri in self._adding]
        return ReaderView(found) if found else None


NO_ARTIFACTS = b'"artifacts":[]}'


class _ListedTasks(Struct, rename="camel"):
    """A ListTasksResponse whose tasks are not taken apart."""

    tasks: list[Raw]
    next_page_token: str
    page_size: int
    total_size: int


class ReaderView:
    """Adds to base bytes what a reader's extensions add."""

    def __init__(self, extensions: Sequence[Extension]) -> None:
        self._extensions = extensions

    @property
    def uris(self) -> list[str]:
        return [extension.uri for extension in self._extensions]

    def task(self, body: bytes) -> bytes:
        task = read_folded(body)
        self._add_to(task)
        return encode(task)

    def event(self, body: bytes) -> bytes:
        """`body` is a StreamResponse."""
        response = raw_decoder(StreamResponse)(body)
        event = response.status_update or response.artifact_update
        if event is not None:
            for extension in self._extensions:
                extension.add_to_event(event)
        elif response.task is not None:
            self._add_to(response.task)
        return encode(response)

    def page(self, body: bytes) -> bytes:
        """`body` is a ListTasksResponse."""
        page = decoder(_ListedTasks)(body)
        page.tasks = [Raw(self._listed(bytes(task))) for task in page.tasks]
        return encode(page)

    def _listed(self, task: bytes) -> bytes:
        """A listed task says that it has no artifacts, where they were asked for."""
        shown = self.task(task)
        return shown[:-1] + b"," + NO_ARTIFACTS if task.endswith(NO_ARTIFACTS) else shown

    def _add_to(self, task: Task) -> None:
        for extension in self._extensions:
            extension.add_to_task(task)
