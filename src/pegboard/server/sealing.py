"""Sealing: protects the state that clients carry for us (cursors, states of calls that ask) from reading and change."""

from __future__ import annotations

import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple, Protocol

import orjson

from pegboard.lazy import LazyModule
from pegboard.model.error import DefinitionError
from pegboard.server.limits import SEALING_KEY_BYTES

if TYPE_CHECKING:
    from pegboard.storage import aes_gcm
    from pegboard.storage.aes_gcm import AesGcm
else:
    aes_gcm = LazyModule("pegboard.storage.aes_gcm")

CURSOR_CHARS = 200  # characters of a cursor
REQUEST_STATE_S = 600.0  # seconds that an answer to a question may take
USED_STATES = 100_000  # used marks that are remembered, so that none is used twice


class Codec(Protocol):
    """Authenticated encryption under the keys of one server."""

    def seal(self, payload: bytes) -> str:
        """Return an opaque, URL-safe token for `payload`."""
        ...

    def open(self, token: str) -> bytes | None:
        """Return the payload; `None` for a token that these keys did not seal."""
        ...


class KeyCodec:
    """AES-256-GCM under the secrets of a server: the first seals, all open. The cipher is loaded on first use."""

    def __init__(self, secrets: tuple[bytes, ...]) -> None:
        self._secrets = secrets

    @cached_property
    def _cipher(self) -> AesGcm:
        return aes_gcm.AesGcm(self._secrets)

    def seal(self, payload: bytes) -> str:
        return self._cipher.seal(payload)

    def open(self, token: str) -> bytes | None:
        return self._cipher.open(token)


class UnknownCursorError(LookupError):
    """The cursor belongs to another caller or list, or the list has changed since."""


class Page(NamedTuple):
    """One page of a list: from `first` up to `end`; `next_cursor` if there is more."""

    first: int
    end: int
    next_cursor: str | None


class Sealing:
    """The keys of one server and the marks it has used; shared by all its protocols.

    Args:
        codec: the keys.
        audience: the server's name; values sealed by another server with the same keys are not accepted.
        clock: a monotonic clock in seconds.
    """

    def __init__(self, codec: Codec, *, audience: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.codec, self.audience, self._clock = codec, audience, clock
        self._used: OrderedDict[str, float] = OrderedDict()
        self._worker = (0, "")

    @property
    def worker(self) -> str:
        """The name of this server in this process; another worker with the same keys has another name."""
        pid = os.getpid()
        # A server may be created before its process forks.
        if self._worker[0] != pid:
            self._worker = (pid, os.urandom(8).hex())
        return self._worker[1]

    def page(self, *bound_to: object, size: int, length: int, cursor: str | None) -> Page:
        """Return one page of a list of `length` items.

        A cursor is valid only for its `bound_to`, a list of JSON values: the kind of list, its owner, its generation.

        Raises:
            UnknownCursorError: the cursor is bound to other values.
        """
        binding = sha256(orjson.dumps([self.audience, *bound_to])).digest()
        first = 0 if cursor is None else self._place(cursor, binding)
        end = first + size
        if end >= length:
            return Page(first, length, None)
        return Page(first, end, self.codec.seal(b"%d.%b" % (end, binding)))

    def _place(self, cursor: str, binding: bytes) -> int:
        payload = self.codec.open(cursor) if len(cursor) <= CURSOR_CHARS else None
        place, _, bound_to = (payload or b"").partition(b".")
        if bound_to != binding:
            raise UnknownCursorError
        return int(place)

    def use_up(self, once: str) -> bool:
        """Use up a single-use mark; `False` if it was used before, or too many marks are remembered.

        A mark that is still valid is never forgotten to make room: it could be used again.
        """
        now = self._clock()
        while self._used and next(iter(self._used.values())) < now - REQUEST_STATE_S:
            self._used.popitem(last=False)
        if once in self._used or len(self._used) >= USED_STATES:
            return False
        self._used[once] = now
        return True


def sealing_with(keys: tuple[bytes, ...] = (), *, audience: str) -> Sealing:
    """Return the sealing of a server.

    `keys` are secrets of 32 bytes or more: the first seals, all open. By default one key is created per process.

    Raises:
        DefinitionError: a key is too short.
    """
    for number, key in enumerate(keys, 1):
        if len(key) < SEALING_KEY_BYTES:
            raise DefinitionError(
                f"keys: key {number} has {len(key)} bytes; {SEALING_KEY_BYTES} or more are needed, "
                "such as secrets.token_bytes(32) gives."
            )
    return Sealing(KeyCodec(keys or (secrets.token_bytes(SEALING_KEY_BYTES),)), audience=audience)
