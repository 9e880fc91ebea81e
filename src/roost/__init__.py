"""Roost: a fleet of agents behind one A2A door."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from roost._version import VERSION

if TYPE_CHECKING:
    from roost.agents.agent import Agent, AgentDefinitionError
    from roost.agents.sdk import SDKAgent
    from roost.agents.task import AgentTask, Answer
    from roost.engine.hosted import Caller, ExtendedCard
    from roost.host import asgi
    from roost.protocol.types import AgentExtension, AgentProvider, AgentSkill, Artifact, Message, Part

__version__ = VERSION

__all__ = [
    "Agent",
    "AgentDefinitionError",
    "AgentExtension",
    "AgentProvider",
    "AgentSkill",
    "AgentTask",
    "Answer",
    "Artifact",
    "Caller",
    "ExtendedCard",
    "Message",
    "Part",
    "SDKAgent",
    "asgi",
]

_HOMES = {
    "Agent": "roost.agents.agent",
    "AgentDefinitionError": "roost.agents.agent",
    "AgentTask": "roost.agents.task",
    "Answer": "roost.agents.task",
    "Caller": "roost.engine.hosted",
    "ExtendedCard": "roost.engine.hosted",
    "SDKAgent": "roost.agents.sdk",
    "asgi": "roost.host",
}


def __getattr__(name: str) -> Any:
    """Each name is imported when it is used: a client command needs none of them, and a2a-sdk takes a second."""
    if name not in __all__:
        raise AttributeError(f"module 'roost' has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "roost.protocol.types")), name)
