"""Standard Webhooks signatures: who receives an event can tell that it is ours, whole and fresh.

    webhook-id: the event's id                     the same at every delivery: drop what you have seen
    webhook-timestamp: 1767225600                  of this delivery; refuse old ones
    webhook-signature: v1,BASE64 v1,BASE64         HMAC-SHA256 of "id.timestamp.body", one per secret

Two secrets at a time make a rotation without a gap: sign with both, change the receivers, drop the old one. Secrets are
written `whsec_` and base64 of 24 to 64 random bytes. They never appear in a message.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable

from ..model.errors import InvalidPolicy

PREFIX = "whsec_"
SHORTEST, LONGEST = 24, 64


class Signer:
    def __init__(self, secrets: Iterable[str]) -> None:
        if isinstance(secrets, str):
            raise InvalidPolicy('secrets= takes a tuple, such as ("whsec_…",)')
        self._keys = [_key_of(secret) for secret in secrets]

    def headers(self, id: str, timestamp: int, body: bytes) -> dict[str, str]:
        """Without secrets there is no signature; the other two headers come anyway."""
        headers = {"webhook-id": id, "webhook-timestamp": str(timestamp)}
        if self._keys:
            signed = f"{id}.{timestamp}.".encode() + body
            headers["webhook-signature"] = " ".join(_signature(key, signed) for key in self._keys)
        return headers


def _signature(key: bytes, signed: bytes) -> str:
    return f"v1,{base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()}"


def _key_of(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError, AttributeError, TypeError):
        raise InvalidPolicy(
            f"a signing secret (secrets=, or SIMPLEWORKFLOW_WEBHOOK_SECRETS) is written {PREFIX} and base64"
        ) from None
    if not SHORTEST <= len(key) <= LONGEST:
        raise InvalidPolicy(f"a signing secret holds {SHORTEST} to {LONGEST} bytes in base64, not {len(key)}")
    return key
