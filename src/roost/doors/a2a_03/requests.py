"""Converts what a client of 0.3 sent into a request of 1.0, by the SDK's compatibility layer.

Bad input is refused with InvalidParams that names the field, before anything is done. So is input that the layer would
take for something else, such as a part of A2A 1.0.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from types import NoneType
from typing import Any, TypeVar

import msgspec
from a2a.compat.v0_3 import a2a_v0_3_pb2 as old_pb
from a2a.compat.v0_3 import conversions, proto_utils
from a2a.compat.v0_3 import types as old
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError
from google.protobuf.json_format import ParseDict
from google.protobuf.json_format import ParseError as NotProtobuf
from google.protobuf.message import Message
from pydantic import BaseModel, ValidationError

from roost.protocol.codec import decode
from roost.protocol.errors import InvalidParams, ParseError, PayloadTooLarge

M = TypeVar("M", bound=Message)

KINDS = ("text", "file", "data")
HINT = "; this is A2A 0.3, for 1.0 send `A2A-Version: 1.0`"
TASK = re.compile(r"tasks/[^/]+")
CONFIG = re.compile(r"tasks/[^/]+/pushNotificationConfigs/[^/]+")
EXACT = 2**53
"""Integers up to here are exact as doubles."""
MOST = 100_000
"""The most values in a body."""
HEAVIEST = 2 * 1024 * 1024
"""The most bytes of a protobuf message beside texts and files. A number in it takes eleven."""
UNFIT = "it is nested too deep, or has a number that is too large"

_STEP = re.compile(r"Failed to parse (\w+) field: ")

TO_CORE: dict[type[BaseModel], Callable[[Any], Message]] = {
    old.SendMessageRequest: conversions.to_core_send_message_request,
    old.SendStreamingMessageRequest: conversions.to_core_send_message_request,
    old.GetTaskRequest: conversions.to_core_get_task_request,
    old.CancelTaskRequest: conversions.to_core_cancel_task_request,
    old.TaskResubscriptionRequest: conversions.to_core_subscribe_to_task_request,
    old.SetTaskPushNotificationConfigRequest: conversions.to_core_create_task_push_notification_config_request,
    old.GetTaskPushNotificationConfigRequest: conversions.to_core_get_task_push_notification_config_request,
    old.ListTaskPushNotificationConfigRequest: conversions.to_core_list_task_push_notification_config_request,
    old.DeleteTaskPushNotificationConfigRequest: conversions.to_core_delete_task_push_notification_config_request,
    old.GetAuthenticatedExtendedCardRequest: conversions.to_core_get_extended_agent_card_request,
}
"""The conversion of each request of 0.3 into the message of 1.0."""


# JSON-RPC


def from_params(kind: type[BaseModel], method: str, body: bytes) -> Message:
    """Convert the params of a JSON-RPC request."""
    check_size(body)
    try:
        params = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ParseError(f"Invalid JSON payload: {error}") from None
    _check_numbers(params)
    if kind in (old.SendMessageRequest, old.SendStreamingMessageRequest):
        _check_kinds(params)
    try:
        request = kind.model_validate({"id": 0, "method": method, "params": params})
    except ValidationError as error:
        raise _invalid(error) from None
    return core_of(request)


def _check_kinds(params: Any) -> None:
    """Refuse parts without a kind: the SDK's reader would take them for whatever fits."""
    message = params.get("message") if isinstance(params, dict) else None
    parts = message.get("parts") if isinstance(message, dict) else None
    for index, part in enumerate(parts if isinstance(parts, list) else ()):
        if isinstance(part, dict) and (not isinstance(part.get("kind"), str) or part["kind"] not in KINDS):
            field = f"message.parts[{index}].kind"
            raise InvalidParams(f"{field}: a part says its kind, which is text, file or data{HINT}", field=field)


def _invalid(error: ValidationError) -> InvalidParams:
    found = error.errors(include_url=False, include_context=False)
    others = {item["loc"][:-1] for item in found if item["type"] == "literal_error"}
    """The branches of a union that the part's kind excludes."""
    fitting = [item for item in found if item["loc"][:-1] not in others] or found
    best = next((item for item in fitting if item["type"] != "missing"), fitting[0])
    path = ""
    for step in best["loc"]:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step != "params" and not hasattr(old, step):
            path += f".{step}" if path else step
    field = path or "params"
    said = best["msg"][:1].lower() + best["msg"][1:]
    hint = HINT if str(best.get("input")).startswith(("ROLE_", "TASK_STATE_")) else ""
    return InvalidParams(f"{field}: {said}{hint}", field=field)


# REST: the JSON of protobuf


def from_json(body: bytes) -> Message:
    value = _object(body)
    message = value.get("message", value.get("request"))
    if not isinstance(message, dict):
        raise InvalidParams("message: it must be there, and an object", field="message")
    if not isinstance(value.get("configuration", {}), (dict, NoneType)):
        raise InvalidParams("configuration: it must be an object", field="configuration")
    if "content" not in message and "parts" in message:
        raise InvalidParams(
            f"message.parts: over REST, A2A 0.3 is the JSON of its protobuf messages: the parts are in `content`{HINT}",
            field="message.parts",
        )
    content = message.get("content")
    for index, part in enumerate(content if isinstance(content, list) else ()):
        _check_part(f"message.content[{index}]", part)
    return from_message(_parsed(old_pb.SendMessageRequest(), value))


def push_from_json(task_id: str, body: bytes, config_id: str) -> Message:
    """Convert a config, which comes alone (as the specification has it) or within a request (as a2a-sdk sends it)."""
    value = _object(body)
    asked = _parsed(
        old_pb.CreateTaskPushNotificationConfigRequest(config_id=config_id),
        value if "config" in value else {"config": value},
    )
    if asked.parent not in ("", f"tasks/{task_id}"):
        raise InvalidParams(f"parent: {asked.parent[:128]!r} is not the task of the path", field="parent")
    if config_id and asked.config_id != config_id:
        raise InvalidParams("configId: the body and the query differ", field="configId")
    name_config(task_id, asked)
    params = old.TaskPushNotificationConfig(
        task_id=task_id,
        push_notification_config=proto_utils.FromProto.push_notification_config(asked.config.push_notification_config),
    )
    return core_of(old.SetTaskPushNotificationConfigRequest(id=0, params=params))


def history_length(query: dict[str, str]) -> int | None:
    text = query.get("historyLength", query.get("history_length", ""))
    if not text:
        return None
    if not re.fullmatch(r"-?[0-9]{1,10}", text):
        raise InvalidParams(f"historyLength: {text[:40]!r} is not a number", field="historyLength")
    return int(text)


def _object(body: bytes) -> dict[str, Any]:
    check_size(body)
    value: dict[str, Any] = decode(dict[str, Any], body)
    _check_numbers(value)
    return value


def _check_part(field: str, part: Any) -> None:
    """Refuse what the parser would ignore: content that it does not know, and bytes that are not base64."""
    if not isinstance(part, dict):
        return
    if not {"text", "file", "data"} & part.keys():
        raise InvalidParams(f"{field}: a part has text, file or data{HINT}", field=field)
    data, file = part.get("data"), part.get("file")
    if isinstance(data, dict) and data and "data" not in data:
        raise InvalidParams(f"{field}.data.data: it must be there{HINT}", field=f"{field}.data.data")
    raw = file.get("fileWithBytes", file.get("file_with_bytes")) if isinstance(file, dict) else None
    if isinstance(raw, str) and not _is_base64(raw.replace("-", "+").replace("_", "/")):
        raise InvalidParams(f"{field}.file.fileWithBytes: this is no base64", field=f"{field}.file.fileWithBytes")


def _parsed(message: M, value: dict[str, Any]) -> M:
    try:
        return ParseDict(value, message, ignore_unknown_fields=True)
    except NotProtobuf as error:
        text = str(error)
        field = ".".join(_STEP.findall(text)) or "body"
        raise InvalidParams(f"{field}: {_STEP.sub('', text).rstrip('.')}"[:500], field=field) from None
    except (OverflowError, RecursionError):
        raise InvalidParams(UNFIT, field="body") from None


# Protobuf, of REST and of gRPC


def from_message(message: old_pb.SendMessageRequest) -> Message:
    asked = message.request
    plain = sum(len(part.text.encode()) + len(part.file.file_with_bytes) for part in asked.content)
    if message.ByteSize() - plain > HEAVIEST:
        raise _too_large(f"more than {HEAVIEST} bytes beside texts and files")
    if asked.role not in (old_pb.ROLE_USER, old_pb.ROLE_AGENT):
        raise InvalidParams("message.role: it must be ROLE_USER or ROLE_AGENT", field="message.role")
    for index, part in enumerate(asked.content):
        field = f"message.content[{index}]"
        if part.WhichOneof("part") is None:
            raise InvalidParams(f"{field}: a part has text, file or data", field=field)
        if part.WhichOneof("part") == "file" and part.file.WhichOneof("file") is None:
            raise InvalidParams(f"{field}.file: a file has fileWithUri or fileWithBytes", field=f"{field}.file")
        if not part.file.file_with_bytes.isascii():
            raise _not_base64(f"{field}.file.fileWithBytes")
    try:
        params = proto_utils.FromProto.message_send_params(message)
    except (ValueError, RecursionError):
        raise InvalidParams(f"message: {UNFIT}", field="message") from None
    return core_of(old.SendMessageRequest(id=0, params=params))


def check_name(pattern: re.Pattern[str], field: str, name: str) -> None:
    """Check the name of a resource: the compatibility layer ignores what follows the ids."""
    if pattern.fullmatch(name) is None:
        form = "tasks/{id}" if pattern is TASK else "tasks/{id}/pushNotificationConfigs/{id}"
        raise InvalidParams(f"{field}: {name[:128]!r} is not {form}", field=field)


def name_config(task_id: str, asked: old_pb.CreateTaskPushNotificationConfigRequest) -> None:
    """Give the webhook the id that the request has, wherever it is. a2a-sdk ends the name in None where it has none."""
    config = asked.config
    if not config.HasField("push_notification_config"):
        field = "config.pushNotificationConfig"
        raise InvalidParams(f"{field}: it must be there", field=field)
    if config.name and not config.name.startswith(f"tasks/{task_id}/"):
        raise InvalidParams(f"config.name: {config.name[:128]!r} is of another task", field="config.name")
    named = config.name.partition("/pushNotificationConfigs/")[2]
    said = {config.push_notification_config.id, asked.config_id, "" if named == "None" else named} - {""}
    if len(said) > 1:
        raise InvalidParams(f"configId: it is {' and '.join(sorted(said))[:256]} at once", field="configId")
    config.push_notification_config.id = said.pop() if said else ""


# All of them


def core_of(request: BaseModel) -> Message:
    """Convert a request of 0.3 into the message of 1.0."""
    if isinstance(request, (old.SendMessageRequest, old.SendStreamingMessageRequest)):
        for index, part in enumerate(request.params.message.parts):
            _check_content(f"message.parts[{index}]", part.root)
    if isinstance(request, old.GetTaskPushNotificationConfigRequest) and isinstance(request.params, old.TaskIdParams):
        return pb.ListTaskPushNotificationConfigsRequest(task_id=request.params.id, page_size=1)
    try:
        return TO_CORE[type(request)](request)
    except InvalidParamsError as error:
        raise InvalidParams(error.message) from None
    except (ValueError, TypeError, OverflowError, RecursionError, NotProtobuf) as error:
        field = "historyLength" if "out of range" in str(error) else "params"
        raise InvalidParams(f"{field}: {UNFIT}", field=field) from None


def _check_content(field: str, part: old.TextPart | old.FilePart | old.DataPart) -> None:
    if isinstance(part, old.FilePart) and isinstance(part.file, old.FileWithBytes) and not _is_base64(part.file.bytes):
        raise _not_base64(f"{field}.file.bytes")
    if isinstance(part, old.DataPart) and (part.metadata or {}).get("data_part_compat") and [*part.data] != ["value"]:
        raise InvalidParams(
            f"{field}.data: with data_part_compat in the metadata it has `value`, and nothing else",
            field=f"{field}.data",
        )


def check_size(body: bytes) -> None:
    """Limit the number of values by the number of commas: each value that can occur many times has one beside it."""
    if body.count(b",") > MOST:
        outside_strings = b"".join(body.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])
        if outside_strings.count(b",") > MOST:
            raise _too_large(f"more than {MOST} values")


def _too_large(what: str) -> PayloadTooLarge:
    return PayloadTooLarge(f"The request has {what}, which A2A 1.0 takes and A2A 0.3 does not: send `A2A-Version: 1.0`")


class _Inexact(Exception):
    """An integer that a double cannot hold. `path` leads to it, last step first."""

    def __init__(self) -> None:
        self.path: list[str] = []


def _check_numbers(value: Any) -> None:
    try:
        _look_at(value)
    except _Inexact as found:
        field = "".join(reversed(found.path)).removeprefix(".")[:256]
        raise InvalidParams(
            f"{field}: the integer is too large: in A2A 0.3 they are exact up to 2^53. Send it as a text", field=field
        ) from None


def _look_at(value: Any) -> None:
    """Check every integer below a value."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in steps:
        try:
            if isinstance(item, (dict, list)):
                _look_at(item)
            elif isinstance(item, int) and abs(item) > EXACT:
                raise _Inexact
        except _Inexact as found:
            found.path.append(f".{step}" if isinstance(step, str) else f"[{step}]")
            raise


def _not_base64(field: str) -> InvalidParams:
    return InvalidParams(f"{field}: this is no base64, which A2A 0.3 has on all its transports", field=field)


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), validate=True)
    except ValueError:
        return False
    return True
