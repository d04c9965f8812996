"""Verify chain: find the rows of an audit that were altered, removed, moved, added or cut off."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from pegboard.audit.audit_row import AuditRow, read_row
from pegboard.audit.audit_store import AuditStore
from pegboard.audit.hash_chain import ChainEnd, Head, HeadSigner, Sealed, hash_of


class ChainFault(NamedTuple):
    """A fault of a chain, and the number of its row."""

    seq: int
    text: str


class CheckedChain(NamedTuple):
    """The result of checking one chain: its rows and faults, and the last head that proves its end."""

    chain: str
    rows: int
    end: ChainEnd
    proven: int
    faults: list[ChainFault]
    forgotten: int
    """Rows where `pegboard forget` removed names."""


def verify(store: AuditStore, signer: HeadSigner, *, known: Iterable[Head] = ()) -> Iterator[CheckedChain]:
    """Check every chain of a store. `known` are heads that were kept elsewhere, which nobody could delete.

    Raises:
        StoreError: the store cannot be read.
    """
    elsewhere = [*known]
    # A chain whose file was deleted has no rows, and its heads say so.
    for chain in dict.fromkeys([*store.chains(), *(head.chain for head in elsewhere)]):
        heads = [*store.heads(chain), *(head for head in elsewhere if head.chain == chain)]
        yield check_chain(chain, store.rows(chain), heads, signer)


def check_chain(chain: str, rows: Iterable[Sealed], heads: Sequence[Head], signer: HeadSigner) -> CheckedChain:
    """Check the rows of one chain against each other and against its heads."""
    faults = [
        ChainFault(head.seq, f"the {head.kind} row at {head.seq} does not have a valid signature")
        for head in heads
        if not signer.is_genuine(head)
    ]
    genuine = [head for head in heads if signer.is_genuine(head)]
    end = ChainEnd()
    for head in genuine:
        if head.kind == "pruned" and head.seq > end.seq:
            end = ChainEnd(head.seq, head.hash)
    begin, count, forgotten_count = end.seq, 0, 0
    # Of several for one row, the last one counts.
    forgotten = {head.seq: head.hash for head in genuine if head.kind == "forgotten"}
    genuine = [head for head in genuine if head.kind != "forgotten"]
    # Only the hashes at heads are needed later.
    hashes = {head.seq: "" for head in genuine}
    for stored in rows:
        if 0 < stored.seq <= begin:
            continue
        count += 1
        actual = hash_of(stored.raw)
        if actual != stored.hash and forgotten.get(stored.seq) == actual:
            forgotten_count += 1
            actual = stored.hash
        end = _next(stored, actual, end, faults)
        if end.seq in hashes:
            hashes[end.seq] = end.hash
    proven = begin
    for head in genuine:
        if head.seq <= begin:
            continue
        if head.seq > end.seq:
            faults.append(ChainFault(head.seq, f"rows {end.seq + 1} to {head.seq} were cut off from the end"))
        elif hashes[head.seq] != head.hash:
            faults.append(ChainFault(head.seq, f"row {head.seq} or one before it was replaced: its head differs"))
        else:
            proven = max(proven, head.seq)
    return CheckedChain(chain, count, end, proven, faults, forgotten_count)


def _next(stored: Sealed, actual: str, end: ChainEnd, faults: list[ChainFault]) -> ChainEnd:
    """Check one row with its hash against the row before it; return it as the new end."""
    place = end.seq + 1
    try:
        row = read_row(stored.raw)
    except (msgspec.DecodeError, ValueError):
        row = AuditRow(at=stored.at)
    number = stored.seq or place
    if row.seq == 0:
        faults.append(ChainFault(number, f"row {number} was altered: it cannot be read"))
    elif row.seq != stored.seq:
        faults.append(ChainFault(number, f"row {number} was moved: it was written as row {row.seq}"))
    elif actual != stored.hash or row.at != stored.at:
        faults.append(ChainFault(number, f"row {number} was altered: its hash differs"))
    elif number < place:
        faults.append(ChainFault(number, f"row {number} was added or moved: it follows row {end.seq}"))
        return end
    elif number > place:
        missing = f"row {place} is" if number == place + 1 else f"rows {place} to {number - 1} are"
        faults.append(ChainFault(place, f"{missing} missing"))
        return ChainEnd(number, actual)
    elif row.previous != end.hash:
        text = f"row {number} does not continue row {end.seq}: one of the two was replaced"
        faults.append(ChainFault(number, text))
    # Continue with the stored hash: the next row was written after the original.
    return ChainEnd(max(number, place), stored.hash)
