"""The work of `roost card verify`: fetches a card and its keys, and judges the signatures."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from roost import egress
from roost.cli.client import CARD
from roost.cli.errors import CommandFailed
from roost.egress import Egress, policy
from roost.identity.card_verification import (
    MAX_CARD,
    Jwk,
    SignatureFault,
    SignatureVerdict,
    Unverifiable,
    key_urls,
    read_card,
    read_jwks,
    thumbprint,
    verify,
)
from roost.identity.signing import CARD as CARD_FORM
from roost.identity.signing import DOCUMENT, STRICT

VALID = 0
INVALID = 1
UNJUDGED = 2

MAX_KEYS = 1024 * 1024
THUMBPRINT = 43
"""The length of a thumbprint: SHA-256 in base64url."""


class CardReport(NamedTuple):
    url: str
    card: dict[str, Any]
    verdicts: list[SignatureVerdict]
    trusted: frozenset[str]
    """The thumbprints of the keys that the user trusts."""
    notes: list[str]
    """Why keys are missing."""
    whole: bool = False
    """True if a signature must cover every part of the card."""

    def anchored(self, verdict: SignatureVerdict) -> bool:
        return verdict.valid and verdict.thumbprint in self.trusted

    def conclusion(self) -> tuple[int, str]:
        """The exit code and a sentence that explains it."""
        valid = [verdict for verdict in self.verdicts if verdict.valid]
        faults = {verdict.fault for verdict in self.verdicts if not verdict.valid}
        if not self.verdicts:
            return UNJUDGED, "The card has no signature, so anyone may have written it."
        if SignatureFault.MISMATCH in faults:
            return INVALID, "Not valid: the card or a signature was changed after signing."
        if not valid and faults == {SignatureFault.UNKNOWN_KEY}:
            return UNJUDGED, "Undecidable: the keys that signed it are missing. Give them with --jwks."
        if not valid:
            return INVALID, "Not valid: it has no acceptable signature."
        if self.trusted and not any(self.anchored(verdict) for verdict in valid):
            return INVALID, "Valid, but not signed by a key that you trust."
        if contradiction := " ".join(self._contradictions()):
            return INVALID, f"Not valid: {contradiction}"
        code = INVALID if self.whole and not self.is_whole() else VALID
        doubt = self._doubt()
        if self.trusted:
            return code, f"Valid, and signed by a key that you trust.{doubt}"
        return code, (
            "Valid. Only its host says that the key is the agent's: compare the thumbprint with one from another"
            f" source, and give it with --trust-thumbprint.{doubt}"
        )

    def is_whole(self) -> bool:
        """Whether it is proven that nothing was removed from the card, and nothing added that no signature covers."""
        return any(verdict.whole for verdict in self._counting())

    def uncovered(self) -> list[str]:
        """The parts that no signature covers. Only valid signatures count, and if keys are trusted, only theirs."""
        counting = self._counting()
        if not counting:
            return []
        left = set.intersection(*({*verdict.uncovered} for verdict in counting))
        return [name for name in counting[0].uncovered if name in left]

    def _counting(self) -> list[SignatureVerdict]:
        return [one for one in self.verdicts if one.valid and (not self.trusted or self.anchored(one))]

    def _contradictions(self) -> Iterator[str]:
        """Say what the signatures state about the card and one another that is not so."""
        missing = dict.fromkeys((one.thumbprint, form) for one in self._counting() for form in one.missing)
        for key, form in missing:
            yield f"the key {key} also signed {_FORM_NAMES.get(form, form)}, and this signature was removed."
        altered = list(dict.fromkeys(one.thumbprint for one in self._counting() if one.altered))
        if altered:
            yield (
                f"The card is not the one that the key {' and the key '.join(altered)} signed: a field that"
                " not every signature covers was removed, added or changed."
            )

    def _doubt(self) -> str:
        left = self.uncovered()
        part = f" No signature covers {', '.join(left)}, so anyone may have written that." if left else ""
        if self.is_whole():
            return part
        return (
            f"{part} The signatures, of an earlier release of Roost or of other software, do not say what else was"
            " signed: empty fields and fields beyond A2A may have been removed, together with a signature over them."
        )


_FORM_NAMES = {
    CARD_FORM: "the fields that SDKs verify (card)",
    STRICT: "the fields of A2A with the empty ones (strict)",
    DOCUMENT: "the whole document (document)",
}


def judge(url: str, jwks: str, trust: Sequence[Path], thumbprints: Sequence[str]) -> CardReport:
    for given in thumbprints:
        if len(given) != THUMBPRINT:
            raise CommandFailed(
                f"{given!r} is not a thumbprint: RFC 7638 with SHA-256 has {THUMBPRINT} characters", UNJUDGED
            )
    where = card_url(url)
    trusted_keys = [key for file in trust for key in _read_keys(file)]
    trusted = frozenset(filter(None, (*thumbprints, *map(thumbprint, trusted_keys))))
    if trust and not trusted:
        raise CommandFailed("the files of --trust hold no usable key", UNJUDGED)
    given_keys = _read_keys(Path(jwks)) if jwks and not _is_url(jwks) else []
    found = asyncio.run(_fetch(where, jwks))
    try:
        card = read_card(found.document)
        verdicts = verify(found.document, [*trusted_keys, *given_keys, *found.keys])
    except Unverifiable as error:
        raise CommandFailed(f"{where}: {error}", UNJUDGED) from None
    return CardReport(str(where), card, verdicts, trusted, found.notes)


def card_url(text: str) -> httpx.URL:
    """The URL of the card: the given one, or below it if it is the URL of a host or an agent."""
    url = _url(text)
    if "/.well-known/" in url.path or url.path.endswith(".json"):
        return url
    return url.copy_with(path=url.path.rstrip("/") + CARD)


class _Found(NamedTuple):
    document: bytes
    keys: list[Jwk]
    notes: list[str]


async def _fetch(url: httpx.URL, jwks: str) -> _Found:
    """Fetch the card and its keys. Only what the user named is called, and keys on the card's own origin."""
    typed = [url, _url(jwks)] if _is_url(jwks) else [url]
    try:
        allowed = policy(",".join(map(_authority, typed)), "")
    except ValueError:
        raise CommandFailed(f"{' or '.join(map(str, typed))} has no usable host and port", UNJUDGED) from None
    client = Egress(allowed)
    try:
        document = await _get(client, str(url), MAX_CARD + 1)
        if jwks:
            keys = _parsed(jwks, await _get(client, jwks, MAX_KEYS)) if _is_url(jwks) else []
            return _Found(document, keys, [])
        return await _with_keys(client, url, document)
    finally:
        await client.close()


async def _with_keys(client: Egress, url: httpx.URL, document: bytes) -> _Found:
    keys: list[Jwk] = []
    notes: list[str] = []
    try:
        places = key_urls(read_card(document))
    except Unverifiable as error:
        raise CommandFailed(f"{url}: {error}", UNJUDGED) from None
    for place in places:
        if not _same_origin(url, place):
            notes.append(
                f"the card names keys at {place}, which is another origin, so they are not fetched."
                " If you trust that origin, give the URL with --jwks"
            )
            continue
        try:
            keys += _parsed(place, await _get(client, place, MAX_KEYS))
        except CommandFailed as error:
            notes.append(str(error))
    return _Found(document, keys, notes)


async def _get(client: Egress, url: str, limit: int) -> bytes:
    try:
        answer = await client.request("GET", url, {"Accept": "application/json", "A2A-Version": "1.0"}, limit=limit)
    except (egress.EgressFailed, egress.EgressRefused) as error:
        raise CommandFailed(f"cannot fetch {url}: {error}", UNJUDGED) from None
    if 300 <= answer.status < 400:
        where = answer.headers.get("location", "nowhere")
        raise CommandFailed(
            f"{url} redirects to {where}, which was not followed: give that URL if it is the right one", UNJUDGED
        )
    if answer.status != 200:
        raise CommandFailed(f"{url} answers with HTTP {answer.status}. Is the URL right?", UNJUDGED)
    return answer.body


def _read_keys(file: Path) -> list[Jwk]:
    try:
        return _parsed(str(file), file.read_bytes())
    except OSError as error:
        raise CommandFailed(f"cannot read {file}: {error.strerror}", UNJUDGED) from None


def _parsed(where: str, data: bytes) -> list[Jwk]:
    try:
        return read_jwks(data)
    except Unverifiable as error:
        raise CommandFailed(f"{where}: {error}", UNJUDGED) from None


def _url(text: str) -> httpx.URL:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise CommandFailed(f"{text!r} is not a URL: {error}", UNJUDGED) from None
    if url.userinfo:
        raise CommandFailed("the URL must not hold a password", UNJUDGED)
    if url.scheme not in ("http", "https") or not url.host:
        raise CommandFailed(f"{text!r} is not a usable URL: give http(s)://host[:port][/path]", UNJUDGED)
    return url


def _is_url(text: str) -> bool:
    return text.lower().startswith(("http://", "https://"))


def _authority(url: httpx.URL) -> str:
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{host}:{_port(url)}"


def _port(url: httpx.URL) -> int | None:
    return url.port or {"http": 80, "https": 443}.get(url.scheme)


def _same_origin(card: httpx.URL, place: str) -> bool:
    try:
        url = httpx.URL(place)
    except httpx.InvalidURL:
        return False
    return (url.scheme, url.host, _port(url)) == (card.scheme, card.host, _port(card))
