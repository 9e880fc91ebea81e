"""The registry holds the agents that are served now, and tells its listeners about every change."""

from __future__ import annotations

import pytest

from roost import Agent
from roost.engine.hosted import AgentChange, HostedAgent
from roost.fleet.registry import AgentExists, NoSuchAgent, Registry


def hosted(agent_id: str, description: str = "first") -> HostedAgent:
    agent = Agent(agent_id, description=description)

    @agent.on_message
    async def answer(task: object) -> str:
        return "ok"

    return agent.hosted()


def test_agents_are_found_by_id_and_listed_in_the_order_of_their_addition():
    registry = Registry([hosted("b"), hosted("a")])
    registry.add(hosted("c"))
    assert list(registry) == ["b", "a", "c"]
    assert [profile.id for profile in registry.profiles()] == ["b", "a", "c"]
    assert len(registry) == 3
    assert "a" in registry
    assert registry.get("a") is not None
    assert registry.get("x") is None
    assert registry.profile("x") is None


def test_a_replaced_agent_keeps_its_place_and_its_id():
    registry = Registry([hosted("a"), hosted("b")])
    registry.replace(hosted("a", "second"))
    assert [(profile.id, profile.description) for profile in registry.profiles()] == [("a", "second"), ("b", "first")]


def test_listeners_hear_of_every_change_after_it_has_happened():
    registry = Registry()
    heard: list[tuple[AgentChange, list[str]]] = []
    registry.subscribe(lambda change: heard.append((change, list(registry))))
    first, second = hosted("a"), hosted("a", "second")
    registry.add(first)
    registry.replace(second)
    registry.remove("a", cancel=True)
    assert heard == [
        (AgentChange("a", first), ["a"]),
        (AgentChange("a", second), ["a"]),
        (AgentChange("a", None, cancel=True), []),
    ]


def test_a_change_that_makes_no_sense_is_refused_and_nobody_hears_of_it():
    registry = Registry([hosted("a")])
    heard: list[AgentChange] = []
    registry.subscribe(heard.append)
    with pytest.raises(AgentExists, match="'a' is already served"):
        registry.add(hosted("a"))
    with pytest.raises(NoSuchAgent, match="no agent 'b' to replace"):
        registry.replace(hosted("b"))
    with pytest.raises(NoSuchAgent, match="no agent 'b' to remove"):
        registry.remove("b")
    assert heard == []
    assert list(registry) == ["a"]
