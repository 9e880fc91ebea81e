"""Runs the checks one after another, each within its time limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from msgspec.structs import replace

from roost.conform.case import Case
from roost.conform.check import ALL, Check, every
from roost.conform.client import ConformClient, unauthenticated
from roost.conform.needs import missing, secured
from roost.conform.outcome import (
    CheckFailed,
    CheckOutcome,
    ConformReport,
    NotJudged,
    Outcome,
    Result,
    Skipped,
    shown,
)
from roost.conform.target import ConformOptions, Target, opened

PATIENCE = 6
"""The time limit of a check, as a multiple of the time limit of a request."""

OPEN = ("card", "signatures", "auth")
"""Surfaces that can be judged without a credential."""

INTERNAL = "the check itself broke: "

Progress = Callable[[Result, int, int], None]
"""Called after each check with its result, the number of checks that are done and the number of all checks."""


async def judge(options: ConformOptions, progress: Progress = lambda result, done, of: None) -> ConformReport:
    """Run the checks against a host. NotJudged if it has no card, or no interface that can be judged."""
    async with opened(options) as target:
        if not target.clients:
            raise NotJudged("; ".join(target.notes) or "the card names no interface of A2A 1.0 that can be judged")
        return await _judged(target, progress)


async def _judged(target: Target, progress: Progress) -> ConformReport:
    options = target.options
    checks = list(every(options.only, options.skip, options.level))
    plan = [(check, client) for check in checks for client in _clients(target, check)]
    results: list[Result] = []
    for binding in ALL:
        if target.client(binding) is None:
            affected = sum(binding in check.bindings for check in checks)
            results.append(_absent(target, binding, affected))
    results += [_skipped_binding(binding, "a second interface", reason) for binding, reason in target.left_out]
    locked: bool | None = None if not options.token else False
    for done, (check, client) in enumerate(plan, 1):
        if check.surface not in OPEN and locked is None and (secured(target) or check.surface != "first"):
            locked = await _locked(target)
        if check.surface not in OPEN and locked:
            continue
        result = await _run(target, check, client)
        results.append(result)
        progress(result, done, len(plan))
    if locked:
        result = _without_token(sum(check.surface not in OPEN for check, _ in plan))
        results.append(result)
        progress(result, len(plan), len(plan))
    names = [client.name for client in target.clients]
    agent, url, *notes = (shown(text, target.secrets) for text in (target.agent, target.url, *target.notes))
    return ConformReport(url, agent, names, target.profile, results, notes)


def _clients(target: Target, check: Check) -> list[ConformClient]:
    if not check.bindings:
        return target.clients[:1]
    return [client for client in target.clients if client.name in check.bindings]


def _absent(target: Target, binding: str, affected: int) -> Result:
    noted = [note for note in target.notes if f"interface {binding} " in note]
    reason = noted[0] if noted else f"the card names no {binding} interface"
    return _skipped_binding(binding, f"{affected} checks on {binding}", reason)


def _skipped_binding(binding: str, title: str, reason: str) -> Result:
    return Result("binding", "binding", binding, title, "5.2", "MUST", Outcome.SKIPPED, shown(reason))


async def _locked(target: Target) -> bool:
    """Return whether the host requires a credential. It is called only if the user gave none."""
    if secured(target):
        return True
    client = target.clients[0]
    try:
        return unauthenticated(client, await client.call("ListTasks", {}))
    except CheckOutcome:
        return False  # each check reports for itself what is wrong


def _without_token(affected: int) -> Result:
    reason = "the host requires a credential: give --token"
    return Result("token", "auth", "", f"{affected} checks that need a token", "7.4", "MUST", Outcome.ERROR, reason)


async def _run(target: Target, check: Check, client: ConformClient) -> Result:
    binding = client.name if check.bindings else ""
    passed = Result(check.id, check.surface, binding, check.title, check.section, check.level, Outcome.PASSED)
    reasons = [reason for need in check.needs if (reason := missing(target, need))]
    if reasons:
        return replace(passed, outcome=Outcome.SKIPPED, reason=reasons[0])
    begun = time.monotonic()
    limit = target.options.timeout * PATIENCE * (2 if "restart" in check.needs else 1)
    result = passed
    try:
        async with asyncio.timeout(limit):
            await check.body(Case(target, client))
    except CheckFailed as found:
        observed, expected = (shown(value, target.secrets) for value in (found.observed, found.expected))
        result = replace(passed, outcome=Outcome.FAILED, observed=observed, expected=expected)
    except Skipped as found:
        result = replace(passed, outcome=Outcome.SKIPPED, reason=shown(str(found), target.secrets))
    except NotJudged as found:
        result = replace(passed, outcome=Outcome.ERROR, reason=shown(str(found), target.secrets))
    except TimeoutError:
        observed = f"no end within {limit:g} s"
        result = replace(passed, outcome=Outcome.FAILED, observed=observed, expected="a response in time")
    except Exception as error:  # an unforeseen response must not end the run
        reason = shown(f"{INTERNAL}{type(error).__name__}: {error}", target.secrets)
        result = replace(passed, outcome=Outcome.ERROR, reason=reason)
    return replace(result, seconds=round(time.monotonic() - begun, 3))
