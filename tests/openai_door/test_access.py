"""Access to models, and the ownership of sessions."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from tests.access.people import MULTI_TENANT, OPERATOR, People, Person
from tests.openai_door.conftest import AGENTS, client_of
from tests.processes import running


@pytest.fixture(scope="module")
def people() -> Iterator[People]:
    args = ("--drain-s", "0", "--auth-failures", "100000")
    with running(AGENTS, args=args, env=OPERATOR) as server, People(server) as made:
        made.new()  # from now on a credential is needed
        yield made


@pytest.fixture(scope="module")
def strict() -> Iterator[People]:
    """Quotas, and messages that must name their tenant."""
    quotas = "agent:words.rate=1, principal.streams=1"
    args = ("--drain-s", "0", "--quotas", quotas, "--multi-tenant", "enforced")
    with running(AGENTS, args=args, env=OPERATOR) as server, People(server) as made:
        yield made


def client(person: Person, **headers: str) -> openai.OpenAI:
    secret = person.http.headers["authorization"].partition(" ")[2]
    return client_of(person.base, secret, default_headers={name.replace("_", "-"): headers[name] for name in headers})


def in_acme(people: People) -> openai.OpenAI:
    return client(people.new(tenants=["acme", "globex"]), A2A_Extensions=MULTI_TENANT, X_Tenant_Id="acme")


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


def test_going_on_from_a_response_stays_in_its_tenant(people: People) -> None:
    """Whether or not the request names the tenant; another than the response's has no such response."""
    person = people.new(tenants=["acme", "globex"])
    who = client(person)
    for model, text in (("given", "x"), ("guide", "Ann")):
        first = who.responses.create(model=model, input=text, extra_headers={"X-Tenant-Id": "globex"})
        second = who.responses.create(model=model, input=text, previous_response_id=first.id)
        assert first.metadata is not None
        assert second.metadata is not None
        assert second.metadata["session_id"] == first.metadata["session_id"]
        task = f"/agents/{model}/tasks/{second.metadata['task_id']}"
        assert [person.ask("GET", task, X_Tenant_Id=name).status_code for name in ("globex", "acme")] == [200, 404]
        with pytest.raises(openai.BadRequestError) as refused:
            client(person, X_Tenant_Id="acme").responses.create(model=model, input="x", previous_response_id=first.id)
        assert refused.value.code == "previous_response_not_found"


def test_a_tenant_that_must_be_named_may_be_named_by_the_header(strict: People) -> None:
    made = in_acme(strict).responses.create(model="given", input="x")
    assert made.metadata is not None
    assert made.metadata["tenant_id"] == "acme"
    nowhere = client(strict.new(tenants=["acme", "globex"]), A2A_Extensions=MULTI_TENANT)
    with pytest.raises(openai.BadRequestError) as refused:
        nowhere.responses.create(model="given", input="x")
    assert refused.value.param == "metadata.tenant_id"


def test_a_quota_that_is_reached_says_when_to_come_again(strict: People) -> None:
    who = in_acme(strict)
    with pytest.raises(openai.RateLimitError) as refused:
        [ask(who, "words", "a", "s") for _ in range(10)]  # the window slides: where a minute ends, one more may pass
    assert (refused.value.code, refused.value.type) == ("rate_limit_exceeded", "rate_limit_error")
    assert int(refused.value.response.headers["retry-after"]) > 0


def test_of_streams_only_those_count_that_a_client_is_streamed_to(strict: People) -> None:
    who = in_acme(strict)
    with who.responses.create(model="hold", input="never", stream=True):
        assert ask(who, "guide", "Ann", "s").endswith("Which city?")
        begun = who.responses.create(model="hold", input="never", background=True)
        assert who.responses.retrieve(begun.id).id == begun.id
        for follow in (
            lambda: who.responses.retrieve(begun.id, stream=True),
            lambda: who.responses.create(model="guide", input="Bob", stream=True),
        ):
            with pytest.raises(openai.RateLimitError, match="streams"):
                follow()
