"""The content of a webhook call, and the validation of configs."""

from __future__ import annotations

import pytest

from roost.engine.webhook import Webhook, check_config, delivery_id, host_of, opened, sealed, signature
from roost.identity.seal import Seal, WrongKey, new_key
from roost.protocol.errors import InvalidParams
from roost.protocol.types import AuthenticationInfo, TaskPushNotificationConfig

URL = "https://hooks.example.com/in?key=k3y"


def config(**more: object) -> TaskPushNotificationConfig:
    return TaskPushNotificationConfig(**{"url": URL, "id": "mine", "task_id": "t", **more})


def headers(secret: str = "", **more: object) -> dict[str, str]:
    return dict(Webhook("t", config(**more)).headers(7, b"{}", 1_700_000_000, secret))


def test_a_signature_is_what_it_always_was() -> None:
    """A known answer: HMAC-SHA256 of `<t>.<body>`, as receivers compute it."""
    expected = "t=1700000000,v1=49f24e537407743fa4a0242bb63b94b9a47ee99cbbe071ccd8a22550ae411686"
    assert signature("secret", 1_700_000_000, b'{"a":1}') == expected


def test_without_secrets_there_are_none_in_the_headers() -> None:
    assert headers() == {
        "Content-Type": "application/a2a+json",
        "A2A-Version": "1.0",
        "User-Agent": headers()["User-Agent"],
        "X-Roost-Delivery-Id": delivery_id("t", "mine", 7),
        "X-Roost-Timestamp": "1700000000",
    }


def test_credentials_are_sent_in_their_scheme() -> None:
    found = headers(token="t0ken", authentication=AuthenticationInfo(scheme="Basic", credentials="dXNlcjpwYXNz"))
    assert (found["Authorization"], found["X-A2A-Notification-Token"]) == ("Basic dXNlcjpwYXNz", "t0ken")
    assert "Authorization" not in headers(authentication=AuthenticationInfo(scheme="Bearer"))


@pytest.mark.parametrize("scheme", ["hmac-sha256", "HMAC-SHA256", "Hmac-Sha256"])
def test_a_secret_of_its_own_signs_and_is_not_sent(scheme: str) -> None:
    found = headers("h0st", authentication=AuthenticationInfo(scheme=scheme, credentials="0wn"))
    assert found["X-AIWG-Signature"] == signature("0wn", 1_700_000_000, b"{}")
    assert "Authorization" not in found
    assert headers("h0st")["X-AIWG-Signature"] == signature("h0st", 1_700_000_000, b"{}")


def test_a_delivery_id_is_one_of_its_own_for_each_event_of_each_webhook() -> None:
    ids = {delivery_id(task, name, seq) for task in ("a", "b") for name in ("c", "d") for seq in (1, 2)}
    assert len(ids) == 8
    assert delivery_id("a", "c", 1) in ids


def test_the_host_of_a_url_is_all_that_is_shown() -> None:
    assert host_of(URL) == "hooks.example.com:443"
    assert host_of("http://u:p@[::1]/x") == "[::1]:80"
    assert host_of("http://h:8080/") == "h:8080"


def test_a_config_is_opened_as_what_it_was_sealed_as() -> None:
    seal = Seal(new_key())
    kept = sealed(seal, "t", config(), 3)
    assert opened(seal, kept).config == config()
    assert b"k3y" not in kept.sealed
    with pytest.raises(WrongKey):
        opened(seal, kept._replace(task_id="other"))
    with pytest.raises(WrongKey):
        opened(seal, kept._replace(id="other"))


def test_a_wrong_field_is_named_where_it_is() -> None:
    with pytest.raises(InvalidParams) as caught:
        check_config(config(token="a\nb"), "configuration.")
    assert caught.value.field == "configuration.token"


def test_what_is_said_about_a_secret_does_not_repeat_it() -> None:
    for wrong in (
        {"token": "s3cret\n"},
        {"authentication": AuthenticationInfo(scheme="Bearer", credentials="s3cret\n")},
        {"url": "ftp://example.com/?s3cret"},
    ):
        with pytest.raises(InvalidParams) as caught:
            check_config(config(**wrong), "")
        assert "s3cret" not in caught.value.message
