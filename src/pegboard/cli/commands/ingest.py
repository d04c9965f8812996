"""ingest: add documents from a folder or an address to a space."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pegboard.cli.command_error import CommandError, Exit, refused
from pegboard.cli.document_project import DocumentProject, document_project
from pegboard.cli.options import Options, SharedOptions
from pegboard.cli.terminal import Terminal
from pegboard.lazy import LazyModule
from pegboard.model.error import CallError
from pegboard.workspace.own_metadata import metadata_of

if TYPE_CHECKING:
    from pegboard.workspace import ingest as ingesting
else:
    ingesting = LazyModule("pegboard.workspace.ingest")

_PLACE = "A folder, a file, the address of a page or feed, git:URL#branch:folder, s3://BUCKET/PREFIX, or sitemap:URL."
_SPACE = "The space that the documents belong to."
_SOURCE = "Name of the source in that space. Default: the name of the folder, repository, bucket or site."
_ENCODING = "Encoding of texts that are not UTF-8, such as cp1252; remembered for a folder. `auto` detects it."
_META = "KEY=VALUE that every document gets, to filter searches; repeat it. Remembered for the source."
_NO_TEXT = "it has no text, so that no search finds it; scanned pages need text recognition (`workspace: {ocr: …}`)"
_ALLOW_SHRINK = "Allow removing more than half of the source, or using another folder for it."
_READ_AGAIN = "Read unchanged files again, for example after you changed a parser."
_WATCH = "Repeat this after each change in the folder, until the command is interrupted. Needs `pegboard[watch]`."
_PROGRESS_S = 0.2


async def ingest_command(
    path: Annotated[str, Parameter(help=_PLACE)],
    /,
    *,
    space: Annotated[str, Parameter(help=_SPACE)],
    source: Annotated[str | None, Parameter(help=_SOURCE)] = None,
    encoding: Annotated[str | None, Parameter(help=_ENCODING)] = None,
    meta: Annotated[tuple[str, ...], Parameter(help=_META, negative_iterable=())] = (),
    allow_shrink: Annotated[bool, Parameter(help=_ALLOW_SHRINK, negative="")] = False,
    read_again: Annotated[bool, Parameter(help=_READ_AGAIN, negative="")] = False,
    watch: Annotated[bool, Parameter(help=_WATCH, negative="")] = False,
    options: SharedOptions,
) -> int:
    """Add documents to a space: a folder, a file, a page, a feed, a Git repository, a bucket or a web site.

    Only new and changed files are read, and documents whose file is gone are removed. If more than half of the source
    would be removed, nothing is changed and the exit code is 1, unless --allow-shrink is set. Unreadable files are
    reported, one line each, and the exit code is then 1. After an interruption, run it again. With --watch the command
    continues: a run that is refused is reported, and tried again after the next change.
    """
    if watch and allow_shrink:
        text = "--watch and --allow-shrink do not go together: an emptied folder would lose its documents unasked."
        raise CommandError(f"{text} Run once with --allow-shrink, then watch.")
    try:
        metadata = metadata_of(meta) if meta else None
    except CallError as error:
        raise CommandError(error.error.message) from None
    project = document_project(options)
    terminal = options.terminal
    progress = _Progress(terminal)
    if watch:
        try:
            await _watch(project, options, progress, path, space, source, encoding, metadata)
        finally:
            progress.end()
            project.store.close()
    try:
        report = await project.workspace().ingest(
            path,
            space=space,
            source=source,
            encoding=encoding,
            metadata=metadata,
            allow_shrink=allow_shrink,
            reads_again=read_again,
            on_progress=progress.show,
            on_bad=lambda bad: progress.note(f"{bad.path}: {bad.reason}"),
        )
    except CallError as error:
        raise refused(error) from None
    finally:
        progress.end()
        project.store.close()
    _show(report, options, space)
    return int(Exit.REFUSED if report.bad or report.embedder_fault else Exit.DONE)


async def _watch(
    project: DocumentProject,
    options: Options,
    progress: _Progress,
    path: str,
    space: str,
    source: str | None,
    encoding: str | None,
    metadata: Mapping[str, str] | None,
) -> None:
    """Ingest a folder after each change, until the command is interrupted."""
    if "://" in path or path.startswith(("git:", "sitemap:")):
        raise CommandError(f"--watch is for folders, and {path!r} is an address. Run the command from cron instead.")

    def show(report: ingesting.IngestReport) -> None:
        progress.end()
        # After the first run, only runs with changes print anything.
        if report.has_changes or not shown:
            shown.append(True)
            _show(report, options, space)

    shown: list[bool] = []
    await project.workspace().watch(
        path,
        space=space,
        source=source,
        encoding=encoding,
        metadata=metadata,
        on_report=show,
        on_trouble=progress.note,
        on_progress=progress.show,
        on_bad=lambda bad: progress.note(f"{bad.path}: {bad.reason}"),
    )


def _show(report: ingesting.IngestReport, options: Options, space: str) -> None:
    terminal = options.terminal
    for path in report.empty:
        terminal.note(f"{path}: {_NO_TEXT}.")
    if report.embedder_fault:
        terminal.note(f"{report.embedder_fault}. Run it again, or `pegboard workspace embed`.")
    if options.json:
        terminal.json(
            {
                "space": space,
                **{each: report.counts[each] for each in ("added", "changed", "renamed", "unchanged", "failed")},
                "removed": report.removed,
                "embedded": report.embedded,
                "empty": report.empty,
                "bad": [{"path": bad.path, "reason": bad.reason} for bad in report.bad],
                "kindsNotRead": dict(report.kinds_not_read),
                "notRead": [{"path": each.path, "reason": each.reason} for each in report.not_read],
            }
        )
    else:
        terminal.say(f"{ingesting.describe(report)} in the space {space!r}.")
        if report.kinds_not_read:
            terminal.say(f"Files of kinds that are not read: {ingesting.describe_not_read(report)}.")


class _Progress:
    """A progress line that is overwritten on a terminal; nothing elsewhere."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._is_shown = terminal.err.isatty()
        self._begun_s = time.monotonic()
        self._last_s = 0.0
        self._width = 0

    def show(self, report: ingesting.IngestReport) -> None:
        now = time.monotonic()
        if self._is_shown and now - self._last_s >= _PROGRESS_S:
            self._last_s = now
            line = ingesting.describe_progress(report, now - self._begun_s)
            self._terminal.err.write(f"\r{line.ljust(self._width)}")
            self._terminal.err.flush()
            self._width = len(line)

    def note(self, text: str) -> None:
        self.end()
        self._terminal.note(text)

    def end(self) -> None:
        if self._width:
            self._terminal.err.write("\r" + " " * self._width + "\r")
            self._width = 0
