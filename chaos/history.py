"""The observations of the clients of a round, and nothing else. The checker judges this history."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, field

COMPLETED, FAILED, CANCELED = "TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED"
INPUT_REQUIRED, WORKING, SUBMITTED = "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_WORKING", "TASK_STATE_SUBMITTED"
TERMINAL = frozenset({COMPLETED, FAILED, CANCELED, "TASK_STATE_REJECTED"})

decode = msgspec.json.decode


class Sent(Struct):
    """A message that began a task, and what its client expects."""

    message_id: str
    agent: str
    expected: str
    """The text of an undisturbed run."""
    context_id: str = ""
    """The context that the client chose. Its turns run one after another."""
    webhook: bool = False
    answer_id: str = ""
    """The messageId of the answer to the task's question, once the answer was sent."""
    answered: bool = False
    """Whether a host has accepted the answer."""


class Acknowledged(NamedTuple):
    message_id: str
    task_id: str


class Opening(NamedTuple):
    """The Task that a connection began with."""

    seq: int
    """The last event that the Task includes: its id, or the Last-Event-ID that was sent."""
    task: bytes


class Frame(NamedTuple):
    seq: int
    data: bytes
    at: float
    """Seconds on the clock that all clients share."""


class Stream(Struct):
    """One reader's stream of one task: connection after connection, joined by Last-Event-ID."""

    task_id: str
    seen: list[Opening | Frame] = field(default_factory=list)


class Reading(NamedTuple):
    """A Task in a response."""

    task_id: str
    begun: float
    ended: float
    state: str
    text: str


class Cancel(NamedTuple):
    task_id: str
    state: str
    """The state of the task in the response; empty until there is one."""
    at: float = 0.0


class Delivery(NamedTuple):
    """A call of a webhook. The calls are in the order of arrival."""

    message_id: str
    """The message that carried the config."""
    id: str
    """The delivery id, which is the same for every attempt to send an event."""
    data: bytes
    accepted: bool


class Request(NamedTuple):
    """A request, for the evidence files."""

    begun: float
    ended: float
    url: str
    answer: str


class Refusal(NamedTuple):
    """A response that no client should get, whatever happens to the hosts."""

    subject: str
    request: str
    answer: str


class TimedOut(NamedTuple):
    """A client that waited much longer than any operation may take."""

    subject: str
    waited_for: str


class Final(NamedTuple):
    """A task when everything has settled."""

    task_id: str
    agent: str
    context_id: str
    task: dict[str, Any]
    frames: list[Frame]
    """The events from the second on. The first is in no stream, because the Task of every stream includes it."""


class Listed(NamedTuple):
    task_id: str
    state: str
    message_ids: list[str]
    """The messages of the client. The first began the task."""


class History(Struct):
    sent: dict[str, Sent] = field(default_factory=dict)
    """The messages by messageId."""
    acknowledged: list[Acknowledged] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    cancels: list[Cancel] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    timeouts: list[TimedOut] = field(default_factory=list)
    finals: dict[str, Final] = field(default_factory=dict)
    """The final tasks by id."""
    listed: list[Listed] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    """The lines that the agents logged: `run|past step_key pid`."""
    frozen: set[int] = field(default_factory=set)
    """Processes that were stopped for a while. They cannot know what happened to their tasks meanwhile."""
    hosts: list[str] = field(default_factory=list)
    """Failures of hosts that did not start, did not stop, or exited by themselves."""
    known: dict[tuple[str, int], bytes] = field(default_factory=dict)

    def intern(self, task_id: str, seq: int, data: bytes) -> bytes:
        """Return one object for equal bytes of an event, because many readers see each event."""
        found = self.known.setdefault((task_id, seq), data)
        return found if found == data else data


def text_of(task: dict[str, Any]) -> str:
    return "".join(part.get("text", "") for artifact in task.get("artifacts", []) for part in artifact["parts"])


class View:
    """The state and the text that a client has who applies a stream."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.state: str = task["status"]["state"]
        self.artifacts: dict[str, str] = {
            artifact["artifactId"]: text_of({"artifacts": [artifact]}) for artifact in task.get("artifacts", [])
        }

    def apply(self, event: dict[str, Any]) -> None:
        if "statusUpdate" in event:
            self.state = event["statusUpdate"]["status"]["state"]
            return
        update = event["artifactUpdate"]
        name, text = update["artifact"]["artifactId"], text_of({"artifacts": [update["artifact"]]})
        self.artifacts[name] = self.artifacts.get(name, "") + text if update.get("append") else text

    @property
    def text(self) -> str:
        return "".join(self.artifacts.values())
