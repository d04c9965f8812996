"""Audit store: the storage of audit rows, in one chain or several."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from pegboard.audit.hash_chain import Head, HeadSigner, Sealed, Unsealed


class AuditStore(Protocol):
    """Stores rows in chains. Its methods block: call them in a thread.

    Every method raises `StoreError` if the store cannot be used.
    """

    def append(self, rows: Sequence[Unsealed], signer: HeadSigner, *, closes: bool, now: float) -> None:
        """Add rows to the end of a chain in one step, with a signed head when one is due or `closes` is set."""
        ...

    def chains(self) -> list[str]:
        """Return the names of the chains: one in a database, one for each file of `jsonl:`."""
        ...

    def rows(self, chain: str, *, after: int = 0) -> Iterator[Sealed]:
        """Yield the rows of a chain in stored order."""
        ...

    def newest(self, *, since: float) -> Iterator[bytes]:
        """Yield the rows of all chains that began at `since` or later, the newest first.

        Rows of a single chain come in the reverse order of their numbers.
        """
        ...

    def heads(self, chain: str) -> list[Head]:
        """Return the signed heads of a chain, in order."""
        ...

    def prune(self, before: float, signer: HeadSigner, *, now: float) -> int:
        """Delete the rows of each chain up to the last one before a time, and leave a signed head; return how many."""
        ...

    def rewrite(self, change: Callable[[bytes], bytes | None], signer: HeadSigner, *, now: float) -> int:
        """Replace each row if `change` returns other bytes for it, and sign that; return how many.

        The hashes of the original rows stay, so that the chain holds.
        """
        ...

    def probe(self) -> None:
        """Check that the store can be written, without changing it."""
        ...

    def after_fork(self) -> None:
        """Leave to the parent what a child process must not share."""
        ...

    def close(self) -> None:
        """Close the open connections."""
        ...
