"""Web pages: whose may call, what every answer tells a browser, and no secret in a URL."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest

from roost.doors.access import SECRET_NAMES
from roost.settings import Settings
from tests.access.inside import inside
from tests.access.people import ADMIN, ADMIN_SECRET, AGENTS, CARD, JWKS, OPERATOR, People, Person, bearer, refusal
from tests.doors.serving import free_port
from tests.doors.wire import VERSION, sending
from tests.processes import running

APP = "https://app.example.com"
OTHER_APP = "http://localhost:5173"
PUBLIC = "https://agents.example.com"
SECRET = "a-token-for-the-agents"

KINDS: dict[str, tuple[str, str, object]] = {
    "first page": ("GET", "/", None),
    "directory": ("GET", "/agents/", None),
    "card": ("GET", f"/agents/desk{CARD}", None),
    "fleet's card": ("GET", CARD, None),
    "keys": ("GET", f"/agents/desk{JWKS}", None),
    "alive": ("GET", "/healthz", None),
    "ready": ("GET", "/readyz", None),
    "metrics": ("GET", "/metrics", None),
    "read": ("GET", "/agents/desk/tasks", None),
    "send": ("POST", "/agents/teller/message:send", sending()),
    "stream": ("POST", "/agents/teller/message:stream", sending()),
    "jsonrpc": ("POST", "/agents/teller", {"jsonrpc": "2.0", "id": 1, "method": "ListTasks"}),
    "jsonrpc stream": (
        "POST",
        "/agents/teller",
        {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": sending()},
    ),
    "admin": ("GET", f"{ADMIN}/tokens", None),
    "no such path": ("GET", "/nowhere", None),
    "no such task": ("GET", "/agents/desk/tasks/nothing", None),
    "no such method": ("PUT", "/agents/desk/tasks", None),
    "no such agent": ("GET", "/agents/nobody/tasks", None),
    "no such admin path": ("GET", f"{ADMIN}/nothing", None),
}
"""Every kind of answer that there is."""


class Site:
    def __init__(self, people: People) -> None:
        self.people = people
        self.known = people.new("agent:*", "admin", "metrics")
        self.unknown = people.with_headers({})

    def everyone(self) -> tuple[Person, Person]:
        return self.known, self.unknown


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A host behind a proxy that serves TLS, which pages of two origins may call."""
    port = free_port()
    args = ("--cors-origins", f"{APP}, {OTHER_APP}", "--public-url", PUBLIC, "--drain-s", "0")
    with (
        running(AGENTS, args=args, env={**OPERATOR, "ROOST_TOKEN": SECRET}, port=port),
        People(f"http://127.0.0.1:{port}") as people,
    ):
        yield Site(people)


def ask(person: Person, kind: str, **headers: str) -> httpx.Response:
    method, path, body = KINDS[kind]
    return person.ask(method, path, body, **headers)


# Other origins


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_of_an_allowed_origin_may_read_every_answer(site: Site, kind: str) -> None:
    for person in site.everyone():
        for origin in (APP, OTHER_APP):
            answer = ask(person, kind, Origin=origin)
            assert answer.headers.get_list("access-control-allow-origin") == [origin]
            assert "origin" in answer.headers["vary"].lower()
            assert "www-authenticate" in answer.headers["access-control-expose-headers"]
            assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_browser_that_asks_first_needs_no_credential(site: Site, kind: str, method: str) -> None:
    path = KINDS[kind][1]
    asked = {"Origin": APP, "Access-Control-Request-Method": method}
    asked["Access-Control-Request-Headers"] = "authorization, a2a-version, content-type, x-stainless-os"
    answer = site.unknown.http.options(f"{site.people.base}{path}", headers=asked)
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == APP
    assert method in answer.headers["access-control-allow-methods"]
    allowed = answer.headers["access-control-allow-headers"]
    for header in ("authorization", "x-api-key", "x-tenant-id", "a2a-version", "a2a-extensions", "last-event-id"):
        assert header in allowed
    assert "x-stainless-os" in allowed, "clients have headers of their own"
    assert int(answer.headers["access-control-max-age"]) > 0


FOREIGN = [
    "https://evil.example.com",
    "http://app.example.com",
    "https://app.example.com:8443",
    "https://app.example.com.evil.example",
    "https://evil.app.example.com",
    "null",
    "https://app.example.com/",
]


@pytest.mark.parametrize("origin", FOREIGN)
def test_a_page_of_any_other_origin_is_refused_whoever_sits_before_it(site: Site, origin: str) -> None:
    for person in site.everyone():
        for kind in ("card", "read", "send", "jsonrpc", "admin", "alive", "no such path"):
            answer = ask(person, kind, Origin=origin)
            found = refusal(answer)
            assert (found.reason, origin in found.message) == ("FORBIDDEN", True)
            assert "access-control-allow-origin" not in answer.headers
        preflight = {"Origin": origin, "Access-Control-Request-Method": "GET"}
        answer = person.http.options(f"{site.people.base}/agents/desk/tasks", headers=preflight)
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers


def test_the_hosts_own_pages_and_programs_are_no_strangers(site: Site) -> None:
    for headers in ({}, {"Origin": PUBLIC}, {"Origin": site.people.base}):
        answer = site.known.ask("GET", "/agents/desk/tasks", **headers)
        assert answer.status_code == 200
        assert "access-control-allow-origin" not in answer.headers


def test_an_answer_that_is_cached_for_a_program_is_not_given_to_a_page(site: Site) -> None:
    """It would lack what the browser asks for."""
    for headers in ({}, {"Origin": APP}, {"Origin": PUBLIC}):
        card = ask(site.unknown, "card", **headers)
        assert "public" in card.headers["cache-control"]
        assert {"origin", "accept"} <= {word.strip() for word in card.headers["vary"].lower().split(",")}


def test_an_options_request_that_is_no_such_question_needs_a_credential(site: Site) -> None:
    url = f"{site.people.base}/agents/desk/tasks"
    assert refusal(site.unknown.http.options(url, headers={"Origin": APP})).reason == "UNAUTHENTICATED"
    asked = {"Access-Control-Request-Method": "GET"}
    assert refusal(site.unknown.http.options(url, headers=asked)).reason == "UNAUTHENTICATED"


async def test_without_the_setting_no_origin_is_allowed() -> None:
    async with inside(Settings(memory=True)) as http:
        asked = {"Origin": APP, "Access-Control-Request-Method": "GET"}
        assert (await http.options("/agents/teller/tasks", headers=asked)).status_code == 403
        assert (await http.get("/agents/teller/tasks", headers={"Origin": APP})).status_code == 403


# What every answer says


@pytest.mark.parametrize("kind", KINDS)
def test_every_answer_has_the_security_headers(site: Site, kind: str) -> None:
    for person in site.everyone():
        for headers in ({}, {"Origin": "https://evil.example.com"}):
            answer = ask(person, kind, **headers)
            assert answer.headers.get_list("x-content-type-options") == ["nosniff"]
            assert answer.headers.get_list("referrer-policy") == ["no-referrer"]
            assert answer.headers.get_list("strict-transport-security") == ["max-age=31536000"]


@pytest.mark.parametrize(
    "make",
    [
        lambda site: site.unknown.http.head(f"{site.people.base}/healthz"),
        lambda site: site.known.http.get(f"{site.people.base}/agents/desk{CARD}", headers={"If-None-Match": "*"}),
        lambda site: site.known.http.post(
            f"{site.people.base}/agents/desk", content=b"{", headers={**VERSION, "Content-Type": "application/json"}
        ),
        lambda site: site.known.ask("GET", "/agents/desk/tasks", A2A_Version="0.3"),
        lambda site: site.known.http.post(f"{site.people.base}/agents/desk/message:send", content=b"x" * 9_000_000),
    ],
    ids=["head", "not modified", "bad json", "version", "too large"],
)
def test_the_rarer_answers_have_them_too(site: Site, make: Callable[[Site], httpx.Response]) -> None:
    answer = make(site)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["strict-transport-security"]


async def test_hsts_is_only_for_hosts_that_are_reached_by_tls() -> None:
    for settings, told in (
        (Settings(memory=True), None),
        (Settings(memory=True, public_url="http://agents.example.com"), None),
        (Settings(memory=True, public_url=PUBLIC), "max-age=31536000"),
        (Settings(memory=True, public_url=PUBLIC, hsts_s=60), "max-age=60"),
        (Settings(memory=True, public_url=PUBLIC, hsts_s=0), None),
    ):
        async with inside(settings) as http:
            answer = await http.get("/healthz")
            assert answer.headers.get("strict-transport-security") == told
            assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_page_for_people_runs_no_script_and_is_in_no_frame(site: Site) -> None:
    page = site.known.ask("GET", "/", Accept="text/html")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]


def test_what_is_somebodys_own_is_in_no_cache(site: Site) -> None:
    for kind in ("directory", "read", "send", "jsonrpc", "admin"):
        assert ask(site.known, kind).headers["cache-control"] == "no-store", kind


# No secret in a URL


@pytest.mark.parametrize("kind", KINDS)
def test_a_credential_in_a_query_is_refused_on_every_route(site: Site, kind: str) -> None:
    """A good one too, and before anything is done with it."""
    method, path, body = KINDS[kind]
    for person in site.everyone():
        answer = person.ask(method, f"{path}?access_token={SECRET}", body)
        found = refusal(answer)
        assert (found.reason, found.fields) == ("INVALID_PARAMS", ["access_token"])
        assert "header" in found.message
        assert SECRET not in answer.text


@pytest.mark.parametrize(
    "query",
    [
        *(f"{name}=x" for name in sorted(SECRET_NAMES)),
        "API-KEY=x",
        "X-Api-Key=x",
        "Access_Token=",
        "pageSize=1&token=x",
        "%74oken=x",
        "token=x&token=y",
    ],
)
def test_all_the_names_that_such_a_secret_may_have(site: Site, query: str) -> None:
    assert refusal(site.known.ask("GET", f"/agents/desk/tasks?{query}")).reason == "INVALID_PARAMS"


def test_what_only_looks_like_one_is_not(site: Site) -> None:
    answer = site.known.ask("GET", "/agents/desk/tasks?pageToken=&pageSize=1")
    assert answer.status_code == 200


def test_it_opens_nothing_either(site: Site) -> None:
    for query in (f"access_token={ADMIN_SECRET}", f"api_key={ADMIN_SECRET}"):
        answer = httpx.get(f"{site.people.base}{ADMIN}/tokens?{query}")
        assert refusal(answer).form == "problem"
        assert answer.status_code == 400
    assert httpx.get(f"{site.people.base}{ADMIN}/tokens?a=b", headers=bearer(ADMIN_SECRET)).status_code == 200
