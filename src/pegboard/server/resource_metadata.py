"""ResourceMetadata: the document that tells clients where to get a token for this server (RFC 9728)."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from pegboard.catalog import Catalog
from pegboard.server.challenges import METADATA_PATH, metadata_of
from pegboard.server.host_guard import HostGuard


class ResourceMetadata:
    """Answers at the well-known address, for the server and for each of its paths, whatever profiles there are."""

    def __init__(self, catalog: Catalog, host_guard: HostGuard) -> None:
        self._catalog, self._host_guard = catalog, host_guard

    @property
    def routes(self) -> list[Route]:
        """The URL of the document."""
        paths = (METADATA_PATH, f"{METADATA_PATH}/mcp", f"{METADATA_PATH}/mcp/{{profile}}")
        return [Route(path, self._answer, methods=["GET"]) for path in paths]

    async def _answer(self, request: Request) -> Response:
        refusal = self._host_guard.refusal(request.scope["headers"])
        if refusal is not None:
            return PlainTextResponse(refusal.text, status_code=refusal.status)
        rules = self._catalog.identity
        if rules is None or rules.tokens is None:
            return PlainTextResponse("Not found", status_code=404)
        return JSONResponse(metadata_of(rules.tokens, request.scope, name=self._catalog.name))
