"""The profile v2 reads A2A 0.3 and 1.0 as they are on the wire, and lists what it does not map."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest
import rfc8785
from a2a.compat.v0_3 import types as sdk_03

from roost.evidence import schemas_03
from roost.evidence.adapter import Mode
from roost.evidence.adapter_fields import content_hash
from roost.evidence.errors import EvidenceError
from roost.evidence.raw import RawStore
from roost.evidence.wire import TrafficConverter, TrafficLimits
from roost.protocol.operations import BY_OLD_RPC
from tests.cards.samples import FULL, new_signer, signed
from tests.evidence.documents import (
    V03_ARTIFACT,
    V03_CARD,
    V03_MESSAGE,
    V03_STATUS,
    V03_TASK,
    V10_ARTIFACT,
    V10_CARD,
    V10_MESSAGE,
    V10_STATUS,
    V10_TASK,
    body,
    data,
    plain,
    unmapped,
)

V10_PARTS = [
    {"text": "hello", "metadata": {"lang": "en"}},
    {"url": "https://a.example/x", "filename": "x", "mediaType": "text/plain"},
    {"raw": "aGk="},
    {"data": {"n": [1]}},
]


def one(value: Any, **options: Any) -> dict[str, Any]:
    """Convert one document, check the envelope of its event, and return the event's data."""
    payload = body(value)
    event = TrafficConverter(**options).convert(payload)
    found = plain(event)
    assert rfc8785.dumps(found) == event.line()
    assert found["assaycontenthash"] == content_hash(found)
    assert found["id"] == f"{found['assayrunid']}:{found['assayseq']}"
    assert ":" not in found["assayrunid"]
    assert found["specversion"] == "1.0"
    assert {"assaypii", "assaysecrets"}.isdisjoint(found)
    assert found["data"]["raw"] == {
        "sha256": sha256(payload).hexdigest(),
        "size_bytes": len(payload),
        "media_type": "application/json",
    }
    return data(event)


def lenient(value: Any, **options: Any) -> dict[str, Any]:
    return one(value, mode=Mode.LENIENT, **options)


def refusal(payload: bytes, **options: Any) -> tuple[str, str]:
    with pytest.raises(EvidenceError) as caught:
        TrafficConverter(**options).convert(payload)
    return caught.value.kind, caught.value.message


def rpc(method: str, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


def bare_rpc(method: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": method}


def answer(result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "result": result}


# Documents


@pytest.mark.parametrize(
    ("value", "document", "version", "member", "kind"),
    [
        (V10_MESSAGE, "message", "1.0", "message", "message"),
        (V10_TASK, "task", "1.0", "task", "task"),
        (V10_STATUS, "status-update", "1.0", "statusUpdate", "status"),
        (V10_ARTIFACT, "artifact-update", "1.0", "artifactUpdate", "artifact"),
        (V10_CARD, "agent-card", "1.0", "card", "card"),
        ({"message": {**V10_MESSAGE, "role": "ROLE_AGENT"}}, "stream-response", "1.0", "message", "message"),
        ({"task": V10_TASK}, "stream-response", "1.0", "task", "task"),
        ({"statusUpdate": V10_STATUS}, "stream-response", "1.0", "statusUpdate", "status"),
        ({"artifactUpdate": V10_ARTIFACT}, "stream-response", "1.0", "artifactUpdate", "artifact"),
        ({"message": V10_MESSAGE}, "send-request", "1.0", "request", "message"),
        (rpc("SendMessage", {"message": V10_MESSAGE}), "jsonrpc-request", "1.0", "request", "message"),
        (rpc("GetTask", {"id": "t-1", "historyLength": 3}), "jsonrpc-request", "1.0", "request", "request"),
        (bare_rpc("ListTasks"), "jsonrpc-request", "1.0", "rpc", "request"),
        (bare_rpc("agent/getAuthenticatedExtendedCard"), "jsonrpc-request", "0.3", "rpc", "request"),
        ({"url": "https://a.example"}, "push-config", "1.0", "pushConfig", "result"),
        ({"id": "p", "taskId": "t", "url": "https://a.example"}, "push-config", "1.0", "pushConfig", "result"),
        ({"configs": [{"id": "p", "url": "https://a.example"}]}, "push-config", "1.0", "pushConfig", "result"),
        (
            {"taskId": "t", "pushNotificationConfig": {"url": "https://a.example"}},
            "push-config",
            "0.3",
            "pushConfig",
            "result",
        ),
        (answer({"task": V10_TASK}), "jsonrpc-response", "1.0", "task", "task"),
        (answer(V10_TASK), "jsonrpc-response", "1.0", "task", "task"),
        (answer({"statusUpdate": V10_STATUS}), "jsonrpc-response", "1.0", "statusUpdate", "status"),
        (
            answer({"tasks": [V10_TASK], "nextPageToken": "", "pageSize": 1, "totalSize": 1}),
            "jsonrpc-response",
            "1.0",
            "list",
            "result",
        ),
        (answer({"id": "p", "taskId": "t", "url": "https://a.example"}), "jsonrpc-response", "1.0", "result", "result"),
        (answer({"configs": []}), "jsonrpc-response", "1.0", "result", "result"),
        (answer(None), "jsonrpc-response", "unknown", "result", "result"),
        (
            {"jsonrpc": "2.0", "id": None, "error": {"code": -1, "message": "x"}},
            "jsonrpc-response",
            "unknown",
            "error",
            "error",
        ),
        (
            {"error": {"code": 404, "status": "NOT_FOUND", "message": "x", "details": []}},
            "error",
            "unknown",
            "error",
            "error",
        ),
        (V03_MESSAGE, "message", "0.3", "message", "message"),
        (V03_TASK, "task", "0.3", "task", "task"),
        (V03_STATUS, "status-update", "0.3", "statusUpdate", "status"),
        (V03_ARTIFACT, "artifact-update", "0.3", "artifactUpdate", "artifact"),
        (V03_CARD, "agent-card", "0.3", "card", "card"),
        (rpc("message/stream", {"message": V03_MESSAGE}), "jsonrpc-request", "0.3", "request", "message"),
        (rpc("tasks/get", {"id": "t-1"}), "jsonrpc-request", "0.3", "request", "request"),
        (answer(V03_STATUS), "jsonrpc-response", "0.3", "statusUpdate", "status"),
        (answer({"taskId": "t", "pushNotificationConfig": {}}), "jsonrpc-response", "0.3", "result", "result"),
        (
            answer([{"taskId": "t", "pushNotificationConfig": {"url": "https://a.example"}}]),
            "jsonrpc-response",
            "0.3",
            "result",
            "result",
        ),
    ],
)
def test_a_document_is_recognised_by_its_shape_and_mapped_completely(value, document, version, member, kind):
    event = TrafficConverter().convert(body(value))
    found = data(event)
    assert (found["document"], found["protocol"]["version"]) == (document, version)
    assert member in found["content"]
    assert plain(event)["type"] == f"roost.a2a.v2.{kind}"
    assert unmapped(event) == []
    one(value)


def test_content_of_1_0_is_unchanged():
    assert one(V10_TASK)["content"] == {"task": V10_TASK}
    assert one({"artifactUpdate": V10_ARTIFACT})["content"] == {"artifactUpdate": V10_ARTIFACT}


def test_content_of_0_3_is_converted_to_1_0():
    message = {"messageId": "m-1", "role": "ROLE_USER", "contextId": "c-1", "parts": V10_PARTS}
    assert one(V03_MESSAGE)["content"] == {"message": message}
    task = one(V03_TASK)["content"]["task"]
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert task["status"]["message"] == message
    assert task["history"] == [message]
    assert one(V03_STATUS)["content"]["statusUpdate"]["final"] is True


def test_a_0_3_card_keeps_its_own_form():
    found = one(V03_CARD)
    assert found["content"] == {"card": V03_CARD}
    assert found["protocol"] == {"name": "a2a", "version": "0.3", "version_source": "declared"}


def test_alternative_forms_of_proto_json_are_read():
    value = {"message_id": "m", "role": 1, "parts": [{"text": "x", "media_type": "text/plain"}], "task_id": None}
    found = one(value, version="1.0")
    expected = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x", "mediaType": "text/plain"}]}
    assert found["content"]["message"] == {**expected, "taskId": None}
    assert found["unmapped"]["count"] == 0


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        ("Message", schemas_03.MESSAGE),
        ("Task", schemas_03.TASK),
        ("TaskStatus", schemas_03.STATUS),
        ("Artifact", schemas_03.ARTIFACT),
        ("TaskStatusUpdateEvent", schemas_03.STATUS_UPDATE),
        ("TaskArtifactUpdateEvent", schemas_03.ARTIFACT_UPDATE),
        ("AgentCard", schemas_03.CARD),
        ("MessageSendParams", schemas_03.SEND),
        ("TaskQueryParams", schemas_03.TASK_PARAMS),
        ("GetTaskPushNotificationConfigParams", schemas_03.PUSH_PARAMS),
        ("TaskPushNotificationConfig", schemas_03.PUSH),
    ],
)
def test_every_field_that_the_sdk_knows_in_0_3_is_mapped(model, shape):
    fields = {field.alias or name for name, field in getattr(sdk_03, model).model_fields.items()}
    assert fields == set(shape.members)


def test_every_json_rpc_method_of_0_3_has_a_schema():
    assert set(schemas_03.METHODS) == set(BY_OLD_RPC)


def test_every_role_and_state_of_0_3_is_mapped():
    assert {state.value for state in sdk_03.TaskState} == set(schemas_03.STATES)
    assert {role.value for role in sdk_03.Role} == set(schemas_03.ROLES)


# Unmapped values


def test_unmapped_values_are_listed_at_any_depth():
    value = {
        **V10_TASK,
        "x": {"deep": [1, {"er": None}], "empty": {}},
        "history": [{**V10_MESSAGE, "parts": [{"text": "a", "b/c~d": True}]}],
        "status": {"state": "TASK_STATE_WORKING", "timestamp": 7},
    }
    found = one(value)
    assert found["unmapped"] == {
        "count": 5,
        "pointers": [
            "/status/timestamp",
            "/history/0/parts/0/b~1c~0d",
            "/x/deep/0",
            "/x/deep/1/er",
            "/x/empty",
        ],
    }


@pytest.mark.parametrize(
    "part",
    [
        {"kind": "video", "text": "a"},
        {"kind": "text", "file": {"uri": "x"}},
        {"kind": "file", "file": {}, "metadata": {"a": 1}},
        {"kind": "file", "text": "a"},
        {"text": "no kind"},
        "a string",
    ],
)
def test_an_invalid_part_is_listed_as_a_whole(part):
    found = one({**V03_MESSAGE, "parts": [{"kind": "text", "text": "a"}, part]})
    assert found["content"]["message"]["parts"] == [{"text": "a"}]
    named = found["unmapped"]["pointers"]
    assert len(named) == (
        1 if isinstance(part, str) else sum(1 for _ in json.dumps(part).split('":')) - 1 - nested(part)
    )
    assert all(pointer.startswith("/parts/1") for pointer in named)


def nested(part: Any) -> int:
    return sum(1 for value in part.values() if isinstance(value, dict) and value)


def test_a_field_in_both_spellings_is_mapped_once_and_listed_once():
    found = one({**V10_STATUS, "task_id": "other"})
    assert found["content"]["statusUpdate"]["taskId"] == "t-1"
    assert found["unmapped"]["pointers"] == ["/task_id"]


def test_more_than_a_hundred_unmapped_values_are_counted():
    found = one({**V10_MESSAGE, **{f"x{number}": number for number in range(150)}})
    assert found["unmapped"]["count"] == 150
    assert len(found["unmapped"]["pointers"]) == 100


def test_a_long_pointer_is_replaced_by_its_digest():
    name = "x" * 600
    found = one({**V10_MESSAGE, name: 1})
    assert found["unmapped"]["pointers"] == [f"sha256:{sha256(f'/{name}'.encode()).hexdigest()}"]


def test_a_long_name_above_many_leaves_is_written_out_only_where_it_is_listed():
    found = one(
        {**V10_MESSAGE, "x" * 400_000: [[1] * 10_000] * 10}, limits=TrafficLimits(max_payload_bytes=2 * 1024 * 1024)
    )
    assert found["unmapped"]["count"] == 100_000
    assert {pointer[:7] for pointer in found["unmapped"]["pointers"]} == {"sha256:"}


def test_credentials_are_listed_and_not_repeated():
    push = {
        "url": "https://a.example",
        "token": "hunter2",
        "authentication": {"scheme": "Bearer", "credentials": "hunter2"},
    }
    found = one({"message": V10_MESSAGE, "configuration": {"taskPushNotificationConfig": push}})
    old = {
        "url": "https://a.example",
        "token": "hunter2",
        "authentication": {"schemes": ["Bearer"], "credentials": "hunter2"},
    }
    other = one(rpc("message/send", {"message": V03_MESSAGE, "configuration": {"pushNotificationConfig": old}}))
    for event in (found, other, one(push), one({"taskId": "t", "pushNotificationConfig": old})):
        assert "hunter2" not in json.dumps(event)
        assert [pointer.rpartition("/")[2] for pointer in event["unmapped"]["pointers"]] == ["token", "credentials"]


# Synthetic values


def test_numbers_without_a_canonical_form_become_text_and_are_marked():
    payload = (
        b'{"messageId":"m","role":"ROLE_USER","parts":[{"data":[9007199254740993,1e400,9007199254740991,-0.0,1e16]}],'
        b'"metadata":{"n":123456789012345678901234567890}}'
    )
    event = TrafficConverter().convert(payload)
    found = data(event)
    assert found["content"]["message"]["parts"][0]["data"] == ["9007199254740993", "1e400", 9007199254740991, 0, "1e16"]
    assert found["content"]["message"]["metadata"]["n"] == "123456789012345678901234567890"
    assert found["synthetic"]["pointers"] == [
        "/data/content/message/parts/0/data/0",
        "/data/content/message/parts/0/data/1",
        "/data/content/message/parts/0/data/4",
        "/data/content/message/metadata/n",
    ]


def test_lenient_mode_adds_missing_ids_and_marks_them():
    found = lenient({"role": "ROLE_USER", "parts": [{"text": "x"}]})
    assert found["refs"]["message"] == {"id": "unknown-message", "visible": False, "synthetic": True}
    assert found["synthetic"]["pointers"] == ["/data/refs/message/id", "/assayrunid", "/subject"]
    assert "messageId" not in found["content"]["message"]


def test_lenient_mode_converts_a_document_that_is_not_a2a():
    event = TrafficConverter(mode=Mode.LENIENT).convert(b'[{"a":1},[]]')
    found = data(event)
    assert (plain(event)["type"], found["document"], found["content"]) == ("roost.a2a.v2.unknown", "unknown", {})
    assert found["unmapped"] == {"count": 2, "pointers": ["/0/a", "/1"]}


def test_the_time_is_that_of_the_status_or_absent():
    event = TrafficConverter().convert(body(V10_TASK))
    assert plain(event)["time"] == "2026-02-27T09:00:00.250Z"
    assert "time" not in plain(TrafficConverter().convert(body(V10_MESSAGE)))


# References and runs


@pytest.mark.parametrize(
    ("ids", "run", "subject"),
    [
        ({"taskId": "t:1/ü%"}, "task-t%3A1%2F%C3%BC%25", "t:1/ü%"),
        ({"contextId": "c"}, "context-c", "c"),
        ({"contextId": ""}, "message-m-1", "m-1"),
        ({"taskId": "unknown-task", "contextId": "c"}, "context-c", "c"),
        ({"taskId": "x" * 300}, f"tasksha256-{sha256(b'x' * 300).hexdigest()}", "x" * 300),
    ],
)
def test_run_ids_have_no_colon_and_come_from_what_is_visible(ids, run, subject):
    value = {name: item for name, item in {**V10_MESSAGE, **ids}.items() if name != "contextId" or name in ids}
    found = plain(TrafficConverter().convert(body(value)))
    assert (found["assayrunid"], found["subject"], found["id"]) == (run, subject, f"{run}:0")
    assert found["data"]["synthetic"]["count"] == 0


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("GetTask", {"id": "t-1"}),
        ("CancelTask", {"id": "t-1"}),
        ("GetTaskPushNotificationConfig", {"taskId": "t-1", "id": "p"}),
        ("tasks/resubscribe", {"id": "t-1"}),
        ("tasks/pushNotificationConfig/get", {"id": "t-1", "pushNotificationConfigId": "p"}),
        ("tasks/pushNotificationConfig/set", {"taskId": "t-1", "pushNotificationConfig": {"id": "p"}}),
    ],
)
def test_a_request_about_a_task_belongs_to_its_run(method, params):
    found = plain(TrafficConverter().convert(body(rpc(method, params))))
    assert found["assayrunid"] == "task-t-1"
    assert found["data"]["refs"] == {"task": {"id": "t-1", "visible": True, "synthetic": False}}


def test_an_upstream_placeholder_is_not_a_visible_reference():
    found = one({**V10_STATUS, "taskId": "unknown-task"})
    assert found["refs"]["task"] == {"id": "unknown-task", "visible": False, "synthetic": False}
    assert found["refs"]["context"]["visible"] is True


def test_each_task_has_its_own_sequence():
    converter = TrafficConverter()
    events = [
        converter.convert(body(value))
        for value in (
            V10_TASK,
            {**V10_STATUS, "taskId": "t-2"},
            V03_STATUS,
            V10_ARTIFACT,
            {**V03_STATUS, "taskId": "t-2"},
        )
    ]
    assert [(event.run, event.seq) for event in events] == [
        ("task-t-1", 0),
        ("task-t-2", 0),
        ("task-t-1", 1),
        ("task-t-1", 2),
        ("task-t-2", 1),
    ]


def test_a_refused_document_takes_no_number_in_a_sequence():
    converter = TrafficConverter()
    first = converter.convert(body(V10_TASK))
    with pytest.raises(EvidenceError):
        converter.convert(body({**V10_TASK, "status": {}}), "application/json")
    assert converter.convert(body(V10_TASK)).seq == first.seq + 1


# Handoff


@pytest.mark.parametrize(
    ("members", "around", "source", "task_ref"),
    [
        ({"referenceTaskIds": ["t-9"]}, {}, "reference_task_ids", True),
        ({"metadata": {"delegation": {"taskId": "t-9"}}}, {}, "delegation_metadata", True),
        ({"metadata": {"urn:roost:a2a:delegation:v1": {}}}, {}, "delegation_metadata", False),
        ({}, {"metadata": {"delegation": {"taskId": "unknown-task"}}}, "delegation_metadata", False),
        ({"referenceTaskIds": ["t-9"], "metadata": {"delegation": {}}}, {}, "reference_task_ids", True),
    ],
)
def test_a_handoff_is_visible_in_the_message(members, around, source, task_ref):
    expected = {
        "visible": True,
        "source_kind": source,
        "task_ref_visible": task_ref,
        "message_ref_visible": True,
    }
    assert one({"message": {**V10_MESSAGE, **members}, **around})["handoff"] == expected
    assert one(rpc("message/send", {"message": {**V03_MESSAGE, **members}, **around}))["handoff"] == expected


@pytest.mark.parametrize(
    "value",
    [
        V10_MESSAGE,
        {**V10_MESSAGE, "referenceTaskIds": []},
        {**V10_MESSAGE, "referenceTaskIds": ["", "unknown-task"]},
        {**V10_MESSAGE, "taskId": "t-1", "referenceTaskIds": ["t-1"]},
        {**V10_MESSAGE, "referenceTaskIds": "t-9"},
        {**V10_MESSAGE, "metadata": {"delegation": "yes"}},
        {**V10_MESSAGE, "metadata": {"task": {"kind": "delegation"}}},
        {**V10_TASK, "history": [{**V10_MESSAGE, "referenceTaskIds": ["t-9"]}]},
        {**V10_STATUS, "metadata": {"delegation": {"taskId": "t-9"}}},
    ],
)
def test_nothing_else_is_a_handoff(value):
    assert one(value)["handoff"] == {
        "visible": False,
        "source_kind": "unknown",
        "task_ref_visible": False,
        "message_ref_visible": False,
    }


# Discovery and signatures


def test_a_card_is_discovery_and_its_signature_a_claim_of_its_own():
    signer, key = new_signer()
    _, other = new_signer()
    card = signed(FULL, signer)
    unsigned = {name: value for name, value in card.items() if name != "signatures"}

    assert one(unsigned, keys=[key])["signature"] == {"present": False, "verified_with": None, "anchored": False}
    assert one(unsigned)["discovery"] == {
        "agent_card_visible": True,
        "agent_card_source_kind": "document",
        "extended_card_access_visible": False,
        "signature_material_visible": False,
    }
    assert one(card)["discovery"]["signature_material_visible"] is True
    assert one(card)["signature"] == {"present": True, "verified_with": None, "anchored": False}
    assert one(card, keys=[other])["signature"] == {"present": True, "verified_with": None, "anchored": False}
    found = one(card, keys=[other, key])["signature"]
    assert found == {"present": True, "verified_with": signer.kid, "anchored": False}
    changed = {**card, "description": "Another"}
    assert one(changed, keys=[key])["signature"]["verified_with"] is None


def test_signatures_that_cannot_be_checked_are_only_present():
    signer, key = new_signer()
    card = signed(FULL, signer)
    found = one({**card, "signatures": card["signatures"] * 20}, keys=[key])
    assert found["signature"] == {"present": True, "verified_with": None, "anchored": False}


def test_a_card_in_the_response_of_an_operation_is_the_extended_card():
    assert one(answer(V10_CARD))["discovery"]["extended_card_access_visible"] is True
    assert one(answer(V03_CARD))["discovery"]["extended_card_access_visible"] is True
    assert one(rpc("GetExtendedAgentCard", {}))["discovery"]["extended_card_access_visible"] is False


# Versions


@pytest.mark.parametrize(("version", "kept"), [("0.3.0", "0.3"), ("1.0", "1.0"), ("1.0.1", "1.0")])
def test_the_hint_applies_where_the_document_does_not_show_its_version(version, kept):
    found = one({"taskId": "t", "artifact": {"artifactId": "a", "parts": []}}, version=version)
    assert found["protocol"] == {"name": "a2a", "version": kept, "version_source": "hint"}


def test_without_a_hint_strict_refuses_and_lenient_marks_what_it_assumes():
    value = {"taskId": "t", "artifact": {"artifactId": "a", "parts": []}}
    assert refusal(body(value))[0] == "measurement"
    found = lenient(value)
    assert found["protocol"] == {"name": "a2a", "version": "1.0", "version_source": "assumed"}
    assert found["synthetic"]["pointers"] == ["/data/protocol/version"]


def test_the_document_takes_precedence_over_the_hint():
    assert one(V03_MESSAGE, version="1.0")["protocol"]["version"] == "0.3"


@pytest.mark.parametrize("version", ["0.2", "2.0", "", "1", "0.30"])
def test_other_versions_are_not_supported(version):
    with pytest.raises(EvidenceError) as caught:
        TrafficConverter(version=version)
    assert caught.value.kind == "unsupported_protocol_version"
    found = refusal(body({**V03_CARD, "protocolVersion": version}), mode=Mode.LENIENT)
    assert found == ("unsupported_protocol_version", f"unsupported A2A version: {version}")


# Refusals


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({**V10_MESSAGE, "messageId": 7}, "message.messageId"),
        ({"messageId": "m", "role": "ROLE_USER"}, "message.parts"),
        ({**V10_MESSAGE, "role": "ROLE_ROOT"}, "message.role"),
        ({**V10_TASK, "status": {"state": "TASK_STATE_DONE"}}, "task.status.state"),
        ({**V10_STATUS, "taskId": None}, "statusUpdate.taskId"),
        ({**V03_ARTIFACT, "artifact": {"parts": []}}, "artifactUpdate.artifact.artifactId"),
        ({**V10_CARD, "name": 1}, "card.name"),
        (rpc("SendMessage", None), "message"),
        (rpc("message/send", {"message": "hi"}), "message"),
    ],
)
def test_strict_mode_names_the_missing_field(value, field):
    assert refusal(body(value)) == ("measurement", f"missing required field: {field}")
    lenient(value)


@pytest.mark.parametrize("around", [dict, answer])
@pytest.mark.parametrize("more", [{"message": V10_MESSAGE}, {"status_update": V10_STATUS}, {"artifactUpdate": "none"}])
def test_strict_mode_refuses_a_stream_response_with_two_members(around, more):
    kind, message = refusal(body(around({"task": V10_TASK, **more})))
    assert (kind, message[:52]) == ("measurement", "a StreamResponse has exactly one of its members, not")
    assert lenient(around({"task": V10_TASK, **more}))["content"]["task"]["id"] == "t-1"
    one(around({"task": V10_TASK, "message": None}))


def test_the_request_that_sets_a_webhook_belongs_to_its_task():
    found = plain(TrafficConverter().convert(body({"taskId": "t-1", "url": "https://a.example"})))
    assert found["assayrunid"] == "task-t-1"


@pytest.mark.parametrize(
    "value",
    [
        [],
        7,
        "x",
        {},
        {"url": 7},
        {"url": "x", "a": 1},
        {"a": 1},
        rpc("Frobnicate", {}),
        rpc(7, {}),
        answer("x"),
        {"jsonrpc": "2.0"},
    ],
)
def test_strict_mode_refuses_a_document_that_is_not_a2a(value):
    assert refusal(body(value)) == ("strict_lossiness_violation", "unsupported document in strict mode")
    assert lenient(value)["document"] == "unknown"


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"\xff",
        b'{"messageId":"m","messageId":"n","role":"ROLE_USER","parts":[{"text":"x"}]}',
        b'{"messageId":"m","role":"ROLE_USER","parts":[{"data":{"a":1,"\\u0061":2}}]}',
        b'{"messageId":"\\ud800","role":"ROLE_USER","parts":[]}',
        b'{"a":NaN}',
        b"[" * 100_000,
    ],
)
def test_ambiguous_json_is_refused_and_kept(payload, tmp_path):
    store = RawStore(tmp_path)
    kind, message = refusal(payload, mode=Mode.LENIENT, keep=store.keep)
    assert kind == "measurement"
    assert message.startswith("invalid A2A payload JSON: ")
    assert store.path(sha256(payload).hexdigest()).read_bytes() == payload


def test_limits_are_on_by_default():
    assert TrafficLimits() == (100 * 1024 * 1024, 100_000, 1024 * 1024, 64, 10_000)
    big = {**V10_MESSAGE, "parts": [{"text": "x" * 1024 * 1024}]}
    assert refusal(body(big)) == ("measurement", "payload exceeds max_payload_bytes (1048576)")
    deep: Any = 1
    for _ in range(64):
        deep = [deep]
    assert refusal(body(deep)) == ("measurement", "payload exceeds max_json_depth (64)")
    long = {**V10_MESSAGE, "metadata": {"n": [0] * 10_001}}
    assert refusal(body(long)) == ("measurement", "payload exceeds max_array_length (10000)")


def test_an_event_longer_than_the_limit_is_refused():
    nearly = {**V10_MESSAGE, "parts": [{"text": "x" * (1024 * 1024 - 200)}]}
    assert refusal(body(nearly)) == ("measurement", "event exceeds max_payload_bytes (1048576)")


def test_a_converter_limits_events_and_bytes():
    few = TrafficConverter(limits=TrafficLimits(max_events=2))
    for _ in range(2):
        few.convert(body(V10_MESSAGE))
    with pytest.raises(EvidenceError, match=r"input exceeds max_events \(2\)"):
        few.convert(body(V10_MESSAGE))
    small = TrafficConverter(limits=TrafficLimits(max_bytes=len(body(V10_MESSAGE))))
    small.convert(body(V10_MESSAGE))
    with pytest.raises(EvidenceError, match="input exceeds max_bytes"):
        small.convert(body(V10_MESSAGE))
