"""Roost: a fleet of agents behind one A2A door."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roost._version import VERSION
from roost.agents.agent import Agent, AgentDefinitionError
from roost.agents.task import AgentTask, Answer
from roost.host import asgi
from roost.protocol.types import AgentExtension, AgentProvider, AgentSkill, Artifact, Message, Part

if TYPE_CHECKING:
    from roost.agents.sdk import SDKAgent

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
    "Message",
    "Part",
    "SDKAgent",
    "asgi",
]


def __getattr__(name: str) -> Any:
    """SDKAgent is imported when it is used: a2a-sdk takes a second to load."""
    if name == "SDKAgent":
        from roost.agents.sdk import SDKAgent

        return SDKAgent
    raise AttributeError(f"module 'roost' has no attribute {name!r}")
