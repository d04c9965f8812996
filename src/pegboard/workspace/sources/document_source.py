"""Document source: the port between an ingest run and the place of the files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Protocol, Self

from msgspec import Struct

from pegboard.model.document import SourceType
from pegboard.model.error import CallError
from pegboard.workspace.shown_names import can_be_shown
from pegboard.workspace.store.source_settings import SourceRoot
from pegboard.workspace.store.writing import StoredFile

INGEST_FOLDER_FILES = 1_000_000  # files in one folder, repository or bucket
INGEST_LEVELS = 64  # nesting levels of folders


class BadFile(Struct, frozen=True, kw_only=True):
    """A file that could not be ingested, with a one-line reason."""

    path: str
    reason: str


class SourceFile(Struct, frozen=True, kw_only=True):
    """A file of a source. `etag` is another one after each change of its content; empty if unknown before a fetch.

    `size_bytes` is 0 if it is unknown.
    """

    path: str
    size_bytes: int
    etag: str = ""
    modified_s: float | None = None


class Fetched(Struct, frozen=True, kw_only=True):
    """The content of a file. `etag` replaces the etag of the list; `name` tells the format, if the path does not."""

    payload: bytes
    etag: str
    name: str = ""


class DocumentSource(Protocol):
    """The files of one source, for one run: `async with source` begins and ends it.

    Its methods raise `CallError` or `OSError` if the place cannot be read, so that nothing is removed.
    """

    @property
    def type(self) -> SourceType:
        """The type of the source."""
        ...

    @property
    def origin(self) -> str:
        """The place of the files, for people. It contains no credentials."""
        ...

    @property
    def is_whole(self) -> bool:
        """Whether documents are removed whose files are not listed."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def place(self) -> SourceRoot | None:
        """Return the identity of the place now; `None` if there is nothing."""
        ...

    def version(self) -> str:
        """Return a text that changes with any of the files, such as a commit; empty if there is none."""
        ...

    def files(self, on_bad: Callable[[BadFile], None]) -> AsyncIterator[Sequence[SourceFile]]:
        """Yield the files in batches, always in the same order. `on_bad` gets what is skipped."""
        ...

    async def beginning(self, file: SourceFile) -> bytes:
        """Return the first bytes of a file, for recognizing its format; at least `SIGNATURE_BYTES` of them."""
        ...

    async def fetch(self, file: SourceFile, *, max_bytes: int, known_etag: str) -> Fetched | None:
        """Return the content of a file; `None` if it still has the known etag.

        Raises:
            CallError: it is too large, or cannot be read.
        """
        ...

    async def without_file(self, documents: Sequence[StoredFile]) -> list[StoredFile]:
        """Return the documents whose files are gone."""
        ...


def check_count(count: int, origin: str) -> None:
    """Refuse a source with too many files: with a part of them, the rest would seem to be gone.

    Raises:
        CallError: result_too_large.
    """
    if count > INGEST_FOLDER_FILES:
        text = f"{origin} has more than {INGEST_FOLDER_FILES:,} files. Ingest parts of it, each as its own source."
        raise CallError("result_too_large", text)


def path_fault(path: str) -> str:
    """Return why a file with this path is skipped; empty if it is ingested."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return "its name is not valid UTF-8; rename it"
    if not can_be_shown(path.replace("\t", " ")):
        return "its name has a character that cannot be shown, such as a line break; rename it"
    return ""


def is_hidden(path: str) -> bool:
    """Tell whether a name in a path begins with a dot."""
    return any(part.startswith(".") for part in path.split("/"))


def path_of_stored(document: StoredFile) -> str:
    """Return the path of a stored document."""
    return f"{document.folder}/{document.name}" if document.folder else document.name
