"""Discovery: the card, its caching, and where it says that the agent is."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from roost.conform.case import Case, valid
from roost.conform.check import ALL, ONCE, SHOULD, check
from roost.conform.outcome import Failed, Skipped
from roost.protocol.errors import ExtendedAgentCardNotConfigured, UnsupportedOperation
from roost.protocol.types import AgentCard

REQUIRED_LISTS = ("supportedInterfaces", "skills", "defaultInputModes", "defaultOutputModes")
VERSION = re.compile(r"\d+\.\d+")
SCHEMES = {"JSONRPC": ("http", "https"), "HTTP+JSON": ("http", "https")}


@check("card.json", "The card is JSON, and says so", "8.2", on=ONCE)
async def is_json(x: Case) -> None:
    kind = x.target.reply.kind
    if kind not in ("application/json", "application/a2a+json"):
        raise Failed(f"Content-Type: {kind}", "the card is application/json or application/a2a+json")


@check("card.schema", "The card has every required field, in its right form", "4.4.1", on=ONCE)
async def schema(x: Case) -> None:
    valid(AgentCard, x.target.document, "a card of A2A 1.0")
    for name in REQUIRED_LISTS:
        if not x.target.document[name]:
            raise Failed({name: x.target.document[name]}, f"{name} has at least one element (section 5.7)")


@check("card.interfaces", "Interfaces have absolute URLs, known bindings and a version Major.Minor", "8.3.1", on=ONCE)
async def interfaces(x: Case) -> None:
    for entry in x.target.document["supportedInterfaces"]:
        binding, url = str(entry.get("protocolBinding")), str(entry.get("url"))
        if binding not in ALL and not urlsplit(binding).scheme:
            raise Failed(entry, f"protocolBinding is one of {', '.join(ALL)}, or a URI")
        parts = urlsplit(url)
        if binding in SCHEMES and (parts.scheme not in SCHEMES[binding] or not parts.netloc):
            raise Failed(entry, "the url is absolute: http(s)://host...")
        if not VERSION.fullmatch(str(entry.get("protocolVersion"))):
            raise Failed(entry, "protocolVersion is Major.Minor, as 1.0 (section 3.6)")


@check("card.stable", "The card is the same when it is fetched again", "8.6.1", on=ONCE)
async def stable(x: Case) -> None:
    again = await x.target.http.fetch("GET", x.target.url, {"A2A-Version": "1.0"})
    if (again.status, again.body) != (200, x.target.reply.body):
        raise Failed(again.seen(), "the same card, byte for byte")


@check("card.caching", "The card has a Cache-Control with max-age, and an ETag", "8.6.1", on=ONCE, level=SHOULD)
async def caching(x: Case) -> None:
    headers = x.target.reply.headers
    if "max-age" not in headers.get("cache-control", "") or not headers.get("etag"):
        seen = {name: headers.get(name) for name in ("cache-control", "etag", "last-modified")}
        raise Failed(seen, "Cache-Control with max-age, and ETag")


@check("card.etag", "A card that has not changed is not sent again, another is", "8.6.2", on=ONCE)
async def etag(x: Case) -> None:
    tag = x.target.reply.headers.get("etag")
    if not tag:
        raise Skipped("the card has no ETag")
    fetch, url = x.target.http.fetch, x.target.url
    known = await fetch("GET", url, {"If-None-Match": tag, "A2A-Version": "1.0"})
    if known.status not in (200, 304) or known.headers.get("etag", tag) != tag:
        raise Failed(f"{known.seen()}\nETag: {known.headers.get('etag')}", f"304, or the card with the ETag {tag}")
    other = await fetch("GET", url, {"If-None-Match": '"of-another-card"', "A2A-Version": "1.0"})
    if (other.status, other.body) != (200, x.target.reply.body):
        raise Failed(other.seen(), "the card, to who has another one")


@check("card.extended", "The extended card is a card", "3.1.11", "extendedAgentCard")
async def extended(x: Case) -> None:
    if not x.client.token:
        raise Skipped("no --token was given")
    answer = await x.call("GetExtendedAgentCard", {})
    if answer.problem is not None:
        x.is_refusal(answer, "GetExtendedAgentCard", ExtendedAgentCardNotConfigured)
        raise Skipped("the host says that no extended card is configured")
    valid(AgentCard, answer.result, "an extended card")


@check("card.extended-private", "The extended card is not for strangers", "13.3", "extendedAgentCard", "security")
async def extended_private(x: Case) -> None:
    answer = await x.call("GetExtendedAgentCard", {}, token="")
    if answer.problem is None:
        raise Failed(answer.seen, "GetExtendedAgentCard without a credential is refused")


@check(
    "card.no-extended", "An extended card that is not declared is UnsupportedOperation", "3.3.4", "no extendedAgentCard"
)
async def no_extended(x: Case) -> None:
    await x.refused("GetExtendedAgentCard", {}, UnsupportedOperation)
