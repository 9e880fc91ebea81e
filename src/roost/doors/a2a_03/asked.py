"""What a client of 0.3 sent, as a request of the compat layer; or InvalidParams, with the field, before anything is
done. What the layer would take for something else, such as a part of A2A 1.0, is refused here."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from types import NoneType
from typing import Any, TypeVar

from a2a.compat.v0_3 import a2a_v0_3_pb2 as old_pb
from a2a.compat.v0_3 import conversions, proto_utils
from a2a.compat.v0_3 import types as old
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message
from pydantic import BaseModel, ValidationError

from roost.protocol.codec import decode
from roost.protocol.errors import InvalidParams

R = TypeVar("R", bound=BaseModel)
M = TypeVar("M", bound=Message)

KINDS = ("text", "file", "data")
HINT = "; this is A2A 0.3, for 1.0 send `A2A-Version: 1.0`"
TASK = re.compile(r"tasks/[^/]+")
CONFIG = re.compile(r"tasks/[^/]+/pushNotificationConfigs/[^/]+")
UNFIT = "it is nested too deep, or has a number that is too large"

_STEP = re.compile(r"Failed to parse (\w+) field: ")

TO_CORE: dict[type[BaseModel], Callable[[Any], Message]] = {
    old.SendMessageRequest: conversions.to_core_send_message_request,
    old.SendStreamingMessageRequest: conversions.to_core_send_message_request,
    old.GetTaskRequest: conversions.to_core_get_task_request,
    old.CancelTaskRequest: conversions.to_core_cancel_task_request,
}
"""Those that may have what protobuf cannot."""


# JSON-RPC


def from_params(kind: type[R], method: str, params: Any) -> R:
    if kind in (old.SendMessageRequest, old.SendStreamingMessageRequest):
        _check_kinds(params)
    try:
        request = kind.model_validate({"id": 0, "method": method, "params": params})
    except ValidationError as error:
        raise _invalid(error) from None
    return checked(request)


def _check_kinds(params: Any) -> None:
    """0.3's own reader takes a part without a kind for whatever fits."""
    message = params.get("message") if isinstance(params, dict) else None
    parts = message.get("parts") if isinstance(message, dict) else None
    for index, part in enumerate(parts if isinstance(parts, list) else ()):
        if isinstance(part, dict) and (not isinstance(part.get("kind"), str) or part["kind"] not in KINDS):
            field = f"message.parts[{index}].kind"
            raise InvalidParams(f"{field}: a part says its kind, which is text, file or data{HINT}", field=field)


def _invalid(error: ValidationError) -> InvalidParams:
    found = error.errors(include_url=False, include_context=False)
    others = {item["loc"][:-1] for item in found if item["type"] == "literal_error"}
    """The branches of a union that the kind of the part is not of."""
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


def from_json(body: bytes) -> old.SendMessageRequest:
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


def push_from_json(task_id: str, body: bytes) -> old.SetTaskPushNotificationConfigRequest:
    """With the config alone (as the specification has it) or within a request (as a2a-sdk sends it)."""
    value = _object(body)
    config = value.get("config", value)
    found = _parsed(old_pb.TaskPushNotificationConfig(), config if isinstance(config, dict) else {"name": config})
    if not found.HasField("push_notification_config"):
        field = "config.pushNotificationConfig" if "config" in value else "pushNotificationConfig"
        raise InvalidParams(f"{field}: it must be there", field=field)
    params = old.TaskPushNotificationConfig(
        task_id=task_id,
        push_notification_config=proto_utils.FromProto.push_notification_config(found.push_notification_config),
    )
    return old.SetTaskPushNotificationConfigRequest(id=0, params=params)


def history_length(query: dict[str, str]) -> int | None:
    text = query.get("historyLength", query.get("history_length", ""))
    if not text:
        return None
    if not re.fullmatch(r"-?[0-9]{1,10}", text):
        raise InvalidParams(f"historyLength: {text[:40]!r} is not a number", field="historyLength")
    return int(text)


def _object(body: bytes) -> dict[str, Any]:
    value: dict[str, Any] = decode(dict[str, Any], body)
    return value


def _check_part(field: str, part: Any) -> None:
    """What the parser would pass over: content that it does not know, and bytes that are no base64."""
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
    except ParseError as error:
        text = str(error)
        field = ".".join(_STEP.findall(text)) or "body"
        raise InvalidParams(f"{field}: {_STEP.sub('', text).rstrip('.')}"[:500], field=field) from None
    except (OverflowError, RecursionError):
        raise InvalidParams(UNFIT, field="body") from None


# Protobuf, of REST and of gRPC


def from_message(message: old_pb.SendMessageRequest) -> old.SendMessageRequest:
    asked = message.request
    if asked.role == old_pb.ROLE_UNSPECIFIED:
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
    return checked(old.SendMessageRequest(id=0, params=params))


def check_name(pattern: re.Pattern[str], field: str, name: str) -> None:
    """Of a resource: the compat layer passes over what follows the ids."""
    if pattern.fullmatch(name) is None:
        form = "tasks/{id}" if pattern is TASK else "tasks/{id}/pushNotificationConfigs/{id}"
        raise InvalidParams(f"{field}: {name[:128]!r} is not {form}", field=field)


# All of them


def checked(request: R) -> R:
    """It can be converted."""
    if isinstance(request, (old.SendMessageRequest, old.SendStreamingMessageRequest)):
        for index, part in enumerate(request.params.message.parts):
            file = part.root.file if isinstance(part.root, old.FilePart) else None
            if isinstance(file, old.FileWithBytes) and not _is_base64(file.bytes):
                raise _not_base64(f"message.parts[{index}].file.bytes")
    to_core = TO_CORE.get(type(request))
    if to_core is not None:
        try:
            to_core(request)
        except (ValueError, TypeError, OverflowError, RecursionError, ParseError) as error:
            field = "historyLength" if "out of range" in str(error) else "params"
            raise InvalidParams(f"{field}: {UNFIT}", field=field) from None
    return request


def _not_base64(field: str) -> InvalidParams:
    return InvalidParams(f"{field}: this is no base64, which A2A 0.3 has on all its transports", field=field)


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), validate=True)
    except ValueError:
        return False
    return True
