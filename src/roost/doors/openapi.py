"""GET /openapi.json: everything that the doors serve, as an OpenAPI 3.1 document made from their routes."""

from __future__ import annotations

from functools import lru_cache
from http import HTTPStatus

from roost.doors.access import Access
from roost.doors.door import Route
from roost.doors.openapi_components import JSON, PARAMETERS, Demands, Describer, Schema, responses
from roost.identity.scopes import SCHEMES
from roost.protocol.codec import encode

DESCRIPTION = """The A2A operations below `/agents/{agent}` are also below `/` for the agent that is bound to the root,
and with the agent's id once more in front, for clients that put a card's `tenant` into the path. What is too large, too
slow or too odd to be a request is answered 400, 408, 431 or 503 on any path."""
TAGS = ("A2A", "A2A 0.3", "Sandbox", "Host", "Admin", "OpenAI", "MCP")


def demands_of(access: Access, openid_url: str) -> Demands:
    """Return the credentials that this host requires of its callers."""
    always = tuple(scheme for scheme in SCHEMES if scheme in access.rules.schemes)
    return Demands(access.schemes_of(None), always, openid_url)


@lru_cache(8)
def document(base: str, version: str, demands: Demands, routes: tuple[Route, ...]) -> bytes:
    """Build the document. `base` is the host's URL, `version` its release."""
    describer = Describer(demands)
    paths: dict[str, Schema] = {}
    for route in routes:
        at, method = paths.setdefault(route.path, {}), route.method.lower()
        if method in at:
            _describe_twice(at[method], route)
        else:
            at[method] = _describe(route, describer)
    errors = responses(describer)
    return encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Roost",
                "version": version,
                "description": DESCRIPTION,
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "servers": [{"url": base}],
            "tags": [{"name": name} for name in TAGS],
            "paths": paths,
            "components": {
                "schemas": describer.schemas(),
                "parameters": PARAMETERS,
                "responses": errors,
                "securitySchemes": describer.security_schemes(),
            },
        }
    )


def _describe(route: Route, describer: Describer) -> Schema:
    if route.describe is not None:
        return route.describe(route, describer)
    return {
        "operationId": f"{route.method.title()}{route.path.title()}".translate({ord(c): None for c in "/{}-_:."}),
        "summary": route.summary,
        "security": describer.security(route.access),
        "parameters": describer.path_parameters(route.path),
        "responses": {"200": {"description": HTTPStatus.OK.phrase}},
    }


def _describe_twice(operation: Schema, route: Route) -> None:
    """Describe two doors that share a path and a method, and differ by the version that a request names."""
    operation["responses"]["200"]["content"][JSON] = {}
    operation["description"] = f"Without `A2A-Version: 1.0`: {route.summary}; see docs/a2a-0.3.md"
