"""Discovery: the card, its caching, and the interfaces that it names."""

from __future__ import annotations

import re

from roost.conform.case import Case, valid
from roost.conform.check import ALL, ONCE, SHOULD, check
from roost.conform.client import JSON_TYPES, unauthenticated
from roost.conform.outcome import CheckFailed, Skipped
from roost.conform.target import host_of
from roost.protocol.errors import ExtendedAgentCardNotConfigured, UnsupportedOperation
from roost.protocol.types import AgentCard

REQUIRED_LISTS = ("supportedInterfaces", "skills", "defaultInputModes", "defaultOutputModes")
VERSION = re.compile(r"\d+\.\d+")
SCHEMES = {"JSONRPC": ("http://", "https://"), "HTTP+JSON": ("http://", "https://")}


@check("card.json", "The media type of the card is JSON", "8.2", on=ONCE)
async def is_json(x: Case) -> None:
    kind = x.target.raw_card.kind
    if kind not in JSON_TYPES:
        raise CheckFailed(f"Content-Type: {kind}", f"Content-Type: {' or '.join(JSON_TYPES)}")


@check("card.schema", "The card has every required field in the right form", "4.4.1", on=ONCE)
async def schema(x: Case) -> None:
    valid(AgentCard, x.target.document, "a card of A2A 1.0")
    for name in REQUIRED_LISTS:
        if not x.target.document[name]:
            raise CheckFailed({name: x.target.document[name]}, f"{name} has at least one element (section 5.7)")


@check("card.interfaces", "Interfaces have absolute URLs and a version of the form Major.Minor", "8.3.1", on=ONCE)
async def interfaces(x: Case) -> None:
    for entry in x.target.interfaces():
        binding, url = str(entry.get("protocolBinding")), str(entry.get("url"))
        if binding in SCHEMES and (not url.startswith(SCHEMES[binding]) or host_of(url) is None):
            raise CheckFailed(entry, "an absolute url: http(s)://host...")
        if not VERSION.fullmatch(str(entry.get("protocolVersion"))):
            raise CheckFailed(entry, "a protocolVersion of the form Major.Minor, such as 1.0 (section 3.6)")


@check("card.bindings", "A custom binding is named by a URI", "5.8", on=ONCE, level=SHOULD)
async def bindings(x: Case) -> None:
    for entry in x.target.interfaces():
        binding = str(entry.get("protocolBinding"))
        if binding not in ALL and not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", binding):
            raise CheckFailed(entry, f"protocolBinding is {', '.join(ALL)} or a URI")


@check("card.stable", "The card is the same when it is fetched again", "8.6.1", on=ONCE, level=SHOULD)
async def stable(x: Case) -> None:
    again = await x.target.card()
    if (again.status, again.body) != (200, x.target.raw_card.body):
        raise CheckFailed(again.seen(), "the same card, byte for byte")


@check("card.caching", "The card has a Cache-Control header with max-age, and an ETag", "8.6.1", on=ONCE, level=SHOULD)
async def caching(x: Case) -> None:
    headers = x.target.raw_card.headers
    if "max-age" not in headers.get("cache-control", "") or not headers.get("etag"):
        seen = {name: headers.get(name) for name in ("cache-control", "etag", "last-modified")}
        raise CheckFailed(seen, "Cache-Control with max-age, and ETag")


@check("card.etag", "The card answers conditional requests by its ETag", "8.6.2", on=ONCE, level=SHOULD)
async def etag(x: Case) -> None:
    tag = x.target.raw_card.headers.get("etag")
    if not tag:
        raise Skipped("the card has no ETag")
    known = await x.target.card(**{"If-None-Match": tag})
    if known.status not in (200, 304) or known.headers.get("etag", tag) != tag:
        seen = f"{known.seen()}\nETag: {known.headers.get('etag')}"
        raise CheckFailed(seen, f"304, or the card with the ETag {tag}")
    other = await x.target.card(**{"If-None-Match": '"of-another-card"'})
    if (other.status, other.body) != (200, x.target.raw_card.body):
        raise CheckFailed(other.seen(), "the card, for a client that has another one")


@check("card.extended", "GetExtendedAgentCard returns a valid card", "3.1.11", "extendedAgentCard")
async def extended(x: Case) -> None:
    if not x.client.token:
        raise Skipped("no --token was given")
    response = await x.call("GetExtendedAgentCard", {})
    if response.error is not None:
        x.check_error(response, "GetExtendedAgentCard", ExtendedAgentCardNotConfigured)
        raise Skipped("the host has no extended card configured")
    valid(AgentCard, response.result, "an extended card")


@check("card.extended-private", "GetExtendedAgentCard requires a credential", "13.3", "extendedAgentCard")
async def extended_private(x: Case) -> None:
    response = await x.call("GetExtendedAgentCard", {}, token="")
    if response.error is None:
        raise CheckFailed(response.seen, "GetExtendedAgentCard without a credential is rejected")


@check(
    "card.no-extended",
    "GetExtendedAgentCard returns UnsupportedOperation if the card does not declare it",
    "3.3.4",
    "no extendedAgentCard",
)
async def no_extended(x: Case) -> None:
    response = await x.call("GetExtendedAgentCard", {})
    if not x.client.token and unauthenticated(x.client, response):
        raise Skipped("no --token was given, and the host requires one")
    x.check_error(response, "GetExtendedAgentCard", UnsupportedOperation)
