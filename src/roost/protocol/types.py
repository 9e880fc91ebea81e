"""Every object of A2A 1.0 as a msgspec struct, in the order of the specification.

Names are the protocol's; on the wire they are camelCase. A field whose proto is
`optional`, or a message, is None when absent; every other field has its proto3 default.
Defaults are omitted on output, except where a client must see the value.
"""

from __future__ import annotations

import enum
from datetime import datetime
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

JSONObject = dict[str, Any]
"""google.protobuf.Struct"""

NonEmpty = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class Wire(Struct, rename="camel", omit_defaults=True, kw_only=True):
    """The base class of every object on the wire."""


# Tasks and messages


class TaskState(enum.StrEnum):
    UNSPECIFIED = "TASK_STATE_UNSPECIFIED"
    SUBMITTED = "TASK_STATE_SUBMITTED"
    WORKING = "TASK_STATE_WORKING"
    COMPLETED = "TASK_STATE_COMPLETED"
    FAILED = "TASK_STATE_FAILED"
    CANCELED = "TASK_STATE_CANCELED"
    INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"
    REJECTED = "TASK_STATE_REJECTED"
    AUTH_REQUIRED = "TASK_STATE_AUTH_REQUIRED"


class Role(enum.StrEnum):
    UNSPECIFIED = "ROLE_UNSPECIFIED"
    USER = "ROLE_USER"
    AGENT = "ROLE_AGENT"


class Part(Wire):
    """Exactly one of text, raw, url and data is set; data may be null."""

    text: str | UnsetType = UNSET
    raw: bytes | UnsetType = UNSET
    url: str | UnsetType = UNSET
    data: Any = UNSET
    metadata: JSONObject | None = None
    filename: str = ""
    media_type: str = ""

    def __post_init__(self) -> None:
        given = (self.text is not UNSET) + (self.raw is not UNSET) + (self.url is not UNSET) + (self.data is not UNSET)
        if given != 1:
            raise ValueError(f"a part has exactly one of text, raw, url and data; this one has {given}")


Parts = Annotated[list[Part], Meta(min_length=1)]


class Message(Wire):
    message_id: NonEmpty
    role: Role
    parts: Parts
    context_id: str = ""
    task_id: str = ""
    metadata: JSONObject | None = None
    extensions: list[str] = []
    reference_task_ids: list[str] = []

    def __post_init__(self) -> None:
        if self.role is Role.UNSPECIFIED:
            raise ValueError("role must be ROLE_USER or ROLE_AGENT")

    @property
    def text(self) -> str:
        """Return the text parts, joined by newlines."""
        return "\n".join([part.text for part in self.parts if part.text is not UNSET])


class TaskStatus(Wire):
    state: TaskState
    message: Message | None = None
    timestamp: str | None = None


class Artifact(Wire):
    artifact_id: NonEmpty
    parts: Parts
    name: str = ""
    description: str = ""
    metadata: JSONObject | None = None
    extensions: list[str] = []


class Task(Wire):
    id: NonEmpty
    status: TaskStatus
    context_id: str = ""
    artifacts: list[Artifact] = []
    history: list[Message] = []
    metadata: JSONObject | None = None


class TaskStatusUpdateEvent(Wire):
    task_id: NonEmpty
    context_id: NonEmpty
    status: TaskStatus
    metadata: JSONObject | None = None


class TaskArtifactUpdateEvent(Wire):
    task_id: NonEmpty
    context_id: NonEmpty
    artifact: Artifact
    append: bool | UnsetType = UNSET
    """Unset means false; the host always writes it, because some clients read its absence as true."""
    last_chunk: bool = False
    metadata: JSONObject | None = None


# Cards


class AgentProvider(Wire):
    url: NonEmpty
    organization: NonEmpty


class AgentExtension(Wire):
    uri: str = ""
    description: str = ""
    required: bool = False
    params: JSONObject | None = None


class AgentCapabilities(Wire):
    streaming: bool | None = None
    push_notifications: bool | None = None
    extensions: list[AgentExtension] = []
    extended_agent_card: bool | None = None


class AgentInterface(Wire):
    url: NonEmpty
    protocol_binding: NonEmpty
    protocol_version: NonEmpty
    tenant: str = ""


Strings = list[str]


class StringList(Wire):
    list: Strings = []


class SecurityRequirement(Wire):
    schemes: dict[str, StringList] = {}


class AgentSkill(Wire):
    id: NonEmpty
    name: NonEmpty
    description: NonEmpty
    tags: list[str]
    examples: list[str] = []
    input_modes: list[str] = []
    output_modes: list[str] = []
    security_requirements: list[SecurityRequirement] = []


class AgentCardSignature(Wire):
    protected: NonEmpty
    signature: NonEmpty
    header: JSONObject | None = None


class APIKeySecurityScheme(Wire):
    location: NonEmpty
    name: NonEmpty
    description: str = ""


class HTTPAuthSecurityScheme(Wire):
    scheme: NonEmpty
    description: str = ""
    bearer_format: str = ""


class AuthorizationCodeOAuthFlow(Wire):
    authorization_url: NonEmpty
    token_url: NonEmpty
    scopes: dict[str, str]
    refresh_url: str = ""
    pkce_required: bool = False


class ClientCredentialsOAuthFlow(Wire):
    token_url: NonEmpty
    scopes: dict[str, str]
    refresh_url: str = ""


class ImplicitOAuthFlow(Wire):
    authorization_url: str = ""
    refresh_url: str = ""
    scopes: dict[str, str] = {}


class PasswordOAuthFlow(Wire):
    token_url: str = ""
    refresh_url: str = ""
    scopes: dict[str, str] = {}


class DeviceCodeOAuthFlow(Wire):
    device_authorization_url: NonEmpty
    token_url: NonEmpty
    scopes: dict[str, str]
    refresh_url: str = ""


class OAuthFlows(Wire):
    """At most one field is set."""

    authorization_code: AuthorizationCodeOAuthFlow | None = None
    client_credentials: ClientCredentialsOAuthFlow | None = None
    implicit: ImplicitOAuthFlow | None = None
    password: PasswordOAuthFlow | None = None
    device_code: DeviceCodeOAuthFlow | None = None


class OAuth2SecurityScheme(Wire):
    flows: OAuthFlows
    description: str = ""
    oauth2_metadata_url: str = ""


class OpenIdConnectSecurityScheme(Wire):
    open_id_connect_url: NonEmpty
    description: str = ""


class MutualTlsSecurityScheme(Wire):
    description: str = ""


class SecurityScheme(Wire):
    """At most one field is set."""

    api_key_security_scheme: APIKeySecurityScheme | None = None
    http_auth_security_scheme: HTTPAuthSecurityScheme | None = None
    oauth2_security_scheme: OAuth2SecurityScheme | None = None
    open_id_connect_security_scheme: OpenIdConnectSecurityScheme | None = None
    mtls_security_scheme: MutualTlsSecurityScheme | None = None


class AgentCard(Wire):
    name: NonEmpty
    description: NonEmpty
    supported_interfaces: list[AgentInterface]
    version: NonEmpty
    capabilities: AgentCapabilities
    default_input_modes: list[str]
    default_output_modes: list[str]
    skills: list[AgentSkill]
    provider: AgentProvider | None = None
    documentation_url: str | None = None
    security_schemes: dict[str, SecurityScheme] = {}
    security_requirements: list[SecurityRequirement] = []
    signatures: list[AgentCardSignature] = []
    icon_url: str | None = None


# Push notifications


class AuthenticationInfo(Wire):
    scheme: NonEmpty
    credentials: str = ""


class TaskPushNotificationConfig(Wire):
    url: NonEmpty
    tenant: str = ""
    id: str = ""
    task_id: str = ""
    token: str = ""
    authentication: AuthenticationInfo | None = None


# Requests and responses


class SendMessageConfiguration(Wire):
    accepted_output_modes: list[str] = []
    task_push_notification_config: TaskPushNotificationConfig | None = None
    history_length: Count | None = None
    return_immediately: bool = False


class SendMessageRequest(Wire):
    message: Message
    tenant: str = ""
    configuration: SendMessageConfiguration | None = None
    metadata: JSONObject | None = None


class GetTaskRequest(Wire):
    id: NonEmpty
    tenant: str = ""
    history_length: Count | None = None


class ListTasksRequest(Wire):
    tenant: str = ""
    context_id: str = ""
    status: TaskState = TaskState.UNSPECIFIED
    page_size: Annotated[int, Meta(ge=1, le=100)] | None = None
    page_token: str = ""
    history_length: Count | None = None
    status_timestamp_after: Annotated[datetime, Meta(tz=True)] | None = None
    include_artifacts: bool | None = None


class ListTasksResponse(Wire, omit_defaults=False):
    """All four fields are required, so they are always written; on input they have ProtoJSON's defaults."""

    tasks: list[Task] = []
    next_page_token: str = ""
    page_size: int = 0
    total_size: int = 0


class CancelTaskRequest(Wire):
    id: NonEmpty
    tenant: str = ""
    metadata: JSONObject | None = None


class GetTaskPushNotificationConfigRequest(Wire):
    task_id: NonEmpty
    id: NonEmpty
    tenant: str = ""


class DeleteTaskPushNotificationConfigRequest(Wire):
    task_id: NonEmpty
    id: NonEmpty
    tenant: str = ""


class SubscribeToTaskRequest(Wire):
    id: NonEmpty
    tenant: str = ""


class ListTaskPushNotificationConfigsRequest(Wire):
    task_id: NonEmpty
    tenant: str = ""
    page_size: Count = 0
    page_token: str = ""


class ListTaskPushNotificationConfigsResponse(Wire):
    configs: list[TaskPushNotificationConfig] = []
    next_page_token: str = ""


class GetExtendedAgentCardRequest(Wire):
    tenant: str = ""


class SendMessageResponse(Wire):
    """Exactly one field is set."""

    task: Task | None = None
    message: Message | None = None


class StreamResponse(Wire):
    """Exactly one field is set."""

    task: Task | None = None
    message: Message | None = None
    status_update: TaskStatusUpdateEvent | None = None
    artifact_update: TaskArtifactUpdateEvent | None = None
