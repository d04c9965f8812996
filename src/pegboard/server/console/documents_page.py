"""Documents page: the documents that a person may read, by space: browse, search, upload, read one, delete."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from starlette.responses import RedirectResponse, Response

from pegboard.core.ports import DocumentStore
from pegboard.core.view import View
from pegboard.model.json_types import JSON, JSONValue, is_list
from pegboard.model.resource import DocumentOperation
from pegboard.model.tool import ToolEntry
from pegboard.server.console.frame import frame
from pegboard.server.console.highlights import Piece, highlighted
from pegboard.server.console.page_error import PageError
from pegboard.server.console.pages import SECURITY_HEADERS, Pages
from pegboard.server.console.shown_size import size
from pegboard.server.console.shown_time import ago
from pegboard.server.console.visit import Visit
from pegboard.server.document_calls import operation_of, store_upload

UPLOAD_PATH = "/documents/upload"
DOCUMENTS_SHOWN = 100  # documents on one page
DOCUMENT_HITS = 20  # passages of a search
DOCUMENT_QUERY_CHARS = 500
_BLANK_LINES = re.compile(r"\n\s*\n")
_SEARCH = "docs.search_documents"
_SOURCE = "uploads"
# `d_space` and not `space`: that is the caller whose eyes an operator looks through.
_SPACE = "d_space"


class DocumentRow(NamedTuple):
    """A document in the list, with its size and the time of its last ingest in words."""

    id: str
    source: str
    folder: str
    name: str
    mime: str
    size: str
    ingested: str
    status: str
    error: str


class Passage(NamedTuple):
    """A passage that a search found; `start` is where it begins in the text of its document."""

    document_id: str
    title: str
    headings: str
    pieces: Sequence[Piece]
    score: float
    start: int
    found_by: str


class Refused(NamedTuple):
    """A file that was not stored, and why."""

    name: str
    reason: str


class DocumentsPage:
    """`/console/documents` and below.

    Each page makes the same guarded calls as `/v1/documents`, as the person who is logged in. Operators see their own
    documents, too, and not those of a caller that they look through.
    """

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    async def list(self, visit: Visit) -> Response:
        """Show the documents of a space, or the passages that a search finds."""
        return await self._list(visit)

    async def upload(self, visit: Visit) -> Response:
        """Store the files of a form; those that could not be read are listed with the reason."""
        files = visit.files.get("files", ())
        space = visit.query.get(_SPACE, "")
        source = visit.form.get("source", "").strip() or _SOURCE
        folder = visit.form.get("folder", "").strip().strip("/")
        if not files:
            return await self._list(visit, refused=[Refused("No file", "Choose a file, or drop one on the page.")])
        view = _view(visit)
        _, entry = await _operation(visit, view, "upload")
        refused = list[Refused]()
        for file in files:
            path = f"{folder}/{file.name}" if folder else file.name
            result = await store_upload(view, entry, file.content, space=space, source=source, path=path)
            if result.error is not None:
                refused.append(Refused(file.name, result.error.message))
        if refused:
            return await self._list(visit, refused=refused, stored=len(files) - len(refused))
        return _to(visit, space, source=source, folder=folder, done="stored", count=str(len(files)))

    async def show(self, visit: Visit) -> Response:
        """Show one document: what `document_info` says, and its text in parts."""
        view, document_id = _view(visit), visit.path["id"]
        info = await _called(visit, view, "show", {"document_id": document_id})
        start, query = visit.query.get("start", ""), visit.query.get("q", "")[:DOCUMENT_QUERY_CHARS]
        text: JSON = {"text": "", "start": 0, "end": 0, "total_chars": 0, "next_start": None}
        if info["status"] == "ready":
            place = int(start) if start.isascii() and start.isdecimal() and len(start) < 12 else 0
            text = await _called(visit, view, "read", {"document_id": document_id, "start": place})
        store = visit.gateway.registry.declarations.documents
        scope = None if store is None else await store.scope(view.ctx)
        may_remove = await operation_of(visit.gateway, view, "remove") is not None
        values = {
            "info": info, "text": text, "q": query, "pieces": highlighted(text["text"], query) if query else None,
            "size": size(info["size_bytes"]), "facts": _facts(info),
            "may_remove": may_remove and scope is not None and info["space"] in scope.writable,
        }  # fmt: skip
        return self._pages.page("document.html", {**frame(visit, "documents"), **values})

    async def remove(self, visit: Visit) -> Response:
        """Delete a document."""
        removed = await _called(visit, _view(visit), "remove", {"document_id": visit.path["id"]})
        done = "removed_for_now" if "note" in removed else "removed"
        return _to(visit, removed["space"], source=removed["source"], done=done)

    async def _list(self, visit: Visit, *, refused: Sequence[Refused] = (), stored: int = 0) -> Response:
        values: dict[str, Any] = {
            "has_store": visit.gateway.registry.declarations.documents is not None, "has_list": False, "rows": [],
            "q": visit.query.get("q", "").strip()[:DOCUMENT_QUERY_CHARS], "passages": None, "spaces": (), "space": "",
            "is_writable": False, "may_search": False, "next_cursor": "", "source": visit.query.get("source", ""),
            "folder": visit.query.get("folder", ""), "refused": refused, "stored": stored,
            "done": visit.query.get("done", ""), "count": visit.query.get("count", ""), "search_note": "",
        }  # fmt: skip
        if visit.acts_as is not None:
            values.update(await self._listed(visit, _view(visit), values))
        status = 422 if refused else 200
        return self._pages.page("documents.html", {**frame(visit, "documents"), **values}, status=status)

    async def _listed(self, visit: Visit, view: View, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what a caller with documents sees."""
        listing = await operation_of(visit.gateway, view, "list")
        if listing is None:
            return {}
        store, entry = listing
        scope = await store.scope(view.ctx)
        space = visit.query.get(_SPACE, "") or next(iter(scope.spaces), "")
        found: dict[str, Any] = {"has_list": True, "spaces": scope.spaces, "space": space}
        uploads = await operation_of(visit.gateway, view, "upload")
        found["is_writable"] = uploads is not None and space in scope.writable
        assert visit.acts_as is not None
        tools = visit.gateway.catalog.view(view.ctx, profile=visit.acts_as.profile)
        found["may_search"] = await tools.afind(_SEARCH) is not None
        if values["q"] and found["may_search"]:
            return {**found, **await _searched(tools, values["q"])}
        place = {name: text for name in ("source", "folder", "cursor") if (text := visit.query.get(name, ""))}
        arguments: JSON = {**place, "space": space, "limit": DOCUMENTS_SHOWN}
        listed = await _result(view, entry, arguments)
        found["rows"] = [_row(item, visit.now()) for item in listed["items"]]
        found["next_cursor"] = listed["next_cursor"] or ""
        return found


def _view(visit: Visit) -> View:
    """Return the documents of the logged-in person, also when they look through another caller."""
    if visit.acts_as is None:
        raise PageError(404, "Not found", "Your credential gives no profile here, and documents belong to profiles.")
    ctx = visit.gateway.context(visit.acts_as).with_request(door="console")
    return visit.gateway.resources.view(ctx, profile=visit.acts_as.profile)


async def _operation(visit: Visit, view: View, operation: DocumentOperation) -> tuple[DocumentStore, ToolEntry]:
    offered = await operation_of(visit.gateway, view, operation)
    if offered is None:
        raise PageError(404, "Not found", "This server has no such documents for you.")
    return offered


async def _called(visit: Visit, view: View, operation: DocumentOperation, arguments: JSON) -> JSON:
    """Return the result of a guarded call of an operation."""
    _, entry = await _operation(visit, view, operation)
    return await _result(view, entry, arguments)


async def _result(view: View, entry: ToolEntry, arguments: JSON) -> JSON:
    result = await view.call(entry.qualified_id, arguments)
    return result.unwrap()


async def _searched(tools: View, query: str) -> Mapping[str, Any]:
    """Return the passages that fit a search, by a guarded call of the tool that agents search with."""
    result = await tools.call(_SEARCH, {"query": query, "limit": DOCUMENT_HITS})
    if result.error is not None:
        return {"passages": [], "search_note": result.error.message}
    found: JSON = result.structured
    note = str(found.get("note", ""))
    return {"passages": [_passage(hit, query) for hit in found["hits"]], "search_note": note}


def _passage(hit: JSON, query: str) -> Passage:
    ways = {"words": hit["why"]["keyword_rank"], "meaning": hit["why"]["vector_rank"]}
    return Passage(
        hit["document_id"], hit.get("title") or hit["name"], " › ".join(hit.get("headings", ())),
        highlighted(_BLANK_LINES.sub("\n", hit["text"]), query), hit["score"], hit["start"],
        " and ".join(way for way, rank in ways.items() if rank is not None),
    )  # fmt: skip


def _row(item: JSON, now: float) -> DocumentRow:
    folder, _, name = item["path"].strip("/").rpartition("/")
    status = "empty" if item["status"] == "ready" and not item["char_count"] else item["status"]
    return DocumentRow(
        item["document_id"], item["source"], folder, name, item["mime"], size(item["size_bytes"]),
        _age(item["ingested_at"], now), status, item.get("error", ""),
    )  # fmt: skip


def _facts(info: JSON) -> list[tuple[str, str]]:
    names = {
        "mime": "type",
        "language": "language",
        "pages": "pages",
        "chunk_count": "passages",
        "encoding": "encoding",
    }
    facts = [(shown, str(info[name])) for name, shown in names.items() if info.get(name) is not None]
    times = [(name, info[f"{name}_at"]) for name in ("created", "modified", "ingested")]
    facts += [(name, str(at).replace("T", " ").replace("+00:00", " UTC")) for name, at in times if at]
    return [*facts, *((name, _words(value)) for name, value in info["metadata"].items() if value not in ("", [], {}))]


def _words(value: JSONValue) -> str:
    """Return a value of the metadata for people: a list as its parts."""
    return ", ".join(map(_words, value)) if is_list(value) else str(value)


def _age(iso: str, now: float) -> str:
    return ago(datetime.fromisoformat(iso).timestamp(), now)


def _to(visit: Visit, space: str, **query: str) -> Response:
    url = visit.url("/documents", **{_SPACE: space}, **query)
    return RedirectResponse(url, status_code=303, headers=SECURITY_HEADERS)
