"""Ingest: synchronises a source with a folder: stores new and changed files, and removes deleted ones.

Files are read and parsed in parallel, in children that can be killed, and stored in atomic batches. An interrupted run
keeps what it stored, and the next run continues. Memory use does not depend on the size of the folder.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from msgspec import Struct

from pegboard.egress.files import FileEntry, Root
from pegboard.model.bounds import MIB
from pegboard.model.document import DocumentScope, NewDocument
from pegboard.model.error import CallError, DefinitionError
from pegboard.models.limits import LISTED_LINE_CHARS
from pegboard.workspace.file_reader import PARSERS, FileReader, checksum_of, with_error
from pegboard.workspace.parsing.encoding_names import known_encoding
from pegboard.workspace.parsing.formats import DETECTED, format_of
from pegboard.workspace.parsing.signatures import NO_PARSER, SIGNATURE_BYTES, unreadable_kind
from pegboard.workspace.shown_names import can_be_shown
from pegboard.workspace.store.document_store import INGEST_BATCH_DOCUMENTS, SqlDocumentStore
from pegboard.workspace.store.renaming import Rename
from pegboard.workspace.store.source_settings import SourceRoot
from pegboard.workspace.store.writing import Stored, StoredFile, prepared

INGEST_FOLDER_FILES = 1_000_000  # files in one folder
INGEST_LEVELS = 64  # nesting levels of folders
INGEST_AT_ONCE_BYTES = 32 * MIB  # bytes of files that are read but not yet stored
INGEST_BATCH_CHARS = 4_000_000  # characters of text in one batch
NOT_READ_LISTED = 10_000  # files that no parser reads in the report of one run
RENAMED_FILES = 100_000  # files that are gone for which new paths are searched in one run
SHRINK_PART = 2  # a source that loses more than one document in this many needs confirmation

_CONFIGS = frozenset({"pegboard.yaml", "pegboard.yml", "pegboard.lock"})
_TRIES = 3  # attempts to read a file that keeps changing


class BadFile(Struct, frozen=True, kw_only=True):
    """A file that could not be ingested, with a one-line reason."""

    path: str
    reason: str


@dataclass(kw_only=True, slots=True)
class IngestReport:
    """The outcome of one run. Reported files are stored."""

    total: int = 0
    """The files to examine, as counted at the start."""
    counts: Counter[Stored] = field(default_factory=Counter[Stored])
    removed: int = 0
    embedded: int = 0
    embedder_fault: str = ""
    empty: list[str] = field(default_factory=list[str])
    bad: list[BadFile] = field(default_factory=list[BadFile])
    kinds_not_read: Counter[str] = field(default_factory=Counter[str])
    """Files that no parser reads, such as pictures, by their endings."""
    not_read: list[BadFile] = field(default_factory=list[BadFile])
    """The first of these files, each with what it is."""

    @property
    def seen(self) -> int:
        """The number of files examined."""
        return self.counts.total() + self.kinds_not_read.total()

    @property
    def has_changes(self) -> bool:
        """Whether the run changed anything, or skipped a file."""
        return self.counts.total() > self.counts["unchanged"] or bool(self.removed or self.embedded or self.bad)

    def add_not_read(self, file: BadFile) -> None:
        """Count a file that no parser reads."""
        self.kinds_not_read[_ending(file.path)] += 1
        if len(self.not_read) < NOT_READ_LISTED:
            self.not_read.append(file)


class _Reader(Struct, frozen=True, kw_only=True):
    """The reader of a run's files; `reads_all` if their encoding was changed, `renamed` are new paths of old files."""

    files: FileReader
    encoding: str
    reads_all: bool
    renamed: frozenset[str]


class _GoneFiles(Struct, frozen=True, kw_only=True):
    """The documents of a source whose files are gone: how many of how many, and the first ones."""

    count: int
    total: int
    first: Sequence[StoredFile]


Observer = Callable[[IngestReport], None]


class FolderIngest(Struct, frozen=True, kw_only=True):
    """One run over a folder or a single file.

    Args:
        max_file_bytes: the largest file.
        encoding: of texts without a byte order mark, kept for later runs; `auto` detects it again, and `None` keeps the
            stored one.
        allow_shrink: whether the source may lose all or most of its documents.
        on_progress: called after each stored batch; `on_bad` at once for each file that was skipped.

    Raises:
        DefinitionError: the path is neither a folder nor a file.
    """

    store: SqlDocumentStore
    scope: DocumentScope
    space: str
    source: str
    path: Path
    max_file_bytes: int
    encoding: str | None = None
    allow_shrink: bool = False
    on_progress: Observer = lambda _: None
    on_bad: Callable[[BadFile], None] = lambda _: None

    async def run(self) -> IngestReport:
        """Ingest everything, and remove deleted documents.

        Raises:
            CallError: the space is read-only, or the store cannot be used; `busy` if the folder was moved meanwhile;
                `needs_review` if the source would lose most of its documents.
        """
        encoding = checked_encoding(self.encoding)
        root, only = self._root()
        began_in = await asyncio.to_thread(self._identity)
        report = IngestReport()
        renames: list[Rename] = []
        if only is None:
            # Checked first, so that a refused run changes nothing.
            gone = await self._gone_files(root)
            renames = await self._renames(root, gone, report)
            await self._check_shrink(root, began_in, gone.count - len(renames), gone.total)
        else:
            report.total = 1
        await self.store.begin_source(
            self.scope, self.space, self.source, type_="folder", origin=str(self.path.absolute())
        )
        encoding, is_new = await self.store.set_encoding(self.scope, self.space, self.source, encoding)
        renamed = await self._rename(renames)
        async with FileReader(max_chars=self.store.document_chars) as files:
            reader = _Reader(files=files, encoding=encoding, reads_all=is_new, renamed=renamed)
            await self._store_all(root, only, reader, report)
        if only is None:
            # The folder may have been unmounted while it was read.
            gone = await self._gone_files(root)
            await self._check_shrink(root, began_in, gone.count, gone.total)
            if gone.count:
                report.removed = await self._remove_gone(root, began_in)
            if began_in is not None:
                await self.store.put_source_root(self.scope, self.space, self.source, began_in)
        await self.store.end_source(self.scope, self.space, self.source)
        await embed_into(self.store, self.scope, self.space, report, self.on_progress)
        self.on_progress(report)
        return report

    def _root(self) -> tuple[Root, FileEntry | None]:
        if self.path.is_dir():
            return Root(path=self.path, hard_links=True), None
        if not self.path.is_file():
            raise DefinitionError(f"There is no folder or file {str(self.path)!r}.")
        # A link that the operator names is followed; links inside a folder are not.
        path = self.path.resolve()
        root = Root(path=path.parent, hard_links=True)
        return root, root.stat(path.name)

    # ------------------------------------------------------------ storing

    async def _store_all(self, root: Root, only: FileEntry | None, reader: _Reader, report: IngestReport) -> None:
        batch: list[NewDocument] = []
        chars = 0
        async for document in self._documents(root, only, reader, report):
            batch.append(document)
            chars += len(document.text)
            if len(batch) >= INGEST_BATCH_DOCUMENTS or chars >= INGEST_BATCH_CHARS:
                await self._store(batch, report)
                batch, chars = [], 0
        await self._store(batch, report)

    async def _store(self, batch: list[NewDocument], report: IngestReport) -> None:
        if batch:
            # In one batch, since switching to a thread costs as much as a page.
            ready = await asyncio.to_thread(lambda: [*map(prepared, batch)])
            stored = await self.store.put(self.scope, self.space, self.source, ready)
            report.counts.update(each for _, each in stored)
            report.empty += empty_of(batch, stored)
            for each in batch:
                if each.error:
                    self._report_bad(report, BadFile(path=each.path, reason=each.error))
        self.on_progress(report)

    async def _documents(
        self, root: Root, only: FileEntry | None, reader: _Reader, report: IngestReport
    ) -> AsyncIterator[NewDocument]:
        """Yield new and changed documents, several processed at once, in the order of the files."""
        working: deque[tuple[asyncio.Task[NewDocument | BadFile | Stored], int]] = deque()
        reading_bytes = 0
        try:
            async for entry, known in self._looked_up(
                [only] if only else self._files(root, lambda bad: self._report_bad(report, bad))
            ):
                while working and (len(working) >= 2 * PARSERS or reading_bytes > INGEST_AT_ONCE_BYTES):
                    task, size_bytes = working[0]
                    document = await task
                    working.popleft()
                    reading_bytes -= size_bytes
                    if isinstance(document, NewDocument):
                        yield document
                    else:
                        _count(report, document)
                size_bytes = min(entry.size_bytes, self.max_file_bytes)
                working.append((asyncio.create_task(self._document(root, entry, reader, known)), size_bytes))
                reading_bytes += size_bytes
            while working:
                document = await working[0][0]
                working.popleft()
                if isinstance(document, NewDocument):
                    yield document
                else:
                    _count(report, document)
        finally:
            for task, _ in working:
                task.cancel()
            await asyncio.gather(*(task for task, _ in working), return_exceptions=True)

    async def _looked_up(self, entries: Iterable[FileEntry]) -> AsyncIterator[tuple[FileEntry, str | None]]:
        """Yield files, each with the checksum of its stored document."""
        entries = iter(entries)
        while some := [*islice(entries, INGEST_BATCH_DOCUMENTS)]:
            known = await self.store.checksums(self.scope, self.space, self.source, [each.path for each in some])
            for entry in some:
                yield entry, known.get(entry.path)

    async def _document(
        self, root: Root, entry: FileEntry, reader: _Reader, known: str | None
    ) -> NewDocument | BadFile | Stored:
        """Return the document in a file, `unchanged` or `renamed` if it is stored already, or why nothing reads it."""
        unread = NewDocument(path=entry.path, mime=_mime(entry.path), size_bytes=entry.size_bytes, checksum="")
        name = entry.path.rpartition("/")[2]
        if name in _CONFIGS:
            # It may have addresses and passwords of stores.
            return BadFile(path=entry.path, reason=f"it is a config of Pegboard{NO_PARSER}")
        if known is None and format_of(name) is None:
            kind = await asyncio.to_thread(_unreadable_kind, root, entry.path)
            if kind is not None:
                return BadFile(path=entry.path, reason=f"it is {kind}{NO_PARSER}")
        if entry.size_bytes > self.max_file_bytes:
            size = f"{entry.size_bytes / MIB:,.0f} MiB"
            return with_error(unread, f"it has {size}; at most {self.max_file_bytes / MIB:,.0f} MiB are taken")
        try:
            payload = await asyncio.to_thread(_settled, root, entry.path, self.max_file_bytes)
        except CallError as error:
            return with_error(unread, error.error.message)
        except OSError as error:
            return with_error(unread, f"it cannot be read: {error.strerror}")
        if known is not None and known == checksum_of(payload) and not reader.reads_all:
            return "renamed" if entry.path in reader.renamed else "unchanged"
        return await reader.files.read(entry.path, payload, modified_s=entry.modified_s, encoding=reader.encoding)

    def _files(self, root: Root, on_bad: Callable[[BadFile], None]) -> Iterator[FileEntry]:
        """Yield the ordinary files, folder by folder, by name; hidden ones are skipped. `on_bad` gets other items."""
        waiting = ["."]
        while waiting:
            folder = waiting.pop()
            try:
                listing = root.listing(folder, max_entries=INGEST_FOLDER_FILES)
            except (CallError, OSError) as error:
                on_bad(BadFile(path=folder, reason=_reason(error)))
                continue
            below: list[str] = []
            for entry in listing:
                name = entry.path.rpartition("/")[2]
                if name.startswith("."):
                    continue
                fault = _fault(entry)
                if fault:
                    on_bad(BadFile(path=_printable(entry.path), reason=fault))
                elif entry.kind == "folder":
                    below.append(entry.path)
                else:
                    yield entry
            waiting += reversed(below)

    def _report_bad(self, report: IngestReport, bad: BadFile) -> None:
        bad = BadFile(path="".join(each if can_be_shown(each) else "�" for each in bad.path), reason=bad.reason)
        report.bad.append(bad)
        self.on_bad(bad)

    # ------------------------------------------------------------ removing

    def _identity(self) -> SourceRoot | None:
        """Return the identity of the folder; `None` if there is none at its path."""
        try:
            status = self.path.stat()
        except OSError:
            return None
        return SourceRoot(_printable(str(self.path.absolute())), status.st_dev, status.st_ino)

    async def _gone_files(self, root: Root) -> _GoneFiles:
        """Return the documents whose files are gone."""
        count = total = 0
        first: list[StoredFile] = []
        async for some in self._stored():
            total += len(some)
            gone = await asyncio.to_thread(_gone, root, some)
            count += len(gone)
            first += gone[: RENAMED_FILES - len(first)]
        return _GoneFiles(count=count, total=total, first=first)

    async def _renames(self, root: Root, gone: _GoneFiles, report: IngestReport) -> list[Rename]:
        """Return the documents whose files have another path now; count the files of the folder.

        A new file with the content of one that is gone is that file: under the same name in another folder, if there is
        one, or else under any name.
        """
        checksums = {each.checksum for each in gone.first}
        sizes = {each.size_bytes for each in gone.first}
        new: list[tuple[str, str]] = []
        entries = self._files(root, lambda _: None)
        while some := await asyncio.to_thread(lambda: [*islice(entries, INGEST_BATCH_DOCUMENTS)]):
            report.total += len(some)
            likely = [each for each in some if each.size_bytes in sizes and each.size_bytes <= self.max_file_bytes]
            if likely:
                stored = await self.store.checksums(self.scope, self.space, self.source, [each.path for each in likely])
                unknown = [each.path for each in likely if each.path not in stored]
                new += [
                    (path, checksum)
                    for path, checksum in await asyncio.to_thread(_checksums, root, unknown, self.max_file_bytes)
                    if checksum in checksums
                ]
        return _paired(new, gone.first)

    async def _rename(self, renames: Sequence[Rename]) -> frozenset[str]:
        """Give documents their new paths; return these."""
        moved: list[Rename] = []
        for start in range(0, len(renames), INGEST_BATCH_DOCUMENTS):
            some = renames[start : start + INGEST_BATCH_DOCUMENTS]
            moved += await self.store.rename_documents(self.scope, self.space, self.source, some)
        return frozenset(each.path for each in moved)

    async def _check_shrink(self, root: Root, began_in: SourceRoot | None, gone: int, total: int) -> None:
        """Check that a source does not lose all or most of its documents.

        An empty mount point and a mistyped path look like a folder whose files were deleted, and nobody watches a run
        from cron.

        Raises:
            CallError: needs_review, they are all or most of the source, or the source was read from another folder;
                busy, the folder is no longer at its path.
        """
        if not gone or self.allow_shrink:
            return
        await self._check_place(began_in)
        known = await self.store.source_root(self.scope, self.space, self.source)
        is_other = known is not None and began_in is not None and not known.is_same_folder(began_in)
        if is_other or gone * SHRINK_PART > total:
            raise CallError("needs_review", self._shrink_text(gone, total, known if is_other else None))

    def _shrink_text(self, gone: int, total: int, other: SourceRoot | None) -> str:
        documents = "document" if gone == 1 else "documents"
        whole = f"all {gone:,} {documents}" if gone == total else f"{gone:,} of {total:,} documents"
        text = f"Nothing was changed: {whole} of the source {self.source!r} would be removed, as"
        if gone == total == 1:
            text = f"Nothing was changed: the only document of the source {self.source!r} would be removed, as"
        if other is not None:
            return (
                f"{text} it was read from {other.path!r} before, and {str(self.path)!r} is another folder. Give this "
                "folder a source with another name (`--source`), or run it with --allow-shrink."
            )
        return (
            f"{text} {str(self.path)!r} does not have their files. If the folder is complete, run it with "
            "--allow-shrink; otherwise look whether it is mounted and its path is right."
        )

    async def _stored(self) -> AsyncIterator[list[StoredFile]]:
        """Yield the documents of the source in batches; nothing if the source does not exist."""
        place: tuple[str, str] | None = None
        while some := await self.store.documents_from(self.scope, self.space, self.source, place):
            place = some[-1].folder, some[-1].name
            yield some

    async def _check_place(self, began_in: SourceRoot | None) -> None:
        """Check that the folder of this run is still at its path.

        Raises:
            CallError: busy; it is not, so missing files prove nothing.
        """
        if began_in is None or await asyncio.to_thread(self._identity) != began_in:
            text = f"The folder {str(self.path)!r} was moved or exchanged while it was read; nothing was removed."
            raise CallError("busy", f"{text} Run it again.", retryable=True)

    async def _remove_gone(self, root: Root, began_in: SourceRoot | None) -> int:
        """Remove the documents whose files are gone.

        Raises:
            CallError: busy; the folder is no longer at its path.
        """
        removed = 0
        async for some in self._stored():
            gone = await asyncio.to_thread(_gone, root, some)
            if gone:
                # Checked after the files: a folder that was moved or unmounted before would seem empty.
                await self._check_place(began_in)
                numbers = [each.n for each in gone]
                removed += await self.store.remove_documents(self.scope, self.space, self.source, numbers)
        return removed


async def embed_into(
    store: SqlDocumentStore, scope: DocumentScope, space: str, report: IngestReport, on_progress: Observer
) -> None:
    """Embed new passages; failed ones are found by words, and embedded by the next run.

    Raises:
        CallError: the space is read-only, or the store cannot be used.
    """

    def count(embedded: int) -> None:
        report.embedded = embedded
        on_progress(report)

    try:
        await store.embed_missing(scope, space, on_progress=count)
        await store.index_vectors()
    except CallError:
        raise
    except Exception as error:  # noqa: BLE001 - boundary: an embedder is foreign code
        why = f"{type(error).__name__}: {str(error)[:LISTED_LINE_CHARS]}"
        report.embedder_fault = f"The embedder failed, so some passages are found by their words alone: {why}"


def _fault(entry: FileEntry) -> str:
    """Return why an item of a folder is skipped; empty if it is ingested."""
    try:
        entry.path.encode()
    except UnicodeEncodeError:
        return "its name is not valid UTF-8; rename it"
    if not can_be_shown(entry.path.replace("\t", " ")):
        return "its name has a character that cannot be shown, such as a line break; rename it"
    if entry.kind == "symlink":
        return "it is a symbolic link, which is not followed"
    if entry.kind == "special":
        return "it is not an ordinary file"
    if entry.kind == "folder" and entry.path.count("/") >= INGEST_LEVELS:
        return f"it is a folder below {INGEST_LEVELS} others"
    return ""


def _printable(path: str) -> str:
    return path.encode("utf-8", "backslashreplace").decode()


def _reason(error: CallError | OSError) -> str:
    return error.error.message if isinstance(error, CallError) else f"it cannot be read: {error.strerror}"


def _mime(path: str) -> str:
    return (format_of(path) or DETECTED).mime


def _count(report: IngestReport, outcome: BadFile | Stored) -> None:
    if isinstance(outcome, BadFile):
        report.add_not_read(outcome)
    else:
        report.counts[outcome] += 1


def _unreadable_kind(root: Root, path: str) -> str | None:
    """Return what a file is, if no parser reads it. A file that cannot be opened is reported when it is read."""
    try:
        with root.open_read(path) as file:
            return unreadable_kind(file.read(SIGNATURE_BYTES))
    except (CallError, OSError):
        return None


def _settled(root: Root, path: str, max_bytes: int) -> bytes:
    """Return the content of a file that did not change while it was read.

    Raises:
        CallError: it keeps changing, is too large, or is not an ordinary file any more.
    """
    for _ in range(_TRIES):
        before = root.stat(path)
        with root.open_read(path) as file:
            payload = file.read(max_bytes + 1)
        if len(payload) > max_bytes:
            raise CallError("result_too_large", f"it has more than {max_bytes / MIB:,.0f} MiB")
        if root.stat(path) == before and len(payload) == before.size_bytes:
            return payload
    raise CallError("busy", "it changes while it is read")


def _checksums(root: Root, paths: Sequence[str], max_bytes: int) -> list[tuple[str, str]]:
    """Return files with the checksums of their contents, without those that cannot be read."""
    found: list[tuple[str, str]] = []
    for path in paths:
        with suppress(CallError, OSError):
            found.append((path, checksum_of(_settled(root, path, max_bytes))))
    return found


def _paired(new: Sequence[tuple[str, str]], gone: Sequence[StoredFile]) -> list[Rename]:
    """Return the new paths of files that are gone, by equal checksums and preferably equal names."""
    namesakes: dict[tuple[str, str], list[StoredFile]] = {}
    for each in reversed(gone):
        namesakes.setdefault((each.checksum, each.name), []).append(each)
    renames: list[Rename] = []
    left: list[tuple[str, str]] = []
    for path, checksum in new:
        same = namesakes.get((checksum, path.rpartition("/")[2]))
        if same:
            renames.append(Rename(same.pop().n, path))
        else:
            left.append((path, checksum))
    others: dict[str, list[StoredFile]] = {}
    for same in namesakes.values():
        for each in same:
            others.setdefault(each.checksum, []).append(each)
    for path, checksum in left:
        if others.get(checksum):
            each = others[checksum].pop()
            renames.append(Rename(each.n, path, reads_again=format_of(each.name) != format_of(path)))
    return renames


def _gone(root: Root, documents: Sequence[StoredFile]) -> list[StoredFile]:
    return [each for each in documents if not _is_there(root, each.folder, each.name)]


def _is_there(root: Root, folder: str, name: str) -> bool:
    """Tell whether a document's file still exists and would be ingested."""
    if any(part.startswith(".") or not can_be_shown(part.replace("\t", " ")) for part in (*folder.split("/"), name)):
        return False
    try:
        return root.stat(f"{folder}/{name}" if folder else name).kind == "file"
    except CallError as error:
        return error.error.kind != "invalid_arguments"


def empty_of(documents: Sequence[NewDocument], stored: Sequence[tuple[str, Stored]]) -> list[str]:
    """Return the paths of new or changed documents without text."""
    return [
        each.path
        for each, (_, became) in zip(documents, stored, strict=True)
        if each.is_empty and became in ("added", "changed")
    ]


def checked_encoding(encoding: str | None) -> str | None:
    """Return Python's name of an encoding; empty for `auto`.

    Raises:
        DefinitionError: the encoding is unknown.
    """
    if encoding is None or encoding == "auto":
        return None if encoding is None else ""
    known = known_encoding(encoding)
    if known is None:
        text = f"There is no encoding {encoding[:40]!r}. Write one such as utf-8, cp1252, latin-1 or utf-16, or auto."
        raise DefinitionError(text)
    return known


def describe(report: IngestReport) -> str:
    """Return the outcome of a run in one line."""
    counts = report.counts
    parts = [
        f"{counts[each]} {each}" for each in ("added", "changed", "renamed", "unchanged", "failed") if counts[each]
    ]
    if report.removed:
        parts.append(f"{report.removed} removed")
    if report.empty:
        parts.append(f"{len(report.empty)} without text")
    if report.embedded:
        parts.append(f"{report.embedded} passages embedded")
    return ", ".join(parts) or "nothing to take in"


def describe_not_read(report: IngestReport) -> str:
    """Return the files that no parser reads in one line, by ending, each with what the first of them is."""
    what: dict[str, str] = {}
    for each in report.not_read:
        what.setdefault(_ending(each.path), each.reason.removeprefix("it is ").removesuffix(NO_PARSER))
    return ", ".join(
        f"{count} {'.' + ending if ending else 'without an ending'}{f' ({what[ending]})' if ending in what else ''}"
        for ending, count in report.kinds_not_read.most_common()
    )


def _ending(path: str) -> str:
    name = path.rpartition("/")[2]
    return name.rpartition(".")[2].lower() if "." in name else ""


def describe_progress(report: IngestReport, elapsed_s: float) -> str:
    """Return how far a run is: files of their total, the time left, and the outcome so far."""
    seen, total = report.seen, max(report.total, report.seen)
    parts = [f"{seen:,} of {total:,} files"]
    if 0 < seen < total:
        left_s = elapsed_s / seen * (total - seen)
        minutes, seconds = divmod(round(left_s), 60)
        hours, minutes = divmod(minutes, 60)
        parts.append(f"{hours}:{minutes:02}:{seconds:02} left" if hours else f"{minutes}:{seconds:02} left")
    return f"{', '.join(parts)}: {describe(report)}"
