"""The faults of the broken host, and the checks that must find each of them."""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    name: str
    found_by: tuple[str, ...]
    bindings: str = "rest"


def _rest(name: str, *found_by: str) -> Fault:
    return Fault(name, found_by)


def _rpc(name: str, *found_by: str) -> Fault:
    return Fault(name, found_by, "rpc")


NEEDS_A_CONFIG = (
    *(f"push.{name}" for name in ("create", "list", "delete", "unknown", "delivered", "payload", "order")),
    *("push.credentials", "push.token", "push.slow", "auth.other-push"),
)

FAULTS = (
    _rest("first-race", "first.concurrent"),
    # The card
    _rest("card-type", "card.json"),
    _rest("card-field", "card.schema"),
    _rest("card-empty", "card.schema"),
    _rest("card-relative", "card.interfaces"),
    _rest("card-binding", "card.bindings"),
    _rest("card-changes", "card.stable"),
    _rest("card-uncached", "card.caching"),
    _rest("card-etag", "card.etag"),
    _rest("card-tampered", "signatures.valid"),
    _rest("card-unsigned", "signatures.cover"),
    _rest("card-header", "signatures.header"),
    _rest("card-typ", "signatures.header"),
    _rest("extended-open", "card.extended-private"),
    _rest("extended-undeclared", "card.no-extended"),
    # SendMessage
    _rest("send-two", "send.answer"),
    _rpc("send-early", "send.blocking"),
    _rest("send-blocks", "send.non-blocking"),
    _rest("direct-task", "send.direct"),
    _rest("context-none", "send.context-made"),
    _rpc("context-replaced", "send.context-kept"),
    _rest("send-history", "send.history"),
    _rpc("task-invented", "send.unknown-task"),
    _rest("ended-accepts", "send.ended-task"),
    _rpc("context-mismatch", "send.other-context"),
    _rest("follow-up-context", "send.follow-up"),
    _rpc("answer-lost", "send.answered"),
    # GetTask
    _rest("error-200", "get.unknown"),
    _rest("code-get", "get.unknown"),
    _rpc("code-get", "get.unknown"),
    _rest("get-artifacts", "get.task"),
    _rest("history-ignored", "get.history"),
    _rest("history-truncates", "get.history-kept"),
    _rpc("timestamp-local", "get.timestamp"),
    Fault("across", ("get.across",), "both"),
    # ListTasks
    _rest("list-shape", "list.shape"),
    _rest("list-others", "list.context"),
    _rpc("list-status", "list.status"),
    _rest("list-order", "list.order"),
    _rest("list-endless", "list.paging"),
    _rpc("list-skips", "list.paging"),
    _rest("list-artifacts", "list.artifacts"),
    _rest("list-token", "list.bad-token"),
    # CancelTask
    _rest("cancel-ignored", "cancel.task"),
    _rpc("code-cancel", "cancel.unknown"),
    _rest("cancel-ended", "cancel.ended"),
    _rest("cancel-overwritten", "cancel.stays"),
    _rest("cancel-works-on", "cancel.stays"),
    # Streams
    _rest("order-update-first", "stream.order"),
    _rpc("order-context", "stream.order"),
    _rest("states-back", "stream.states"),
    _rest("event-lost", "stream.artifacts"),
    _rpc("event-twice", "stream.artifacts"),
    _rest("stream-endless", "stream.end"),
    _rpc("stream-unfinished", "stream.end"),
    _rpc("direct-twice", "stream.direct"),
    _rest("stream-kind", "stream.kind"),
    _rest("stream-refused", "stream.kind"),
    _rest("stream-buffered", "stream.live"),
    _rest("stream-empty", "stream.live"),
    _rest("reader-left", "stream.left"),
    _rest("card-frozen", "subscribe.unread"),
    _rest("code-subscribe", "subscribe.unknown"),
    _rpc("subscribe-hangs", "subscribe.ended"),
    _rest("subscribe-update", "subscribe.first"),
    _rest("subscribe-differs", "subscribe.all"),
    _rest("resume-gap", "resume.after"),
    _rpc("resume-beyond", "resume.beyond"),
    _rest("subscribe-loses", "resume.plain"),
    # Errors
    _rest("info-none", "errors.info"),
    _rest("info-domain", "errors.info"),
    _rest("info-400", "errors.info"),
    _rpc("rpc-data", "errors.rpc-info"),
    _rpc("rpc-other-data", "errors.rpc-info"),
    _rest("message-none", "errors.message"),
    _rest("json-500", "errors.json"),
    _rest("types-500", "errors.types"),
    _rest("parts-empty", "errors.missing"),
    _rest("shape-500", "errors.shape"),
    _rest("deep-500", "errors.deep"),
    _rpc("deep-500", "errors.deep"),
    _rest("kind-500", "errors.content-type"),
    _rpc("kind-ignored", "errors.content-type"),
    _rest("field-unknown", "errors.unknown-field"),
    _rpc("history-negative", "errors.history"),
    _rpc("rpc-id-error", "rpc.id"),
    _rpc("rpc-id-result", "rpc.id"),
    _rpc("rpc-version-error", "rpc.version"),
    _rpc("rpc-version-result", "rpc.version"),
    _rpc("rpc-method", "rpc.method"),
    _rpc("rpc-request", "rpc.request"),
    _rest("path-200", "rest.path"),
    _rest("rest-kind", "rest.kind"),
    _rest("rest-status", "rest.status"),
    # Versions
    _rest("version-any", "version.unknown"),
    _rpc("version-absent", "version.absent"),
    _rest("version-patch", "version.patch"),
    _rest("version-query", "version.query"),
    _rpc("version-old", "version.absent", "version.old"),
    # Push
    _rest("push-500", *NEEDS_A_CONFIG),
    _rest("push-undeclared", "push.undeclared"),
    _rest("push-no-id", "push.create"),
    _rest("push-list", "push.list"),
    _rpc("push-delete", "push.delete"),
    _rest("push-unknown", "push.unknown"),
    _rest("push-anywhere", "push.addresses"),
    _rest("push-never", "push.delivered"),
    _rest("push-no-end", "push.delivered"),
    _rest("push-two", "push.payload"),
    _rest("push-bare", "push.payload"),
    _rest("push-order", "push.order"),
    _rest("push-token", "push.token"),
    _rest("push-credentials", "push.credentials"),
    _rest("push-slow", "push.slow"),
    # Access
    _rest("auth-list", "auth.missing"),
    _rest("auth-others", "auth.missing"),
    _rpc("auth-internal", "auth.missing", "auth.wrong", "auth.send"),
    _rpc("auth-wrong", "auth.wrong"),
    _rest("auth-send", "auth.send"),
    _rest("auth-challenge", "auth.challenge"),
    _rest("other-get", "auth.other-read"),
    _rpc("other-list", "auth.other-list"),
    _rpc("other-everything", "auth.other-list"),
    _rest("other-subscribe", "auth.other-subscribe"),
    _rest("other-push", "auth.other-push"),
    _rest("other-cancel", "auth.other-cancel"),
    _rest("other-send", "auth.other-send"),
    # Extensions
    _rest("required-ignored", "ext.required"),
    _rest("extension-unknown", "ext.unknown"),
    _rest("idempotency-twice", "idempotency.replay", "idempotency.race"),
    _rest("idempotency-race", "idempotency.race"),
    _rest("idempotency-body", "idempotency.reused"),
)
