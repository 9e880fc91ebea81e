"""Clients that others have built on OpenAI's."""

from __future__ import annotations

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.processes import Server


def provider(server: Server) -> OpenAIProvider:
    return OpenAIProvider(base_url=f"{server.url}/openai/v1", api_key="none")


async def test_pydantic_ai_asks_an_agent_and_goes_on(server: Server) -> None:
    agent = Agent(OpenAIChatModel("words", provider=provider(server)), instructions="Be brief")
    first = await agent.run("a b")
    assert first.output.split() == ["a", "b"]
    second = await agent.run("c d", message_history=first.all_messages())
    assert second.output.split() == ["c", "d"]


async def test_pydantic_ai_streams_and_counts(server: Server) -> None:
    agent = Agent(OpenAIChatModel("priced", provider=provider(server)))
    async with agent.run_stream("1") as stream:
        assert await stream.get_output() == "cheap"
    usage = (await agent.run("2")).usage
    assert (usage.input_tokens, usage.output_tokens) == (12, 3)


async def test_pydantic_ai_takes_responses_with_the_tool_calls_of_the_agent(server: Server) -> None:
    agent = Agent(OpenAIResponsesModel("tools", provider=provider(server)))
    assert (await agent.run("1")).output == "Looking. Done."
    async with agent.run_stream("1") as stream:
        assert await stream.get_output() == "Looking. Done."
