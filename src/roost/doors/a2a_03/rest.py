"""REST of 0.3 below an agent's `/v1/`: the JSON of its protobuf messages, as all its SDKs speak it."""

from __future__ import annotations

from typing import Any

from a2a.compat.v0_3 import a2a_v0_3_pb2 as old_pb
from a2a.compat.v0_3 import types as old
from a2a.compat.v0_3.proto_utils import ToProto
from a2a.utils.errors import A2AError as SdkError
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from roost.doors.a2a_03.asked import checked, from_json, history_length, push_from_json
from roost.doors.a2a_03.errors import rest_body
from roost.doors.a2a_03.handler import Frames, Handler03, refusal, sdk_call, whole
from roost.doors.a2a_03.streams import write_stream
from roost.doors.guard import check_content_type
from roost.doors.http import REPLAYED, Response, respond
from roost.doors.rest import Call, last_event_id, refuse_resume
from roost.doors.sdk import SdkCall
from roost.protocol.codec import decode, encode
from roost.protocol.errors import A2AError


async def send_message(call: Call) -> None:
    asked, made = from_json(await _body(call)), sdk_call(call)
    answer = await _done(call, Handler03(call.context).on_message_send(asked, made.context()))
    if made.replayed:
        call.request.answer_headers.append(REPLAYED)
    await _ok(call, ToProto.task_or_message(answer))


async def stream_message(call: Call) -> None:
    refuse_resume(call.request)
    asked, made = from_json(await _body(call)), sdk_call(call)
    await _stream(call, made, Handler03(call.context).on_message_send_stream(asked, made.context()))


async def list_tasks(call: Call) -> None:
    found = await _done(call, Handler03(call.context).on_list_tasks(sdk_call(call).context()))
    await _answer(call, [MessageToDict(ToProto.task(task)) for task in found])


async def get_task(call: Call) -> None:
    params = old.TaskQueryParams(id=call.path["id"], history_length=history_length(call.request.query))
    asked = checked(old.GetTaskRequest(id=0, params=params))
    task = await _done(call, Handler03(call.context).on_get_task(asked, sdk_call(call).context()))
    await _ok(call, ToProto.task(task))


async def cancel_task(call: Call) -> None:
    await _no_more(call)
    asked = old.CancelTaskRequest(id=0, params=old.TaskIdParams(id=call.path["id"]))
    task = await _done(call, Handler03(call.context).on_cancel_task(asked, sdk_call(call).context()))
    await _ok(call, ToProto.task(task))


async def subscribe_to_task(call: Call) -> None:
    made = sdk_call(call)
    made.last_event_id = last_event_id(call.request)
    if call.request.method == "POST":
        await _no_more(call)
    asked = old.TaskResubscriptionRequest(id=0, params=old.TaskIdParams(id=call.path["id"]))
    await _stream(call, made, Handler03(call.context).on_subscribe_to_task(asked, made.context()))


async def create_push_config(call: Call) -> None:
    asked = push_from_json(call.path["taskId"], await _body(call))
    handler = Handler03(call.context)
    made = await _done(call, handler.on_create_task_push_notification_config(asked, sdk_call(call).context()))
    await _ok(call, ToProto.task_push_notification_config(made))


async def get_push_config(call: Call) -> None:
    params = old.GetTaskPushNotificationConfigParams(
        id=call.path["taskId"], push_notification_config_id=call.path["id"]
    )
    asked = old.GetTaskPushNotificationConfigRequest(id=0, params=params)
    handler = Handler03(call.context)
    found = await _done(call, handler.on_get_task_push_notification_config(asked, sdk_call(call).context()))
    await _ok(call, ToProto.task_push_notification_config(found))


async def list_push_configs(call: Call) -> None:
    params = old.ListTaskPushNotificationConfigParams(id=call.path["taskId"])
    asked = old.ListTaskPushNotificationConfigRequest(id=0, params=params)
    handler = Handler03(call.context)
    found = await _done(call, handler.on_list_task_push_notification_configs(asked, sdk_call(call).context()))
    configs = [ToProto.task_push_notification_config(config) for config in found]
    await _ok(call, old_pb.ListTaskPushNotificationConfigResponse(configs=configs))


async def delete_push_config(call: Call) -> None:
    params = old.DeleteTaskPushNotificationConfigParams(
        id=call.path["taskId"], push_notification_config_id=call.path["id"]
    )
    asked = old.DeleteTaskPushNotificationConfigRequest(id=0, params=params)
    handler = Handler03(call.context)
    await _done(call, handler.on_delete_task_push_notification_config(asked, sdk_call(call).context()))
    await _answer(call, {})


async def extended_card(call: Call) -> None:
    asked = old.GetAuthenticatedExtendedCardRequest(id=0)
    card = await _done(call, Handler03(call.context).on_get_extended_agent_card(asked, sdk_call(call).context()))
    await _ok(call, ToProto.agent_card(card))


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


async def _stream(call: Call, made: SdkCall, frames: Frames) -> None:
    def data(frame: old.SendStreamingMessageSuccessResponse) -> bytes:
        return encode(whole(MessageToDict(ToProto.stream_response(frame.result))))

    def ending(error: A2AError) -> bytes:
        return b"event: error\ndata: %b\n\n" % rest_body(error)

    await _done(call, write_stream(call.request, made, frames, data, ending))


async def _ok(call: Call, message: Message) -> None:
    await _answer(call, MessageToDict(message))


async def _answer(call: Call, value: Any) -> None:
    await respond(call.request, Response(200, encode(whole(value))))
