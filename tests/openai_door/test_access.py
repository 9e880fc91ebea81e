"""Who may use which model, and whose a session is."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from tests.access.people import OPERATOR, People, Person
from tests.openai_door.conftest import AGENTS, client_of
from tests.server import running


@pytest.fixture(scope="module")
def people() -> Iterator[People]:
    args = ("--drain-s", "0", "--auth-failures", "100000")
    with running(AGENTS, args=args, env=OPERATOR) as server, People(server) as made:
        made.new()  # from now on a credential is needed
        yield made


def client(person: Person) -> openai.OpenAI:
    return client_of(person.base, person.http.headers["authorization"].partition(" ")[2])


def ask(who: openai.OpenAI, model: str, text: str, session: str) -> str:
    answer = who.chat.completions.create(
        model=model, messages=[{"role": "user", "content": text}], extra_headers={"X-Session-ID": session}
    )
    return answer.choices[0].message.content or ""


def test_without_a_credential_nothing_is_said(people: People) -> None:
    who = client_of(people.base, "roost_" + "x" * 43)
    for call in (who.models.list, lambda: who.models.retrieve("nobody"), lambda: ask(who, "nobody", "x", "s")):
        with pytest.raises(openai.AuthenticationError) as refused:
            call()
        assert (refused.value.code, refused.value.type) == ("invalid_api_key", "authentication_error")
        assert "www-authenticate" in refused.value.response.headers


def test_models_are_those_that_the_caller_may_use(people: People) -> None:
    who = client(people.new("agent:words"))
    assert [model.id for model in who.models.list()] == ["words"]
    assert ask(who, "words", "a", "s") == "a "
    for call in (lambda: ask(who, "guide", "x", "s"), lambda: who.models.retrieve("guide")):
        with pytest.raises(openai.PermissionDeniedError) as refused:
            call()
        assert (refused.value.code, refused.value.type) == ("forbidden", "permission_error")
    with pytest.raises(openai.NotFoundError) as missing:
        ask(who, "nobody", "x", "s")
    assert missing.value.code == "model_not_found"


def test_a_session_is_its_owners_own(people: People) -> None:
    """The same name of another caller is another session: a question in it is not theirs to answer."""
    one, other = client(people.new()), client(people.new())
    assert ask(one, "guide", "Ann", "shared").endswith("Which city?")
    assert ask(other, "guide", "Bob", "shared") == "Welcome, Bob. \n\nWhich city?"
    assert ask(one, "guide", "Rome", "shared").startswith("Rome it is.")


def test_a_response_is_its_owners_own(people: People) -> None:
    one, other = client(people.new()), client(people.new())
    made = one.responses.create(model="guide", input="Ann")
    for look in (other.responses.retrieve, other.responses.cancel):
        with pytest.raises(openai.NotFoundError) as refused:
            look(made.id)
        assert refused.value.code == "response_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        other.responses.create(model="guide", input="Rome", previous_response_id=made.id)
    assert wrong.value.code == "previous_response_not_found"
    assert one.responses.retrieve(made.id) == made


def test_a_quota_that_is_reached_says_when_to_come_again() -> None:
    args = ("--drain-s", "0", "--quotas", "agent:words.rate=1")
    with running(AGENTS, args=args, env=OPERATOR) as server, People(server) as people:
        who = client(people.new())
        ask(who, "words", "a", "s")
        with pytest.raises(openai.RateLimitError) as refused:
            ask(who, "words", "a", "s")
        assert (refused.value.code, refused.value.type) == ("rate_limit_exceeded", "rate_limit_error")
        assert int(refused.value.response.headers["retry-after"]) > 0
