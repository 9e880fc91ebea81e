"""The canonical forms of a card are those that both SDKs compute, and that the specification defines."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from roost.protocol.canonical import (
    NotCanonical,
    card_form,
    document_form,
    jcs,
    read_json,
    strict_form,
    uncovered,
)
from roost.protocol.codec import encode
from roost.protocol.types import AgentCard
from tests.cards.javascript import JavaScript
from tests.cards.samples import BLOCK, FULL, MINIMAL, Card, python_form
from tests.protocol.strategies import structs

BIG = 2**53


def with_params(params: dict[str, Any]) -> Card:
    return {**MINIMAL, "capabilities": {"extensions": [{"uri": "urn:x", "params": params}]}}


def changed(card: Card, **fields: Any) -> Card:
    return {**card, **fields}


ODD = {
    "full": FULL,
    "minimal": MINIMAL,
    "fields of our own": {**FULL, **BLOCK},
    "nothing at all but a name": {"name": "x"},
    "empty lists": changed(MINIMAL, skills=[], defaultInputModes=[], securityRequirements=[]),
    "empty strings": changed(MINIMAL, description="", version=""),
    "optional strings set to nothing": changed(MINIMAL, documentationUrl="", iconUrl=""),
    "optional booleans that are false": changed(MINIMAL, capabilities={"streaming": False, "pushNotifications": False}),
    "a boolean that is false": changed(
        MINIMAL, capabilities={"extensions": [{"uri": "urn:x", "required": False}], "extendedAgentCard": False}
    ),
    "schemes without scopes": changed(
        MINIMAL,
        securitySchemes={"b": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
        securityRequirements=[{"schemes": {"b": {"list": []}}}, {"schemes": {}}],
    ),
    "a scheme of no kind": changed(MINIMAL, securitySchemes={"none": {}}),
    "an empty message": changed(MINIMAL, provider={}),
    "nulls": changed(MINIMAL, provider=None, documentationUrl=None, securitySchemes=None),
    "empty strings in lists": changed(MINIMAL, defaultInputModes=["", "text/plain"]),
    "empty values in params": with_params({"a": "", "b": [], "c": {}, "d": None, "e": [None, "", [], {"f": ""}]}),
    "false and zero in params": with_params({"a": False, "b": 0, "c": 0.0, "d": -0.0}),
    "numbers in params": with_params(
        {"n": [1.0, 1e-6, 1e-7, 5e-324, 0.1 + 0.2, 123456789.25, -1e-300, BIG - 1, 1 - BIG, 4.35, 333333333.3333333]}
    ),
    "large numbers in params": with_params({"n": [BIG, -BIG, 2**60, 1e20, 1e21, 10**22, -1e300]}),
    "keys to be sorted in UTF-16": with_params(
        {"\U0001f600": 1, "\uffff": 2, "\ue000": 3, "\u00e9": 4, "e\u0301": 5, "": 6, "10": 7, "9": 8, "a": 9, "B": 10}
    ),
    "characters to be escaped": with_params({'\x00\b\t\n\f\r\x1f"\\/': "\x7f\x80\u2028\u2029\ufeff"}),
    "names as in the proto": {
        "name": "x",
        "supported_interfaces": [{"url": "https://a.example", "protocol_binding": "JSONRPC"}],
        "default_input_modes": ["text/plain"],
        "security_schemes": {"o": {"open_id_connect_security_scheme": {"open_id_connect_url": "https://id.example"}}},
    },
}


@pytest.mark.parametrize("name", ODD)
def test_the_form_is_the_one_that_both_sdks_compute(name: str, js: JavaScript) -> None:
    card = ODD[name]
    assert card_form(card) == python_form(card)
    assert card_form(card) == js.ask(card).form


@settings(max_examples=150, deadline=None)
@given(found=structs("AgentCard"))
def test_any_card_has_one_form_everywhere(found: AgentCard, js: JavaScript) -> None:
    card = json.loads(encode(msgspec.structs.replace(found, signatures=[])))
    form = card_form(card)
    assert form == python_form(card)
    assert form == js.ask(card).form
    assert card_form(json.loads(form)) == form


def test_signatures_are_in_no_form() -> None:
    card = {**FULL, "signatures": [{"protected": "x", "signature": "y"}]}
    assert [form(card) for form in (card_form, strict_form, document_form)] == [
        form(FULL) for form in (card_form, strict_form, document_form)
    ]


def test_the_example_of_the_specification() -> None:
    """Section 8.4.1: the SDKs leave out required fields that are empty; its text keeps them."""
    fragment = {
        "name": "Example Agent",
        "description": "",
        "capabilities": {"streaming": False, "pushNotifications": False, "extensions": []},
        "skills": [],
    }
    kept = b'{"capabilities":{"pushNotifications":false,"streaming":false},'
    assert strict_form(fragment) == kept + b'"description":"","name":"Example Agent","skills":[]}'
    assert card_form(fragment) == kept + b'"name":"Example Agent"}'


def test_a_card_without_defaults_and_fields_of_its_own_is_its_strict_form() -> None:
    assert strict_form(FULL) == document_form(FULL) == card_form(FULL)
    assert strict_form(MINIMAL) == document_form(MINIMAL) != card_form(MINIMAL)


# Where the SDKs differ


def test_a_card_that_the_javascript_client_has_parsed_has_no_security_schemes(js: JavaScript) -> None:
    """a2a-js issue 663: they are neither signed nor verified there. When this fails, change the docs."""
    without = {key: value for key, value in FULL.items() if key != "securitySchemes"}
    assert js.ask(FULL, parsed=True).form == card_form(without) != card_form(FULL)
    assert js.ask(without, parsed=True).form == card_form(without)


def test_the_javascript_sdk_loses_a_key_that_means_something_to_its_language(js: JavaScript) -> None:
    card = with_params({"__proto__": {"a": 1}, "b": 2})
    assert card_form(card) == python_form(card)
    assert js.ask(card).form == card_form(with_params({"b": 2}))


# What has no form


@pytest.mark.parametrize(
    ("card", "blamed"),
    [
        (changed(MINIMAL, version=1), "version is not a string"),
        (changed(MINIMAL, skills={}), "skills is not a list"),
        (changed(MINIMAL, skills=["x"]), r"skills\[0\] is not an object"),
        (changed(MINIMAL, defaultInputModes=[None]), r"defaultInputModes\[0\] is not a string"),
        (changed(MINIMAL, capabilities={"streaming": "yes"}), "capabilities.streaming is not true or false"),
        (changed(MINIMAL, capabilities={"extensions": [{"params": []}]}), r"extensions\[0\].params is not an object"),
        (changed(MINIMAL, securitySchemes={"a": None}), r"securitySchemes\['a'\] is not an object"),
        (changed(MINIMAL, icon_url="a", iconUrl="b"), "iconUrl occurs twice"),
        (
            changed(MINIMAL, securitySchemes={"a": {"mtlsSecurityScheme": {}, "apiKeySecurityScheme": {}}}),
            "is both apiKeySecurityScheme and mtlsSecurityScheme",
        ),
        (with_params({"n": 10**400}), "exceeds safe integer domain"),
        (with_params({"a": "\ud800"}), "non-UTF-8"),
    ],
)
def test_what_the_sdks_would_read_differently_has_no_form(card: Card, blamed: str) -> None:
    with pytest.raises(NotCanonical, match=blamed):
        card_form(card)


@pytest.mark.parametrize(
    ("data", "blamed"),
    [
        (b'{"a": 1, "b": {"c": 1, "c": 2}}', "an object has 'c' twice"),
        (b'{"a": NaN}', "NaN is not a number"),
        (b'{"a": ', "not JSON"),
        (b"\xff\xfe{\x00", "not UTF-8"),
        (b"[" * 200 + b"]" * 200, "deeper than 100"),
        (b"1" * 5000, "limit"),
    ],
)
def test_json_that_is_read_in_two_ways_is_refused(data: bytes, blamed: str) -> None:
    with pytest.raises(NotCanonical, match=blamed):
        read_json(data)


def test_a_number_that_readers_round_is_rounded_in_a_card_and_has_no_form_in_a_document(js: JavaScript) -> None:
    """A reader that does not round would see a number that was not signed."""
    card = with_params({"n": [BIG + 1, 2**64 - 1, 10**30]})
    assert card_form(card) == python_form(card) == js.ask(card).form
    assert document_form({"x-n": 2**60}) == b'{"x-n":1152921504606847000}'
    with pytest.raises(NotCanonical, match="1152921504606846977 exceeds"):
        document_form({"x-n": 2**60 + 1})


def test_jcs_is_rfc_8785() -> None:
    """The example of RFC 8785, section 3.2.2."""
    value = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": '\u20ac$\u000f\nA\'B"\\\\"/',
        "literals": [None, True, False],
    }
    expected = (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )
    assert jcs(value) == expected.encode()


# What a form leaves out


def test_what_a_form_says_nothing_about() -> None:
    card = {
        **MINIMAL,
        **BLOCK,
        "securityRequirements": [{"schemes": {"bearer": {"list": []}}}],
        "skills": [{**MINIMAL["skills"][0], "x-more": 1, "examples": ["", "do it"]}],
    }
    assert uncovered(card, document_form(card)) == []
    assert uncovered(card, strict_form(card)) == [
        "skills[0].x-more",
        "x-fleet",
        "x-note",
        "securityRequirements[0].schemes.bearer.list",
    ]
    assert uncovered(card, card_form(card)) == [
        "capabilities",
        "skills[0].x-more",
        "skills[0].examples",
        "x-fleet",
        "x-note",
        "securityRequirements",
    ]
