"""Folder source: the files of a folder, or one file, as a document source."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from pegboard.egress.files import FileEntry, Root
from pegboard.model.bounds import MIB
from pegboard.model.document import SourceType
from pegboard.model.error import CallError, DefinitionError
from pegboard.workspace.parsing.signatures import SIGNATURE_BYTES
from pegboard.workspace.shown_names import can_be_shown
from pegboard.workspace.sources.document_source import (
    INGEST_FOLDER_FILES,
    INGEST_LEVELS,
    BadFile,
    Fetched,
    SourceFile,
    is_hidden,
    path_fault,
    path_of_stored,
)
from pegboard.workspace.store.source_settings import SourceRoot
from pegboard.workspace.store.writing import StoredFile

SETTLED_S = 2.0  # how long after a change a file may change again with the same time stamp, in seconds
FOLDER_BATCH_FILES = 100  # files listed at once

_TRIES = 3  # attempts to read a file that keeps changing
_OUTPUTS: Final = (1, 2)


class FolderSource:
    """The ordinary files in a folder; hidden files and symbolic links are skipped. A single file removes nothing.

    Args:
        path: the folder or file.
        is_own: tells which files Pegboard itself writes, such as its stores; they are skipped. So is the output of this
            process: reading it would change it again.

    Raises:
        DefinitionError: there is neither a folder nor a file.
    """

    type: SourceType = "folder"

    def __init__(self, path: Path, *, is_own: Callable[[Path], bool] = lambda _: False) -> None:
        self._path, self._is_own = path, is_own
        self._only: FileEntry | None = None
        self._outputs = frozenset[tuple[int, int]]()
        if path.is_dir():
            self._root = Root(path=path, hard_links=True)
        elif path.is_file():
            # A link that the operator names is followed; links inside a folder are not.
            file = path.resolve()
            self._root = Root(path=file.parent, hard_links=True)
            self._only = self._root.stat(file.name)
        else:
            raise DefinitionError(f"There is no folder or file {str(path)!r}.")
        self.is_whole = self._only is None

    @property
    def origin(self) -> str:
        return _printable(str(self._path.absolute()))

    async def __aenter__(self) -> Self:
        self._outputs = own_outputs()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    async def place(self) -> SourceRoot | None:
        return await asyncio.to_thread(self._identity)

    def version(self) -> str:
        return ""

    async def files(self, on_bad: Callable[[BadFile], None]) -> AsyncIterator[Sequence[SourceFile]]:
        if self._only is not None:
            yield [_file(self._only)]
            return
        entries = self._entries(on_bad)
        while some := await asyncio.to_thread(lambda: [*islice(entries, FOLDER_BATCH_FILES)]):
            yield [*map(_file, some)]

    async def beginning(self, file: SourceFile) -> bytes:
        return await asyncio.to_thread(self._beginning, file.path)

    async def fetch(self, file: SourceFile, *, max_bytes: int, known_etag: str) -> Fetched | None:
        return await asyncio.to_thread(self._settled, file.path, max_bytes)

    async def without_file(self, documents: Sequence[StoredFile]) -> list[StoredFile]:
        return await asyncio.to_thread(lambda: [each for each in documents if not self._is_there(each)])

    # ------------------------------------------------------------ in threads

    def _identity(self) -> SourceRoot | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return SourceRoot(self.origin, status.st_dev, status.st_ino)

    def _entries(self, on_bad: Callable[[BadFile], None]) -> Iterator[FileEntry]:
        """Yield the ordinary files, folder by folder, by name."""
        waiting = ["."]
        while waiting:
            folder = waiting.pop()
            try:
                listing = self._root.listing(folder, max_entries=INGEST_FOLDER_FILES)
            except (CallError, OSError) as error:
                on_bad(BadFile(path=folder, reason=_reason(error)))
                continue
            below: list[str] = []
            for entry in listing:
                if entry.path.rpartition("/")[2].startswith(".") or self._is_ours(entry):
                    continue
                fault = _fault(entry)
                if fault:
                    on_bad(BadFile(path=_printable(entry.path), reason=fault))
                elif entry.kind == "folder":
                    below.append(entry.path)
                else:
                    yield entry
            waiting += reversed(below)

    def _is_ours(self, entry: FileEntry) -> bool:
        path = self._path / entry.path
        return self._is_own(path) or (entry.kind == "file" and is_output(path, self._outputs))

    def _beginning(self, path: str) -> bytes:
        with self._root.open_read(path) as file:
            return file.read(SIGNATURE_BYTES)

    def _settled(self, path: str, max_bytes: int) -> Fetched:
        """Return the content of a file that did not change while it was read."""
        for _ in range(_TRIES):
            before = self._root.stat(path)
            with self._root.open_read(path) as file:
                payload = file.read(max_bytes + 1)
            if len(payload) > max_bytes:
                raise CallError("result_too_large", f"it has more than {max_bytes / MIB:,.0f} MiB")
            if self._root.stat(path) == before and len(payload) == before.size_bytes:
                return Fetched(payload=payload, etag=_etag(before))
        raise CallError("busy", "it changes while it is read")

    def _is_there(self, document: StoredFile) -> bool:
        """Tell whether a document's file still exists and would be ingested."""
        path = path_of_stored(document)
        if is_hidden(path) or not can_be_shown(path.replace("\t", " ")):
            return False
        try:
            return self._root.stat(path).kind == "file"
        except CallError as error:
            return error.error.kind != "invalid_arguments"


def own_outputs() -> frozenset[tuple[int, int]]:
    """Return the device and inode numbers of the files that receive the output of this process."""
    found: set[tuple[int, int]] = set()
    for handle in _OUTPUTS:
        with suppress(OSError):
            status = os.fstat(handle)
            if stat.S_ISREG(status.st_mode):
                found.add((status.st_dev, status.st_ino))
    return frozenset(found)


def is_output(path: Path, outputs: frozenset[tuple[int, int]]) -> bool:
    """Tell whether a file is among those that `own_outputs` returned."""
    if not outputs:
        return False
    with suppress(OSError):
        status = path.stat(follow_symlinks=False)
        return (status.st_dev, status.st_ino) in outputs
    return False


def _file(entry: FileEntry) -> SourceFile:
    return SourceFile(path=entry.path, size_bytes=entry.size_bytes, etag=_etag(entry), modified_s=entry.modified_s)


def _etag(entry: FileEntry) -> str:
    """Return the version of a file; empty if it changed a moment ago and may do so again within the same time stamp."""
    return "" if time.time() - entry.changed_s < SETTLED_S else entry.version


def _fault(entry: FileEntry) -> str:
    """Return why an item of a folder is skipped; empty if it is ingested."""
    fault = path_fault(entry.path)
    if fault:
        return fault
    if entry.kind == "symlink":
        return "it is a symbolic link, which is not followed"
    if entry.kind == "special":
        return "it is not an ordinary file"
    if entry.kind == "folder" and entry.path.count("/") >= INGEST_LEVELS:
        return f"it is a folder below {INGEST_LEVELS} others"
    return ""


def _reason(error: CallError | OSError) -> str:
    return error.error.message if isinstance(error, CallError) else f"it cannot be read: {error.strerror}"


def _printable(path: str) -> str:
    return path.encode("utf-8", "backslashreplace").decode()
