"""Discovery: the card, its caching, and where it says that the agent is."""

from __future__ import annotations

import re

from roost.conform.case import Case, valid
from roost.conform.check import ALL, ONCE, SHOULD, check
from roost.conform.client import unauthenticated
from roost.conform.outcome import CheckFailed, Skipped
from roost.conform.target import host_of
from roost.protocol.errors import ExtendedAgentCardNotConfigured, UnsupportedOperation
from roost.protocol.types import AgentCard

REQUIRED_LISTS = ("supportedInterfaces", "skills", "defaultInputModes", "defaultOutputModes")
VERSION = re.compile(r"\d+\.\d+")
SCHEMES = {"JSONRPC": ("http://", "https://"), "HTTP+JSON": ("http://", "https://")}


@check("card.json", "The card is JSON, and says so", "8.2", on=ONCE)
async def is_json(x: Case) -> None:
    kind = x.target.reply.kind
    if kind not in ("application/json", "application/a2a+json"):
        raise CheckFailed(f"Content-Type: {kind}", "the card is application/json or application/a2a+json")


@check("card.schema", "The card has every required field, in its right form", "4.4.1", on=ONCE)
async def schema(x: Case) -> None:
    valid(AgentCard, x.target.document, "a card of A2A 1.0")
    for name in REQUIRED_LISTS:
        if not x.target.document[name]:
            raise CheckFailed({name: x.target.document[name]}, f"{name} has at least one element (section 5.7)")


@check("card.interfaces", "Interfaces have absolute URLs and a version Major.Minor", "8.3.1", on=ONCE)
async def interfaces(x: Case) -> None:
    for entry in x.target.interfaces():
        binding, url = str(entry.get("protocolBinding")), str(entry.get("url"))
        if binding in SCHEMES and (not url.startswith(SCHEMES[binding]) or host_of(url) is None):
            raise CheckFailed(entry, "the url is absolute: http(s)://host...")
        if not VERSION.fullmatch(str(entry.get("protocolVersion"))):
            raise CheckFailed(entry, "protocolVersion is Major.Minor, as 1.0 (section 3.6)")


@check("card.bindings", "A binding of one's own is named by a URI", "5.8", on=ONCE, level=SHOULD)
async def bindings(x: Case) -> None:
    for entry in x.target.interfaces():
        binding = str(entry.get("protocolBinding"))
        if binding not in ALL and not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", binding):
            raise CheckFailed(entry, f"protocolBinding is one of {', '.join(ALL)}, or a URI")


@check("card.stable", "The card is the same when it is fetched again", "8.6.1", on=ONCE, level=SHOULD)
async def stable(x: Case) -> None:
    again = await x.target.card()
    if (again.status, again.body) != (200, x.target.reply.body):
        raise CheckFailed(again.seen(), "the same card, byte for byte")


@check("card.caching", "The card has a Cache-Control with max-age, and an ETag", "8.6.1", on=ONCE, level=SHOULD)
async def caching(x: Case) -> None:
    headers = x.target.reply.headers
    if "max-age" not in headers.get("cache-control", "") or not headers.get("etag"):
        seen = {name: headers.get(name) for name in ("cache-control", "etag", "last-modified")}
        raise CheckFailed(seen, "Cache-Control with max-age, and ETag")


@check("card.etag", "A card that has not changed is not sent again, another is", "8.6.2", on=ONCE, level=SHOULD)
async def etag(x: Case) -> None:
    tag = x.target.reply.headers.get("etag")
    if not tag:
        raise Skipped("the card has no ETag")
    known = await x.target.card(**{"If-None-Match": tag})
    if known.status not in (200, 304) or known.headers.get("etag", tag) != tag:
        raise CheckFailed(f"{known.seen()}\nETag: {known.headers.get('etag')}", f"304, or the card with the ETag {tag}")
    other = await x.target.card(**{"If-None-Match": '"of-another-card"'})
    if (other.status, other.body) != (200, x.target.reply.body):
        raise CheckFailed(other.seen(), "the card, to who has another one")


@check("card.extended", "The extended card is a card", "3.1.11", "extendedAgentCard")
async def extended(x: Case) -> None:
    if not x.client.token:
        raise Skipped("no --token was given")
    answer = await x.call("GetExtendedAgentCard", {})
    if answer.problem is not None:
        x.is_refusal(answer, "GetExtendedAgentCard", ExtendedAgentCardNotConfigured)
        raise Skipped("the host says that no extended card is configured")
    valid(AgentCard, answer.result, "an extended card")


@check("card.extended-private", "The extended card is not for strangers", "13.3", "extendedAgentCard")
async def extended_private(x: Case) -> None:
    answer = await x.call("GetExtendedAgentCard", {}, token="")
    if answer.problem is None:
        raise CheckFailed(answer.seen, "GetExtendedAgentCard without a credential is refused")


@check(
    "card.no-extended", "An extended card that is not declared is UnsupportedOperation", "3.3.4", "no extendedAgentCard"
)
async def no_extended(x: Case) -> None:
    answer = await x.call("GetExtendedAgentCard", {})
    if not x.client.token and unauthenticated(x.client, answer):
        raise Skipped("no --token was given, and the host asks for one")
    x.is_refusal(answer, "GetExtendedAgentCard", UnsupportedOperation)
