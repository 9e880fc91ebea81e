"""The card of the broken host, with the faults of cards."""

from __future__ import annotations

from typing import Any

from roost.identity.signing import Signer, base64url, make_pair, sign, sign_card, signer
from roost.protocol.canonical import card_form

JSONObject = dict[str, Any]

RESUME = "urn:roost:a2a:stream-resume:v1"
IDEMPOTENCY = "https://agentic-sandbox.aiwg.io/extensions/idempotency/v1"
NEEDED = "urn:example:needed"
TENANT = "of-the-interface"
SECOND = "http://127.0.0.1:9/second"
QUIRKS = "quirks"
"""Not a fault: a host that uses the freedom of the specification in unusual ways."""
STREAM_FAULTS = ("order-update-first", "order-context", "states-back", "event-lost", "event-twice", "stream-unfinished")
"""Faults that change the stream but not what is stored. Such a host cannot declare that streams can be resumed."""

_pair = make_pair("EdDSA")
SIGNER: Signer = signer(_pair.kid, _pair.alg, _pair.private)
JWKS = b'{"keys":[' + _pair.public + b"]}"


def broken_card(fault: str, bindings: str, base: str) -> JSONObject:
    """Make the card of a host with this fault, below `base`. `bindings` is rest, rpc or both."""
    names = {"rest": ["HTTP+JSON"], "rpc": ["JSONRPC"], "both": ["JSONRPC", "HTTP+JSON"]}[bindings]
    interfaces = [{"url": base, "protocolBinding": name, "protocolVersion": "1.0"} for name in names]
    if fault == "card-binding":
        interfaces.append({"url": base, "protocolBinding": "REST", "protocolVersion": "1.0"})
    if fault == "card-relative":
        interfaces.append({"url": "/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"})
    if fault == QUIRKS:
        interfaces[0]["tenant"] = TENANT
        interfaces.insert(0, {**interfaces[0], "url": f"{base}/2.0", "protocolVersion": "2.0"})
        interfaces.append({**interfaces[-1], "url": SECOND})
    if fault == "version-old":
        interfaces.append({**interfaces[0], "protocolVersion": "0.3"})
    declared: list[JSONObject] = [] if fault == QUIRKS else [{"uri": IDEMPOTENCY}]
    if fault not in STREAM_FAULTS:
        declared.append({"uri": RESUME})
    if fault.startswith("required"):
        declared.append({"uri": NEEDED, "required": True})
    card: JSONObject = {
        "name": "tck",
        "description": "Does what it should, or all but that.",
        "version": "1.0.0",
        "supportedInterfaces": interfaces,
        "capabilities": {"streaming": True, "pushNotifications": True, "extensions": declared},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "tck", "name": "tck", "description": "For tests.", "tags": ["tck"]}],
        "securitySchemes": {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
        "securityRequirements": [{"schemes": {"bearer": {}}}],
    }
    if fault == "card-field":
        del card["version"]
    if fault == "card-empty":
        card["skills"] = []
    if fault == "push-undeclared":
        card["capabilities"]["pushNotifications"] = False
    if fault == "extended-open":
        card["capabilities"]["extendedAgentCard"] = True
    if fault in ("card-undeclared", "extended-open"):
        del card["securitySchemes"], card["securityRequirements"]
    keys_at = "https://keys.example.com" if fault == QUIRKS else base
    jku = f"{keys_at}/.well-known/jwks.json"
    signatures = sign_card(card, [SIGNER], jku)
    if fault == "card-unsigned":
        signatures = [sign(card_form(card), SIGNER, {"jku": jku})]
    card["signatures"] = [{"protected": one.protected, "signature": one.signature} for one in signatures]
    if fault == "card-tampered":
        card["description"] = "Somebody else wrote this."
    if fault == "card-unsigned":
        card["x-unsigned"] = "Nobody signed this."
    if fault == "card-header":
        card["signatures"].append({"protected": "eyJhbGciOiJub25lIn0", "signature": "AA"})
    if fault == "card-typ":
        protected = base64url(b'{"alg":"EdDSA","kid":"of-somebody-else"}')
        card["signatures"].append({"protected": protected, "signature": "AA"})
    return card
