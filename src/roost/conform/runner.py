"""Runs the checks, one after another, and never longer than they may."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from roost.conform.case import Case
from roost.conform.check import ALL, Check, every
from roost.conform.client import Client
from roost.conform.needs import missing
from roost.conform.outcome import Failed, Outcome, Report, Result, Skipped, Unjudged, shown
from roost.conform.target import Options, Target

PATIENCE = 6
"""A check may take so many times as long as one request."""

INTERNAL = "the check itself broke: "

Progress = Callable[[Result, int, int], None]


async def judge(options: Options, progress: Progress = lambda result, done, of: None) -> Report:
    """Unjudged if there is nothing that could be judged."""
    target = Target(options)
    try:
        await target.open()
        if not target.clients:
            raise Unjudged("; ".join(target.notes) or "the card names no interface of A2A 1.0 that could be judged")
        return await _judged(target, progress)
    finally:
        await target.close()


async def _judged(target: Target, progress: Progress) -> Report:
    options = target.options
    checks = list(every(options.only, options.skip, options.level))
    plan = [(check, client) for check in checks for client in _clients(target, check)]
    results: list[Result] = []
    for binding in ALL:
        if target.client(binding) is None:
            concerned = sum(binding in check.bindings for check in checks)
            results.append(_absent(target, binding, concerned))
    for done, (check, client) in enumerate(plan, 1):
        result = await _run(target, check, client)
        results.append(result)
        progress(result, done, len(plan))
    names = [client.name for client in target.clients]
    return Report(target.url, str(target.document.get("name", "")), names, target.profile, results, target.notes)


def _clients(target: Target, check: Check) -> list[Client]:
    if not check.bindings:
        return target.clients[:1]
    return [client for client in target.clients if client.name in check.bindings]


def _absent(target: Target, binding: str, concerned: int) -> Result:
    noted = [note for note in target.notes if f"interface {binding} " in note]
    reason = noted[0] if noted else f"the card names no {binding} interface"
    title = f"{concerned} checks on {binding}"
    return Result("binding", "binding", binding, title, "5.2", "MUST", Outcome.SKIPPED, reason)


async def _run(target: Target, check: Check, client: Client) -> Result:
    binding = client.name if check.bindings else ""
    result = Result(check.id, check.surface, binding, check.title, check.section, check.level, Outcome.PASSED)
    reasons = [reason for need in check.needs if (reason := missing(target, need))]
    if reasons:
        result.outcome, result.reason = Outcome.SKIPPED, reasons[0]
        return result
    begun = time.monotonic()
    limit = target.options.timeout * PATIENCE
    try:
        async with asyncio.timeout(limit):
            await check.body(Case(target, client))
    except Failed as found:
        result.outcome = Outcome.FAILED
        result.observed = shown(found.observed, target.secrets)
        result.expected = shown(found.expected, target.secrets)
    except Skipped as found:
        result.outcome, result.reason = Outcome.SKIPPED, shown(str(found), target.secrets)
    except Unjudged as found:
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
