"""Every error has the form that the specification defines for each binding, and that SDK clients expect."""

from __future__ import annotations

import re

import pytest
from a2a.utils import errors as sdk
from google.rpc import code_pb2

from roost.protocol import errors
from roost.protocol.errors import A2AError, RoostError

SPECIFICATION_5_4 = {
    "TaskNotFound": (-32001, "NOT_FOUND", 404),
    "TaskNotCancelable": (-32002, "FAILED_PRECONDITION", 400),
    "PushNotificationNotSupported": (-32003, "FAILED_PRECONDITION", 400),
    "UnsupportedOperation": (-32004, "FAILED_PRECONDITION", 400),
    "ContentTypeNotSupported": (-32005, "INVALID_ARGUMENT", 400),
    "InvalidAgentResponse": (-32006, "INTERNAL", 500),
    "ExtendedAgentCardNotConfigured": (-32007, "FAILED_PRECONDITION", 400),
    "ExtensionSupportRequired": (-32008, "FAILED_PRECONDITION", 400),
    "VersionNotSupported": (-32009, "FAILED_PRECONDITION", 400),
}
SPECIFICATION_9_5 = {
    "ParseError": (-32700, "Invalid JSON payload"),
    "InvalidRequest": (-32600, "Request payload validation error"),
    "MethodNotFound": (-32601, "Method not found"),
    "InvalidParams": (-32602, "Invalid parameters"),
    "InternalError": (-32603, "Internal error"),
}
SDK_NAMES = {"ParseError": "JSONParseError", "InternalError": "InternalError"}

ERRORS: dict[str, type[A2AError]] = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, A2AError) and value not in (A2AError, RoostError)
}
CONTRACTED = {"IdempotencyKeyReused": -32422}
"""Codes that an extension of another system defines."""
OF_THE_HOST = {name for name, error in ERRORS.items() if issubclass(error, RoostError)}


def test_there_are_the_errors_of_the_specification_and_the_hosts_own() -> None:
    assert set(ERRORS) - OF_THE_HOST == set(SPECIFICATION_5_4) | set(SPECIFICATION_9_5)


@pytest.mark.parametrize("name", SPECIFICATION_5_4)
def test_an_a2a_error_has_the_codes_of_section_5_4(name: str) -> None:
    error = ERRORS[name]
    assert (error.code, error.grpc, error.http) == SPECIFICATION_5_4[name]
    assert error.reason == re.sub(r"(?<!^)([A-Z])", r"_\1", name).upper()
    assert error.domain == "a2a-protocol.org"
    assert error.rpc_http == 200


@pytest.mark.parametrize("name", SPECIFICATION_9_5)
def test_a_json_rpc_error_has_the_code_and_the_message_of_section_9_5(name: str) -> None:
    assert (ERRORS[name].code, ERRORS[name]().message) == SPECIFICATION_9_5[name]
    assert ERRORS[name].rpc_http == 200


@pytest.mark.parametrize("name", sorted(set(ERRORS) - OF_THE_HOST))
def test_sdk_clients_recognise_the_error(name: str) -> None:
    theirs = getattr(sdk, SDK_NAMES.get(name, f"{name}Error"))
    error = ERRORS[name]
    assert error.code == sdk.JSON_RPC_ERROR_CODE_MAP[theirs]
    if theirs in sdk.A2A_ERROR_MAPPING:
        assert (error.http, error.grpc, error.reason) == sdk.A2A_ERROR_MAPPING[theirs]
        assert sdk.A2A_REASON_TO_ERROR[error.reason] is theirs


def test_codes_and_reasons_are_unique() -> None:
    assert len({error.code for error in ERRORS.values()}) == len(ERRORS)
    assert len({error.reason for error in ERRORS.values()}) == len(ERRORS)


@pytest.mark.parametrize("name", sorted(OF_THE_HOST))
def test_a_host_error_is_in_no_range_that_the_specification_uses(name: str) -> None:
    error = ERRORS[name]
    assert -32099 <= error.code <= -32020 or error.code == CONTRACTED.get(name)
    assert error.domain == "roost"
    assert error.rpc_http == (200 if "Idempotency" in name or "MessageId" in name else error.http), "200 from a method"
    assert 400 <= error.http < 600


@pytest.mark.parametrize("name", ERRORS)
def test_the_grpc_status_exists(name: str) -> None:
    assert code_pb2.Code.Value(ERRORS[name].grpc) > code_pb2.OK


@pytest.mark.parametrize("name", ERRORS)
def test_details_begin_with_an_error_info(name: str) -> None:
    error = ERRORS[name]("what happened", metadata={"taskId": "t"})
    assert str(error) == error.message == "what happened"
    assert error.details() == [
        {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": error.reason,
            "domain": error.domain,
            "metadata": {"taskId": "t"},
        }
    ]


def test_a_field_becomes_a_field_violation() -> None:
    info, violations = errors.InvalidParams("too long", field="message.parts").details()
    assert "metadata" not in info
    assert violations == {
        "@type": "type.googleapis.com/google.rpc.BadRequest",
        "fieldViolations": [{"field": "message.parts", "description": "too long"}],
    }
