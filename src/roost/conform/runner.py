"""Runs the checks, one after another, and never longer than they may."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from roost.conform.case import Case
from roost.conform.check import ALL, Check, every
from roost.conform.client import ConformClient, unauthenticated
from roost.conform.needs import missing, secured
from roost.conform.outcome import CheckFailed, CheckOutcome, ConformReport, NotJudged, Outcome, Result, Skipped, shown
from roost.conform.target import ConformOptions, Target

PATIENCE = 6
"""A check may take so many times as long as one request."""

OPEN = ("card", "signatures", "auth")
"""Surfaces that can be judged without a credential."""

INTERNAL = "the check itself broke: "

Progress = Callable[[Result, int, int], None]


async def judge(options: ConformOptions, progress: Progress = lambda result, done, of: None) -> ConformReport:
    """NotJudged if there is nothing that could be judged."""
    target = Target(options)
    try:
        await target.open()
        if not target.clients:
            raise NotJudged("; ".join(target.notes) or "the card names no interface of A2A 1.0 that could be judged")
        return await _judged(target, progress)
    finally:
        await target.close()


async def _judged(target: Target, progress: Progress) -> ConformReport:
    options = target.options
    checks = list(every(options.only, options.skip, options.level))
    plan = [(check, client) for check in checks for client in _clients(target, check)]
    results: list[Result] = []
    for binding in ALL:
        if target.client(binding) is None:
            concerned = sum(binding in check.bindings for check in checks)
            results.append(_absent(target, binding, concerned))
    results += [_unjudged(binding, "a second interface", reason) for binding, reason in target.second]
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
        result = _left_out(sum(check.surface not in OPEN for check, _ in plan))
        results.append(result)
        progress(result, len(plan), len(plan))
    names = [client.name for client in target.clients]
    agent, url, *notes = (shown(text, target.secrets) for text in (target.agent, target.url, *target.notes))
    return ConformReport(url, agent, names, target.profile, results, notes)


def _clients(target: Target, check: Check) -> list[ConformClient]:
    if not check.bindings:
        return target.clients[:1]
    return [client for client in target.clients if client.name in check.bindings]


def _absent(target: Target, binding: str, concerned: int) -> Result:
    noted = [note for note in target.notes if f"interface {binding} " in note]
    reason = noted[0] if noted else f"the card names no {binding} interface"
    return _unjudged(binding, f"{concerned} checks on {binding}", reason)


def _unjudged(binding: str, title: str, reason: str) -> Result:
    return Result("binding", "binding", binding, title, "5.2", "MUST", Outcome.SKIPPED, shown(reason))


async def _locked(target: Target) -> bool:
    """Whether the host asks for a credential; there is none."""
    if secured(target):
        return True
    client = target.clients[0]
    try:
        return unauthenticated(client, await client.call("ListTasks", {}))
    except CheckOutcome:
        return False  # each check says for itself what is wrong


def _left_out(concerned: int) -> Result:
    reason = "the host asks for a credential: give --token"
    return Result("token", "auth", "", f"{concerned} checks that take one", "7.4", "MUST", Outcome.ERROR, reason)


async def _run(target: Target, check: Check, client: ConformClient) -> Result:
    binding = client.name if check.bindings else ""
    result = Result(check.id, check.surface, binding, check.title, check.section, check.level, Outcome.PASSED)
    reasons = [reason for need in check.needs if (reason := missing(target, need))]
    if reasons:
        result.outcome, result.reason = Outcome.SKIPPED, reasons[0]
        return result
    begun = time.monotonic()
    limit = target.options.timeout * PATIENCE * (2 if "restart" in check.needs else 1)
    try:
        async with asyncio.timeout(limit):
            await check.body(Case(target, client))
    except CheckFailed as found:
        result.outcome = Outcome.FAILED
        result.observed = shown(found.observed, target.secrets)
        result.expected = shown(found.expected, target.secrets)
    except Skipped as found:
        result.outcome, result.reason = Outcome.SKIPPED, shown(str(found), target.secrets)
    except NotJudged as found:
        result.outcome, result.reason = Outcome.ERROR, shown(str(found), target.secrets)
    except TimeoutError:
        result.outcome, result.observed = Outcome.FAILED, f"no end within {limit:g} s"
        result.expected = "an answer in time"
    except Exception as error:  # a host that answers with what nobody thought of must not end the run
        result.outcome, result.reason = (
            Outcome.ERROR,
            shown(f"{INTERNAL}{type(error).__name__}: {error}", target.secrets),
        )
    result.seconds = round(time.monotonic() - begun, 3)
    return result
