"""A stream lasts no longer than the credential that opened it; the task that it shows goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.access.people import AGENTS, OPERATOR, People, Person, bearer
from tests.doors.wire import VERSION, sending
from tests.processes import running
from tests.waiting import eventually


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[People]:
    env = {**OPERATOR, "AGENT_GATES": str(tmp_path_factory.mktemp("gates"))}
    data = tmp_path_factory.mktemp("data")
    with running(AGENTS, args=("--drain-s", "0"), data=data, env=env) as server, People(server) as found:
        yield found


def read_to_its_end(person: Person, then: list[str], people: People, token: str) -> list[str]:
    """The lines of a stream whose credential is revoked once it has begun."""
    url = f"{person.base}/agents/turns/message:stream"
    lines = []
    with person.http.stream("POST", url, json=sending("never"), headers=VERSION) as answer:
        for line in answer.iter_lines():
            lines.append(line)
            if "begun" in line:
                for path in then:
                    people.operator.admin("DELETE", f"{path}/{token}")
    return lines


def test_a_stream_ends_when_its_token_is_revoked_and_the_task_does_not(people: People) -> None:
    made = people.operator.make("agent:*", subject="ada")
    lines = read_to_its_end(people.with_headers(bearer(made["token"])), ["tokens"], people, made["id"])
    assert any("begun" in line for line in lines)
    assert not any("ended" in line or "COMPLETED" in line for line in lines)
    another = people.new("agent:*", subject="ada")
    (task,) = another.ask("GET", "/agents/turns/tasks").json()["tasks"]
    assert task["status"]["state"] == "TASK_STATE_WORKING"


def test_a_stream_ends_when_its_token_expires(people: People) -> None:
    def read() -> list[str]:
        """The lines of a stream that began before its token expired."""
        made = people.operator.make("agent:*", expiresIn="2s")
        lines = read_to_its_end(people.with_headers(bearer(made["token"])), [], people, made["id"])
        return lines if any("begun" in line for line in lines) else []

    lines = eventually(read)
    assert not any("ended" in line for line in lines)


def test_a_stream_of_a_token_that_holds_is_left_alone(people: People, tmp_path: Path) -> None:
    """Although others are revoked meanwhile."""
    other, own = people.operator.make("agent:*"), people.new("agent:*")
    url = f"{own.base}/agents/desk/message:stream"
    lines = []
    with own.http.stream("POST", url, json=sending("hi"), headers=VERSION) as answer:
        for line in answer.iter_lines():
            lines.append(line)
            people.operator.admin("DELETE", f"tokens/{other['id']}")
    assert any("INPUT_REQUIRED" in line for line in lines)
