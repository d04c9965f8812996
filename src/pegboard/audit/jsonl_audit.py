"""JSONL audit: the audit in text files, one chain in each; every process that writes has a file to itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from pegboard.audit.audit_row import AuditRow, read_row
from pegboard.audit.hash_chain import ChainEnd, Head, HeadSigner, Sealed, Unsealed, hash_of, seal
from pegboard.audit.limits import AUDIT_HEAD_ROWS
from pegboard.model.error import DefinitionError
from pegboard.platforms import platform
from pegboard.storage.file_permissions import store_faults
from pegboard.storage.free_space import check_free_space
from pegboard.storage.store_error import StoreError
from pegboard.storage.whole_file import write_whole

MOST_FILES = 1_000  # processes that write at the same time
_HEADS = ".heads"  # what the name of the file with the signed heads of a chain ends with
_TAIL_BYTES = 1 << 16  # read at a time from the end of a file

_head_decoder = msgspec.json.Decoder(Head)


class JsonlAudit:
    """The audit in `FILE`, one row a line; implements `AuditStore`.

    The first process writes `audit.jsonl`, a second one at the same time `audit.1.jsonl`, and so on: a process locks
    its file until it closes it, and continues the chain in it. The signed heads of a chain are in `audit.jsonl.heads`.

    Raises:
        DefinitionError: the folder does not exist, or other users may write the file.
    """

    def __init__(self, path: Path) -> None:
        if not path.parent.is_dir():
            raise DefinitionError(f"there is no folder {str(path.parent)!r} for it")
        for fault in store_faults(path):
            raise DefinitionError(fault.message)
        self._path = path
        self._handle: int | None = None
        self._chain, self._end = "", ChainEnd()

    def append(self, rows: Sequence[Unsealed], signer: HeadSigner, *, closes: bool, now: float) -> None:
        with _explained(self._path):
            handle = self._opened()
            end, sealed = self._end, seal(rows, self._end)
            size = os.fstat(handle).st_size
            try:
                _write_all(handle, b"".join([line_of(row) for row in sealed]))
                os.fsync(handle)
            except OSError:
                # A part of the batch must not stay: it is written again.
                with suppress(OSError):
                    os.ftruncate(handle, size)
                raise
            if sealed:
                self._end = ChainEnd(sealed[-1].seq, sealed[-1].hash)
            last = self._end
            if last.seq and (closes or last.seq // AUDIT_HEAD_ROWS > end.seq // AUDIT_HEAD_ROWS):
                self._add_head(signer.signed(Head("head", self._chain, last.seq, now, last.hash)))

    def chains(self) -> list[str]:
        return [path.name for path in self._files()]

    def rows(self, chain: str, *, after: int = 0) -> Iterator[Sealed]:
        with _explained(self._path), self._path.with_name(chain).open("rb") as file:  # raw: the operator's own file
            for line in file:
                row = sealed_of(line)
                if row.seq > after or row.seq == 0:
                    yield row

    def newest(self, *, since: float) -> Iterator[bytes]:
        dated: list[tuple[float, bytes]] = []
        chains = self.chains()
        for chain in chains:
            # Rows that cannot be read have number 0; `verify` names them.
            dated += [(row.at, row.raw) for row in self.rows(chain) if row.seq and row.at >= since]
        if len(chains) > 1:
            # By time alone; the sort is stable, so rows of one chain stay in order.
            dated.sort(key=lambda each: each[0])
        return (raw for _, raw in reversed(dated))

    def heads(self, chain: str) -> list[Head]:
        with _explained(self._path), suppress(FileNotFoundError):
            lines = self._path.with_name(chain + _HEADS).read_bytes().splitlines()  # raw: the operator's own file
            return [head for line in lines if (head := _head_of(line)) is not None]
        return []

    def prune(self, before: float, signer: HeadSigner, *, now: float) -> int:
        """Prune the file that this process writes, or those that no process has locked."""
        count = 0
        with _explained(self._path):
            if self._handle is not None:
                return self._prune_open(before, signer, now=now)
            for path in self._files():
                handle = _open(path)
                try:
                    platform.lock_now(handle)
                except BlockingIOError:
                    os.close(handle)
                    continue
                self._take(path, handle)
                try:
                    count += self._prune_open(before, signer, now=now)
                finally:
                    self.close()
        return count

    def rewrite(self, change: Callable[[bytes], bytes | None], signer: HeadSigner, *, now: float) -> int:
        """Rewrite the files. A process that writes to one of them must end first: it would go on with the old file."""
        count = 0
        with _explained(self._path):
            for path in self._files():
                with self._alone(path):
                    count += self._rewrite_open(change, signer, now=now)
        return count

    @contextmanager
    def _alone(self, path: Path) -> Generator[None]:
        """Lock a file for the time of the block.

        Raises:
            StoreError: another process has it.
        """
        handle = _open(path)
        try:
            platform.lock_now(handle)
        except BlockingIOError:
            os.close(handle)
            raise StoreError(f"{str(path)!r} is in use: stop `pegboard serve`, and try again") from None
        self._take(path, handle)
        try:
            yield
        finally:
            self.close()

    def _rewrite_open(self, change: Callable[[bytes], bytes | None], signer: HeadSigner, *, now: float) -> int:
        rows = [*self.rows(self._chain)]
        if any(row.seq == 0 for row in rows):
            raise StoreError(f"{self._chain!r} has rows that cannot be read; `pegboard audit verify` names them")
        changed = [text if (text := change(row.raw)) is not None else row.raw for row in rows]
        count = 0
        for row, text in zip(rows, changed, strict=True):
            if text != row.raw:
                count += 1
                # The head first: with it, the original row is still accepted.
                self._add_head(signer.signed(Head("forgotten", self._chain, row.seq, now, hash_of(text))))
        if count:
            lines = [line_of(row._replace(raw=text)) for row, text in zip(rows, changed, strict=True)]
            write_whole(self._path.with_name(self._chain), b"".join(lines))
        return count

    def probe(self) -> None:
        folder = self._path.parent
        if not os.access(folder, os.W_OK | os.X_OK):
            raise StoreError(f"{str(self._path)!r} cannot be written: its folder is missing or read-only")
        if self._path.exists() and not os.access(self._path, os.W_OK):
            raise StoreError(f"{str(self._path)!r} cannot be written")
        check_free_space(self._path)

    def after_fork(self) -> None:
        """Leave the file to the parent: the lock belongs to both, and is released when both have closed it."""
        if self._handle is not None:
            os.close(self._handle)
        self._handle = None

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
        self._handle = None

    def _files(self) -> list[Path]:
        numbered = (self._numbered(number) for number in range(MOST_FILES))
        return [path for path in numbered if path.exists()]

    def _numbered(self, number: int) -> Path:
        return self._path.with_suffix(f".{number}{self._path.suffix}") if number else self._path

    def _opened(self) -> int:
        """Return the locked file of this process; the first that no other process has."""
        if self._handle is not None:
            return self._handle
        for number in range(MOST_FILES):
            path = self._numbered(number)
            for fault in store_faults(path):
                raise StoreError(fault.message)
            handle = _open(path)
            try:
                platform.lock_now(handle)
            except BlockingIOError:
                os.close(handle)
                continue
            self._take(path, handle)
            return handle
        raise StoreError(f"{str(self._path)!r}: {MOST_FILES} processes are writing already")

    def _take(self, path: Path, handle: int) -> None:
        self._chain = path.name
        last, torn = _last_line(handle)
        if torn:
            # A process was killed in the middle of a batch, none of which was acknowledged.
            os.ftruncate(handle, os.fstat(handle).st_size - torn)
        self._end = ChainEnd()
        for head in self.heads(self._chain):
            if head.kind == "pruned":
                self._end = ChainEnd(head.seq, head.hash)
        if last:
            row = sealed_of(last)
            # The stored hash, since names in the row may have been replaced; `verify` checks both.
            self._end = ChainEnd(row.seq, row.hash)
        self._handle = handle

    def _prune_open(self, before: float, signer: HeadSigner, *, now: float) -> int:
        assert self._handle is not None
        path = self._path.with_name(self._chain)
        old: list[Sealed] = []
        kept: list[Sealed] = []
        for row in self.rows(self._chain):
            (kept if kept or row.at >= before else old).append(row)
        if not old:
            return 0
        last = old[-1]
        # The head first: with it, rows that are still there do no harm.
        self._add_head(signer.signed(Head("pruned", self._chain, last.seq, now, last.hash)))
        os.close(self._handle)
        self._handle = None
        write_whole(path, b"".join([line_of(row) for row in kept]))
        return len(old)

    def _add_head(self, head: Head) -> None:
        handle = _open(self._path.with_name(head.chain + _HEADS))
        try:
            _write_all(handle, msgspec.json.encode(head) + b"\n")
            os.fsync(handle)
        finally:
            os.close(handle)


def line_of(row: Sealed) -> bytes:
    """Return a row as the line of a file: the row exactly as it was hashed, and its hash."""
    return b'{"hash":"%s","row":%s}\n' % (row.hash.encode(), row.raw)


_BEFORE_HASH, _HASH_CHARS, _BEFORE_ROW = len(b'{"hash":"'), 64, len(b'","row":')


def sealed_of(line: bytes) -> Sealed:
    """Return the row of a line; one that cannot be read has number 0."""
    start = _BEFORE_HASH + _HASH_CHARS
    raw = line.rstrip(b"\n")[start + _BEFORE_ROW : -1]
    mark = line[_BEFORE_HASH:start].decode("ascii", "replace")
    try:
        row = read_row(raw)
    except (msgspec.DecodeError, ValueError):
        row = AuditRow(at=0.0)
    return Sealed(row.seq, row.at, raw, mark)


def _head_of(line: bytes) -> Head | None:
    try:
        return _head_decoder.decode(line)
    except (msgspec.DecodeError, ValueError):
        return None


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o600)  # noqa: TID251 - the operator's own file


def _write_all(handle: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(handle, view) :]


def _last_line(handle: int) -> tuple[bytes, int]:
    """Return the last complete line, and the bytes of an incomplete one after it."""
    size = os.fstat(handle).st_size
    tail, start = b"", size
    while start and tail.count(b"\n") < 2:
        start = max(0, start - _TAIL_BYTES)
        os.lseek(handle, start, os.SEEK_SET)
        tail = _read(handle, size - start)
    complete, separator, torn = tail.rpartition(b"\n")
    return (complete.rpartition(b"\n")[2], len(torn)) if separator else (b"", len(tail))


def _read(handle: int, count: int) -> bytes:
    parts: Iterable[bytes] = iter(lambda: os.read(handle, 1 << 20), b"")
    return b"".join(parts)[:count]


@contextmanager
def _explained(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"{str(path)!r}: {error.strerror or error}") from error
