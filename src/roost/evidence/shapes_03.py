"""The objects of A2A 0.3, and what they are called in 1.0. A card keeps its own form: its signature is over that."""

from __future__ import annotations

from roost.evidence.schema import (
    FLAG,
    NUMBER,
    TEXT,
    TEXTS,
    Free,
    FreeObject,
    ImpliedWord,
    Many,
    MemberSchema,
    ObjectSchema,
    Table,
    Variants,
    Word,
    shape,
)

ROLES = {"user": "ROLE_USER", "agent": "ROLE_AGENT"}
STATES = {
    word: f"TASK_STATE_{word.replace('-', '_').upper()}"
    for word in (
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

_FILE = ObjectSchema(
    {
        "bytes": MemberSchema("raw", TEXT),
        "uri": MemberSchema("url", TEXT),
        "name": MemberSchema("filename", TEXT),
        "mimeType": MemberSchema("mediaType", TEXT),
    }
)


def _kind(word: str, members: ObjectSchema) -> ObjectSchema:
    return ObjectSchema({"kind": MemberSchema(None, ImpliedWord(word)), **members.members})


PART = Variants(
    {
        "text": (_kind("text", shape(text=TEXT, metadata=FreeObject())), ("text",)),
        "file": (
            _kind(
                "file",
                ObjectSchema({"file": MemberSchema(None, _FILE), "metadata": MemberSchema("metadata", FreeObject())}),
            ),
            ("raw", "url"),
        ),
        "data": (_kind("data", shape(data=Free(), metadata=FreeObject())), ("data",)),
    }
)
MESSAGE = _kind(
    "message",
    shape(
        messageId=TEXT,
        role=Word(ROLES),
        parts=Many(PART),
        contextId=TEXT,
        taskId=TEXT,
        metadata=FreeObject(),
        extensions=TEXTS,
        referenceTaskIds=TEXTS,
    ),
)
STATUS = shape(state=Word(STATES), message=MESSAGE, timestamp=TEXT)
ARTIFACT = shape(
    artifactId=TEXT, name=TEXT, description=TEXT, parts=Many(PART), metadata=FreeObject(), extensions=TEXTS
)
TASK = _kind(
    "task",
    shape(
        id=TEXT,
        contextId=TEXT,
        status=STATUS,
        artifacts=Many(ARTIFACT),
        history=Many(MESSAGE),
        metadata=FreeObject(),
    ),
)
STATUS_UPDATE = _kind(
    "status-update", shape(taskId=TEXT, contextId=TEXT, status=STATUS, final=FLAG, metadata=FreeObject())
)
ARTIFACT_UPDATE = _kind(
    "artifact-update",
    shape(taskId=TEXT, contextId=TEXT, artifact=ARTIFACT, append=FLAG, lastChunk=FLAG, metadata=FreeObject()),
)

_PUSH = shape(id=TEXT, url=TEXT, authentication=shape(schemes=TEXTS))
PUSH = shape(taskId=TEXT, pushNotificationConfig=_PUSH)
SEND = shape(
    message=MESSAGE,
    configuration=shape(acceptedOutputModes=TEXTS, historyLength=NUMBER, pushNotificationConfig=_PUSH, blocking=FLAG),
    metadata=FreeObject(),
)
TASK_PARAMS = shape(id=TEXT, historyLength=NUMBER, metadata=FreeObject())
PUSH_PARAMS = shape(id=TEXT, pushNotificationConfigId=TEXT, metadata=FreeObject())

_EXTENSION = shape(uri=TEXT, description=TEXT, required=FLAG, params=FreeObject())
_SECURITY = Many(Table(TEXTS))
CARD = shape(
    protocolVersion=TEXT,
    name=TEXT,
    description=TEXT,
    url=TEXT,
    preferredTransport=TEXT,
    additionalInterfaces=Many(shape(url=TEXT, transport=TEXT)),
    iconUrl=TEXT,
    provider=shape(organization=TEXT, url=TEXT),
    version=TEXT,
    documentationUrl=TEXT,
    capabilities=shape(
        streaming=FLAG, pushNotifications=FLAG, stateTransitionHistory=FLAG, extensions=Many(_EXTENSION)
    ),
    securitySchemes=Table(FreeObject()),
    security=_SECURITY,
    defaultInputModes=TEXTS,
    defaultOutputModes=TEXTS,
    skills=Many(
        shape(
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
    signatures=Many(shape(protected=TEXT, signature=TEXT, header=FreeObject())),
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
    "agent/getAuthenticatedExtendedCard": shape(),
}
