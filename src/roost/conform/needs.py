"""The conditions under which a check runs, and the reason to report if one is not met."""

from __future__ import annotations

from roost.conform.target import Target

CAPABILITIES = ("streaming", "pushNotifications", "extendedAgentCard")
EXTENSION = "ext:"

STREAM_RESUME = "urn:roost:a2a:stream-resume:v1"
SANDBOX = "https://agentic-sandbox.aiwg.io/extensions/"
IDEMPOTENCY = f"{SANDBOX}idempotency/v1"
HITL_PROMPT = f"{SANDBOX}hitl-prompt/v1"
RUNTIME = f"{SANDBOX}runtime/v1"
PTY = f"{SANDBOX}pty-extensions/v1"


def missing(target: Target, need: str) -> str | None:
    """Return the reason to skip a check with this need, or None if the need is met."""
    if need.startswith("no "):
        name = need.removeprefix("no ")
        return f"the card declares {name}" if target.capability(name) else None
    if need in CAPABILITIES:
        return None if target.capability(need) else f"the card does not declare capabilities.{need}"
    if need.startswith(EXTENSION):
        uri = need.removeprefix(EXTENSION)
        return None if uri in target.extensions() else f"the card does not declare the extension {uri}"
    return {
        "security": None if secured(target) else "the card requires no credential",
        "token": None if target.options.token else "no --token was given",
        "token-b": None if target.options.token_b else "no --token-b was given for a second caller",
        "signatures": None if target.document.get("signatures") else "the card is not signed",
        "two bindings": None if len(target.clients) > 1 else "the card names only one binding that can be judged",
        SANDBOX: None
        if any(uri.startswith(SANDBOX) for uri in target.extensions())
        else "the card declares no extension of agentic-sandbox",
        "0.3": None if target.legacy else "the card names no interface of A2A 0.3",
        "restart": None
        if target.options.restart
        else "no --restart was given: a command that crashes the host and starts it again",
    }[need]


def secured(target: Target) -> bool:
    """Return whether the card requires a credential."""
    return bool(target.document.get("securitySchemes")) and bool(target.document.get("securityRequirements"))
