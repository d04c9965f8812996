"""AES-256-GCM: seal and open values under a ring of secrets. Loaded with the first value."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from hashlib import sha256

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

# The token format is that of the MCP SDK, which earlier versions used: both versions open each other's tokens.
_PREFIX = "v1."
_KEY_INFO = b"mcp/request-state/v1/aes-256-gcm"
_NAME_INFO = b"mcp/request-state/v1/kid:"
_NAME_BYTES, _NONCE_BYTES, _TAG_BYTES = 4, 12, 16


class AesGcm:
    """The first secret seals, all of them open. A token names its key in its first four bytes, which are not secret."""

    def __init__(self, secrets: Sequence[bytes]) -> None:
        self._ciphers: dict[bytes, AESGCM] = {}
        for secret in reversed(secrets):
            key = HKDF(algorithm=SHA256(), length=32, salt=None, info=_KEY_INFO).derive(secret)
            self._sealing = sha256(_NAME_INFO + key).digest()[:_NAME_BYTES]
            self._ciphers[self._sealing] = AESGCM(key)

    def seal(self, payload: bytes, *, bound_to: bytes = b"") -> str:
        """Return an opaque, URL-safe token for `payload`, which opens only with the same `bound_to`."""
        name, nonce = self._sealing, os.urandom(_NONCE_BYTES)
        sealed = self._ciphers[name].encrypt(nonce, payload, _PREFIX.encode() + name + bound_to)
        return _PREFIX + _encoded(name + nonce + sealed)

    def open(self, token: str, *, bound_to: bytes = b"") -> bytes | None:
        """Return the payload; `None` for a token that these secrets did not seal, or that is bound to other bytes."""
        raw = _decoded(token.removeprefix(_PREFIX)) if token.startswith(_PREFIX) else b""
        if len(raw) < _NAME_BYTES + _NONCE_BYTES + _TAG_BYTES:
            return None
        name, nonce, sealed = raw[:_NAME_BYTES], raw[_NAME_BYTES:][:_NONCE_BYTES], raw[_NAME_BYTES + _NONCE_BYTES :]
        cipher = self._ciphers.get(name)
        try:
            return None if cipher is None else cipher.decrypt(nonce, sealed, _PREFIX.encode() + name + bound_to)
        except InvalidTag:
            return None


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    """Return the decoded bytes; empty unless `_encoded` would give exactly this text."""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return b""
    return raw if _encoded(raw) == text else b""
