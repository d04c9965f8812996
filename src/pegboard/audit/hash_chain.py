"""Hash chain: link each row to the one before it, so that a changed row shows; and sign where a chain ends."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from typing import Literal, NamedTuple

from pegboard.model.result import new_tuple
from pegboard.model.secret import Secret

NO_HASH = "0" * 64
"""Stands for the row before the first one."""

HeadKind = Literal["head", "pruned", "forgotten"]


class Sealed(NamedTuple):
    """A row as it is stored: the exact bytes that were hashed, and their hash."""

    seq: int
    at: float
    raw: bytes
    hash: str


class Unsealed(NamedTuple):
    """A row without its place in a chain: its time, and its JSON object without `seq` and `previous`."""

    at: float
    body: bytes


class Head(NamedTuple):
    """A signed statement about a chain: the hash of its row number `seq`.

    A `head` says that the row existed; `pruned` says that it and all rows before it were deleted on purpose.
    `forgotten` says that the row lost the names of a person on purpose: its stored bytes have the hash of this head,
    and the chain continues with the hash of the original.
    """

    kind: HeadKind
    chain: str
    seq: int
    at: float
    hash: str
    signature: str = ""


class ChainEnd(NamedTuple):
    """The last row of a chain."""

    seq: int = 0
    hash: str = NO_HASH


def seal(rows: Iterable[Unsealed], end: ChainEnd) -> list[Sealed]:
    """Return the rows with the next places of a chain."""
    sealed: list[Sealed] = []
    seq, previous = end
    for at, body in rows:
        seq += 1
        raw = b'{"seq":%d,"previous":"%s",%s' % (seq, previous.encode(), body[1:])
        previous = hash_of(raw)
        # Made without calling the class, which takes three times as long.
        sealed.append(new_tuple(Sealed, (seq, at, raw, previous)))
    return sealed


def hash_of(raw: bytes) -> str:
    """Return the hash of a stored row."""
    return hashlib.sha256(raw).hexdigest()


class HeadSigner:
    """Signs heads with a key (HMAC-SHA256), and checks them. Without a key signatures are empty."""

    def __init__(self, key: Secret | None) -> None:
        self._key = None if key is None else key.reveal().encode()

    @property
    def has_key(self) -> bool:
        return self._key is not None

    def signed(self, head: Head) -> Head:
        """Return the head with a signature."""
        return head._replace(signature=self._signature(head))

    def is_genuine(self, head: Head) -> bool:
        """Tell whether the head was signed with this key. Without a key, every head is accepted."""
        return self._key is None or hmac.compare_digest(head.signature.encode(), self._signature(head).encode())

    def _signature(self, head: Head) -> str:
        if self._key is None:
            return ""
        text = "\n".join((head.kind, head.chain, str(head.seq), repr(head.at), head.hash))
        return hmac.new(self._key, text.encode(), "sha256").hexdigest()
