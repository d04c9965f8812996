"""Routes: which path is answered by whom."""

from __future__ import annotations

from starlette.routing import Route

from pegboard.server.http_api.api_app import Answer, Api, PathApp, UnknownPath
from pegboard.server.http_api.call_routes import Calls
from pegboard.server.http_api.event_stream import Events
from pegboard.server.http_api.openapi_document import Documents
from pegboard.server.http_api.tool_routes import Tools


class Routes:
    """Every path of the plain HTTP API."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.events = Events(api)

    def all(self) -> list[Route]:
        """Return the routes, the one for every other path below /v1 last."""
        tools, calls = Tools(self._api), Calls(self._api)
        places: list[tuple[str, dict[str, Answer], tuple[str, ...]]] = [
            ("/v1/tools", {"GET": tools.list}, ("limit", "cursor")),
            ("/v1/tools/{name}", {"GET": tools.show}, ()),
            ("/v1/tools/{name}/why", {"GET": tools.why}, ()),
            ("/v1/tools/{name}/call", {"POST": calls.call}, ()),
            ("/v1/calls/{id}/cancel", {"POST": calls.cancel}, ()),
            ("/v1/search", {"GET": tools.search}, ("q", "limit")),
            ("/openapi.json", {"GET": Documents(self._api).show}, ("form",)),
            ("/v1/events", {"GET": self.events.listen}, ()),
        ]
        routes = [Route(path, endpoint=PathApp(self._api, answers, query=query)) for path, answers, query in places]
        return [*routes, Route("/v1/{rest:path}", endpoint=UnknownPath(self._api))]
