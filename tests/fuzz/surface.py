"""Every operation of /openapi.json, as the document says and against it: schemathesis makes up the requests.

Answers must be what the document declares: a status, a content type, headers and a body of that schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.specs.openapi import checks

from roost.protocol.codec import decode
from roost.protocol.types import StreamResponse
from tests.fuzz.attack import Attack
from tests.fuzz.target import AGENTS, WEBHOOK, Target
from tests.waiting import PATIENCE_S

CHECKS = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
EDGE_CHECKS = [*CHECKS, checks.unsupported_method, checks.allow_header_conformance]
CONFIG = {"max-stream-events": 1, "request-timeout": PATIENCE_S}


class Surface:
    def __init__(self, target: Target) -> None:
        self.target = target
        self.schema = schemathesis.openapi.from_dict(
            promising(target.document(), target.tasks), config=schemathesis.Config.from_dict(CONFIG)
        )
        self.operations = [found.ok() for found in self.schema.get_all_operations()]
        self.session = requests.Session()

    def attacks(self) -> list[Attack]:
        return [attack for operation in self.operations for attack in self._attacks(operation)]

    def _attacks(self, operation: APIOperation) -> Iterator[Attack]:
        callers = st.just(self.right(operation)) | st.sampled_from([{}, *self.target.callers.values()])
        for mode in GenerationMode:
            cases = st.tuples(operation.as_strategy(mode), callers)
            yield Attack(f"{operation.label} {mode.value}", cases, lambda case: self.send(*case, CHECKS))
        edges, right = self._edges(operation), self.right(operation)
        places = st.integers(0, len(edges) - 1)
        yield Attack(f"{operation.label} edges", places, lambda at: self.send(edges[at], right, EDGE_CHECKS), weight=3)

    def _edges(self, operation: APIOperation) -> list[Case]:
        """The edges of every parameter and field, and what is beyond."""
        generation = self.schema.config.generation_for(operation=operation)
        modes = list(GenerationMode)
        return list(self.schema.iter_coverage_cases(operation, generation_modes=modes, generation_config=generation))

    def right(self, operation: APIOperation) -> dict[str, str]:
        """The caller whom it is meant for."""
        is_admin = operation.tags == ["Admin"] or operation.path == "/metrics"
        return self.target.callers["admin" if is_admin else "user"]

    def send(self, case: Case, caller: dict[str, str], wanted: list[Any]) -> None:
        if caller:
            for name in ("Authorization", "X-API-Key"):
                case.headers.pop(name, None)
        try:
            self._send(case, caller, wanted)
        except BaseException as error:
            error.add_note(case.as_curl_command(caller, base_url=self.target.url))
            raise

    def _send(self, case: Case, caller: dict[str, str], wanted: list[Any]) -> None:
        response = case.call(base_url=self.target.url, session=self.session, headers=dict(caller))
        self.target.count(str(case.operation.label), response.status_code)
        assert response.status_code < 500 or response.status_code == 503, response.text
        if response.headers.get("content-type") == ["text/event-stream"]:
            check_events(response.content, is_old=case.operation.tags == ["A2A 0.3"])
        case.validate_response(response, checks=wanted)


def check_events(content: bytes, *, is_old: bool = False) -> None:
    """Those that came, in either binding; `is_old`: in REST of A2A 0.3."""
    found = [line for line in content.split(b"\n") if line.startswith(b"data: ")]
    assert found, content
    for line in found:
        event = json.loads(line[len(b"data: ") :])
        if "sequence_number" in event or event.get("object") == "chat.completion.chunk":
            continue  # OpenAI's, whose client looks closer in tests/openai_door
        if "method" in event or "serverInfo" in event.get("result", {}) or "error" in event:
            continue  # MCP's, whose client looks closer in tests/mcp_door
        if "kind" in event.get("result", {}) or is_old:
            continue  # A2A 0.3's, whose client looks closer in tests/a2a_03
        decode(StreamResponse, json.dumps(event["result"] if "jsonrpc" in event else event).encode())


def promising(document: dict[str, Any], tasks: list[str]) -> dict[str, Any]:
    """The document with values that get further than the first check: agents, tasks and tenants that are there."""
    shared, schemas = document["components"]["parameters"], document["components"]["schemas"]
    message, webhook = schemas["Message"]["properties"], schemas["TaskPushNotificationConfig"]["properties"]
    shared["Agent"]["schema"] = {"type": "string", "enum": list(AGENTS)}
    for request in ("ChatRequest", "ResponsesRequest"):
        schemas[request]["properties"]["model"] = {"type": "string", "enum": list(AGENTS)}
    shared["Tenant"]["schema"] = {"type": "string", "enum": ["default"]}
    task = {"anyOf": [{"type": "string", "enum": tasks}, {"type": "string", "pattern": "^[^/:]+$"}]}
    for path in document["paths"].values():
        for operation in path.values():
            for parameter in operation["parameters"]:
                if parameter.get("name") in ("id", "taskId"):
                    parameter["schema"] = task
            for answer in operation["responses"].values():
                answer.get("content", {}).get("text/event-stream", {}).pop("schema", None)  # by check_events
    for name, schema in schemas.items():
        if name.endswith(("Request", "Body", "PushNotificationConfig")):
            schema["properties"]["tenant"] = {"type": "string", "maxLength": 0}
    message["taskId"] = {"anyOf": [{"type": "string", "enum": ["", *tasks]}, {"type": "string"}]}
    webhook["url"] = {"anyOf": [{"type": "string", "enum": [WEBHOOK]}, {"type": "string", "minLength": 1}]}
    return document
