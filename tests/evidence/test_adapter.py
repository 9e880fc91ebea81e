"""The profile v1 equals Assay's adapter byte for byte: golden digests, negatives, substitutions, order of errors."""

from __future__ import annotations

import errno
import json
import os
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost._version import VERSION
from roost.evidence.adapter import STRICT, AdapterOptions, Batch, Mode, convert
from roost.evidence.adapter_fields import adapter_digest, compact, content_hash, rfc3339_utc
from roost.evidence.errors import EvidenceError
from roost.evidence.raw import RawStore
from tests.evidence.packets import NAMES, changed, packet

LENIENT = AdapterOptions(mode=Mode.LENIENT)

HANDOFF_DEFAULT = "60e992b4881c03d816cd94929856d8c8cade113f62273d42a8a75412533a294a"
HANDOFF_POSITIVE = "e478af7359a254678c90b5eb2737d63f79c6d667a2b5c4bc323442f07d09d33b"
HANDOFF_PARTIAL = "0be260743587b9594018a4ab7809560157be088be0372a8ae7c7faa6a744effe"


def data(found: Batch) -> dict[str, Any]:
    event: dict[str, Any] = found.event["data"]
    return event


def refusal(payload: bytes, options: AdapterOptions = STRICT, version: str | None = None) -> tuple[str, str]:
    with pytest.raises(EvidenceError) as caught:
        convert(payload, version=version, options=options)
    plain = caught.value.plain()
    assert set(plain) == {"kind", "message"}
    return plain["kind"], plain["message"]


# Golden


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("a2a_happy_agent_capabilities", "26b4d9c0105f4cc26d4b413e7b6b27effe5829f9f319a60b91ca490fd7776a13"),
        (
            "a2a_happy_agent_capabilities_g4_agent_card",
            "93f5c26d149e7400d38104c4479f332df4df23df0d1f4d25aef252aac87b9769",
        ),
        (
            "a2a_happy_agent_capabilities_g4_both_visible",
            "9d0f24e430e00ee3ec1bc595cb59e6e7d7d5b12c0c90e102ea4d26ad3890e665",
        ),
        (
            "a2a_happy_agent_capabilities_g4_extended",
            "13e23c6783de838b52ca92d787569bccd3cadc0f8900f1bf76b42262959f77ba",
        ),
    ],
)
def test_the_discovery_digests_are_golden(name, digest):
    assert adapter_digest(data(convert(packet(name)))["discovery"]) == digest


@pytest.mark.parametrize(
    ("name", "options", "digest"),
    [
        ("a2a_happy_agent_capabilities", AdapterOptions(), HANDOFF_DEFAULT),
        ("a2a_happy_task_requested", AdapterOptions(), HANDOFF_POSITIVE),
        ("a2a_negative_missing_task_id", LENIENT, HANDOFF_PARTIAL),
    ],
)
def test_the_handoff_digests_are_golden(name, options, digest):
    assert adapter_digest(data(convert(packet(name), options=options))["handoff"]) == digest


@pytest.mark.parametrize(
    ("name", "options", "digest"),
    [
        (
            "a2a_happy_agent_capabilities",
            AdapterOptions(),
            "95d0ac06f7790d322cacc69a9b79a200dc3010cfc568f2b7d2e7c35d9b9f98a9",
        ),
        (
            "a2a_happy_task_requested",
            AdapterOptions(),
            "2b056ccc53dc81924c97ba34857b620989ba591bce990666e0907e512dcc04f1",
        ),
        (
            "a2a_happy_artifact_shared",
            AdapterOptions(),
            "6171d55c3daa8a05c74e5f4f315f67de8144ea93cf2dfdb13ffe0e58e8046621",
        ),
        ("a2a_negative_missing_task_id", LENIENT, "7fbf16597875072015d33d1116044595a7b9284959b68f15932c8f6112fa68f2"),
        (
            "a2a_negative_invalid_event_type",
            LENIENT,
            "1d097fb1cd9d73cc560e2b23175df3b7d9e5c02cae6e8871b061257b0c554ff2",
        ),
    ],
)
def test_the_content_hashes_are_golden(name, options, digest):
    assert content_hash(convert(packet(name), options=options).event) == f"sha256:{digest}"


def test_the_positive_packet_is_converted_as_the_freeze_shows_it():
    found = convert(packet("a2a_happy_task_requested"))
    assert data(found) == {
        "adapter_id": "assay-adapter-a2a",
        "adapter_version": "5.4.0",
        "protocol": "a2a",
        "protocol_name": "a2a",
        "protocol_version": "0.2",
        "upstream_event_type": "task.requested",
        "agent": {"id": "agent://coordinator", "role": "orchestrator"},
        "task": {"id": "task-123", "status": "requested", "kind": "delegation"},
        "message": {"id": "msg-1", "role": "assistant"},
        "attributes": {"channel": "web", "priority": "urgent"},
        "discovery": {
            "agent_card_visible": False,
            "agent_card_source_kind": "unknown",
            "extended_card_access_visible": False,
            "signature_material_visible": False,
        },
        "handoff": {
            "visible": True,
            "source_kind": "typed_payload",
            "task_ref_visible": True,
            "message_ref_visible": True,
        },
        "unmapped_fields_count": 0,
    }
    envelope = {name: value for name, value in found.event.items() if name != "data"}
    assert envelope == {
        "specversion": "1.0",
        "type": "assay.adapter.a2a.task.requested",
        "source": "urn:assay:adapter:a2a",
        "id": "a2a:task-123:0",
        "time": "2026-02-27T10:05:00Z",
        "datacontenttype": "application/json",
        "subject": "task-123",
        "assayrunid": "a2a:task-123",
        "assayseq": 0,
        "assayproducer": "roost",
        "assayproducerversion": VERSION,
        "assaygit": "unknown",
        "assaypii": False,
        "assaysecrets": False,
        "assaycontenthash": None,
    }


def test_the_result_has_one_event_and_its_lossiness():
    payload = packet("a2a_happy_artifact_shared")
    plain = convert(payload, media_type="application/a2a+json").plain()
    assert len(plain["events"]) == 1
    assert plain["lossiness"] == {
        "lossiness_level": "none",
        "unmapped_fields_count": 0,
        "raw_payload_ref": {
            "sha256": sha256(payload).hexdigest(),
            "size_bytes": len(payload),
            "media_type": "application/a2a+json",
        },
        "notes": [],
    }
    assert plain["events"][0]["subject"] == "artifact-7"
    assert plain["events"][0]["data"]["task"] == {"id": "task-123"}


# Negatives of the freeze


def test_n1_an_artifact_with_a_task_is_no_handoff():
    assert adapter_digest(data(convert(packet("a2a_happy_artifact_shared")))["handoff"]) == HANDOFF_DEFAULT


@pytest.mark.parametrize("message", [{"id": "msg-unknown"}, {}])
def test_n2_a_fallback_event_is_no_handoff(message):
    task = {"id": "t", "kind": "delegation"}
    found = convert(changed("a2a_negative_invalid_event_type", message=message, task=task), options=LENIENT)
    assert found.event["type"] == "assay.adapter.a2a.message"
    assert adapter_digest(data(found)["handoff"]) == HANDOFF_DEFAULT


def test_n3_strict_refuses_a_task_without_its_id():
    expected = ("measurement", "missing required field: task.id")
    assert refusal(packet("a2a_negative_missing_task_id")) == expected


def test_n4_lenient_shows_the_handoff_without_the_task():
    found = convert(packet("a2a_negative_missing_task_id"), options=LENIENT)
    assert data(found)["handoff"] == {
        "visible": True,
        "source_kind": "typed_payload",
        "task_ref_visible": False,
        "message_ref_visible": True,
    }
    assert data(found)["task"]["id"] == "unknown-task"
    assert found.event["assayrunid"] == "a2a:unknown-task"


@pytest.mark.parametrize("task", [{"id": "t"}, {"id": "t", "kind": "analysis"}, {"id": "t", "kind": ["delegation"]}])
def test_n5_another_kind_of_task_is_no_handoff(task):
    assert adapter_digest(data(convert(changed("a2a_happy_task_requested", task=task)))["handoff"]) == HANDOFF_DEFAULT


@pytest.mark.parametrize(
    "members",
    [
        {"agent": {"id": "a", "role": "delegation"}},
        {"attributes": {"task": {"kind": "delegation"}, "handoff": {"visible": True}}},
        {"attributes": {"assay_g4": {"agent_card": {"visible": True}}}},
        {"handoff": {"visible": True}, "one": 1, "two": 2},
    ],
)
def test_n6_nothing_else_is_a_handoff(members):
    found = convert(changed("a2a_happy_task_requested", task={"id": "t", "status": "requested"}, **members))
    assert adapter_digest(data(found)["handoff"]) == HANDOFF_DEFAULT


def test_n7_an_update_is_no_handoff():
    found = convert(changed("a2a_happy_task_requested", event_type="task.updated"))
    assert found.event["type"] == "assay.adapter.a2a.task.updated"
    assert adapter_digest(data(found)["handoff"]) == HANDOFF_DEFAULT


# Substitutions


def test_lenient_substitutes_in_order_and_counts_each():
    payload = b'{"protocol":"a2a","version":"0.2","event_type":"nothing","extra":1}'
    found = convert(payload, options=LENIENT)
    assert found.notes == [
        "missing agent.id -> substituted unknown-agent",
        "unsupported event_type -> emitted generic A2A message event",
        "missing message.id -> substituted unknown-message",
    ]
    assert found.plain()["lossiness"]["unmapped_fields_count"] == 4
    assert found.plain()["lossiness"]["lossiness_level"] == "high"
    assert found.event["subject"] == "unknown-message"
    assert found.event["time"] == "2023-11-16T02:00:00Z"


@pytest.mark.parametrize(
    ("event_type", "notes", "subject"),
    [
        ("agent.capabilities", ["missing agent.id -> substituted unknown-agent"], "unknown-agent"),
        (
            "task.updated",
            [
                "missing agent.id -> substituted unknown-agent",
                "missing task.id -> substituted unknown-task",
            ],
            "unknown-task",
        ),
        (
            "artifact.shared",
            [
                "missing agent.id -> substituted unknown-agent",
                "missing artifact.id -> substituted unknown-artifact",
            ],
            "unknown-artifact",
        ),
    ],
)
def test_each_kind_of_event_has_its_substitutions(event_type, notes, subject):
    found = convert(json.dumps({"protocol": "a2a", "event_type": event_type}).encode(), version="0.3", options=LENIENT)
    assert (found.notes, found.event["subject"]) == (notes, subject)
    assert found.plain()["lossiness"]["lossiness_level"] == "low"
    assert "message" not in data(found)


@pytest.mark.parametrize("event_type", [None, 7, ["task.requested"]])
def test_an_event_type_that_is_no_string_is_not_repeated(event_type):
    body = {"protocol": "a2a", "version": "0.2", "event_type": event_type, "agent": {"id": ""}}
    found = convert(json.dumps(body).encode(), options=LENIENT)
    assert "upstream_event_type" not in data(found)
    assert data(found)["agent"] == {"id": ""}


@pytest.mark.parametrize(("extra", "level"), [(0, "none"), (1, "low"), (2, "low"), (3, "high")])
def test_unknown_members_are_counted_in_strict_mode_too(extra, level):
    members = {f"x{number}": number for number in range(extra)}
    lossiness = convert(changed("a2a_happy_task_requested", **members)).plain()["lossiness"]
    assert (lossiness["unmapped_fields_count"], lossiness["lossiness_level"]) == (extra, level)


def test_capabilities_are_sorted_strings_and_attributes_are_normalized():
    agent = {"id": "a", "capabilities": ["z", 1, "a", None, "z"]}
    attributes = {"b": [3, "x", {"d": 1, "c": ["y", "x"]}], "a": ["é", "e", "z"]}
    found = data(convert(changed("a2a_happy_agent_capabilities", agent=agent, attributes=attributes)))
    assert found["agent"]["capabilities"] == ["a", "z", "z"]
    assert found["attributes"] == {"a": ["e", "z", "é"], "b": [3, "x", {"c": ["x", "y"], "d": 1}]}
    assert list(found["attributes"]) == ["a", "b"]


def test_null_attributes_are_kept():
    payload = (
        b'{"protocol":"a2a","version":"0.2","event_type":"agent.capabilities","agent":{"id":"a"},"attributes":null}'
    )
    assert data(convert(payload))["attributes"] is None


@pytest.mark.parametrize(
    "attributes",
    [
        "assay_g4",
        {"assay_g4": [{"agent_card": {"visible": True}}]},
        {"assay_g4": {"agent_card": True, "extended_card_access": {"visible": 1}}},
        {"assay_g4": {"agent_card": {"visible": "true"}, "extended_card_access": [True]}},
    ],
)
def test_a_card_is_visible_only_where_every_level_is_an_object(attributes):
    found = data(convert(changed("a2a_happy_agent_capabilities", attributes=attributes)))["discovery"]
    assert (found["agent_card_visible"], found["extended_card_access_visible"]) == (False, False)


# Errors, in the order of the table


@pytest.mark.parametrize("version", ["0.2", "0.3.1", "0.10.9", "0.2.x"])
def test_versions_from_0_2_to_1_are_read(version):
    assert data(convert(changed("a2a_happy_task_requested", version=version)))["protocol_version"] == version


@pytest.mark.parametrize("version", ["0.1", "1.0", "0", "0.2-rc", "", "0.-2", "x.2", "0.99999999999999999999999"])
def test_other_versions_are_not(version):
    found = refusal(changed("a2a_happy_task_requested", version=version), options=LENIENT)
    assert found == ("unsupported_protocol_version", f"unsupported A2A version: {version}")


def test_the_version_of_the_packet_takes_precedence_over_the_hint():
    assert data(convert(packet("a2a_happy_task_requested"), version="1.0"))["protocol_version"] == "0.2"
    assert data(convert(changed("a2a_happy_task_requested", version=2), version="0.4"))["protocol_version"] == "0.4"
    found = refusal(changed("a2a_happy_task_requested", version=None))
    assert found == ("measurement", "missing required field: version")


TABLE = [
    ("measurement", "payload exceeds max_payload_bytes (1)", AdapterOptions(max_payload_bytes=1), b"{bad"),
    ("measurement", "invalid A2A payload JSON", AdapterOptions(max_json_depth=1), b"{bad"),
    ("measurement", "payload exceeds max_json_depth (2)", AdapterOptions(max_json_depth=2), b'{"a":[1]}'),
    ("measurement", "payload exceeds max_array_length (1)", AdapterOptions(max_array_length=1), b'{"a":[1,2]}'),
    ("measurement", "protocol must be 'a2a'", AdapterOptions(), b'{"version":7}'),
    ("measurement", "protocol must be 'a2a'", AdapterOptions(), b"[]"),
    ("measurement", "missing required field: version", AdapterOptions(), b'{"protocol":"a2a"}'),
    ("unsupported_protocol_version", "unsupported", AdapterOptions(), b'{"protocol":"a2a","version":"1.0"}'),
    ("measurement", "missing required field: agent.id", AdapterOptions(), b'{"protocol":"a2a","version":"0.2"}'),
    (
        "strict_lossiness_violation",
        "unsupported event_type in strict mode",
        AdapterOptions(),
        b'{"protocol":"a2a","version":"0.2","agent":{"id":"a"}}',
    ),
    (
        "measurement",
        "missing required field: task.id",
        AdapterOptions(),
        b'{"protocol":"a2a","version":"0.2","agent":{"id":"a"},"event_type":"task.updated","task":{"id":1}}',
    ),
    (
        "measurement",
        "missing required field: artifact.id",
        AdapterOptions(),
        b'{"protocol":"a2a","version":"0.2","agent":{"id":"a"},"event_type":"artifact.shared"}',
    ),
]


@pytest.mark.parametrize(("kind", "message", "options", "payload"), TABLE)
def test_each_check_comes_before_the_next(kind, message, options, payload):
    found = refusal(payload, options)
    assert found[0] == kind
    assert found[1].startswith(message)


@pytest.mark.parametrize(
    "payload",
    [
        packet("a2a_negative_malformed"),
        b"",
        b"\xff\xfe\xfd",
        b"\xef\xbb\xbf{}",
        '{"protocol":"a2a"}'.encode("utf-16"),
        b'{"a":NaN}',
        b'{"a":1e400}',
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":"\\ud800"}',
        b'{"\\udfff":1}',
        b"[" * 128 + b"]" * 128,
        b"[" * 100_000,
    ],
)
@pytest.mark.parametrize("options", [AdapterOptions(), LENIENT])
def test_unreadable_input_is_refused_in_both_modes(payload, options):
    kind, message = refusal(payload, options)
    assert kind == "measurement"
    assert message.startswith("invalid A2A payload JSON: ")


def test_scalars_count_for_the_depth():
    payload = b'{"protocol":"a2a","version":"0.2","event_type":"agent.capabilities","agent":{"id":"a"}}'
    assert convert(payload, options=AdapterOptions(max_json_depth=3))
    assert refusal(payload, AdapterOptions(max_json_depth=2))[1] == "payload exceeds max_json_depth (2)"


# Raw bytes


def test_unreadable_input_is_kept(tmp_path):
    store = RawStore(tmp_path / "raw")
    payload = packet("a2a_negative_malformed")
    with pytest.raises(EvidenceError):
        convert(payload, keep=store.keep)
    assert store.path(sha256(payload).hexdigest()).read_bytes() == payload


def test_input_that_is_too_large_is_not_kept(tmp_path):
    store = RawStore(tmp_path / "raw")
    with pytest.raises(EvidenceError):
        convert(packet("a2a_happy_task_requested"), options=AdapterOptions(max_payload_bytes=8), keep=store.keep)
    assert not list(tmp_path.rglob("*"))


def test_the_same_bytes_are_kept_once_and_nothing_half_written(tmp_path):
    store = RawStore(tmp_path)
    for _ in range(2):
        convert(packet("a2a_happy_task_requested"), keep=store.keep)
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1


def test_a_write_that_fails_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(EvidenceError, match="No space left on device"):
        convert(packet("a2a_happy_task_requested"), keep=RawStore(tmp_path).keep)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_store_that_cannot_write_is_an_infrastructure_error(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(EvidenceError) as caught:
        convert(packet("a2a_happy_task_requested"), keep=RawStore(tmp_path / "file").keep)
    assert caught.value.kind == "infrastructure"


# Determinism


@pytest.mark.parametrize("name", NAMES)
def test_a_packet_converted_again_gives_the_same_bytes(name):
    def once() -> bytes:
        try:
            return compact(convert(packet(name), options=LENIENT).plain())
        except EvidenceError as error:
            return compact(error.plain())

    assert once() == once()


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
ids = st.dictionaries(
    st.sampled_from(["id", "name", "role", "status", "kind", "capabilities", "media_type", "x"]),
    values | st.sampled_from(["delegation", "unknown-task", ""]),
)
packets = st.fixed_dictionaries(
    {"protocol": st.just("a2a") | values, "version": st.sampled_from(["0.2", "0.3.1", "1.0", 2])},
    optional={
        "event_type": st.sampled_from(["agent.capabilities", "task.requested", "task.updated", "artifact.shared"])
        | values,
        "timestamp": values | st.datetimes().map(lambda moment: moment.isoformat() + "Z"),
        "agent": ids | values,
        "task": ids | values,
        "artifact": ids | values,
        "message": ids | values,
        "attributes": values,
        "other": values,
    },
)


@settings(deadline=None)
@given(packets, st.sampled_from(Mode))
def test_any_packet_gives_a_result_or_an_error_and_the_same_each_time(body, mode):
    payload = json.dumps(body).encode()

    def once() -> bytes:
        try:
            found = convert(payload, options=AdapterOptions(mode=mode)).plain()
        except EvidenceError as error:
            return compact(error.plain())
        event = found["events"][0]
        handoff = event["data"]["handoff"]
        assert event["id"] == event["assayrunid"] + ":0"
        assert handoff["visible"] or not (handoff["task_ref_visible"] or handoff["message_ref_visible"])
        assert len(found["lossiness"]["notes"]) <= found["lossiness"]["unmapped_fields_count"]
        return compact(found)

    assert once() == once()


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_give_an_error_and_nothing_else(payload):
    with pytest.raises(EvidenceError, match=r"invalid A2A payload JSON|protocol must be 'a2a'"):
        convert(payload, options=LENIENT)


# Numbers and times, as the adapter writes them


@pytest.mark.parametrize(
    ("given_", "written"),
    [
        ("2026-02-27T10:00:00Z", "2026-02-27T10:00:00Z"),
        ("2026-02-27t10:00:00.1z", "2026-02-27T10:00:00.100Z"),
        ("2026-02-27 10:00:00.123456789123+02:30", "2026-02-27T07:30:00.123456789Z"),
        ("2026-12-31T23:59:60-00:00", "2026-12-31T23:59:60Z"),
        ("0005-01-01T00:00:00.000100Z", "0005-01-01T00:00:00.000100Z"),
        ("2026-02-30T10:00:00Z", None),
        ("2026-02-27T10:00:00", None),
        ("2026-02-27T10:00:00+0200", None),
        ("9999-12-31T23:59:59-01:00", None),
        ("2026-02-27T10:00:61Z", None),
        ("2026-02-27T10:00:00+24:00", None),
        (1700100000, None),
    ],
)
def test_times_are_rfc_3339_in_utc(given_, written):
    assert rfc3339_utc(given_) == written


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (1e16, "1e16"),
        (1e15, "1000000000000000.0"),
        (1.5e300, "1.5e300"),
        (1e-5, "0.00001"),
        (1.25e-7, "1.25e-7"),
        (-0.0, "-0.0"),
        (123.456, "123.456"),
        (True, "true"),
        ({"b": [None, "é\n\x7f"], "a": 2**63}, '{"a":9223372036854775808,"b":[null,"é\\n\x7f"]}'),
    ],
)
def test_compact_json_equals_that_of_the_adapter(value, written):
    assert compact(value).decode() == written


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_reads_back_as_itself(value):
    assert float(compact(value)) == value


def test_integers_that_64_bits_do_not_hold_are_doubles():
    payload = changed("a2a_happy_agent_capabilities", attributes={"big": 2**64, "fits": 2**64 - 1})
    assert data(convert(payload))["attributes"] == {"big": float(2**64), "fits": 2**64 - 1}
