"""workspace: show and remove stored documents, and grant access to spaces."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
from cyclopts import Parameter

from pegboard.cli.command_error import CommandError, Exit, refused
from pegboard.cli.document_project import DocumentProject, document_project
from pegboard.cli.options import Options, SharedOptions
from pegboard.cli.project import find_config
from pegboard.cli.recorded_change import anote_change
from pegboard.cli.terminal import Column
from pegboard.config import load
from pegboard.core.names import nearest
from pegboard.extras import needs_package
from pegboard.lazy import LazyModule
from pegboard.model.document import Access
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, JSONValue
from pegboard.workspace.limits import DOCUMENT_READ_CHARS, DOCUMENTS_LISTED
from pegboard.workspace.own_metadata import metadata_of

if TYPE_CHECKING:
    from pegboard.models.embedding import fastembed_model
else:
    fastembed_model = LazyModule("pegboard.models.embedding.fastembed_model")

VECTOR_SCAN_PASSAGES = 20_000  # passages of 384 dimensions that SQLite scans in 100 ms: bench/document_scale.py

_SOURCES = (Column(head="Space", style="bold"), Column(head="Source"), Column(head="Type"), Column(head="Documents"),
            Column(head="State"), Column(head="Updated"))  # fmt: skip
_SPACES = (Column(head="Space", style="bold"), Column(head="Sources"), Column(head="Documents"), Column(head="Failed"),
           Column(head="Passages"), Column(head="Characters"), Column(head="Rows"))  # fmt: skip
_DOCUMENTS = (Column(head="Path", style="bold"), Column(head="Id"), Column(head="Type"), Column(head="Characters"),
              Column(head="State"))  # fmt: skip
_GRANTS = (Column(head="Space", style="bold"), Column(head="Who"), Column(head="Access"))
_NEW = "Allow a space that does not exist yet."
_WHO = "user:NAME or role:NAME."
Space = Annotated[str, Parameter(help="The space.")]
Source = Annotated[str, Parameter(help="The source.")]
DocumentPath = Annotated[str, Parameter(help="The path of the document in its source.")]
Who = Annotated[str, Parameter(help=_WHO)]


async def ls_command(
    space: Annotated[str | None, Parameter(help="The space; by default all of them.")] = None,
    source: Annotated[str | None, Parameter(help="A source in this space, to list its documents.")] = None,
    /,
    *,
    folder: Annotated[str, Parameter(help="Only the documents below this folder of the source.")] = "",
    options: SharedOptions,
) -> None:
    """List document sources and who may use which space, or the documents of a source."""
    async with _opened(options) as project:
        if space is None or source is None:
            await _list(project, options, space)
        else:
            await _list_documents(project, options, space, source, folder)


async def show_command(
    space: Space,
    source: Source,
    path: DocumentPath,
    /,
    *,
    text: Annotated[bool, Parameter(help="Show the text of the document.", negative="")] = False,
    options: SharedOptions,
) -> None:
    """Show a document, or its text."""
    async with _opened(options) as project:
        await _show(project, options, space, source, path, is_text=text)


async def put_command(
    space: Space,
    source: Source,
    path: DocumentPath,
    file: Annotated[Path, Parameter(help="The file to store.")],
    /,
    *,
    meta: Annotated[tuple[str, ...], Parameter(help="KEY=VALUE to filter by; repeat it.", negative_iterable=())] = (),
    clear_meta: Annotated[bool, Parameter(help="Remove the metadata of a replaced document.", negative="")] = False,
    options: SharedOptions,
) -> None:
    """Store a file as a document.

    An existing document at the path is replaced. It keeps its id, and its metadata unless --meta replaces it.
    """
    async with _opened(options) as project:
        metadata = metadata_of(meta) if meta or clear_meta else None
        await _put(project, options, space, source, path, file, metadata)


async def rm_command(
    space: Space,
    source: Source,
    path: Annotated[str | None, Parameter(help="The path of one document; by default the whole source.")] = None,
    /,
    *,
    options: SharedOptions,
) -> None:
    """Remove a source with its documents, or one document."""
    async with _opened(options) as project:
        if path is None:
            await _remove(project, options, space, source)
        else:
            await _remove_document(project, options, space, source, path)


async def stats_command(*, options: SharedOptions) -> None:
    """Show the size of each space."""
    async with _opened(options) as project:
        await _statistics(project, options)


async def embed_command(*, options: SharedOptions) -> None:
    """Compute the vectors of passages that have none."""
    async with _opened(options) as project:
        await _embed(project, options)


async def fetch_model_command(*, options: SharedOptions) -> None:
    """Download the models of embedders with `type: fastembed`."""
    await _fetch_models(options)


async def grant_command(
    who: Who,
    space: Space,
    access: Annotated[Access, Parameter(help="The access to give.")] = "read",
    /,
    *,
    new: Annotated[bool, Parameter(help=_NEW, negative="")] = False,
    options: SharedOptions,
) -> None:
    """Give a user or role access to a space."""
    async with _opened(options) as project:
        await _grant(project, options, who, space, access, is_new=new)


async def revoke_command(who: Who, space: Space, /, *, options: SharedOptions) -> None:
    """Withdraw access to a space."""
    async with _opened(options) as project:
        await _revoke(project, options, who, space)


@asynccontextmanager
async def _opened(options: Options) -> AsyncGenerator[DocumentProject]:
    project = document_project(options)
    try:
        yield project
    except CallError as error:
        raise refused(error) from None
    finally:
        project.store.close()


async def _list(project: DocumentProject, options: Options, space: str | None) -> None:
    spaces = [each for each in await project.store.statistics() if space in (None, each["space"])]
    if options.json:
        options.terminal.json(
            {"sources": [{"space": each["space"], **one} for each in spaces for one in each["sources"]]}
        )
        return
    rows = [
        [each["space"], one["name"], one["type"], str(one["documents"]), one["status"], one["updated_at"]]
        for each in spaces
        for one in each["sources"]
    ]
    if rows:
        options.terminal.table(_SOURCES, rows)
        options.terminal.say("")
    options.terminal.say(f"{len(rows)} source{'' if len(rows) == 1 else 's'} in {project.store.place}.")
    granted = await project.store.grants(space)
    if granted:
        options.terminal.say("")
        options.terminal.table(_GRANTS, [[each["space"], each["principal"], each["access"]] for each in granted])


async def _list_documents(project: DocumentProject, options: Options, space: str, source: str, folder: str) -> None:
    found: list[JSON] = []
    cursor: str | None = None
    while True:
        page = await project.workspace().documents(space, source, folder=folder, limit=DOCUMENTS_LISTED, cursor=cursor)
        found += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    if options.json:
        options.terminal.json({"documents": found})
        return
    if found:
        rows = [
            [each["path"], each["document_id"], each["mime"], f"{each['char_count']:,}", each["status"]]
            for each in found
        ]
        options.terminal.table(_DOCUMENTS, rows)
        options.terminal.say("")
    documents = f"{len(found):,} document{'' if len(found) == 1 else 's'}"
    options.terminal.say(f"{documents} in the source {source!r} of the space {space!r}.")


async def _show(
    project: DocumentProject, options: Options, space: str, source: str, path: str, *, is_text: bool
) -> None:
    document = await project.workspace().document(space, source, path)
    text = await _text_of(project, space, document) if is_text else None
    if options.json:
        options.terminal.json(document if text is None else {**document, "text": text})
    elif text is not None:
        options.terminal.say(text)
    else:
        options.terminal.say("\n".join(f"{name}: {_one_line(value)}" for name, value in document.items()))


async def _text_of(project: DocumentProject, space: str, document: JSON) -> str:
    scope = project.store.operator_scope(space)
    parts: list[str] = []
    start: int | None = 0
    while start is not None:
        read = await project.store.read_document(
            scope, document["document_id"], start=start, end=start + DOCUMENT_READ_CHARS
        )
        parts.append(read["text"])
        start = read["next_start"]
    return "".join(parts)


def _one_line(value: JSONValue) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else orjson.dumps(value).decode()


async def _put(
    project: DocumentProject,
    options: Options,
    space: str,
    source: str,
    path: str,
    file: Path,
    metadata: Mapping[str, str] | None,
) -> None:
    limit = project.config.bounds.upload_bytes
    payload = await asyncio.to_thread(_content, file, limit)
    stored = await project.workspace().upload(payload, space=space, source=source, path=path, metadata=metadata)
    if options.json:
        options.terminal.json(stored)
    else:
        options.terminal.say(f"{stored['path']}: {stored['status']}, as {stored['document_id']}.")


def _content(file: Path, limit_bytes: int) -> bytes:
    try:
        if file.stat().st_size > limit_bytes:
            text = f"The file {str(file)!r} is too large; `limits.upload_bytes` is {limit_bytes:,}."
            raise CommandError(text, kind="result_too_large", code=Exit.REFUSED)
        return file.read_bytes()  # raw: the operator's own file
    except OSError as error:
        raise CommandError(f"The file {str(file)!r} cannot be read: {error.strerror}.", kind="no_file") from None


async def _remove_document(project: DocumentProject, options: Options, space: str, source: str, path: str) -> None:
    removed = await project.workspace().remove_document(space, source, path)
    if options.json:
        options.terminal.json(removed)
        return
    options.terminal.say(f"Removed {removed['path']!r} from the source {source!r} of the space {space!r}.")
    if "note" in removed:
        options.terminal.say(removed["note"])


async def _remove(project: DocumentProject, options: Options, space: str, source: str) -> None:
    removed = await project.store.remove_source(project.store.operator_scope(space), space, source)
    if options.json:
        options.terminal.json({"space": space, "source": source, "removed": removed})
    else:
        documents = "1 document" if removed == 1 else f"{removed} documents"
        options.terminal.say(f"Removed {source!r} from the space {space!r}, with {documents}.")


async def _embed(project: DocumentProject, options: Options) -> None:
    if project.config.passage_embedder is None:
        raise CommandError("There is no embedder. Name one: workspace: {embedder: hashing}.")
    count = 0
    for each in await project.store.statistics():
        space = str(each["space"])
        try:
            count += await project.store.embed_missing(project.store.operator_scope(space), space)
        except CallError:
            raise
        except Exception as error:  # noqa: BLE001 - boundary: an embedder is foreign code
            why = f"{type(error).__name__}: {error}"
            raise CommandError(f"The embedder failed: {why}", kind="embedder_failed", code=Exit.REFUSED) from None
    indexes = await project.store.index_vectors()
    if options.json:
        options.terminal.json({"embedded": count, "indexes": [each.as_json() for each in indexes]})
        return
    options.terminal.say(f"{count} passage{'' if count == 1 else 's'} embedded.")
    for each in indexes:
        found = f"{each.passages:,} passages of a large space have an index that finds {each.recall:.1%} of the nearest"
        options.terminal.say(f"{found}{'' if each.is_used else ': too few, so all are compared'}.")


async def _fetch_models(options: Options) -> None:
    config = load(find_config(options.config, start=Path.cwd()), env=os.environ)
    declared = (config.embedder, config.passage_embedder)
    forms = [each.value for each in declared if each is not None and each.value.type == "fastembed"]
    if not forms:
        text = "No embedder has `type: fastembed`. Name one: workspace: {embedder: {type: fastembed, model: NAME}}."
        raise CommandError(text, kind="no_model")
    if find_spec("fastembed") is None:
        raise CommandError(f"Fetching a model {needs_package('fastembed', 'embeddings')}.", kind="missing")
    fetched: dict[str, str] = {}
    for form in forms:
        if form.model is None or form.path is not None or form.model in fetched:
            continue
        folder = config.path.absolute().parent / form.folder
        options.terminal.note(f"Fetching {form.model!r} into {str(folder)!r}.")
        try:
            fetched[form.model] = str(await asyncio.to_thread(fastembed_model.fetch, form.model, folder))
        except (LookupError, ConnectionError, OSError) as error:
            raise CommandError(str(error), kind="not_fetched", code=Exit.REFUSED) from None
    if options.json:
        options.terminal.json({"models": fetched})
    elif fetched:
        options.terminal.say("\n".join(f"{name} is in {where!r}." for name, where in fetched.items()))
    else:
        options.terminal.say("The models are in folders that the config names by `path`; there is nothing to fetch.")


async def _statistics(project: DocumentProject, options: Options) -> None:
    spaces = await project.store.statistics()
    if options.json:
        options.terminal.json({"spaces": [{**each, "sources": len(each["sources"])} for each in spaces]})
        return
    if spaces:
        keys = ("documents", "failed", "chunks", "chars", "rows")
        rows = [[each["space"], str(len(each["sources"])), *(f"{each[key]:,}" for key in keys)] for each in spaces]
        options.terminal.table(_SPACES, rows)
        options.terminal.say("")
    options.terminal.say(f"{len(spaces)} space{'' if len(spaces) == 1 else 's'} in {project.store.place}.")
    if project.config.passage_embedder is not None:
        options.terminal.say(
            "A search by vectors reads every passage of its spaces: on one core some "
            f"{VECTOR_SCAN_PASSAGES:,} take a tenth of a second."
        )


async def _grant(
    project: DocumentProject, options: Options, who: str, space: str, access: Access, *, is_new: bool
) -> None:
    spaces = [str(each["space"]) for each in await project.store.statistics()]
    if space not in spaces and not is_new:
        raise CommandError(
            f"There is no space {space!r} in {project.store.place}; nothing was granted."
            f"{nearest(space, spaces, label='Spaces')} For a space that gets its documents later, add --new.",
            kind="not_found",
            code=Exit.REFUSED,
        )
    await project.store.grant(who, space, access)
    detail: JSON = {"principal": who, "space": space, "access": access}
    await anote_change(project.config, options.terminal, "access_given", detail)
    if options.json:
        options.terminal.json({"granted": {"principal": who, "space": space, "access": access}})
        return
    options.terminal.say(f"{who} was granted {access} access to the documents of the space {space!r}.")
    options.terminal.say(
        "The grant counts for credentials that name no space"
        + (f", or {space!r}" if access == "write" else "")
        + "; a credential that names a space sees only that one."
    )
    options.terminal.say(
        f"Credentials that name {space!r} can read it without a grant, and write to it only with a write grant."
    )


async def _revoke(project: DocumentProject, options: Options, who: str, space: str) -> None:
    if not await project.store.revoke(who, space):
        raise CommandError(f"{who!r} has no grant for the space {space!r}.", kind="not_found", code=Exit.REFUSED)
    await anote_change(project.config, options.terminal, "access_revoked", {"principal": who, "space": space})
    if options.json:
        options.terminal.json({"revoked": {"principal": who, "space": space}})
    else:
        options.terminal.say(f"{who} is no longer granted the space {space!r}.")
