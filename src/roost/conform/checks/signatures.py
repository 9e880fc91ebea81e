"""Signatures of the card. Whether the keys can be trusted is another question: see `roost card verify --trust`."""

from __future__ import annotations

import base64
import json
from urllib.parse import urlsplit

from roost.conform.case import Case
from roost.conform.check import ONCE, SHOULD, check
from roost.conform.outcome import CheckFailed, NotJudged, Skipped
from roost.conform.target import Target
from roost.identity.card_verification import (
    Jwk,
    SignatureFault,
    SignatureVerdict,
    Unverifiable,
    key_urls,
    read_card,
    read_jwks,
    verify,
)

ELSEWHERE = "the keys are not at the origin of the card, and keys are fetched from nowhere else"
NONE_VALID = "no signature is valid"


async def keys(target: Target) -> list[Jwk]:
    """Fetch the keys at the card's own origin. Skipped if the card names none there."""
    named = key_urls(read_card(target.raw_card.body))
    places = named or [f"{target.base}/.well-known/jwks.json"]
    here = [place for place in places if f"{urlsplit(place).scheme}://{urlsplit(place).netloc}" == target.origin]
    found: list[Jwk] = []
    for place in here:
        raw = await target.http.fetch("GET", place)
        if raw.status == 200:
            found += read_jwks(raw.body)
    if not found and not (named and here):
        raise Skipped(ELSEWHERE)
    return found


async def verdicts(target: Target) -> list[SignatureVerdict]:
    """Verify every signature of the card."""
    try:
        found = await keys(target)
        if not found:
            raise NotJudged("there are no keys at the URLs that the card names")
        return verify(target.raw_card.body, found)
    except Unverifiable as error:
        raise CheckFailed(str(error), "a signed card and a key set in the form of section 8.4") from None


@check("signatures.valid", "The card matches its signature", "8.4.3", "signatures", on=ONCE)
async def is_valid(x: Case) -> None:
    found = await verdicts(x.target)
    known = [one for one in found if one.fault is not SignatureFault.UNKNOWN_KEY]
    if not known:
        raise NotJudged("the keys that signed the card cannot be fetched")
    if not any(one.valid for one in known) or any(one.fault is SignatureFault.MISMATCH for one in known):
        seen = [f"{one.kid}: {one.why or 'valid'}" for one in found]
        raise CheckFailed(seen, "the card was not changed after it was signed")


@check("signatures.cover", "The signatures cover every field of the card", "8.4.1", "signatures", on=ONCE, level=SHOULD)
async def cover(x: Case) -> None:
    good = [one for one in await verdicts(x.target) if one.valid]
    if not good:
        raise Skipped(NONE_VALID)
    left = set.intersection(*({*one.uncovered} for one in good))
    if left:
        raise CheckFailed(sorted(left), "no field that none of the signatures covers")


@check("signatures.notice", "A changed card does not match its signatures", "8.4.3", "signatures", on=ONCE)
async def notice(x: Case) -> None:
    """A signature over a part of the card would still match."""
    good = [one for one in await verdicts(x.target) if one.valid]
    if not good:
        raise Skipped(NONE_VALID)
    changed = dict(x.target.document)
    changed["description"] = f"{changed.get('description')} (changed)"
    if any(one.valid for one in verify(json.dumps(changed).encode(), await keys(x.target))):
        raise CheckFailed("a card with another description is valid too", "signatures over the whole card")


@check("signatures.header", "The protected header of a signature has alg, typ and kid", "8.4.2", "signatures", on=ONCE)
async def header(x: Case) -> None:
    for entry in x.target.document["signatures"]:
        try:
            text = entry["protected"]
            found = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
            complete = found["alg"] != "none" and all(found[name] for name in ("alg", "typ", "kid"))
        except (KeyError, TypeError, ValueError):
            complete = False
        if not complete:
            raise CheckFailed(entry, "alg, which is not none, typ and kid")
