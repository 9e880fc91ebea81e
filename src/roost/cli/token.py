"""`roost token`: creates, lists and revokes tokens in the store itself, so that it can make the first one."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from roost.cli.errors import USAGE, CommandFailed
from roost.cli.options import Json
from roost.cli.output import json_line, note, table
from roost.cli.settings import STORE, with_settings
from roost.cli.store import me, with_store
from roost.doors.admin_views import token_shown
from roost.engine.ports import AdminStore
from roost.identity.audit import AuditLog
from roost.identity.ports import Token, now_ms
from roost.identity.scopes import ALL_AGENTS
from roost.identity.tokens import BadToken, NewToken, TokenRequest, Tokens, seconds
from roost.protocol.codec import encode
from roost.settings import Settings

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the token, and of its principal.")]
Scopes = Annotated[
    list[str] | None,
    typer.Option(
        "--scope",
        metavar="SCOPE",
        show_default=False,
        help="What the token permits: agent:PATTERN, operate, admin, audit, metrics, pty:observe, pty:control."
        " Repeatable; agent:* by default.",
    ),
]
Tenants = Annotated[
    list[str] | None,
    typer.Option(
        "--tenant", metavar="TENANT", show_default=False, help="Its tenant. Repeatable; the first is the default."
    ),
]
Subject = Annotated[
    str,
    typer.Option(
        metavar="SUBJECT",
        show_default=False,
        help="Its principal, if not its name. Tokens of one principal share tasks.",
    ),
]
Expires = Annotated[
    str,
    typer.Option(metavar="TIME", show_default=False, help="How long it is valid: 90d, 12h, 30m. Forever by default."),
]
Which = Annotated[str, typer.Argument(metavar="TOKEN", help="The id or the name of the token.")]
All = Annotated[bool, typer.Option("--all", help="List revoked and expired tokens too.")]


@with_settings(*STORE)
def create(
    name: Name,
    scopes: Scopes = None,
    tenants: Tenants = None,
    subject: Subject = "",
    expires: Expires = "",
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Create a token and show it, this once. Only its hash is stored."""
    try:
        wish = TokenRequest(name, scopes or [ALL_AGENTS], tenants or [], subject, seconds(expires) if expires else None)
    except ValueError as error:
        raise CommandFailed(f"--expires: {error}", USAGE) from None

    async def work(store: AdminStore, settings: Settings) -> NewToken:
        return await Tokens(store, AuditLog(store)).create(wish, me())

    try:
        made = with_store(flags, work, make=True)
    except BadToken as error:
        raise CommandFailed(str(error), USAGE) from None
    if as_json:
        json_line(encode({**token_shown(made.token), "token": made.secret}))
        return
    print(made.secret)
    what = f"{' '.join(made.token.scopes)}, tenant {', '.join(made.token.tenants)}"
    note(f"{made.token.id}: {what}. It is not shown again. Running hosts accept it within two seconds.")


@with_settings(*STORE)
def list_tokens(everything: All = False, as_json: Json = False, **flags: Any) -> None:
    """List the tokens, without their secrets."""

    async def look(store: AdminStore, settings: Settings) -> list[Token]:
        return (await store.read_identities(0)).tokens

    found = sorted(with_store(flags, look), key=lambda token: token.created)
    shown = [token for token in found if everything or state(token) == "valid"]
    if as_json:
        json_line(encode({"items": [{**token_shown(token), "state": state(token)} for token in shown]}))
    elif shown:
        heads = ("ID", "NAME", "SUBJECT", "TENANTS", "EXPIRES", "STATE", "SCOPES")
        rows = [token_shown(token) for token in shown]
        table(
            heads,
            [
                [
                    token.id,
                    token.name,
                    token.subject,
                    ",".join(token.tenants),
                    str(row["expires"] or "never"),
                    state(token),
                    " ".join(token.scopes),
                ]
                for token, row in zip(shown, rows, strict=True)
            ],
        )
    else:
        note("there are no tokens; `roost token create NAME` makes one")
    hidden = len(found) - len(shown)
    if hidden and not as_json:
        note(f"{hidden} more {'is' if hidden == 1 else 'are'} revoked or expired; --all lists them")


@with_settings(*STORE)
def revoke(which: Which, **flags: Any) -> None:
    """Revoke a token. All hosts refuse it within 5 seconds."""

    async def work(store: AdminStore, settings: Settings) -> list[Token]:
        found = [
            token
            for token in (await store.read_identities(0)).tokens
            if which == token.id or (which == token.name and token.revoked is None)
        ]
        if len(found) > 1:
            return found
        tokens = Tokens(store, AuditLog(store))
        revoked = await tokens.revoke(found[0].id, me()) if found else None
        return [] if revoked is None else [revoked]

    found = with_store(flags, work)
    if not found:
        raise CommandFailed(f"there is no token {which!r}; `roost token list` lists the tokens")
    if len(found) > 1:
        raise CommandFailed(
            f"there are {len(found)} tokens called {which!r}: give one of their ids, {', '.join(t.id for t in found)}"
        )
    print(f"{found[0].id} ({found[0].name}) is revoked; all hosts refuse it within 5 seconds")


def state(token: Token) -> str:
    if token.revoked is not None:
        return "revoked"
    return "expired" if token.expires is not None and token.expires <= now_ms() else "valid"
