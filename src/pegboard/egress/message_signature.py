"""Message signature: the headers that prove to a receiver that a message is ours, unchanged and recent."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

from pegboard.model.secret import Secret


def signed_headers(secret: Secret, message_id: str, timestamp_s: int, body: bytes) -> dict[str, str]:
    """Return the headers that authenticate a message.

    `webhook-…` signs id, time and body, so that replays can be refused. `x-signature-256` signs only the body, for
    receivers that support no other form. A secret that begins with `whsec_` is read as base64. Source:
    standardwebhooks.com.
    """
    plain = secret.reveal()
    key = plain.encode()
    if plain.startswith("whsec_"):
        try:
            key = base64.b64decode(plain.removeprefix("whsec_"), validate=True)
        except binascii.Error:
            key = plain.encode()
    signed = f"{message_id}.{timestamp_s}.".encode() + body
    mark = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": f"v1,{mark}",
        "x-signature-256": f"sha256={hmac.digest(key, body, hashlib.sha256).hex()}",
    }
