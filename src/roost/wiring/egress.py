"""Sends calls to webhooks and to issuers of JWTs through egress."""

from __future__ import annotations

import logging

import httpx

from roost.egress import Egress, EgressFailed, EgressRefused, policy
from roost.engine.push_delivery import CALLS, PushRules, PushSettings
from roost.engine.webhook import Headers, Undeliverable
from roost.identity.jwks import MAX_BYTES, Fetch
from roost.identity.seal import Seal
from roost.settings import Settings

log = logging.getLogger("roost.push")

ISSUER_CALLS = 4
ANSWER_BYTES = 4096
"""Bytes that are read of a webhook's response. It is not used, but a response that is read keeps the connection."""


def open_egress(settings: Settings) -> Egress:
    return Egress(policy(settings.push_allow_hosts, settings.push_allow_cidrs), max_connections=CALLS)


def open_push(settings: Settings, egress: Egress, seal: Seal) -> PushSettings | None:
    """Prepare the calling of webhooks; None where the settings switch it off."""
    if not settings.push:
        return None
    rules = PushRules(
        attempts=settings.push_attempts,
        retry_s=settings.push_retry_s,
        per_host=settings.push_per_host,
        coalesce_s=settings.push_coalesce_ms / 1000,
        secret=settings.push_secret,
    )
    return PushSettings(WebhookSender(egress), seal, rules)


def open_issuer_egress(settings: Settings) -> Egress:
    """Allow the hosts that the operator has named, wherever they are. A host that a response names must be public."""
    hosts = {httpx.URL(url).host for url in (settings.jwt_issuer, settings.jwt_jwks) if url}
    return Egress(policy(",".join(sorted(host for host in hosts if host)), ""), max_connections=ISSUER_CALLS)


def fetcher(egress: Egress) -> Fetch:
    async def fetch(url: str) -> bytes:
        answer = await egress.request("GET", url, {"accept": "application/json"}, limit=MAX_BYTES + 1)
        if answer.status != 200:
            raise EgressFailed(f"the answer is {answer.status}")
        return answer.body

    return fetch


class WebhookSender:
    """Sends the calls of webhooks. Implements the engine's port `Sender`."""

    def __init__(self, egress: Egress) -> None:
        self.egress = egress

    async def check(self, url: str) -> None:
        """Check a webhook's URL. Its name need not resolve yet: it is checked again at every call."""
        try:
            await self.egress.check(url)
        except EgressRefused as error:
            raise _refused(error) from None
        except EgressFailed as error:
            log.info("a webhook is accepted although %s", error)

    async def post(self, url: str, headers: Headers, body: bytes) -> int:
        try:
            answer = await self.egress.request("POST", url, headers, body, limit=ANSWER_BYTES)
        except EgressRefused as error:
            raise _refused(error) from None
        except EgressFailed as error:
            raise Undeliverable(str(error), final=False) from None
        return answer.status


def _refused(error: EgressRefused) -> Undeliverable:
    if error.detail:
        log.info("a webhook is refused: %s (%s)", error, error.detail)
    return Undeliverable(str(error), final=True)
