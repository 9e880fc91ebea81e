"""Every verifier accepts a signed card, and none that covers a change accepts the changed card."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from roost.identity.card_verification import SignatureFault, verify
from roost.identity.signing import BINDING, DOCUMENT, FORM, digest
from roost.protocol.canonical import card_form, document_form
from roost.protocol.codec import encode
from roost.protocol.types import AgentCard
from tests.cards.javascript import JavaScript
from tests.cards.samples import (
    BLOCK,
    FULL,
    JKU,
    MINIMAL,
    Card,
    Path,
    new_signer,
    places,
    python_accepts,
    signed,
    tampered,
)
from tests.cards.test_canonical import ODD
from tests.protocol.strategies import structs

SIGNER, KEY = new_signer()
ES256_SIGNER, ES256_KEY = new_signer("ES256")
CARD = signed({**FULL, **BLOCK}, SIGNER)
"""One signature for the SDKs, one for the whole document."""

FIELDS = [pytest.param(path, id=".".join(map(str, path))) for path in places(FULL)]
OWN_FIELDS = [pytest.param(path, id=".".join(map(str, path))) for path in places(BLOCK)]


def accepted(card: Card, js: JavaScript, *keys: Card) -> tuple[bool, bool, bool]:
    """Whether the Python SDK, the JavaScript SDK and Roost accept the card; Roost only if every signature is valid."""
    verdicts = verify(encode(card), keys)
    return (
        python_accepts(card, keys),
        js.ask(card, keys).valid,
        bool(verdicts) and all(verdict.valid for verdict in verdicts),
    )


def header_of(signature: dict[str, str]) -> dict[str, Any]:
    text = signature["protected"]
    header: dict[str, Any] = msgspec.json.decode(msgspec.json.decode(f'"{_standard(text)}"', type=bytes))
    return header


def _standard(text: str) -> str:
    return text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4)


# Untouched


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("alg", ["EdDSA", "ES256"])
def test_an_untouched_card_is_accepted(name: str, alg: str, js: JavaScript) -> None:
    by, key = (SIGNER, KEY) if alg == "EdDSA" else (ES256_SIGNER, ES256_KEY)
    assert accepted(signed(ODD[name], by), js, key) == (True, True, True)


@settings(max_examples=60, deadline=None)
@given(found=structs("AgentCard"))
def test_any_card_is_accepted(found: AgentCard, js: JavaScript) -> None:
    card = json.loads(encode(msgspec.structs.replace(found, signatures=[])))
    assert accepted(signed(card, SIGNER), js, KEY) == (True, True, True)


def test_a_card_is_accepted_however_it_is_written(js: JavaScript) -> None:
    shuffled = dict(reversed(json.loads(json.dumps(CARD, indent=4, ensure_ascii=True)).items()))
    assert accepted(shuffled, js, KEY) == (True, True, True)


# Tampered with


@pytest.mark.parametrize("path", FIELDS)
def test_a_field_that_was_changed_is_noticed_by_all(path: Path, js: JavaScript) -> None:
    for card in tampered(CARD, path):
        assert accepted(card, js, KEY) == (False, False, False)
        assert {verdict.fault for verdict in verify(encode(card), [KEY])} == {SignatureFault.MISMATCH}


@pytest.mark.parametrize("path", OWN_FIELDS)
def test_a_field_of_our_own_that_was_changed_is_noticed_by_the_signature_of_the_document(
    path: Path, js: JavaScript
) -> None:
    """The SDKs do not read the field; Roost says which signature matches, and what it does not cover."""
    for card in tampered(CARD, path):
        assert accepted(card, js, KEY) == (True, True, False)
        usual, document = verify(encode(card), [KEY])
        assert usual.valid
        assert set(usual.uncovered) == card.keys() & BLOCK.keys()
        assert document.fault is SignatureFault.MISMATCH


@pytest.mark.parametrize("path", [(), ("provider",), ("capabilities",), ("skills", 0), ("supportedInterfaces", 1)])
def test_a_field_that_was_added_is_noticed_by_the_signature_of_the_document(path: Path, js: JavaScript) -> None:
    card = copy.deepcopy(CARD)
    holder: Any = card
    for key in path:
        holder = holder[key]
    holder["x-added"] = "later"
    assert accepted(card, js, KEY) == (True, True, False)


@pytest.mark.parametrize("added", [{"documentationUrl": "https://evil.example"}, {"provider": {"url": "https://e"}}])
def test_an_optional_field_that_was_added_is_noticed_by_all(added: Card, js: JavaScript) -> None:
    assert accepted({**signed(MINIMAL, SIGNER), **added}, js, KEY) == (False, False, False)


def test_an_optional_boolean_that_was_set_to_its_default_is_noticed_by_all(js: JavaScript) -> None:
    card = {**signed(MINIMAL, SIGNER), "capabilities": {"streaming": False}}
    assert accepted(card, js, KEY) == (False, False, False)


def test_a_requirement_without_scopes_is_covered_by_the_signature_of_the_document_only(js: JavaScript) -> None:
    """The SDKs drop everything that is empty, and with it the requirement of a credential."""
    card = signed({**MINIMAL, "securityRequirements": [{"schemes": {"bearer": {}}}]}, SIGNER)
    usual, document = verify(encode(card), [KEY])
    assert "securityRequirements" in usual.uncovered
    assert document.uncovered == ()
    del card["securityRequirements"]
    assert accepted(card, js, KEY) == (True, True, False)


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("part", ["protected", "signature"])
def test_a_signature_that_was_changed_is_noticed(index: int, part: str, js: JavaScript) -> None:
    signatures = copy.deepcopy(CARD["signatures"])
    text = signatures[index][part]
    signatures[index][part] = text[:20] + ("A" if text[20] != "A" else "B") + text[21:]
    verdicts = verify(encode({**CARD, "signatures": signatures}), [KEY])
    assert [verdict.valid for verdict in verdicts] == [index != 0, index != 1]
    sdks = accepted({**CARD, "signatures": signatures}, js, KEY)[:2]
    assert sdks == (index != 0, index != 0)


def test_signatures_of_another_card_do_not_fit(js: JavaScript) -> None:
    card = {**CARD, "signatures": signed({**FULL, "name": "Other"}, SIGNER)["signatures"]}
    assert accepted(card, js, KEY) == (False, False, False)


def test_a_key_of_the_same_name_does_not_fit(js: JavaScript) -> None:
    other = {**new_signer()[1], "kid": KEY["kid"]}
    assert accepted(CARD, js, other) == (False, False, False)


# What is signed


def test_one_signature_suffices_where_the_forms_are_one() -> None:
    [only] = signed(FULL, SIGNER)["signatures"]
    binding = {BINDING: {"forms": ["card"], "sha256": digest(document_form(FULL))}}
    assert header_of(only) == {"alg": "EdDSA", "typ": "JOSE", "kid": KEY["kid"], "jku": JKU} | binding
    assert set(only) == {"protected", "signature"}
    [verdict] = verify(encode(signed(FULL, SIGNER)), [KEY])
    assert (verdict.covers, verdict.uncovered) == (DOCUMENT, ())


def test_the_signature_of_the_document_says_so() -> None:
    usual, document = (header_of(signature) for signature in CARD["signatures"])
    assert FORM not in usual
    assert document == {**usual, FORM: DOCUMENT}
    assert [verdict.covers for verdict in verify(encode(CARD), [KEY])] == ["card", "document"]


def test_a_verifier_that_follows_the_text_of_the_specification_finds_its_form_signed() -> None:
    """A card with additional fields has three forms, and a signature for each."""
    card = signed({**MINIMAL, **BLOCK, "skills": []}, SIGNER)
    assert len(card["signatures"]) == 3
    verdicts = verify(encode(card), [KEY])
    assert [verdict.covers for verdict in verdicts] == ["card", "card", "document"]
    assert [len(verdict.uncovered) for verdict in verdicts] == [4, 2, 0]


def test_each_of_two_keys_signs(js: JavaScript) -> None:
    """A client that knows only one of them accepts the card."""
    card = signed({**FULL, **BLOCK}, SIGNER, ES256_SIGNER)
    assert accepted(card, js, KEY)[:2] == (True, True)
    assert accepted(card, js, ES256_KEY)[:2] == (True, True)
    assert [verdict.alg for verdict in verify(encode(card), [])] == ["EdDSA", "EdDSA", "ES256", "ES256"]


@pytest.mark.parametrize("by", [SIGNER, ES256_SIGNER], ids=["EdDSA", "ES256"])
def test_a_card_is_the_same_bytes_whoever_of_the_hosts_signs_it(by: Any) -> None:
    assert signed(CARD, by) == signed(CARD, by)


def test_a_card_parsed_by_the_javascript_client_is_refused_if_it_has_security_schemes(js: JavaScript) -> None:
    """a2a-js issue 663: the verifier does not see them. Without them it accepts the parsed card."""
    assert not js.ask(CARD, [KEY], parsed=True).valid
    plain = {key: value for key, value in FULL.items() if key != "securitySchemes"}
    assert js.ask(signed(plain, SIGNER), [KEY], parsed=True).valid
    assert card_form(plain) == document_form(plain)
