"""Schemas of the objects of A2A 0.3, with the names that they have in 1.0.

A card keeps its own form, because its signature covers that form.
"""

from __future__ import annotations

from roost.evidence.schema import (
    FLAG,
    NUMBER,
    TEXT,
    TEXTS,
    AnyObjectSchema,
    AnySchema,
    ConstantSchema,
    EnumSchema,
    ListSchema,
    MapSchema,
    MemberSchema,
    ObjectSchema,
    VariantSchema,
    object_schema,
)

ROLES = {"user": "ROLE_USER", "agent": "ROLE_AGENT"}
STATES = {
    state: f"TASK_STATE_{state.replace('-', '_').upper()}"
    for state in (
        "submitted",
        "working",
        "input-required",
        "completed",
        "canceled",
        "failed",
        "rejected",
        "auth-required",
    )
}
STATES["unknown"] = "TASK_STATE_UNSPECIFIED"

ANY_OBJECT = AnyObjectSchema()

_FILE = ObjectSchema(
    {
        "bytes": MemberSchema("raw", TEXT),
        "uri": MemberSchema("url", TEXT),
        "name": MemberSchema("filename", TEXT),
        "mimeType": MemberSchema("mediaType", TEXT),
    }
)


def _of_kind(kind: str, members: ObjectSchema) -> ObjectSchema:
    return ObjectSchema({"kind": MemberSchema(None, ConstantSchema(kind)), **members.members})


PART = VariantSchema(
    {
        "text": (_of_kind("text", object_schema(text=TEXT, metadata=ANY_OBJECT)), ("text",)),
        "file": (
            _of_kind(
                "file",
                ObjectSchema({"file": MemberSchema(None, _FILE), "metadata": MemberSchema("metadata", ANY_OBJECT)}),
            ),
            ("raw", "url"),
        ),
        "data": (_of_kind("data", object_schema(data=AnySchema(), metadata=ANY_OBJECT)), ("data",)),
    }
)
MESSAGE = _of_kind(
    "message",
    object_schema(
        messageId=TEXT,
        role=EnumSchema(ROLES),
        parts=ListSchema(PART),
        contextId=TEXT,
        taskId=TEXT,
        metadata=ANY_OBJECT,
        extensions=TEXTS,
        referenceTaskIds=TEXTS,
    ),
)
STATUS = object_schema(state=EnumSchema(STATES), message=MESSAGE, timestamp=TEXT)
ARTIFACT = object_schema(
    artifactId=TEXT, name=TEXT, description=TEXT, parts=ListSchema(PART), metadata=ANY_OBJECT, extensions=TEXTS
)
TASK = _of_kind(
    "task",
    object_schema(
        id=TEXT,
        contextId=TEXT,
        status=STATUS,
        artifacts=ListSchema(ARTIFACT),
        history=ListSchema(MESSAGE),
        metadata=ANY_OBJECT,
    ),
)
STATUS_UPDATE = _of_kind(
    "status-update", object_schema(taskId=TEXT, contextId=TEXT, status=STATUS, final=FLAG, metadata=ANY_OBJECT)
)
ARTIFACT_UPDATE = _of_kind(
    "artifact-update",
    object_schema(taskId=TEXT, contextId=TEXT, artifact=ARTIFACT, append=FLAG, lastChunk=FLAG, metadata=ANY_OBJECT),
)

_PUSH = object_schema(id=TEXT, url=TEXT, authentication=object_schema(schemes=TEXTS))
PUSH = object_schema(taskId=TEXT, pushNotificationConfig=_PUSH)
SEND = object_schema(
    message=MESSAGE,
    configuration=object_schema(
        acceptedOutputModes=TEXTS, historyLength=NUMBER, pushNotificationConfig=_PUSH, blocking=FLAG
    ),
    metadata=ANY_OBJECT,
)
TASK_PARAMS = object_schema(id=TEXT, historyLength=NUMBER, metadata=ANY_OBJECT)
PUSH_PARAMS = object_schema(id=TEXT, pushNotificationConfigId=TEXT, metadata=ANY_OBJECT)

_EXTENSION = object_schema(uri=TEXT, description=TEXT, required=FLAG, params=ANY_OBJECT)
_SECURITY = ListSchema(MapSchema(TEXTS))
CARD = object_schema(
    protocolVersion=TEXT,
    name=TEXT,
    description=TEXT,
    url=TEXT,
    preferredTransport=TEXT,
    additionalInterfaces=ListSchema(object_schema(url=TEXT, transport=TEXT)),
    iconUrl=TEXT,
    provider=object_schema(organization=TEXT, url=TEXT),
    version=TEXT,
    documentationUrl=TEXT,
    capabilities=object_schema(
        streaming=FLAG, pushNotifications=FLAG, stateTransitionHistory=FLAG, extensions=ListSchema(_EXTENSION)
    ),
    securitySchemes=MapSchema(ANY_OBJECT),
    security=_SECURITY,
    defaultInputModes=TEXTS,
    defaultOutputModes=TEXTS,
    skills=ListSchema(
        object_schema(
            id=TEXT,
            name=TEXT,
            description=TEXT,
            tags=TEXTS,
            examples=TEXTS,
            inputModes=TEXTS,
            outputModes=TEXTS,
            security=_SECURITY,
        )
    ),
    supportsAuthenticatedExtendedCard=FLAG,
    signatures=ListSchema(object_schema(protected=TEXT, signature=TEXT, header=ANY_OBJECT)),
)

METHODS: dict[str, ObjectSchema] = {
    "message/send": SEND,
    "message/stream": SEND,
    "tasks/get": TASK_PARAMS,
    "tasks/cancel": TASK_PARAMS,
    "tasks/resubscribe": TASK_PARAMS,
    "tasks/pushNotificationConfig/set": PUSH,
    "tasks/pushNotificationConfig/get": PUSH_PARAMS,
    "tasks/pushNotificationConfig/list": PUSH_PARAMS,
    "tasks/pushNotificationConfig/delete": PUSH_PARAMS,
    "agent/getAuthenticatedExtendedCard": object_schema(),
}
