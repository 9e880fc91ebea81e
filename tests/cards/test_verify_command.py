"""`roost card verify`: what it fetches, what it trusts, and what it prints."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from typer.testing import CliRunner

from roost.cli.errors import CommandFailed
from roost.cli.judge import card_url
from roost.cli.verify import verify
from roost.identity.card_verification import MAX_CARD
from roost.identity.signing import Signer, base64url
from roost.protocol.codec import encode
from tests.cards.samples import BLOCK, FULL, Card, new_signer, signed, signed_before

WELL_KNOWN = "/.well-known/agent-card.json"
KEYS = "/.well-known/jwks.json"
SIGNER, KEY = new_signer()

app = typer.Typer()
app.command()(verify)


class Web:
    """A server with pages that a test provides; it records the requests."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.pages: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.asked: list[str] = []

    def put(self, path: str, value: Any, status: int = 200, **headers: str) -> str:
        self.pages[path] = (status, headers, value if isinstance(value, bytes) else encode(value))
        return self.url + path

    def put_card(self, *signers: Signer, card: Card = FULL, keys: str | None = None) -> str:
        return self.put(WELL_KNOWN, signed(card, *signers, jku=self.url + KEYS if keys is None else keys))


@contextmanager
def serving() -> Iterator[Web]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.asked.append(self.path)
            status, headers, body = site.pages.get(self.path, (404, {}, b"{}"))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return None

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site = Web(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def web() -> Iterator[Web]:
    with serving() as found:
        yield found


class Done(NamedTuple):
    code: int
    out: str
    error: str
    """Return what `roost` prints on stderr."""


def run(*words: object) -> Done:
    done = CliRunner().invoke(app, [str(word) for word in words])
    if isinstance(done.exception, CommandFailed):
        return Done(done.exception.code, done.stdout, str(done.exception))
    return Done(done.exit_code, done.stdout, done.stderr)


def judged(*words: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*words, "--json").out)
    return found


def file_of(folder: Path, *keys: Card, name: str = "trusted.json") -> Path:
    file = folder / name
    file.write_bytes(encode({"keys": keys}))
    return file


# Valid


def test_a_card_with_keys_on_its_own_origin(web: Web) -> None:
    web.put(KEYS, {"keys": [KEY]})
    done = run(web.put_card(SIGNER))
    assert done.code == 0
    assert done.out.splitlines()[:-1] == [
        "Card          Full 1.2.3",
        "",
        f"Signature     EdDSA, by the key {KEY['kid']}",
        "Covers        the whole card",
        f"Thumbprint    {KEY['kid']}",
        "Valid         yes",
        "Anchored      no (you named no key that you trust)",
        "",
    ]
    assert done.out.splitlines()[-1].startswith("Valid. Only its host says that the key is the agent's")
    assert web.asked == [WELL_KNOWN, KEYS]


def test_a_host_or_an_agent_stands_for_its_card(web: Web) -> None:
    web.put(KEYS, {"keys": [KEY]})
    web.put("/agents/full" + WELL_KNOWN, signed(FULL, SIGNER, jku=web.url + KEYS))
    web.put_card(SIGNER)
    assert [run(web.url + path).code for path in ("", "/", "/agents/full", "/agents/full/")] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("https://a.example", "https://a.example/.well-known/agent-card.json"),
        ("https://a.example/x/?q=1", "https://a.example/x/.well-known/agent-card.json?q=1"),
        ("https://a.example/card.json", "https://a.example/card.json"),
        ("https://a.example/.well-known/agent", "https://a.example/.well-known/agent"),
    ],
)
def test_which_card_is_meant(url: str, meant: str) -> None:
    assert str(card_url(url)) == meant


def test_what_each_signature_covers(web: Web) -> None:
    web.put(KEYS, {"keys": [KEY]})
    url = web.put_card(SIGNER, card={**FULL, **BLOCK})
    assert "Covers        what A2A defines, but not x-fleet, x-note\n" in run(url).out
    found = judged(url)
    assert found["outcome"] == "valid"
    assert [(one["covers"], one["uncovered"]) for one in found["signatures"]] == [
        ("card", ["x-fleet", "x-note"]),
        ("document", []),
    ]


# Anchored


def test_a_key_is_anchored_only_if_the_user_trusts_it(web: Web, tmp_path: Path) -> None:
    web.put(KEYS, {"keys": [KEY]})
    url = web.put_card(SIGNER)
    mine, other = file_of(tmp_path, KEY), file_of(tmp_path, new_signer()[1], name="other.json")
    for trust in (["--trust", mine], ["--trust-thumbprint", KEY["kid"]], ["--trust", other, "--trust", mine]):
        done = run(url, *trust)
        assert (done.code, done.out.splitlines()[-1]) == (0, "Valid, and signed by a key that you trust.")
        assert "Anchored      yes\n" in done.out
    done = run(url, "--trust", other)
    assert (done.code, done.out.splitlines()[-1]) == (
        1,
        "Valid, but not signed by a key that you trust.",
    )
    assert "Anchored      no (you do not trust its key)\n" in done.out


def test_a_key_that_borrows_the_name_of_a_trusted_one_is_not_anchored(web: Web, tmp_path: Path) -> None:
    """The host signs with another key, and publishes it under the kid that the user trusts."""
    impostor, public = new_signer()
    web.put(KEYS, {"keys": [{**public, "kid": KEY["kid"]}]})
    url = web.put_card(impostor._replace(kid=KEY["kid"]))
    for trust in (["--trust", file_of(tmp_path, KEY)], ["--trust-thumbprint", KEY["kid"]]):
        found = judged(url, *trust)
        assert found["outcome"] == "invalid"
        assert [(one["valid"], one["anchored"]) for one in found["signatures"]] == [(True, False)]


def test_a_trusted_key_needs_nothing_from_the_host(web: Web, tmp_path: Path) -> None:
    done = run(web.put_card(SIGNER), "--trust", file_of(tmp_path, KEY))
    assert done.code == 0
    assert "answers with HTTP" in done.error


def test_during_a_rotation_a_client_that_trusts_either_key_is_content(web: Web) -> None:
    newer, public = new_signer("ES256")
    web.put(KEYS, {"keys": [KEY, public]})
    url = web.put_card(newer, SIGNER)
    assert [run(url, "--trust-thumbprint", kid).code for kid in (KEY["kid"], public["kid"])] == [0, 0]


# Not valid


def test_a_card_that_was_changed(web: Web) -> None:
    web.put(KEYS, {"keys": [KEY]})
    url = web.put(WELL_KNOWN, {**signed(FULL, SIGNER, jku=web.url + KEYS), "name": "\x1b[2JEvil"})
    done = run(url)
    assert done.code == 1
    assert "Valid         no (it does not match: the card or the signature was changed)\n" in done.out
    assert "Anchored      no (the signature is not valid)\n" in done.out
    assert "\x1b" not in done.out


def test_a_field_of_our_own_that_was_changed(web: Web, tmp_path: Path) -> None:
    """One of two signatures still matches, by a key that the user trusts. That is not enough."""
    web.put(KEYS, {"keys": [KEY]})
    url = web.put(WELL_KNOWN, {**signed({**FULL, **BLOCK}, SIGNER, jku=web.url + KEYS), "x-note": "theirs"})
    found = judged(url, "--trust", file_of(tmp_path, KEY))
    assert found["outcome"] == "invalid"
    assert [one["fault"] for one in found["signatures"]] == [None, "mismatch"]


def test_what_no_signature_covers_is_named_and_refused_by_who_wants_the_whole(web: Web, tmp_path: Path) -> None:
    """The signatures of an earlier release do not bind one another: removing one uncovers what it covered."""
    web.put(KEYS, {"keys": [KEY]})
    card = signed_before({**FULL, **BLOCK}, SIGNER, jku=web.url + KEYS)
    stripped = {**card, "signatures": card["signatures"][:1], "x-note": "theirs"}
    url = web.put(WELL_KNOWN, stripped)
    trust = ("--trust", file_of(tmp_path, KEY))
    found = judged(url, *trust)
    assert (found["outcome"], "x-note" in found["uncovered"]) == ("valid", True)
    assert "No signature covers" in found["conclusion"]
    assert run(url, *trust).code == 0
    assert run(url, *trust, "--whole").code == 1
    url = web.put(WELL_KNOWN, card)
    assert judged(url, *trust)["uncovered"] == []
    assert run(url, *trust, "--whole").code == 0


def test_a_signature_that_nobody_accepts(web: Web) -> None:
    header = base64url(encode({"alg": "none", "kid": "a"}))
    done = run(web.put(WELL_KNOWN, {**FULL, "signatures": [{"protected": header, "signature": ""}, {}]}))
    assert (done.code, done.out.splitlines()[-1]) == (
        1,
        "Not valid: it has no acceptable signature.",
    )
    assert "Signature     unknown, by the key without a name\n" in done.out


# Keys elsewhere


def test_keys_on_another_origin_are_not_fetched(web: Web) -> None:
    with serving() as elsewhere:
        keys = elsewhere.put(KEYS, {"keys": [KEY]})
        url = web.put_card(SIGNER, keys=keys)
        done = run(url)
        assert done.code == 2
        assert f"the card names keys at {keys}, which is another origin, so they are not fetched." in done.error
        assert done.out.splitlines()[-1].endswith("Give them with --jwks.")
        assert elsewhere.asked == []
        assert run(url, "--jwks", keys).code == 0
        assert elsewhere.asked == [KEYS]


@pytest.mark.parametrize(
    "jku",
    [
        "https://127.0.0.1:{port}/keys",
        "http://127.0.0.1/keys",
        "http://127.0.0.1:{port}@evil.example/keys",
        "http://localhost:{port}/keys",
        "http://[::1]:{port}/keys",
        "http://169.254.169.254/latest",
        "http://127.0.0.1:99999999/keys",
        "http://127.0.0.1:port/keys",
        "file:///etc/passwd",
    ],
)
def test_what_is_not_the_origin_of_the_card(jku: str, web: Web) -> None:
    web.put("/keys", {"keys": [KEY]})
    done = run(web.put_card(SIGNER, keys=jku.format(port=web.url.rpartition(":")[2])))
    assert done.code in (1, 2)
    assert web.asked == [WELL_KNOWN]


def test_keys_in_a_file(web: Web, tmp_path: Path) -> None:
    """The keys are given for verification, not as trusted keys."""
    url = web.put_card(SIGNER)
    found = judged(url, "--jwks", file_of(tmp_path, KEY))
    assert (found["outcome"], found["signatures"][0]["anchored"]) == ("valid", False)
    assert web.asked == [WELL_KNOWN]


# What cannot be verified


def test_nobody_answers(web: Web) -> None:
    with serving() as gone:
        url = gone.url
    done = run(url)
    assert (done.code, done.error) == (2, f"cannot fetch {url}{WELL_KNOWN}: {url}: the connection could not be made")


def test_a_card_without_signatures(web: Web) -> None:
    done = run(web.put(WELL_KNOWN, FULL))
    assert (done.code, done.out.splitlines()[-1]) == (2, "The card has no signature, so anyone may have written it.")
    assert judged(web.url)["outcome"] == "unjudged"


def test_keys_that_are_not_to_be_had(web: Web) -> None:
    done = run(web.put_card(SIGNER))
    assert done.code == 2
    assert f"{web.url}{KEYS} answers with HTTP 404" in done.error
    web.put(KEYS, b"<html>")
    assert f"{web.url}{KEYS}: it is not a key set" in run(web.url).error


def test_a_redirect_is_not_followed(web: Web) -> None:
    target = web.put("/elsewhere.json", signed(FULL, SIGNER))
    done = run(web.put(WELL_KNOWN, b"", 302, Location=target))
    assert done.code == 2
    assert f"redirects to {target}" in done.error
    assert web.asked == [WELL_KNOWN]


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (b"<html>", "it is not a card: it is not JSON"),
        (b'{"name": 1, "name": 2}', "an object has 'name' twice"),
        (b" " * (MAX_CARD + 100), "a card has at most 1048576 bytes"),
        (encode({"signatures": [{}] * 17}), "at most 16 signatures"),
    ],
)
@pytest.mark.parametrize("jwks", [True, False])
def test_what_is_no_card(page: bytes, expected: str, jwks: bool, web: Web, tmp_path: Path) -> None:
    given = ["--jwks", file_of(tmp_path, KEY)] if jwks else []
    done = run(web.put(WELL_KNOWN, page), *given)
    assert done.code == 2
    assert expected in done.error


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["ftp://a.example"], "is not a usable URL: give http(s)://"),
        (["localhost:8080"], "is not a usable URL"),
        (["http://a.example:99999999"], "has no usable host and port"),
        (["http://a.example:port"], "is not a URL: Invalid port"),
        (["http://a.example", "--jwks", "http://a.example:port"], "is not a URL: Invalid port"),
        (["http://me:secret@a.example"], "must not hold a password"),
        (["http://a.example", "--trust-thumbprint", "abc"], "'abc' is not a thumbprint"),
        (["http://a.example", "--trust", "missing.json"], "cannot read missing.json: No such file"),
        (["http://a.example", "--jwks", "missing.json"], "cannot read missing.json: No such file"),
        (["http://169.254.169.254/"], "metadata"),
    ],
)
def test_what_the_user_got_wrong(arguments: list[str], expected: str) -> None:
    done = run(*arguments)
    assert (done.code, expected in done.error) == (2, True), done.error


def test_a_file_without_keys_to_trust(tmp_path: Path) -> None:
    secret = file_of(tmp_path, {"kty": "oct", "k": "c2VjcmV0"})
    assert run("http://a.example", "--trust", secret).error.startswith("the files of --trust hold no usable key")
