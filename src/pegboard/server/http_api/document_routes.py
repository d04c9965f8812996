"""DocumentRoutes: /v1/documents and /v1/grants: the documents of a caller, and who may see which space."""

from __future__ import annotations

from collections.abc import Mapping

from pegboard.core.ports import DocumentGrants, DocumentKeeper, DocumentStore
from pegboard.core.view import View
from pegboard.model.json_types import JSON
from pegboard.model.record import replace
from pegboard.model.resource import DocumentOperation
from pegboard.model.tool import ToolEntry
from pegboard.server.document_calls import operation_of, store_upload
from pegboard.server.http_api.api_app import Api, ApiRequest
from pegboard.server.http_api.problem_details import ProblemError, answered, not_found, problem_of
from pegboard.server.http_api.responses import Reply, json_reply
from pegboard.workspace.upload import UPLOAD_S

ADMINISTRATOR = "document_administrator"
"""The role that may change who sees which space of documents."""
_SOURCE = "uploads"
_LISTED_BY = ("space", "source", "folder", "limit", "cursor")
_META = "meta."
_DIGITS = 12
_NO_DOCUMENTS = "This server has no documents for this caller."


class DocumentRoutes:
    """GET and POST /v1/documents; GET, PUT and DELETE of one document; GET, POST and DELETE /v1/grants."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def list(self, request: ApiRequest) -> Reply:
        """List documents by space, source and path: `?space=`, `?source=`, `?folder=`, `?limit=`, `?cursor=`."""
        arguments: JSON = {name: text for name, text in request.query.items() if name in _LISTED_BY}
        return json_reply(await self._call("list", request, _whole(arguments, "limit")))

    async def show(self, request: ApiRequest) -> Reply:
        """Show the details of a document."""
        return json_reply(await self._call("show", request, {"document_id": request.path["id"]}))

    async def read(self, request: ApiRequest) -> Reply:
        """Return the text of a document from `?start=`, in parts."""
        arguments: JSON = {name: text for name, text in request.query.items() if name == "start"}
        arguments["document_id"] = request.path["id"]
        return json_reply(await self._call("read", request, _whole(arguments, "start")))

    async def remove(self, request: ApiRequest) -> Reply:
        """Remove a document."""
        return json_reply(await self._call("remove", request, {"document_id": request.path["id"]}))

    async def upload(self, request: ApiRequest) -> Reply:
        """Store the body as a file: its path decides how it is parsed, and which file it replaces.

        `?meta.team=support` gives it metadata. Without it a replaced document keeps its own, and `?meta=` clears it.
        """
        store, view, entry = await self._store_view_and_entry("upload", request)
        space = request.query.get("space", view.ctx.space_id)
        if space is None:
            raise ProblemError(422, "invalid_arguments", "Name the space that the document is for: ?space=NAME.")
        place: JSON = {
            "space": space, "source": request.query.get("source", _SOURCE), "path": request.query.get("path", ""),
        }  # fmt: skip
        return await self._take(request, store, view, entry, place)

    async def replace(self, request: ApiRequest) -> Reply:
        """Store the body as the new content of a document, which keeps its id, source, path and metadata.

        `?meta.team=support` replaces its metadata, and `?meta=` clears it.
        """
        store, view, entry = await self._store_view_and_entry("upload", request)
        if not isinstance(store, DocumentKeeper):
            raise not_found(_NO_DOCUMENTS)
        place = await answered(store.place_of_document(await answered(store.scope(view.ctx)), request.path["id"]))
        return await self._take(request, store, view, entry, place)

    async def _take(
        self, request: ApiRequest, store: DocumentStore, view: View, entry: ToolEntry, place: JSON
    ) -> Reply:
        """Store the body at a place: `{space, source, path}`, and the type of the source if it exists."""
        space: str = place["space"]
        scope = await answered(store.scope(view.ctx))
        # Before the body is read, and again in the call: an upload without the right to write costs nothing.
        if space not in scope.spaces:
            raise ProblemError(404, "not_found", f"There is no space {space[:100]!r} here.")
        if space not in scope.writable:
            text = f"The documents of the space {space[:100]!r} may be read here, and not changed."
            raise ProblemError(403, "read_only", text)
        if request.headers.get(b"content-type", b"").lower().startswith(b"multipart/"):
            text = "Send the file itself as the body, as `curl --data-binary @FILE` does, and its name as ?path=."
            raise ProblemError(415, "unsupported_media_type", text)
        async with self._api.uploads.place(request.principal) as slot:
            arriving = replace(request, receive=slot.counted(request.receive))
            payload = await slot.arrive(self._api.file(arriving, timeout_s=UPLOAD_S))
            result = await store_upload(
                view, entry, payload, space=space, source=place["source"], path=place["path"],
                metadata=_metadata(request.query),
            )  # fmt: skip
        if result.is_error:
            raise problem_of(result, "")
        stored: JSON = result.structured
        return json_reply(stored, status=201 if stored["status"] == "added" else 200)

    async def grants(self, request: ApiRequest) -> Reply:
        """List who may see which space."""
        return json_reply({"grants": await answered(self._granting(request).grants(request.query.get("space")))})

    async def grant(self, request: ApiRequest) -> Reply:
        """Grant a space to a user or a role: `{"principal", "space", "access"}`."""
        keeper = self._granting(request)
        body = await self._api.body(request)
        fields = {**body, "access": body.get("access", "read")}
        if set(fields) != {"principal", "space", "access"} or not all(
            isinstance(word, str) for word in fields.values()
        ):
            text = 'Needed are the texts {"principal": "user:ann", "space": "s1"}, and "access": "read" or "write".'
            raise ProblemError(422, "invalid_arguments", text)
        if fields["access"] not in ("read", "write"):
            raise ProblemError(422, "invalid_arguments", f"access {fields['access'][:20]!r}: read or write is needed.")
        await answered(keeper.grant(fields["principal"], fields["space"], fields["access"]))
        self._api.note_change(request, "access_given", fields)
        return json_reply(fields)

    async def revoke(self, request: ApiRequest) -> Reply:
        """Take a grant back."""
        keeper = self._granting(request)
        principal, space = request.query.get("principal", ""), request.query.get("space", "")
        if not await answered(keeper.revoke(principal, space)):
            raise ProblemError(404, "not_found", f"{principal[:100]!r} has no grant for the space {space[:100]!r}.")
        revoked: JSON = {"principal": principal, "space": space}
        self._api.note_change(request, "access_revoked", revoked)
        return json_reply({"revoked": revoked})

    async def _call(self, operation: DocumentOperation, request: ApiRequest, arguments: JSON) -> JSON:
        """Return the result of a guarded call of an operation."""
        _, view, entry = await self._store_view_and_entry(operation, request)
        result = await view.call(entry.qualified_id, arguments)
        if result.is_error:
            raise problem_of(result, "")
        return result.structured

    async def _store_view_and_entry(
        self, operation: DocumentOperation, request: ApiRequest
    ) -> tuple[DocumentStore, View, ToolEntry]:
        """Return the store, view and entry for a caller who may use them; others get the unknown path's answer."""
        gateway = self._api.gateway
        view = gateway.resource_view(request.principal)
        offered = await operation_of(gateway, view, operation)
        if offered is None:
            raise not_found(_NO_DOCUMENTS)
        store, entry = offered
        return store, view, entry

    def _granting(self, request: ApiRequest) -> DocumentGrants:
        """Return the store of grants, for a caller who may change them; others get the answer for an unknown path."""
        store = self._api.gateway.registry.declarations.documents
        if (
            not isinstance(store, DocumentGrants)
            or ADMINISTRATOR not in self._api.gateway.context(request.principal).roles
        ):
            raise not_found("Not found")
        return store


def _metadata(query: Mapping[str, str]) -> dict[str, str] | None:
    """Return the metadata in a query; `None` if it says nothing about metadata."""
    told = {name.removeprefix(_META): text for name, text in query.items() if name.startswith(_META)}
    if query.get("meta"):
        raise ProblemError(422, "invalid_arguments", "Write ?meta.KEY=VALUE for each key; ?meta= alone clears them.")
    return told if told or "meta" in query else None


def _whole(arguments: JSON, name: str) -> JSON:
    """Return arguments of a query string with one of them as a number, if it is one."""
    text: str = arguments.get(name, "")
    return {**arguments, name: int(text)} if text.isascii() and text.isdecimal() and len(text) < _DIGITS else arguments
