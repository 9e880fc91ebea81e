"""REST of 0.3 below an agent's `/v1/`: the JSON of its protobuf messages, as all its SDKs speak it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

from a2a.compat.v0_3 import a2a_v0_3_pb2 as old_pb
from a2a.compat.v0_3 import types as old
from a2a.compat.v0_3.proto_utils import ToProto
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import A2AError as SdkError
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from roost.doors.a2a_03.errors import rest_body
from roost.doors.a2a_03.handler import Handler03, refusal, sdk_call, whole
from roost.doors.a2a_03.offload import beside
from roost.doors.a2a_03.requests import core_of, from_json, history_length, push_from_json
from roost.doors.a2a_03.streams import write_stream
from roost.doors.guard import check_content_type
from roost.doors.http import REPLAYED, Response, respond
from roost.doors.rest import Call, last_event_id, refuse_resume
from roost.doors.sdk import SdkCall
from roost.protocol.codec import decode, encode
from roost.protocol.errors import A2AError


async def send_message(call: Call) -> None:
    asked, made = await _asked(call), sdk_call(call)
    body = await _done(call, Handler03(call.context).send(asked, made.context(), _formed(ToProto.task_or_message)))
    if made.replayed:
        call.request.answer_headers.append(REPLAYED)
    await _ok(call, body)


async def stream_message(call: Call) -> None:
    refuse_resume(call.request)
    asked, made = await _asked(call), sdk_call(call)
    await _stream(call, made, Handler03(call.context).stream(asked, made.context(), _EVENT))


async def list_tasks(call: Call) -> None:
    def form(tasks: list[old.Task]) -> bytes:
        return encode(whole([MessageToDict(ToProto.task(task)) for task in tasks]))

    await _ok(call, await _done(call, Handler03(call.context).list_tasks(sdk_call(call).context(), form)))


async def get_task(call: Call) -> None:
    params = old.TaskQueryParams(id=call.path["id"], history_length=history_length(call.request.query))
    asked = core_of(old.GetTaskRequest(id=0, params=params))
    await _ok(call, await _done(call, Handler03(call.context).get(asked, sdk_call(call).context(), _TASK)))


async def cancel_task(call: Call) -> None:
    await _no_more(call)
    asked = core_of(old.CancelTaskRequest(id=0, params=old.TaskIdParams(id=call.path["id"])))
    await _ok(call, await _done(call, Handler03(call.context).cancel(asked, sdk_call(call).context(), _TASK)))


async def subscribe_to_task(call: Call) -> None:
    made = sdk_call(call)
    made.last_event_id = last_event_id(call.request)
    if call.request.method == "POST":
        await _no_more(call)
    asked = core_of(old.TaskResubscriptionRequest(id=0, params=old.TaskIdParams(id=call.path["id"])))
    await _stream(call, made, Handler03(call.context).subscribe(asked, made.context(), _EVENT))


async def create_push_config(call: Call) -> None:
    query = call.request.query
    config_id = query.get("configId", query.get("config_id", ""))
    body = await _body(call)
    asked = await beside(len(body), lambda: push_from_json(call.path["taskId"], body, config_id))
    handler = Handler03(call.context)
    made = await _done(call, handler.on_create_task_push_notification_config(asked, sdk_call(call).context()))
    await _ok(call, _json(ToProto.task_push_notification_config(made)))


async def get_push_config(call: Call) -> None:
    params = old.GetTaskPushNotificationConfigParams(
        id=call.path["taskId"], push_notification_config_id=call.path["id"]
    )
    asked = old.GetTaskPushNotificationConfigRequest(id=0, params=params)
    handler = Handler03(call.context)
    found = await _done(call, handler.on_get_task_push_notification_config(asked, sdk_call(call).context()))
    await _ok(call, _json(ToProto.task_push_notification_config(found)))


async def list_push_configs(call: Call) -> None:
    params = old.ListTaskPushNotificationConfigParams(id=call.path["taskId"])
    asked = old.ListTaskPushNotificationConfigRequest(id=0, params=params)
    handler = Handler03(call.context)
    found = await _done(call, handler.on_list_task_push_notification_configs(asked, sdk_call(call).context()))
    configs = [ToProto.task_push_notification_config(config) for config in found]
    await _ok(call, _json(old_pb.ListTaskPushNotificationConfigResponse(configs=configs)))


async def delete_push_config(call: Call) -> None:
    params = old.DeleteTaskPushNotificationConfigParams(
        id=call.path["taskId"], push_notification_config_id=call.path["id"]
    )
    asked = old.DeleteTaskPushNotificationConfigRequest(id=0, params=params)
    handler = Handler03(call.context)
    await _done(call, handler.on_delete_task_push_notification_config(asked, sdk_call(call).context()))
    await _ok(call, b"{}")


async def extended_card(call: Call) -> None:
    asked = old.GetAuthenticatedExtendedCardRequest(id=0)
    card = await _done(call, Handler03(call.context).on_get_extended_agent_card(asked, sdk_call(call).context()))
    await _ok(call, _json(ToProto.agent_card(card)))


async def _asked(call: Call) -> pb.SendMessageRequest:
    body = await _body(call)
    return await beside(len(body), lambda: from_json(body))


async def _body(call: Call) -> bytes:
    body = await call.request.body(call.context.max_body)
    check_content_type(call.request, body)
    return body


async def _no_more(call: Call) -> None:
    """The path says it all; a body is an object all the same."""
    body = await _body(call)
    if body.strip():
        decode(dict[str, Any], body)


async def _done(call: Call, operation: Any) -> Any:
    try:
        return await operation
    except SdkError as error:
        raise refusal(error, call.request) from None


async def _stream(call: Call, made: SdkCall, frames: AsyncGenerator[bytes]) -> None:
    def ending(error: A2AError) -> bytes:
        return b"event: error\ndata: %b\n\n" % rest_body(error)

    await _done(call, write_stream(call.request, made, frames, ending))


def _json(message: Message) -> bytes:
    return encode(whole(MessageToDict(message)))


def _formed(to_proto: Callable[[Any], Message]) -> Callable[[Any], bytes]:
    return lambda found: _json(to_proto(found))


_TASK = _formed(ToProto.task)
_EVENT = _formed(ToProto.stream_response)


async def _ok(call: Call, body: bytes) -> None:
    await respond(call.request, Response(200, body))
