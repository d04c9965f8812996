"""Ingest: synchronises a source with its place: stores new and changed files, and removes deleted ones.

Files are read and parsed in parallel, in children that can be killed, and stored in atomic batches. An interrupted run
keeps what it stored, and the next run continues. Memory use does not depend on the size of a folder.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field

from msgspec import Struct

from pegboard.core.cancellation import cancel_and_wait
from pegboard.model.bounds import MIB
from pegboard.model.document import DocumentScope, NewDocument
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.record import replace
from pegboard.models.limits import LISTED_LINE_CHARS
from pegboard.workspace.failed_files import FailedFiles
from pegboard.workspace.file_reader import PARSERS, FileReader, checksum_of, with_error
from pegboard.workspace.own_metadata import checked_metadata
from pegboard.workspace.parsers import Parsers
from pegboard.workspace.parsing.encoding_names import known_encoding
from pegboard.workspace.parsing.formats import DETECTED, format_of
from pegboard.workspace.parsing.signatures import NO_PARSER, unreadable_kind
from pegboard.workspace.shown_names import can_be_shown
from pegboard.workspace.sources.document_source import BadFile, DocumentSource, SourceFile
from pegboard.workspace.store.document_store import INGEST_BATCH_DOCUMENTS, SqlDocumentStore
from pegboard.workspace.store.renaming import Rename
from pegboard.workspace.store.source_settings import SourceRoot, SourceVersion
from pegboard.workspace.store.writing import KnownFile, Stored, StoredFile, prepared

INGEST_AT_ONCE_BYTES = 32 * MIB  # bytes of files that are read but not yet stored
INGEST_BATCH_CHARS = 4_000_000  # characters of text in one batch
NOT_READ_LISTED = 10_000  # files that no parser reads in the report of one run
RENAMED_FILES = 100_000  # missing files whose new paths are searched in one run
SHRINK_PART = 2  # a source that loses more than one document in this many needs confirmation

_CONFIGS = frozenset({"pegboard.yaml", "pegboard.yml", "pegboard.lock"})


@dataclass(kw_only=True, slots=True)
class IngestReport:
    """The outcome of one run. The files that it counts are stored."""

    total: int = 0
    """The files to examine, as counted at the start."""
    counts: Counter[Stored] = field(default_factory=Counter[Stored])
    removed: int = 0
    embedded: int = 0
    embedder_fault: str = ""
    empty: list[str] = field(default_factory=list[str])
    bad: list[BadFile] = field(default_factory=list[BadFile])
    waiting: int = 0
    """Files that could not be read lately, and are tried again later. They count as failed."""
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
        return self.counts.total() > self.counts["unchanged"] + self.waiting or bool(
            self.removed or self.embedded or self.bad
        )

    def add_not_read(self, file: BadFile) -> None:
        """Count a file that no parser reads."""
        self.kinds_not_read[_ending(file.path)] += 1
        if len(self.not_read) < NOT_READ_LISTED:
            self.not_read.append(file)


class _Reader(Struct, frozen=True, kw_only=True):
    """The reader of a run's files.

    `reads_all` if their encoding or metadata was changed, `renamed` are new paths of old files. `parsers_before` are
    those of the last run.
    """

    files: FileReader
    encoding: str
    metadata: Mapping[str, str]
    reads_all: bool
    renamed: frozenset[str]
    parsers: Parsers
    parsers_before: Parsers

    def reads_again(self, path: str) -> bool:
        """Tell whether a file is read again although it has not changed."""
        return self.reads_all or (
            self.parsers is not self.parsers_before and self.parsers.way(path) != self.parsers_before.way(path)
        )


class _Unchanged(Struct, frozen=True, kw_only=True):
    """A file whose document stays as it is. `etag` is its version now, to be recorded; empty if it is known.

    `kept` says why the file could not be read; empty if it was. `is_waiting` means that it was not tried.
    """

    path: str
    outcome: Stored = "unchanged"
    etag: str = ""
    kept: str = ""
    is_waiting: bool = False


_Outcome = NewDocument | BadFile | _Unchanged


class _GoneFiles(Struct, frozen=True, kw_only=True):
    """The documents of a source whose files are gone: how many of how many, and the first ones."""

    count: int
    total: int
    first: Sequence[StoredFile]


Observer = Callable[[IngestReport], None]


class SourceIngest(Struct, frozen=True, kw_only=True):
    """One run over the files of a source.

    Args:
        name: of the source in its space.
        max_file_bytes: the largest file.
        encoding: of texts without a byte order mark, kept for later runs; `auto` detects it again, and `None` keeps the
            stored one.
        metadata: of every document, kept for later runs; `None` keeps the stored one.
        allow_shrink: whether the source may lose all or most of its documents.
        failed: the files that earlier runs could not read; those are not tried again in each run.
        reads_again: whether unchanged files are read again, such as after a change of a parser.
        on_progress: called after each stored batch; `on_bad` at once for each file that was skipped.
    """

    store: SqlDocumentStore
    scope: DocumentScope
    space: str
    name: str
    source: DocumentSource
    max_file_bytes: int
    encoding: str | None = None
    metadata: Mapping[str, str] | None = None
    allow_shrink: bool = False
    failed: FailedFiles | None = None
    reads_again: bool = False
    on_progress: Observer = lambda _: None
    on_bad: Callable[[BadFile], None] = lambda _: None

    async def run(self) -> IngestReport:
        """Ingest everything, and remove deleted documents.

        Raises:
            CallError: the space is read-only, or the store or the source cannot be used; `busy` if the folder was moved
                meanwhile; `needs_review` if the source would lose most of its documents.
        """
        encoding = checked_encoding(self.encoding)
        if self.metadata is not None:
            checked_metadata(self.metadata)
        async with self.source:
            return await self._run(encoding)

    async def _run(self, encoding: str | None) -> IngestReport:
        began_in = await self.source.place()
        report = IngestReport()
        version = self._version()
        if version and encoding is None and not self.allow_shrink and not self.reads_again:
            known = await self.store.source_version(self.scope, self.space, self.name)
            if known is not None and known.version == version and known.origin == self.source.origin:
                report.total = known.documents
                report.counts["unchanged"] = known.documents
                await embed_into(self.store, self.scope, self.space, report, self.on_progress)
                self.on_progress(report)
                return report
        renames: list[Rename] = []
        if self.source.is_whole:
            # Checked first, so that a refused run changes nothing.
            gone = await self._gone_files()
            renames = await self._renames(gone, report)
            await self._check_shrink(began_in, gone.count - len(renames), gone.total)
        else:
            report.total = 1
        await self.store.begin_source(
            self.scope, self.space, self.name, type_=self.source.type, origin=self.source.origin
        )
        encoding, is_new = await self.store.set_encoding(self.scope, self.space, self.name, encoding)
        metadata, has_new = await self.store.set_metadata(self.scope, self.space, self.name, self.metadata)
        renamed = await self._rename(renames)
        parsers = self.store.parsers
        recorded = await self.store.source_parsers(self.scope, self.space, self.name)
        is_same = recorded == parsers.recorded()
        async with FileReader(max_chars=self.store.document_chars, parsers=parsers) as files:
            reader = _Reader(
                files=files,
                encoding=encoding,
                metadata=metadata,
                reads_all=is_new or has_new or self.reads_again,
                renamed=renamed,
                parsers=parsers,
                parsers_before=parsers if is_same else Parsers.of_record(recorded),
            )
            await self._store_all(reader, report)
        if not is_same and self.source.is_whole:
            # Now that all files are read: an interrupted run reads the others again.
            await self.store.put_source_parsers(self.scope, self.space, self.name, parsers.recorded())
        if self.source.is_whole:
            # The folder may have been unmounted while it was read.
            gone = await self._gone_files()
            await self._check_shrink(began_in, gone.count, gone.total)
            if gone.count:
                report.removed = await self._remove_gone(began_in)
            if began_in is not None:
                await self.store.put_source_root(self.scope, self.space, self.name, began_in)
        if version and not (report.bad or report.waiting):
            done = SourceVersion(self._version(), self.source.origin, sum(report.counts.values()))
            await self.store.put_source_version(self.scope, self.space, self.name, done)
        await self.store.end_source(self.scope, self.space, self.name)
        await embed_into(self.store, self.scope, self.space, report, self.on_progress)
        self.on_progress(report)
        return report

    def _version(self) -> str:
        """Return the version of the place, the parsers and the metadata; empty if the place has none."""
        version = self.source.version()
        if version and self.store.parsers.recorded():
            version += f" {sorted(self.store.parsers.recorded().items())}"
        return f"{version} {sorted(self.metadata.items())}" if version and self.metadata is not None else version

    # ------------------------------------------------------------ storing

    async def _store_all(self, reader: _Reader, report: IngestReport) -> None:
        batch: list[NewDocument] = []
        etags: dict[str, str] = {}
        chars = 0
        # Closed before the parsers: after a fault the tasks in it still use them.
        async with aclosing(self._outcomes(reader, report)) as outcomes:
            async for outcome in outcomes:
                if isinstance(outcome, BadFile):
                    report.add_not_read(outcome)
                elif isinstance(outcome, _Unchanged):
                    report.counts[outcome.outcome] += 1
                    report.waiting += outcome.is_waiting
                    if outcome.kept:
                        self._report_bad(report, BadFile(path=outcome.path, reason=outcome.kept))
                    etags |= {outcome.path: outcome.etag} if outcome.etag else {}
                else:
                    batch.append(outcome)
                    chars += len(outcome.text)
                if len(batch) + len(etags) >= INGEST_BATCH_DOCUMENTS or chars >= INGEST_BATCH_CHARS:
                    await self._store(batch, etags, report)
                    batch, etags, chars = [], {}, 0
        await self._store(batch, etags, report)

    async def _store(self, batch: list[NewDocument], etags: Mapping[str, str], report: IngestReport) -> None:
        if etags:
            await self.store.put_etags(self.scope, self.space, self.name, etags)
        if batch:
            # In one batch, since switching to a thread costs as much as a page.
            ready = await asyncio.to_thread(
                lambda: [replace(prepared(each), is_forced=self.reads_again) for each in batch]
            )
            stored = await self.store.put(self.scope, self.space, self.name, ready)
            report.counts.update(each for _, each in stored)
            report.empty += empty_of(batch, stored)
            for each in batch:
                if each.error:
                    self._report_bad(report, BadFile(path=each.path, reason=each.error))
        self.on_progress(report)

    async def _outcomes(self, reader: _Reader, report: IngestReport) -> AsyncGenerator[_Outcome]:
        """Yield the outcome of each file, several processed at once, in the order of the files."""
        working: deque[tuple[asyncio.Task[_Outcome], int]] = deque()
        reading_bytes = 0
        try:
            async for file, known in self._looked_up(report):
                outcome = self._known_outcome(file, known, reader)
                if outcome is not None:
                    yield outcome
                    continue
                while working and (len(working) >= 2 * PARSERS or reading_bytes > INGEST_AT_ONCE_BYTES):
                    task, size_bytes = working[0]
                    ended = await task
                    working.popleft()
                    reading_bytes -= size_bytes
                    yield ended
                size_bytes = min(file.size_bytes, self.max_file_bytes)
                working.append((asyncio.create_task(self._tried(file, reader, known)), size_bytes))
                reading_bytes += size_bytes
            while working:
                ended = await working[0][0]
                working.popleft()
                yield ended
        finally:
            await cancel_and_wait(*(task for task, _ in working))

    async def _looked_up(self, report: IngestReport) -> AsyncIterator[tuple[SourceFile, KnownFile | None]]:
        """Yield files, each with its stored document."""
        async for some in self.source.files(lambda bad: self._report_bad(report, bad)):
            known = await self.store.known_files(self.scope, self.space, self.name, [each.path for each in some])
            for file in some:
                yield file, known.get(file.path)

    def _known_outcome(self, file: SourceFile, known: KnownFile | None, reader: _Reader) -> _Outcome | None:
        """Return the outcome of a file with the etag of before, or of one that failed; `None` if it has to be read."""
        failure = None if self.failed is None else self.failed.waiting(file.path, file.etag)
        if failure is not None and not reader.reads_again(file.path):
            if failure.is_not_read:
                return BadFile(path=file.path, reason=failure.reason)
            return _Unchanged(path=file.path, outcome="failed", is_waiting=True)
        if known is None or known.error or not file.etag or file.etag != known.etag or reader.reads_again(file.path):
            return None
        return _Unchanged(path=file.path, outcome="renamed" if file.path in reader.renamed else "unchanged")

    async def _tried(self, file: SourceFile, reader: _Reader, known: KnownFile | None) -> _Outcome:
        """Return the outcome of reading a file, and remember a failure."""
        outcome = await self._document(file, reader, known)
        if self.failed is not None:
            if isinstance(outcome, BadFile):
                self.failed.put(file.path, file.etag, outcome.reason, is_not_read=True)
            elif reason := outcome.error if isinstance(outcome, NewDocument) else outcome.kept:
                self.failed.put(file.path, file.etag, reason)
            else:
                self.failed.remove(file.path)
        return outcome

    async def _document(self, file: SourceFile, reader: _Reader, known: KnownFile | None) -> _Outcome:
        """Return the document in a file, that it is stored already, or why nothing reads it."""
        unread = NewDocument(path=file.path, mime=_mime(file.path), size_bytes=file.size_bytes, checksum="")
        name = file.path.rpartition("/")[2]
        if name in _CONFIGS:
            # It may have addresses and passwords of stores.
            return BadFile(path=file.path, reason=f"it is a config of Pegboard{NO_PARSER}")
        if known is None and format_of(name) is None and not reader.parsers.reads(name):
            kind = await self._unreadable_kind(file)
            if kind is not None:
                return BadFile(path=file.path, reason=f"it is {kind}{NO_PARSER}")
        if file.size_bytes > self.max_file_bytes:
            size = f"{file.size_bytes / MIB:,.0f} MiB"
            return with_error(unread, f"it has {size}; at most {self.max_file_bytes / MIB:,.0f} MiB are taken")
        # A failed file is read again, since the parsers may be better now.
        is_usable = known is not None and not known.error and not reader.reads_again(file.path)
        try:
            fetched = await self.source.fetch(
                file, max_bytes=self.max_file_bytes, known_etag=known.etag if known is not None and is_usable else ""
            )
        except (CallError, OSError) as error:
            why = error.error.message if isinstance(error, CallError) else f"it cannot be read: {error.strerror}"
            if known is None or known.error:
                return with_error(unread, why)
            # A permission or a server that is away for a while must not cost the document.
            return _Unchanged(path=file.path, outcome="failed", kept=f"{why.rstrip('.')}; its document stays as it was")
        outcome: Stored = "renamed" if file.path in reader.renamed else "unchanged"
        if fetched is None:
            return _Unchanged(path=file.path, outcome=outcome)
        if known is not None and is_usable and known.checksum == checksum_of(fetched.payload):
            etag = fetched.etag if fetched.etag != known.etag else ""
            return _Unchanged(path=file.path, outcome=outcome, etag=etag)
        document = await reader.files.read(
            file.path, fetched.payload, modified_s=file.modified_s, encoding=reader.encoding, name=fetched.name
        )
        # What a file says about itself counts for more than what is said of its source.
        return replace(document, etag=fetched.etag, metadata={**reader.metadata, **document.metadata})

    async def _unreadable_kind(self, file: SourceFile) -> str | None:
        """Return the kind of a file that no parser reads. A file that cannot be opened is reported when it is read."""
        try:
            return unreadable_kind(await self.source.beginning(file))
        except (CallError, OSError):
            return None

    def _report_bad(self, report: IngestReport, bad: BadFile) -> None:
        bad = BadFile(path="".join(each if can_be_shown(each) else "�" for each in bad.path), reason=bad.reason)
        report.bad.append(bad)
        self.on_bad(bad)

    # ------------------------------------------------------------ removing

    async def _gone_files(self) -> _GoneFiles:
        """Return the documents whose files are gone."""
        count = total = 0
        first: list[StoredFile] = []
        async for some in self._stored():
            total += len(some)
            gone = await self.source.without_file(some)
            count += len(gone)
            first += gone[: RENAMED_FILES - len(first)]
        return _GoneFiles(count=count, total=total, first=first)

    async def _renames(self, gone: _GoneFiles, report: IngestReport) -> list[Rename]:
        """Return the documents whose files have another path now; count the files of the source.

        A new file with the content of one that is gone is that file: under the same name in another folder, if there is
        one, or else under any name.
        """
        checksums = {each.checksum for each in gone.first}
        sizes = {each.size_bytes for each in gone.first}
        new: list[tuple[str, str]] = []
        async for some in self.source.files(lambda _: None):
            report.total += len(some)
            likely = [each for each in some if each.size_bytes in sizes and each.size_bytes <= self.max_file_bytes]
            if likely:
                stored = await self.store.known_files(self.scope, self.space, self.name, [each.path for each in likely])
                for each in likely:
                    if each.path not in stored or stored[each.path].error:
                        checksum = await self._checksum(each)
                        new += [(each.path, checksum)] if checksum in checksums else []
        return _paired(new, gone.first)

    async def _checksum(self, file: SourceFile) -> str:
        """Return the checksum of a file; empty if it cannot be read."""
        with suppress(CallError, OSError):
            fetched = await self.source.fetch(file, max_bytes=self.max_file_bytes, known_etag="")
            return "" if fetched is None else checksum_of(fetched.payload)
        return ""

    async def _rename(self, renames: Sequence[Rename]) -> frozenset[str]:
        """Give documents their new paths; return these."""
        moved: list[Rename] = []
        for start in range(0, len(renames), INGEST_BATCH_DOCUMENTS):
            some = renames[start : start + INGEST_BATCH_DOCUMENTS]
            moved += await self.store.rename_documents(self.scope, self.space, self.name, some)
        return frozenset(each.path for each in moved)

    async def _check_shrink(self, began_in: SourceRoot | None, gone: int, total: int) -> None:
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
        known = await self.store.source_root(self.scope, self.space, self.name)
        is_other = known is not None and began_in is not None and not known.is_same_folder(began_in)
        if is_other or gone * SHRINK_PART > total:
            raise CallError("needs_review", self._shrink_text(gone, total, known if is_other else None))

    def _shrink_text(self, gone: int, total: int, other: SourceRoot | None) -> str:
        documents = "document" if gone == 1 else "documents"
        whole = f"all {gone:,} {documents}" if gone == total else f"{gone:,} of {total:,} documents"
        text = f"Nothing was changed: {whole} of the source {self.name!r} would be removed, as"
        if gone == total == 1:
            text = f"Nothing was changed: the only document of the source {self.name!r} would be removed, as"
        if other is not None:
            return (
                f"{text} it was read from {other.path!r} before, and {self.source.origin!r} is another place. Give "
                "this place a source with another name (`--source`), or run it with --allow-shrink."
            )
        return (
            f"{text} {self.source.origin!r} does not have their files. If it is complete, run it with "
            "--allow-shrink; otherwise check that it is mounted and its path is right."
        )

    async def _stored(self) -> AsyncIterator[list[StoredFile]]:
        """Yield the documents of the source in batches; nothing if the source does not exist."""
        place: tuple[str, str] | None = None
        while some := await self.store.documents_from(self.scope, self.space, self.name, place):
            place = some[-1].folder, some[-1].name
            yield some

    async def _check_place(self, began_in: SourceRoot | None) -> None:
        """Check that the place of this run is still the same.

        Raises:
            CallError: busy; it is not, so missing files prove nothing.
        """
        if began_in is None or await self.source.place() != began_in:
            text = f"The folder {self.source.origin!r} was moved or exchanged while it was read; nothing was removed."
            raise CallError("busy", f"{text} Run it again.", retryable=True)

    async def _remove_gone(self, began_in: SourceRoot | None) -> int:
        """Remove the documents whose files are gone.

        Raises:
            CallError: busy; the folder is no longer at its path.
        """
        removed = 0
        async for some in self._stored():
            gone = await self.source.without_file(some)
            if gone:
                # Checked after the files: a folder that was moved or unmounted before would seem empty.
                await self._check_place(began_in)
                numbers = [each.n for each in gone]
                removed += await self.store.remove_documents(self.scope, self.space, self.name, numbers)
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


def _mime(path: str) -> str:
    return (format_of(path) or DETECTED).mime


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
    return ", ".join(parts) or "nothing to store"


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
