"""LangChain and LangGraph, which build on OpenAI's client, against agents as models; and FastA2A."""

from __future__ import annotations

import uuid
from typing import Annotated, Any, TypedDict

import httpx
import openai
import pytest
from fasta2a.client import A2AClient
from fasta2a.schema import Message, Part
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from pydantic import SecretStr

from tests.clients.conftest import SECRET
from tests.doors.wire import Rest
from tests.processes import Server
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.asyncio(loop_scope="module")  # LangChain keeps its connections for the next model


class Talk(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def model(server: Server, agent: str, secret: str = SECRET, **more: Any) -> ChatOpenAI:
    base = f"{server.url}/openai/v1"
    return ChatOpenAI(model=agent, base_url=base, api_key=SecretStr(secret), timeout=PATIENCE_S, max_retries=0, **more)


def graph(found: ChatOpenAI) -> Any:
    """One node, which asks the model."""

    async def ask(state: Talk) -> Talk:
        return {"messages": [await found.ainvoke(state["messages"])]}

    built = StateGraph(Talk)
    built.add_node("ask", ask)
    built.add_edge(START, "ask")
    built.add_edge("ask", END)
    return built.compile()


each_api = pytest.mark.parametrize("responses", [False, True], ids=["chat", "responses"])


@each_api
async def test_langchain_asks_an_agent(server: Server, responses: bool) -> None:
    answer = await model(server, "words", use_responses_api=responses).ainvoke("a b c")
    assert isinstance(answer, AIMessage)
    assert answer.text.split() == ["a", "b", "c"]
    assert answer.response_metadata["model_name"] == "words"


@each_api
async def test_langchain_streams(server: Server, responses: bool) -> None:
    chunks = [chunk async for chunk in model(server, "words", use_responses_api=responses).astream("a b c")]
    assert [chunk.text for chunk in chunks if chunk.text] == ["a ", "b ", "c "]


async def test_langchain_answers_a_question_in_a_session(server: Server, rest: Rest) -> None:
    trip = model(server, "trip", default_headers={"X-Session-ID": "holiday"})
    asked = await trip.ainvoke("hello")
    assert asked.text == "Which city?"
    said = [HumanMessage("hello"), asked, HumanMessage("Rome")]
    assert (await trip.ainvoke(said)).text == "Greetings from Rome!"
    (task,) = rest.ok("ListTasks", {"contextId": "holiday"}, "trip")["tasks"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_langchain_goes_on_after_a_response(server: Server) -> None:
    trip = model(server, "trip", use_responses_api=True, use_previous_response_id=True)
    asked = await trip.ainvoke("hello")
    assert (await trip.ainvoke([HumanMessage("hello"), asked, HumanMessage("Rome")])).text == "Greetings from Rome!"


async def test_a_graph_of_langgraph_has_an_agent_as_a_node(server: Server) -> None:
    ended = await graph(model(server, "words")).ainvoke({"messages": [HumanMessage("a b")]})
    assert [message.text for message in ended["messages"]] == ["a b", "a b "]


async def test_a_graph_of_langgraph_streams_what_the_agent_says(server: Server) -> None:
    asked = {"messages": [HumanMessage("a b c")]}
    stream = graph(model(server, "words")).astream(asked, stream_mode="messages")
    pieces = [chunk.text async for chunk, _ in stream if isinstance(chunk, AIMessageChunk) and chunk.text]
    assert pieces == ["a ", "b ", "c "]


async def test_errors_are_those_of_openai(server: Server) -> None:
    with pytest.raises(openai.NotFoundError, match="nobody"):
        await model(server, "nobody").ainvoke("hello")
    with pytest.raises(openai.AuthenticationError):
        await model(server, "words", secret="roost_another").ainvoke("hello")
    with pytest.raises(openai.BadRequestError, match="tools"):
        await model(server, "words").bind_tools([{"type": "function", "function": {"name": "f"}}]).ainvoke("hello")


@pytest.mark.parametrize(
    ("version", "says"), [({}, "for 1.0 send `A2A-Version: 1.0`"), ({"A2A-Version": "1.0"}, "it is one of 0.3")]
)
async def test_fasta2a_mixes_two_versions_and_is_told_so(server: Server, version: dict[str, str], says: str) -> None:
    headers = {"Authorization": f"Bearer {SECRET}", **version}
    async with httpx.AsyncClient(headers=headers, timeout=PATIENCE_S) as http:
        client = A2AClient(f"{server.url}/agents/words", http)
        message = Message(role="user", parts=[Part(text="a b")], message_id=str(uuid.uuid4()))
        answer = await client.send_message(message)
    assert says in answer["error"]["message"]
    assert "result" not in answer
