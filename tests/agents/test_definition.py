"""Definitions of agents: their cards, and the definitions that are refused."""

from __future__ import annotations

import pytest

from roost import Agent, AgentDefinitionError, AgentProvider, AgentSkill
from roost.engine.hosted import AgentLimits
from roost.testing import client


async def card_of(agent: Agent) -> dict:
    async with client(agent) as host:
        return (await host.http.get(f"/agents/{agent.id}/.well-known/agent-card.json")).json()


async def test_the_docstring_is_the_description_and_one_skill_and_a_version_are_made():
    agent = Agent("trip")

    @agent.on_message
    async def plan(task):
        """Plans a day trip,
        rain or shine."""

    card = await card_of(agent)
    assert (card["name"], card["version"]) == ("trip", "0.1.0")
    assert card["description"] == "Plans a day trip, rain or shine."
    assert card["skills"] == [
        {
            "id": "trip",
            "name": "trip",
            "description": "Plans a day trip, rain or shine.",
            "tags": ["trip"],
            "inputModes": card["defaultInputModes"],
            "outputModes": card["defaultOutputModes"],
        }
    ]


async def test_without_a_docstring_there_is_a_description_all_the_same():
    agent = Agent("trip", name="Trips")
    agent.on_message(lambda task: None)
    card = await card_of(agent)
    assert card["description"] == card["skills"][0]["description"] == "The agent Trips."


async def test_what_is_given_is_on_the_card():
    skill = AgentSkill(id="day", name="Day trips", description="One day", tags=["travel"])
    provider = AgentProvider(url="https://example.com", organization="Example")
    agent = Agent(
        "trip",
        name="Trips",
        description="Plans trips.",
        version="2.1.0",
        skills=[skill],
        input_modes=["text/plain"],
        output_modes=["image/png"],
        provider=provider,
        documentation_url="https://example.com/docs",
        icon_url="https://example.com/icon.png",
    )

    @agent.on_message
    async def plan(task):
        """Not this one."""

    card = await card_of(agent)
    assert (card["name"], card["description"], card["version"]) == ("Trips", "Plans trips.", "2.1.0")
    assert [found["id"] for found in card["skills"]] == ["day"]
    assert (card["defaultInputModes"], card["defaultOutputModes"]) == (["text/plain"], ["image/png"])
    assert card["provider"] == {"url": "https://example.com", "organization": "Example"}
    assert (card["documentationUrl"], card["iconUrl"]) == ("https://example.com/docs", "https://example.com/icon.png")


@pytest.mark.parametrize("id", ["", " ", "a b", "-a", ".a", "a/b", "a:b", "ä", "a" * 129, "a\n", None, 7])
def test_a_bad_id_is_refused(id):
    with pytest.raises(AgentDefinitionError, match="cannot be an agent's id"):
        Agent(id)


@pytest.mark.parametrize("id", ["a", "A-1", "0.b_c", "a" * 128])
def test_a_good_id_is_taken(id):
    assert Agent(id).id == id


def test_two_functions_are_refused():
    agent = Agent("twice")

    @agent.on_message
    async def first(task):
        return None

    with pytest.raises(AgentDefinitionError, match="'twice' has two on_message functions"):

        @agent.on_message
        async def second(task):
            return None

    assert agent.handler is first


async def nothing():
    return None


def two(task, other):
    return None


def keyword_only(*, task):
    return None


@pytest.mark.parametrize("handler", [nothing, two, keyword_only], ids=lambda handler: handler.__name__)
def test_a_function_that_does_not_take_the_task_alone_is_refused(handler):
    with pytest.raises(AgentDefinitionError, match=rf"{handler.__name__}\(\) of agent 'wrong' must take one argument"):
        Agent("wrong").on_message(handler)


def test_defaults_beside_the_task_are_taken():
    agent = Agent("right")

    @agent.on_message
    def with_default(task, language="en"):
        return None

    assert agent.handler is with_default


def test_an_agent_without_a_function_is_refused_when_it_is_hosted():
    with pytest.raises(AgentDefinitionError, match="'empty' has no function yet"):
        Agent("empty").hosted()


def test_an_unknown_on_crash_is_refused():
    with pytest.raises(AgentDefinitionError, match="'resume' or 'fail', not 'retry'"):
        Agent("wrong", on_crash="retry")


def test_limits_have_the_documented_defaults_and_threads_are_fewer():
    async def coroutine(task):
        return None

    def function(task):
        return None

    on_the_loop, in_threads, told = Agent("a"), Agent("b"), Agent("c", concurrency=3, queue=2, wall_s=5, silence_s=1)
    on_the_loop.on_message(coroutine)
    in_threads.on_message(function)
    told.on_message(function)
    assert on_the_loop.profile.limits == AgentLimits(1000, 10_000, None, None)
    assert in_threads.profile.limits == AgentLimits(64, 10_000, None, None)
    assert told.profile.limits == AgentLimits(3, 2, 5, 1)
