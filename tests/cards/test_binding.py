"""Each signature binds the others and the whole document: whatever is removed or mixed, what remains says so."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from itertools import chain, combinations, permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.cli.judge import INVALID, VALID, CardReport
from roost.identity.card_verification import read_card, verify
from roost.identity.signing import BINDING, DOCUMENT, STRICT, sign
from roost.protocol.canonical import card_form
from roost.protocol.codec import encode
from tests.cards.javascript import JavaScript
from tests.cards.samples import (
    BLOCK,
    FULL,
    MINIMAL,
    Card,
    Path,
    new_signer,
    places,
    python_accepts,
    signed,
    signed_before,
    tampered,
)

SIGNER, KEY = new_signer()
NEWER, NEWER_KEY = new_signer("ES256")
SECURED: Card = {
    **MINIMAL,
    **BLOCK,
    "skills": [],
    "securitySchemes": {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
    "securityRequirements": [{"schemes": {"bearer": {}}}],
}
"""A card with three forms, and a requirement that the SDKs do not see."""
CARD = signed(SECURED, SIGNER)
ROTATING = signed(SECURED, NEWER, SIGNER)
"""Both keys have signed, as during the overlap of a rotation."""


def report(card: Card, *trusted: Card, whole: bool = True) -> CardReport:
    document, keys = encode(card), [KEY, NEWER_KEY]
    return CardReport(
        "", read_card(document), verify(document, keys), frozenset(key["kid"] for key in trusted), [], whole
    )


def outcome(card: Card, *trusted: Card, whole: bool = True) -> int:
    return report(card, *trusted, whole=whole).conclusion()[0]


def with_signatures(card: Card, signatures: Sequence[Any]) -> Card:
    return {**card, "signatures": list(signatures)}


def parts_of(signatures: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield every selection of the signatures but none and all."""
    return chain.from_iterable(combinations(signatures, count) for count in range(1, len(signatures)))


def test_a_complete_card_is_valid_and_whole() -> None:
    assert len(CARD["signatures"]) == 3
    found = report(CARD, KEY)
    assert found.conclusion() == (VALID, "Valid, and signed by a key that you trust.")
    assert (found.is_whole(), found.uncovered()) == (True, [])


def test_the_signature_of_the_document_was_removed_with_the_security_requirements() -> None:
    """The SDKs cannot notice it: the requirement is empty to them."""
    stripped = {name: value for name, value in CARD.items() if name != "securityRequirements"}
    stripped["signatures"] = [CARD["signatures"][0]]
    assert python_accepts(stripped, [KEY])
    for trusted in ([KEY], []):
        for whole in (True, False):
            code, conclusion = report(stripped, *trusted, whole=whole).conclusion()
            assert code == INVALID
            assert f"the key {KEY['kid']} also signed the whole document (document)" in conclusion
            assert "this signature was removed" in conclusion
            assert "The card is not the one that" in conclusion


@pytest.mark.parametrize("trusted", [[KEY], []], ids=["trusted", "any key"])
def test_whichever_signatures_are_removed_the_others_name_them(trusted: list[Card]) -> None:
    names = ["card", STRICT, DOCUMENT]
    for kept in parts_of(list(zip(names, CARD["signatures"], strict=True))):
        found = report(with_signatures(CARD, [signature for _, signature in kept]), *trusted)
        code, conclusion = found.conclusion()
        assert code == INVALID
        for name in names:
            assert (f"({name}), and this signature was removed" in conclusion) == (name not in dict(kept))
        assert not any(verdict.altered for verdict in found.verdicts)


def test_the_order_of_the_signatures_does_not_matter() -> None:
    for order in permutations(CARD["signatures"]):
        assert outcome(with_signatures(CARD, order), KEY) == VALID


@pytest.mark.parametrize("path", [pytest.param(at, id=".".join(map(str, at))) for at in places(SECURED)])
def test_a_field_that_was_changed_or_removed_is_noticed_with_any_signatures(path: Path) -> None:
    for card in tampered(CARD, path):
        if card == CARD:
            continue  # what is empty stays empty
        for kept in chain(parts_of(CARD["signatures"]), [CARD["signatures"]]):
            assert outcome(with_signatures(card, kept), KEY, whole=False) == INVALID


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_several_fields_at_once_are_noticed_with_any_signatures(data: st.DataObject) -> None:
    card = copy.deepcopy(SECURED)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.sampled_from(list(places(card))))
        card = data.draw(st.sampled_from(list(tampered(card, at))))
        if not card:
            return
    if json.dumps(card, sort_keys=True) == json.dumps(SECURED, sort_keys=True):
        return
    signatures = data.draw(st.lists(st.sampled_from(CARD["signatures"]), min_size=1, max_size=3))
    assert outcome(with_signatures(card, signatures), KEY, whole=False) == INVALID


@pytest.mark.parametrize("at", [(), ("capabilities",), ("supportedInterfaces", 0)])
@pytest.mark.parametrize("added", [("x-added", "theirs"), ("iconUrl", ""), ("securityRequirements", [])])
def test_a_field_that_was_added_is_noticed_with_any_signatures(at: Path, added: tuple[str, Any]) -> None:
    card = copy.deepcopy({name: value for name, value in SECURED.items() if name != "securityRequirements"})
    signatures = signed(card, SIGNER)["signatures"]
    holder: Any = card
    for key in at:
        holder = holder[key]
    holder[added[0]] = added[1]
    for kept in chain(parts_of(signatures), [signatures]):
        assert outcome(with_signatures(card, kept), KEY, whole=False) == INVALID


def test_signatures_of_an_older_version_of_the_card_do_not_fit_beside_the_new_ones() -> None:
    """The versions differ in a field that the SDKs do not see, so the first signature matches both."""
    older = {**SECURED, "x-note": "older"}
    old, new = signed(older, SIGNER)["signatures"], CARD["signatures"]
    for document in (SECURED, older):
        for picked in permutations([*old, *new], 3):
            complete = all(one in (new if document is SECURED else old) for one in picked)
            assert outcome(with_signatures(document, picked), KEY, whole=False) == (VALID if complete else INVALID)


def test_signatures_of_another_card_do_not_fit_beside_its_own() -> None:
    other = signed({**SECURED, "name": "Other"}, SIGNER)["signatures"]
    for own in parts_of(CARD["signatures"]):
        assert outcome(with_signatures(CARD, [*own, *other]), KEY, whole=False) == INVALID


def test_the_card_of_both_versions_and_the_card_of_one_do_not_share_signatures() -> None:
    """The fields of A2A 0.3 are outside of the form that the SDKs verify, so the first signature matches both."""
    merged = {**SECURED, "url": "https://a.example/rpc", "preferredTransport": "JSONRPC", "protocolVersion": "0.3.0"}
    pure_first, merged_first = CARD["signatures"][0], signed(merged, SIGNER)["signatures"][0]
    assert outcome(signed(merged, SIGNER), KEY) == VALID
    for document, first in ((merged, pure_first), (SECURED, merged_first)):
        rest = signed(document, SIGNER)["signatures"][1:]
        assert outcome(with_signatures(document, [first]), KEY, whole=False) == INVALID
        assert outcome(with_signatures(document, [first, *rest]), KEY, whole=False) == INVALID


# Two keys


def test_the_signatures_of_either_key_are_complete_by_themselves() -> None:
    newer, older = ROTATING["signatures"][:3], ROTATING["signatures"][3:]
    for kept, key in ((newer, NEWER_KEY), (older, KEY)):
        assert outcome(with_signatures(SECURED, kept), key) == VALID
        assert outcome(with_signatures(SECURED, kept)) == VALID
    for key in (KEY, NEWER_KEY):
        assert outcome(ROTATING, key) == VALID


def test_a_signature_of_one_key_does_not_stand_in_for_one_of_the_other() -> None:
    newer, older = ROTATING["signatures"][:3], ROTATING["signatures"][3:]
    mixed = with_signatures(SECURED, [newer[0], newer[1], older[2]])
    for trusted in ([KEY], [NEWER_KEY], [KEY, NEWER_KEY], []):
        assert outcome(mixed, *trusted, whole=False) == INVALID


def test_only_signatures_of_keys_that_are_trusted_are_missed() -> None:
    """The statements of a key that the user does not trust count for nothing."""
    card = with_signatures(SECURED, [*CARD["signatures"], ROTATING["signatures"][0]])
    assert outcome(card, KEY) == VALID
    assert outcome(card, NEWER_KEY) == INVALID
    assert outcome(card) == INVALID


# Without a binding


def test_a_card_of_an_earlier_release_is_valid_and_whole_by_the_signature_of_the_document() -> None:
    found = report(signed_before(SECURED, SIGNER), KEY)
    assert found.conclusion() == (VALID, "Valid, and signed by a key that you trust.")


@pytest.mark.parametrize("card", [SECURED, FULL], ids=["three forms", "one form"])
def test_a_signature_of_an_earlier_release_does_not_prove_that_the_card_is_whole(card: Card) -> None:
    card = with_signatures(card, signed_before(card, SIGNER)["signatures"][:1])
    code, conclusion = report(card, KEY).conclusion()
    assert code == INVALID
    assert conclusion.endswith("may have been removed, together with a signature over them.")
    assert outcome(card, KEY, whole=False) == VALID


def test_a_signature_of_an_earlier_release_in_place_of_one_that_binds_is_not_whole() -> None:
    """The same key signed the card before and after an upgrade. Rotating the key ends it."""
    stripped = {name: value for name, value in SECURED.items() if name != "securityRequirements"}
    card = with_signatures(stripped, signed_before(SECURED, SIGNER)["signatures"][:1])
    code, conclusion = report(card, KEY).conclusion()
    assert code == INVALID
    assert "do not say what else was signed" in conclusion


@pytest.mark.parametrize("value", [None, [], "card", {}, {"forms": "card", "sha256": ""}, {"forms": ["card"]}])
def test_a_binding_that_is_malformed_is_not_read_as_none(value: Any) -> None:
    made = sign(card_form(FULL), SIGNER, {BINDING: value})
    card = with_signatures(FULL, [{"protected": made.protected, "signature": made.signature}])
    [verdict] = verify(encode(card), [KEY])
    assert not verdict.valid
    assert f"its parameter {BINDING} is malformed" in verdict.why


# The SDKs


@pytest.mark.parametrize("card", [CARD, ROTATING, signed(FULL, SIGNER)], ids=["three forms", "two keys", "one form"])
def test_the_sdks_accept_the_card_as_before(card: Card, js: JavaScript) -> None:
    assert python_accepts(card, [KEY])
    assert js.ask(card, [KEY]).valid
