"""Responses, by the official client: create, stream, read, follow, cancel, and go on from an earlier one."""

from __future__ import annotations

import json
import uuid
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent

from tests.doors.wire import Rest
from tests.processes import Server
from tests.waiting import eventually


def create(client: openai.OpenAI, model: str, said: Any, **more: Any) -> Response:
    found: Response = client.responses.create(model=model, input=said, **more)
    return found


def events(client: openai.OpenAI, model: str, said: Any, **more: Any) -> list[ResponseStreamEvent]:
    return list(client.responses.create(model=model, input=said, stream=True, **more))


def deltas(found: list[ResponseStreamEvent]) -> list[str]:
    return [event.delta for event in found if event.type == "response.output_text.delta"]


def test_an_agent_answers_with_a_response_that_can_be_read_again(client: openai.OpenAI, rest: Rest) -> None:
    made = create(client, "words", "a b c", metadata={"ticket": "7"})
    assert (made.status, made.model, made.output_text) == ("completed", "words", "a b c ")
    assert made.metadata is not None
    assert (made.metadata["ticket"], made.metadata["state"]) == ("7", "completed")
    assert rest.get(made.metadata["task_id"], "words")["contextId"] == made.metadata["session_id"]
    assert made.conversation is not None
    assert made.conversation.id == made.metadata["session_id"]
    assert made.usage is None
    assert client.responses.retrieve(made.id) == made


def test_a_stream_has_typed_events_with_numbers(client: openai.OpenAI) -> None:
    found = events(client, "words", "a b")
    assert [event.type for event in found] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in found] == list(range(10))
    assert deltas(found) == ["a ", "b "]
    last = found[-1]
    assert last.type == "response.completed"
    assert last.response.output_text == "a b "
    assert client.responses.retrieve(last.response.id) == last.response


def test_the_clients_own_accumulation_agrees(client: openai.OpenAI) -> None:
    with client.responses.stream(model="tools", input="1") as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_text == "Looking. Done."


def test_a_stream_can_be_followed_again_from_any_event(client: openai.OpenAI) -> None:
    """The same events with the same numbers, whenever they are asked for."""
    found = events(client, "tools", "1")
    first = found[0]
    assert first.type == "response.created"
    for after in (None, 0, 3, 8, len(found) - 1):
        more = {} if after is None else {"starting_after": after}
        again = list(client.responses.retrieve(first.response.id, stream=True, **more))
        assert again == found[0 if after is None else after + 1 :]


def test_tool_calls_are_items_that_the_server_has_done(client: openai.OpenAI) -> None:
    made = create(client, "tools", "3")
    assert [item.type for item in made.output] == ["mcp_call", "message", "mcp_call"]
    first, _, second = made.output
    assert first.type == second.type == "mcp_call"
    assert (first.name, json.loads(first.arguments), first.status) == ("look", {"q": "bird"}, "completed")
    assert second.status == "failed"
    assert second.error is not None
    assert second.error.type == "mcp_tool_execution_error"
    assert second.error.content == [{"type": "text", "text": "no such thing"}]
    kinds = [event.type for event in events(client, "tools", "3")]
    assert [kind for kind in kinds if "mcp_call" in kind] == [
        "response.mcp_call.in_progress",
        "response.mcp_call_arguments.delta",
        "response.mcp_call_arguments.done",
        "response.mcp_call.completed",
        "response.mcp_call.in_progress",
        "response.mcp_call_arguments.delta",
        "response.mcp_call_arguments.done",
        "response.mcp_call.failed",
    ]


def test_usage_is_what_the_agent_says(client: openai.OpenAI) -> None:
    usage = create(client, "priced", "2").usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (12, 3, 15)
    assert usage.input_tokens_details.cached_tokens == 5


def test_images_and_files_are_parts(client: openai.OpenAI) -> None:
    content = [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": "data:image/png;base64,AAEC", "detail": "auto"},
        {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain,a%20b"},
        {"type": "input_file", "file_url": "https://example.com/b.pdf"},
    ]
    made = create(client, "given", [{"role": "user", "content": content}], instructions="Be brief")
    found = json.loads(made.output_text)
    assert [(part["raw"], part["url"], part["kind"]) for part in found["parts"]] == [
        (None, None, ""),
        (3, None, "image/png"),
        (3, None, "text/plain"),
        (None, "https://example.com/b.pdf", ""),
    ]
    assert found["beside"] == {"openai": {"instructions": "Be brief"}}


def test_an_earlier_answer_can_be_sent_back_as_it_came(client: openai.OpenAI) -> None:
    """The way without a session: all output goes into the next input."""
    made = create(client, "tools", "1")
    said = [{"role": "user", "content": "1"}, *[item.model_dump() for item in made.output]]
    found = json.loads(create(client, "given", [*said, {"role": "user", "content": "and now?"}]).output_text)
    assert found["beside"]["openai"]["history"] == [
        {"role": "user", "content": "1"},
        {"role": "assistant", "content": "Looking. Done."},
    ]


def test_an_earlier_answer_can_be_sent_back_by_its_id(client: openai.OpenAI) -> None:
    """Vercel's AI SDK does this, with a session and without."""
    first = create(client, "given", "one")
    named = [{"type": "item_reference", "id": item.id} for item in first.output]
    said = [{"role": "user", "content": "one"}, {"type": "item_reference", "id": "mcp_c1"}, *named]
    said.append({"role": "user", "content": "two"})
    found = json.loads(create(client, "given", said).output_text)
    assert [part["text"] for part in found["parts"]] == ["two"]
    assert found["beside"]["openai"]["history"] == [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": first.output_text},
    ]
    lost = {"type": "item_reference", "id": f"msg_{uuid.uuid4()}_1"}
    history = json.loads(create(client, "given", [lost, *said]).output_text)["beside"]["openai"]
    assert history == {**found["beside"]["openai"], "omitted": 1}
    foreign = {"type": "item_reference", "id": "rs_of_another_host"}
    found = json.loads(create(client, "given", [foreign, *said], previous_response_id=first.id).output_text)
    assert [part["text"] for part in found["parts"]] == ["two"]
    assert found["beside"] is None, "the session knows it"


def test_items_that_are_no_messages_may_look_as_they_like(client: openai.OpenAI) -> None:
    thought = {"type": "reasoning", "id": "rs_1", "content": [{"type": "reasoning_text", "text": "hm"}], "summary": []}
    odd = {"type": "never_heard_of", "role": "king", "content": 7}
    said = [{"role": "user", "content": "one"}, thought, odd, {"role": "assistant", "content": "hi"}]
    found = json.loads(create(client, "given", [*said, {"role": "user", "content": "two"}]).output_text)
    assert [part["text"] for part in found["parts"]] == ["two"]
    assert [one["content"] for one in found["beside"]["openai"]["history"]] == ["one", "hi"]


# Going on


def test_a_question_is_answered_by_going_on_from_its_response(client: openai.OpenAI) -> None:
    first = create(client, "guide", "Ann")
    assert (first.status, first.output_text) == ("completed", "Welcome, Ann. \n\nWhich city?")
    assert first.metadata is not None
    assert first.metadata["state"] == "input-required"
    second = create(client, "guide", "Rome", previous_response_id=first.id)
    assert second.output_text == "Rome it is. \n\nWhich day?"
    found = events(client, "guide", "Monday", previous_response_id=second.id)
    assert deltas(found) == ["See you on Monday."]
    for one in (first, second):
        assert client.responses.retrieve(one.id) == one, "each turn is read as it was"


def test_going_on_from_what_is_over_stays_in_the_session(client: openai.OpenAI) -> None:
    first = create(client, "words", "a")
    second = create(client, "words", "b", previous_response_id=first.id)
    assert first.conversation == second.conversation
    assert first.id != second.id


@pytest.mark.parametrize("form", ["text", "object"])
def test_a_conversation_is_a_session(client: openai.OpenAI, form: str) -> None:
    name = f"conv_{uuid.uuid4()}"
    conversation: Any = name if form == "text" else {"id": name}
    first = create(client, "guide", "Ann", conversation=conversation)
    assert first.conversation is not None
    assert first.conversation.id == name
    second = create(client, "guide", "Rome", conversation=conversation)
    assert second.output_text.startswith("Rome it is.")


# In the background


def test_a_response_in_the_background_is_polled(client: openai.OpenAI, rest: Rest) -> None:
    name = str(uuid.uuid4())
    begun = create(client, "hold", name, background=True)
    assert begun.status == "queued"
    running = eventually(lambda: _with_text(client, begun.id))
    assert (running.status, running.output_text) == ("in_progress", "one ")
    rest.task(name, "release")
    done = eventually(lambda: _done(client, begun.id))
    assert done.output_text == "one two"


def _with_text(client: openai.OpenAI, response_id: str) -> Response | None:
    found = client.responses.retrieve(response_id)
    return found if found.output_text else None


def _done(client: openai.OpenAI, response_id: str) -> Response | None:
    found = client.responses.retrieve(response_id)
    return found if found.status == "completed" else None


def test_a_response_is_canceled(client: openai.OpenAI, rest: Rest) -> None:
    begun = create(client, "hold", str(uuid.uuid4()), background=True)
    assert client.responses.cancel(begun.id).status == "cancelled"
    assert client.responses.retrieve(begun.id).status == "cancelled"
    assert begun.metadata is not None
    assert rest.get(begun.metadata["task_id"], "hold")["status"]["state"] == "TASK_STATE_CANCELED"
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.cancel(begun.id)
    assert refused.value.code == "response_not_cancelable"


# Deleting, and what was asked


def test_a_deleted_response_is_gone_for_every_door(client: openai.OpenAI, rest: Rest) -> None:
    made = create(client, "words", "a b")
    assert made.metadata is not None
    task = made.metadata["task_id"]
    deleted = client.responses.with_raw_response.delete(made.id)
    assert json.loads(deleted.content) == {"id": made.id, "object": "response", "deleted": True}
    for look in (client.responses.retrieve, client.responses.delete, client.responses.input_items.list):
        with pytest.raises(openai.NotFoundError) as refused:
            look(made.id)
        assert refused.value.code == "response_not_found"
    assert rest.refused("GetTask", {"id": task}, "words").reason == "TASK_NOT_FOUND"


def test_a_response_that_is_not_over_is_canceled_and_deleted(client: openai.OpenAI) -> None:
    for model in ("hold", "guide"):
        begun = create(client, model, str(uuid.uuid4()), background=True)
        client.responses.delete(begun.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(begun.id)


def test_the_input_of_a_response_is_listed(client: openai.OpenAI) -> None:
    picture = "data:image/png;base64,AAAA"
    asked: Any = [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "and?"},
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "second"},
                {"type": "input_image", "image_url": picture, "detail": "auto"},
                {"type": "input_file", "filename": "x.pdf", "file_data": "data:application/pdf;base64,AAAA"},
                {"type": "input_file", "file_url": "https://example.com/y.pdf"},
            ],
        },
    ]
    made = create(client, "given", asked)
    items = [item.to_dict() for item in client.responses.input_items.list(made.id, order="asc")]
    assert [(item["type"], item["role"]) for item in items] == [
        ("message", "user"),
        ("message", "assistant"),
        ("message", "user"),
    ]
    texts = [[part.get("text") for part in item["content"]] for item in items]  # type: ignore[attr-defined]
    assert texts == [["first"], ["and?"], ["second", None, None, None]]
    assert items[2]["content"] == asked[2]["content"]
    assert len({item["id"] for item in items}) == 3


@pytest.mark.parametrize("history", [5, None, [1], [{"role": "user"}], [{"role": ["a"], "content": {"z": 1}}]])
def test_the_input_of_a_task_from_another_door_is_its_message_whatever_its_metadata(
    client: openai.OpenAI, server: Server, history: object
) -> None:
    said = {
        "messageId": "1",
        "role": "ROLE_USER",
        "parts": [{"text": "one"}],
        "metadata": {"openai": {"history": history}},
    }
    sent = httpx.post(f"{server.url}/agents/words/message:send", json={"message": said}, headers={"A2A-Version": "1.0"})
    items = list(client.responses.input_items.list(f"resp_words_{sent.json()['task']['id']}_1"))
    assert [item.to_dict()["content"][0]["text"] for item in items] == ["one"]  # type: ignore[index]


def test_input_items_come_in_pages_the_newest_first(client: openai.OpenAI) -> None:
    texts = [f"{number}" for number in range(5)]
    roles = ["user", "assistant"] * 3
    asked: Any = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
    made = create(client, "words", asked)

    def read(**more: Any) -> list[str]:
        return [item.content[0].text for item in client.responses.input_items.list(made.id, **more)]  # type: ignore[union-attr]

    assert read() == texts[::-1]
    assert read(limit=2, order="asc") == texts, "the client asks for the next page"
    page = client.responses.input_items.list(made.id, limit=2)
    assert (len(page.data), page.has_more) == (2, True)
    assert read(after=page.last_id) == texts[2::-1]  # type: ignore[attr-defined]
    for wrong in ({"limit": 0}, {"limit": 101}, {"order": "up"}, {"after": "in_x"}):
        with pytest.raises(openai.BadRequestError) as refused:
            client.responses.input_items.list(made.id, **wrong)  # type: ignore[arg-type]
        assert refused.value.param == next(iter(wrong))


def test_each_turn_of_a_task_has_its_own_input(client: openai.OpenAI) -> None:
    first = create(client, "guide", "Ann")
    second = create(client, "guide", "Rome", previous_response_id=first.id)

    def asked(response: Response) -> list[str]:
        return [item.content[0].text for item in client.responses.input_items.list(response.id)]  # type: ignore[union-attr]

    assert (asked(first), asked(second)) == (["Ann"], ["Rome"])


# Failures


def test_a_failure_is_an_error_and_its_response_says_so_when_it_is_read(client: openai.OpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as failed:
        create(client, "boom", "x")
    assert (failed.value.status_code, failed.value.code) == (502, "agent_failed")
    read = client.responses.retrieve(f"resp_boom_{failed.value.response.headers['x-task-id']}_1")
    assert (read.status, read.output_text) == ("failed", "well, ")
    assert read.error is not None
    assert read.error.message == failed.value.body["message"]  # type: ignore[index]


def test_a_failure_in_a_stream_is_a_failed_response(client: openai.OpenAI) -> None:
    found = events(client, "boom", "x")
    assert deltas(found) == ["well, "]
    last = found[-1]
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert last.response.error.message.startswith("The agent failed")


def test_a_direct_reply_is_a_response_that_is_not_kept(client: openai.OpenAI) -> None:
    made = create(client, "direct", "hi")
    assert made.output_text == "You said hi"
    assert "".join(deltas(events(client, "direct", "hi"))) == "You said hi"
    with pytest.raises(openai.NotFoundError) as refused:
        client.responses.retrieve(made.id)
    assert refused.value.code == "response_not_found"


@pytest.mark.parametrize(
    "response_id",
    ["resp_x", "resp_words_nothing_1", "resp_nobody_01a1e411-dc0c-7c93-a75d-88a4ca1abe62_1", "words", "resp___", "x_1"],
)
def test_a_response_that_is_not_there(client: openai.OpenAI, server: Server, response_id: str) -> None:
    for look in (client.responses.retrieve, client.responses.cancel, client.responses.delete):
        with pytest.raises(openai.NotFoundError) as refused:
            look(response_id)
        assert refused.value.code == "response_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        create(client, "words", "x", previous_response_id=response_id)
    assert (wrong.value.code, wrong.value.param) == ("previous_response_not_found", "previous_response_id")


def test_an_event_that_the_task_does_not_have_is_no_response(client: openai.OpenAI) -> None:
    made = create(client, "words", "a")
    for seq in ("0", "99"):
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(f"{made.id.rpartition('_')[0]}_{seq}")
