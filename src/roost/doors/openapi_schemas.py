"""The schemas of responses that doors write without a struct, for /openapi.json. tests/fuzz compares them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from roost.protocol.types import AgentInterface, TaskState

Time = Annotated[datetime, Meta(tz=True)]


class ResponseSchema(Struct, rename="camel"):
    pass


# Errors, in the form of each surface


class FieldViolation(ResponseSchema):
    field: str
    description: str


class ErrorDetail(ResponseSchema):
    """google.rpc.ErrorInfo with reason and domain, or google.rpc.BadRequest with fieldViolations."""

    type: str = field(name="@type")
    reason: str = ""
    domain: str = ""
    metadata: dict[str, str] = {}
    field_violations: list[FieldViolation] = []


class Status(ResponseSchema):
    code: int
    status: str
    message: str
    details: list[ErrorDetail]


class RestError(ResponseSchema):
    """google.rpc.Status: an error of the HTTP+JSON binding and of the host's own paths."""

    error: Status


class SandboxError(RestError):
    """The same with the members that agentic-sandbox adds, which make it a problem of RFC 9457."""

    type: str = ""
    title: str = ""
    status: int = 0
    detail: str = ""
    code: str = ""
    trace_id: str = field(name="trace_id", default="")
    instance_id: str = field(name="instance_id", default="")


class OldRestError(ResponseSchema):
    """An error of A2A 0.3: its name, and JSON-RPC's code."""

    type: str
    code: int
    message: str
    data: list[dict[str, Any]] = []


class RpcErrorObject(ResponseSchema):
    code: int
    message: str
    data: list[ErrorDetail]


class RpcError(ResponseSchema):
    jsonrpc: Literal["2.0"]
    id: str | float | None
    error: RpcErrorObject


class FieldProblem(ResponseSchema):
    field: str
    message: str
    code: str


class ProblemDetails(ResponseSchema):
    """RFC 9457: an error of the admin surface."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    errors: list[FieldProblem] = []


# The host's own paths


class Commands(ResponseSchema):
    curl: str
    cli: str


class IndexedAgent(ResponseSchema):
    id: str
    name: str
    description: str
    url: str
    card: str
    commands: Commands = field(name="try")


class Index(ResponseSchema):
    agents: list[IndexedAgent]
    directory: str


class ListedAgent(ResponseSchema):
    name: str
    description: str
    card: str
    supported_interfaces: list[AgentInterface]


class DirectoryResponse(ResponseSchema):
    agents: list[ListedAgent]


class CatalogHost(ResponseSchema):
    display_name: str


class CatalogEntry(ResponseSchema):
    identifier: str
    type: str
    url: str
    display_name: str
    description: str


class Catalog(ResponseSchema):
    """https://ai-catalog.io"""

    spec_version: str
    host: CatalogHost
    entries: list[CatalogEntry]


class KeySet(ResponseSchema):
    """RFC 7517."""

    keys: list[dict[str, Any]]


class HealthResponse(ResponseSchema):
    """The status, and where the host is not ready, the reason."""

    status: Literal["alive", "ready", "not ready"]
    store: str = ""
    agents: int = 0
    lease: str = ""
    disk: str = ""
    host: str = ""


# The admin surface


class TokenShown(ResponseSchema):
    id: str
    name: str
    subject: str
    tenants: list[str]
    scopes: list[str]
    created: Time
    expires: Time | None
    revoked: Time | None


class TokenMade(TokenShown):
    token: str
    """A new token with its secret, which only this response shows."""


class TokenList(ResponseSchema):
    items: list[TokenShown]


class KeyShown(ResponseSchema):
    agent: str
    kid: str
    alg: str
    created: Time
    until: Time | None
    retired: Time | None


class KeyList(ResponseSchema):
    items: list[KeyShown]


class AuditLine(ResponseSchema):
    number: int
    time: Time
    actor: str
    action: str
    target: str
    outcome: str
    address: str


class AuditLines(ResponseSchema):
    items: list[AuditLine]


class TaskShown(ResponseSchema):
    id: str
    agent: str
    tenant: str
    owner: str
    context_id: str
    state: TaskState
    created: Time
    updated: Time
    worker: str | None
