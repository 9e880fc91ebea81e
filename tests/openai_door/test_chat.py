"""Chat completions, by the official client: answers, streams, sessions, history, questions and failures."""

from __future__ import annotations

import json
import uuid
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.doors.wire import Rest
from tests.openai_door.conftest import client_of
from tests.processes import Server


def ask(client: openai.OpenAI, model: str, *texts: str, **more: Any) -> ChatCompletion:
    """The texts are said by the user and the agent in turns; the last is the user's."""
    roles = ["user", "assistant"] if len(texts) % 2 else ["assistant", "user"]
    messages: Any = [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]
    found: ChatCompletion = client.chat.completions.create(model=model, messages=messages, **more)
    return found


def stream(client: openai.OpenAI, model: str, text: str, **more: Any) -> list[ChatCompletionChunk]:
    messages: Any = [{"role": "user", "content": text}]
    return list(client.chat.completions.create(model=model, messages=messages, stream=True, **more))


def said(answer: ChatCompletion) -> str:
    (choice,) = answer.choices
    assert choice.finish_reason == "stop"
    return choice.message.content or ""


def told(answer: Any) -> dict[str, Any]:
    """The metadata of an answer or a chunk."""
    found: dict[str, Any] = answer.model_dump()["metadata"]
    return found


def joined(chunks: list[ChatCompletionChunk]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def session(name: str) -> dict[str, Any]:
    return {"extra_headers": {"X-Session-ID": name}}


# Answers


def test_an_agent_answers_as_a_model_and_its_task_is_an_ordinary_one(client: openai.OpenAI, rest: Rest) -> None:
    answer = ask(client, "words", "a b c")
    assert (answer.object, answer.model, said(answer)) == ("chat.completion", "words", "a b c ")
    task = rest.get(told(answer)["task_id"], "words")
    assert task["contextId"] == told(answer)["session_id"] == answer.model_dump()["session_id"]
    assert (task["status"]["state"], told(answer)["state"]) == ("TASK_STATE_COMPLETED", "completed")
    assert answer.usage is None, "the agent did not say"


def test_a_stream_has_a_chunk_for_each_piece_and_the_same_text(client: openai.OpenAI) -> None:
    chunks = stream(client, "words", "a b c")
    assert [chunk.choices[0].delta.content for chunk in chunks] == ["", "a ", "b ", "c ", None]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * 4 + ["stop"]
    assert len({chunk.id for chunk in chunks}) == 1
    assert told(chunks[0])["task_id"] == told(chunks[-1])["task_id"]
    assert joined(chunks) == said(ask(client, "words", "a b c"))


def test_a_piece_is_sent_when_it_is_there(client: openai.OpenAI) -> None:
    name = str(uuid.uuid4())
    messages: Any = [{"role": "user", "content": name}]
    with client.chat.completions.create(model="hold", messages=messages, stream=True) as chunks:
        arrived = iter(chunks)
        assert next(arrived).choices[0].delta.role == "assistant"
        assert next(arrived).choices[0].delta.content == "one "
        ask(client, "release", name)
        assert [chunk.choices[0].delta.content for chunk in arrived] == ["two", None]


def test_a_stream_ends_with_done_and_has_no_line_but_its_own(server: Server) -> None:
    body = {"model": "words", "messages": [{"role": "user", "content": "a\u2028b"}], "stream": True}
    answer = httpx.post(f"{server.url}/openai/v1/chat/completions", json=body)
    assert answer.headers["content-type"] == "text/event-stream"
    lines = [line for line in answer.text.splitlines() if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    assert answer.headers["x-session-id"] == json.loads(lines[0][6:])["metadata"]["session_id"]


def test_artifacts_files_links_and_last_words_are_all_in_the_text(client: openai.OpenAI) -> None:
    whole = said(ask(client, "many", "go"))
    assert whole.split("\n\n") == [
        "first",
        "second",
        "[x.png: image/png, 3 bytes]",
        "https://example.com/y",
        "That is all.",
    ]
    assert joined(stream(client, "many", "go")) == whole


def test_data_is_shown_as_json(client: openai.OpenAI) -> None:
    assert json.loads(said(ask(client, "given", "x")))["parts"][0]["text"] == "x"


def test_what_an_agent_says_again_is_not_sent_twice(client: openai.OpenAI) -> None:
    assert joined(stream(client, "again", "go")) == said(ask(client, "again", "go")) == "one two three"


def test_a_direct_reply_is_an_answer_without_a_task(client: openai.OpenAI) -> None:
    answer = ask(client, "direct", "hi")
    assert said(answer) == "You said hi"
    assert told(answer).keys() == {"session_id", "state"}
    assert joined(stream(client, "direct", "hi")) == "You said hi"


def test_below_an_agent_the_model_does_not_matter(server: Server) -> None:
    with openai.OpenAI(base_url=f"{server.url}/agents/words/v1", api_key="none", max_retries=0) as client:
        answer = ask(client, "whatever", "a b")
    assert (said(answer), answer.model) == ("a b ", "words")


def test_models_are_the_agents(client: openai.OpenAI) -> None:
    models = {model.id: model for model in client.models.list()}
    assert {"words", "guide", "boom"} <= models.keys()
    assert client.models.retrieve("words") == models["words"]
    with pytest.raises(openai.NotFoundError) as refused:
        client.models.retrieve("nobody")
    assert refused.value.code == "model_not_found"


# What the agent is given


def given(client: openai.OpenAI, content: Any, **more: Any) -> dict[str, Any]:
    messages = content if isinstance(content, list) and "role" in content[0] else [{"role": "user", "content": content}]
    found: dict[str, Any] = json.loads(said(client.chat.completions.create(model="given", messages=messages, **more)))
    return found


def test_images_and_files_are_parts_and_no_url_is_fetched(client: openai.OpenAI) -> None:
    found = given(
        client,
        [
            {"type": "text", "text": "look"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAEC"}},
            {"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/never"}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAECAw=="}},
            {"type": "file", "file": {"filename": "b.csv", "file_data": "AAE="}},
            {"type": "input_audio", "input_audio": {"data": "AAECAwQ=", "format": "mp3"}},
        ],
    )
    assert [(part["text"], part["raw"], part["url"], part["kind"], part["name"]) for part in found["parts"]] == [
        ("look", None, None, "", ""),
        (None, 3, None, "image/png", ""),
        (None, None, "http://127.0.0.1:9/never", "", ""),
        (None, 4, None, "application/pdf", "a.pdf"),
        (None, 2, None, "text/csv", "b.csv"),
        (None, 5, None, "audio/mpeg", ""),
    ]


HISTORY: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief"},
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "two"},
    {"role": "user", "content": [{"type": "text", "text": "three"}]},
    {"role": "user", "content": "four"},
]


def test_without_a_session_earlier_turns_go_along(client: openai.OpenAI) -> None:
    found = given(client, HISTORY)
    assert [part["text"] for part in found["parts"]] == ["three", "four"], "all that was said since the last answer"
    assert found["beside"] == {
        "openai": {
            "instructions": "Be brief",
            "history": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}],
        }
    }


def test_in_a_session_earlier_turns_are_known_already(client: openai.OpenAI) -> None:
    found = given(client, HISTORY, extra_body={"session_id": "s-known"})
    assert found["beside"] == {"openai": {"instructions": "Be brief"}}
    assert found["context"] == "s-known"


def test_of_a_long_history_the_oldest_turns_are_left_out_and_counted(client: openai.OpenAI) -> None:
    turns = [{"role": role, "content": f"{at} " + "x" * 5000} for at in range(10) for role in ("user", "assistant")]
    beside = given(client, [*turns, {"role": "user", "content": "now"}])["beside"]["openai"]
    kept = beside["history"]
    assert 0 < len(kept) < 20
    assert kept == turns[-len(kept) :]
    assert beside["omitted"] == 20 - len(kept)


def test_the_requests_metadata_reaches_the_agent(client: openai.OpenAI) -> None:
    assert given(client, "x", metadata={"ticket": "7"})["metadata"]["ticket"] == "7"


def test_a_delegated_task_is_taken_as_the_users(client: openai.OpenAI) -> None:
    """Agents of KAOS give each other tasks in messages of this role."""
    messages: Any = [
        {"role": "user", "content": "earlier"},
        {"role": "assistant", "content": "yes"},
        {"role": "task-delegation", "content": "count the herons"},
    ]
    answer = client.chat.completions.create(model="given", messages=messages)
    came = json.loads(said(answer))
    assert [part["text"] for part in came["parts"]] == ["count the herons"]
    assert came["beside"]["openai"] == {
        "delegated": True,
        "history": [{"role": "user", "content": "earlier"}, {"role": "assistant", "content": "yes"}],
    }
    plain = json.loads(said(ask(client, "given", "hi")))
    assert "delegated" not in ((plain["beside"] or {}).get("openai") or {})


# Sessions


def test_a_call_without_a_session_gets_a_fresh_one(client: openai.OpenAI) -> None:
    first, second = ask(client, "words", "a"), ask(client, "words", "a")
    assert told(first)["session_id"] != told(second)["session_id"]


@pytest.mark.parametrize("how", ["header", "body"])
def test_the_id_of_an_answer_names_its_session(client: openai.OpenAI, how: str) -> None:
    """Clients of KAOS send the id of the answer back, and the conversation goes on."""

    def named(answer: ChatCompletion) -> dict[str, Any]:
        return session(answer.id) if how == "header" else {"extra_body": {"session_id": answer.id}}

    first = ask(client, "guide", "Ann")
    second = ask(client, "guide", "Rome", **named(first))
    assert said(second) == "Rome it is. \n\nWhich day?"
    third = ask(client, "guide", "Monday", **named(second))
    assert (said(third), told(third)["state"]) == ("See you on Monday.", "completed")
    assert len({first.id, second.id, third.id}) == 3
    fourth = ask(client, "guide", "Bob", **named(first))
    assert told(fourth)["session_id"] == told(first)["session_id"], "an earlier one names the same session"


def test_an_id_of_no_answer_or_of_another_agents_is_a_name_like_any_other(client: openai.OpenAI) -> None:
    other = ask(client, "words", "a").id
    for name in (other, f"chatcmpl-{uuid.uuid4()}-1", "chatcmpl-x"):
        answer = ask(client, "guide", "Ann", **session(name))
        assert (told(answer)["session_id"], told(answer)["state"]) == (name, "input-required")


@pytest.mark.parametrize("how", ["header", "body", "both"])
def test_a_session_is_a_context_and_is_returned(client: openai.OpenAI, rest: Rest, how: str) -> None:
    name = f"s-{uuid.uuid4()}"
    more: dict[str, Any] = session(name) if how != "body" else {}
    more |= {"extra_body": {"session_id": name}} if how != "header" else {}
    raw = client.chat.completions.with_raw_response.create(
        model="words", messages=[{"role": "user", "content": "a"}], **more
    )
    assert raw.headers["x-session-id"] == name
    task = rest.get(raw.headers["x-task-id"], "words")
    assert task["contextId"] == told(raw.parse())["session_id"] == name


def test_a_question_is_an_answer_and_the_next_turn_answers_it(client: openai.OpenAI, rest: Rest) -> None:
    name = f"s-{uuid.uuid4()}"
    first = ask(client, "guide", "Ann", **session(name))
    assert said(first) == "Welcome, Ann. \n\nWhich city?"
    assert told(first)["state"] == "input-required"
    second = stream(client, "guide", "Rome", **session(name))
    assert joined(second) == "Rome it is. \n\nWhich day?", "only what is new"
    assert second[-1].choices[0].finish_reason == "stop"
    assert told(second[-1])["state"] == "input-required"
    third = ask(client, "guide", "Monday", **session(name))
    assert (said(third), told(third)["state"]) == ("See you on Monday.", "completed")
    assert told(first)["task_id"] == told(second[0])["task_id"] == told(third)["task_id"]
    fourth = ask(client, "guide", "Bob", **session(name))
    assert told(fourth)["task_id"] != told(first)["task_id"], "nothing waits any more"
    assert len(rest.ok("ListTasks", {"contextId": name}, "guide")["tasks"]) == 2


@pytest.mark.parametrize("streams", [True, False])
def test_what_a_later_turn_replaces_is_said_in_full(client: openai.OpenAI, streams: bool) -> None:
    name = f"s-{uuid.uuid4()}"

    def say() -> str:
        more = session(name)
        return joined(stream(client, "weather", "x", **more)) if streams else said(ask(client, "weather", "x", **more))

    assert [say() for _ in range(3)] == ["Yes\n\nSure?", "Yes\n\nReally?", "Yesterday it rained"]


@pytest.mark.parametrize(
    ("word", "streamed", "whole"), [("one", "one two", "one two"), ("1", "one \n\n1 two", "1 two")]
)
def test_a_run_after_a_crash_does_not_say_earlier_turns_again(
    client: openai.OpenAI, word: str, streamed: str, whole: str
) -> None:
    """Whether it says the same again or something else."""
    one, other = session(f"s-{uuid.uuid4()}"), session(f"s-{uuid.uuid4()}")
    for more in (one, other):
        assert said(ask(client, "crashed", "x", **more)) == "Hello. \n\nWho?"
    assert joined(stream(client, "crashed", word, **one)) == streamed
    assert said(ask(client, "crashed", word, **other)) == whole


def test_a_question_of_another_door_is_answered_here(client: openai.OpenAI, rest: Rest) -> None:
    task = rest.task("Ann", "guide")
    answer = ask(client, "guide", "Rome", **session(task["contextId"]))
    assert told(answer)["task_id"] == task["id"]


def test_without_a_session_a_question_is_left_alone(client: openai.OpenAI, rest: Rest) -> None:
    first = ask(client, "guide", "Ann")
    second = ask(client, "guide", "Ann", "Which city?", "Rome")
    assert told(first)["task_id"] != told(second)["task_id"]
    assert rest.get(told(first)["task_id"], "guide")["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"


@pytest.mark.parametrize("streams", [True, False])
def test_an_authorization_that_is_needed_is_said_and_then_given(client: openai.OpenAI, streams: bool) -> None:
    name = f"s-{uuid.uuid4()}"
    if streams:
        chunks = stream(client, "login", "hi", **session(name))
        text, state = joined(chunks), told(chunks[-1])["state"]
    else:
        answer = ask(client, "login", "hi", **session(name))
        text, state = said(answer), told(answer)["state"]
    assert (text, state) == ("Please sign in at https://example.com/login", "auth-required")
    assert said(ask(client, "login", "done", **session(name))) == "signed in"


def test_a_question_without_words_is_shown_by_its_form(client: openai.OpenAI) -> None:
    assert said(ask(client, "silent", "go")) == "Delete it?\nAll of it."


# Usage and tools


@pytest.mark.parametrize("form", ["1", "2", "3", "turn"])
def test_usage_is_what_the_agent_says_in_any_of_its_forms(client: openai.OpenAI, form: str) -> None:
    answer = ask(client, "priced", form)
    assert said(answer) == "cheap", "a cost is no text"
    assert answer.usage is not None
    assert answer.usage.model_dump(exclude_unset=True) == {
        "prompt_tokens": 12,
        "completion_tokens": 3,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 5},
    }
    chunks = stream(client, "priced", form, stream_options={"include_usage": True})
    assert [chunk.usage is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert (chunks[-1].usage, chunks[-1].choices) == (answer.usage, [])


def test_usage_that_is_no_number_counts_as_none(client: openai.OpenAI) -> None:
    usage = ask(client, "priced", "odd").usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (0, 3)


def test_usage_is_streamed_only_where_it_is_asked_for(client: openai.OpenAI) -> None:
    assert all(chunk.usage is None and chunk.choices for chunk in stream(client, "priced", "1"))
    last = stream(client, "words", "a", stream_options={"include_usage": True})[-1]
    assert (last.choices, last.usage) == ([], None)


@pytest.mark.parametrize("form", ["1", "2", "3"])
def test_tool_calls_are_told_beside_the_text_and_ask_nothing_of_the_client(client: openai.OpenAI, form: str) -> None:
    chunks = stream(client, "tools", form)
    assert joined(chunks) == "Looking. Done."
    assert all(chunk.choices[0].delta.tool_calls is None for chunk in chunks)
    found = [chunk.model_dump() for chunk in chunks]
    calls = [chunk["agent_tool_call"] for chunk in found if "agent_tool_call" in chunk]
    assert [(call["id"], call["phase"]) for call in calls] == [
        ("c1", "started"),
        ("c1", "completed"),
        ("c2", "started"),
        ("c2", "failed"),
    ]
    assert json.loads(calls[1]["arguments"]) == {"q": "bird"}
    assert calls[1]["result"] == ("found " + "x" * 2000)[:800]
    assert ask(client, "tools", form).model_dump()["agent_tool_calls"] == [calls[1], calls[3]]


# Failures


def test_a_failure_is_an_error_and_never_an_answer(client: openai.OpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as failed:
        ask(client, "boom", "x")
    assert (failed.value.status_code, failed.value.code, failed.value.type) == (502, "agent_failed", "server_error")
    assert "hunter2" not in str(failed.value)
    assert failed.value.response.headers["x-task-id"]
    with pytest.raises(openai.UnprocessableEntityError, match="Not my work") as rejected:
        ask(client, "reject", "x")
    assert rejected.value.code == "agent_rejected"


def test_the_client_does_not_ask_a_failing_agent_again_by_itself(server: Server, rest: Rest) -> None:
    name = f"s-{uuid.uuid4()}"
    with client_of(server.url) as client, pytest.raises(openai.InternalServerError):
        ask(client.with_options(max_retries=2), "boom", "x", **session(name))
    assert len(rest.ok("ListTasks", {"contextId": name}, "boom")["tasks"]) == 1


def test_a_failure_in_a_stream_is_an_error_after_what_was_said(client: openai.OpenAI, server: Server) -> None:
    messages: Any = [{"role": "user", "content": "x"}]
    chunks = iter(client.chat.completions.create(model="boom", messages=messages, stream=True))
    assert [next(chunks).choices[0].delta.content for _ in range(2)] == ["", "well, "]
    with pytest.raises(openai.APIError, match="The agent failed") as failed:
        next(chunks)
    assert failed.value.code == "agent_failed"
    body = {"model": "boom", "messages": messages, "stream": True}
    assert b"[DONE]" not in httpx.post(f"{server.url}/openai/v1/chat/completions", json=body).content


def test_a_task_that_is_canceled_elsewhere_is_an_error(client: openai.OpenAI, rest: Rest) -> None:
    name = str(uuid.uuid4())
    messages: Any = [{"role": "user", "content": name}]
    with client.chat.completions.create(model="hold", messages=messages, stream=True) as chunks:
        arrived = iter(chunks)
        rest.ok("CancelTask", {"id": told(next(arrived))["task_id"]}, "hold")
        with pytest.raises(openai.APIError) as failed:
            list(arrived)
    assert failed.value.code == "task_canceled"


# Again


def test_with_a_key_a_message_that_comes_again_is_answered_again(client: openai.OpenAI) -> None:
    headers = {"extra_headers": {"Idempotency-Key": str(uuid.uuid4())}}
    first, second = ask(client, "words", "a b", **headers), ask(client, "words", "a b", **headers)
    assert first == second
    with pytest.raises(openai.UnprocessableEntityError) as refused:
        ask(client, "words", "c", **headers)
    assert (refused.value.code, refused.value.param) == ("idempotency_key_reused", "Idempotency-Key")


def test_with_a_key_each_turn_of_a_session_is_answered_again_as_it_was(client: openai.OpenAI, rest: Rest) -> None:
    """A repeated message does not answer a question that was asked since, and a repeated answer is no new message."""
    name = f"s-{uuid.uuid4()}"
    turns = [
        (text, {"extra_headers": {"X-Session-ID": name, "Idempotency-Key": str(uuid.uuid4())}})
        for text in ("Ann", "Rome", "Monday")
    ]
    first = []
    for text, headers in turns:
        first.append(ask(client, "guide", text, **headers))
        assert ask(client, "guide", text, **headers) == first[-1]
    assert [ask(client, "guide", text, **headers) for text, headers in turns] == first
    assert len(rest.ok("ListTasks", {"contextId": name}, "guide")["tasks"]) == 1
    with pytest.raises(openai.UnprocessableEntityError):
        ask(client, "guide", "Paris", **turns[1][1])
