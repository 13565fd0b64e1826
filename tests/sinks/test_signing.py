"""Standard Webhooks signatures, checked by that project's own package."""

from __future__ import annotations

import base64
import time

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from simpleworkflow.model.errors import InvalidPolicy
from simpleworkflow.sinks.signing import Signer

OLD = "whsec_" + base64.b64encode(b"o" * 24).decode()
NEW = "whsec_" + base64.b64encode(b"n" * 32).decode()
STRANGER = "whsec_" + base64.b64encode(b"s" * 32).decode()
BODY = '{"grüße": 1}'


def signed(*secrets: str, at: int | None = None) -> dict[str, str]:
    return Signer(secrets).headers("evt-1", at or int(time.time()), BODY.encode())


def test_a_receiver_with_the_secret_accepts_the_signature() -> None:
    assert Webhook(NEW).verify(BODY, signed(NEW)) == {"grüße": 1}


def test_while_secrets_rotate_receivers_with_either_one_accept() -> None:
    headers = signed(OLD, NEW)
    assert len(headers["webhook-signature"].split(" ")) == 2
    assert Webhook(OLD).verify(BODY, headers)
    assert Webhook(NEW).verify(BODY, headers)


def test_a_stranger_a_changed_body_and_an_old_delivery_are_found_out() -> None:
    with pytest.raises(WebhookVerificationError):
        Webhook(STRANGER).verify(BODY, signed(OLD, NEW))
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(BODY + " ", signed(NEW))
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(BODY, {**signed(NEW), "webhook-id": "evt-2"})
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(BODY, signed(NEW, at=int(time.time()) - 3600))


def test_without_a_secret_nothing_is_signed() -> None:
    assert set(signed()) == {"webhook-id", "webhook-timestamp"}


@pytest.mark.parametrize(
    "secret", ["whsec_", "whsec_c2hvcnQ=", "whsec_not base64!", "hunter2hunter2", "whsec_" + "A" * 200]
)
def test_a_bad_secret_is_refused_without_being_shown(secret: str) -> None:
    with pytest.raises(InvalidPolicy) as caught:
        Signer([secret])
    assert secret.removeprefix("whsec_")[:6] not in str(caught.value) or not secret.removeprefix("whsec_")


def test_one_secret_where_a_list_belongs_is_refused() -> None:
    with pytest.raises(InvalidPolicy, match="tuple"):
        Signer(NEW)
