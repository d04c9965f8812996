"""Routes: maps paths to handlers."""

from __future__ import annotations

from starlette.routing import Route

from pegboard.server.http_api.agent_routes import AgentRoutes
from pegboard.server.http_api.api_app import Answer, Api, PathApp, UnknownPath
from pegboard.server.http_api.audit_routes import AUDIT_QUERY, AuditRoutes
from pegboard.server.http_api.call_routes import CallRoutes
from pegboard.server.http_api.connection_routes import ConnectionRoutes
from pegboard.server.http_api.consent_routes import ConsentRoutes
from pegboard.server.http_api.document_routes import DocumentRoutes
from pegboard.server.http_api.event_stream import EventRoute
from pegboard.server.http_api.openapi_document import OpenApiRoute
from pegboard.server.http_api.task_routes import TaskRoutes
from pegboard.server.http_api.tool_routes import ToolRoutes


class Routes:
    """Every path of the plain HTTP API."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.events = EventRoute(api)

    def all(self) -> list[Route]:
        """Return the routes; the last one answers every other path below /v1."""
        tools, calls, consents = ToolRoutes(self._api), CallRoutes(self._api), ConsentRoutes(self._api)
        agents = AgentRoutes(self._api)
        tasks = TaskRoutes(self._api)
        documents = DocumentRoutes(self._api)
        connections = ConnectionRoutes(self._api)
        places: list[tuple[str, dict[str, Answer], tuple[str, ...]]] = [
            ("/v1/tools", {"GET": tools.list}, ("limit", "cursor")),
            ("/v1/tools/{name}", {"GET": tools.show}, ()),
            ("/v1/tools/{name}/why", {"GET": tools.why}, ()),
            ("/v1/tools/{name}/call", {"POST": calls.call}, ("as_task",)),
            ("/v1/agents/{name}/run", {"POST": agents.run}, ()),
            ("/v1/calls/{id}/cancel", {"POST": calls.cancel}, ()),
            ("/v1/connections", {"GET": connections.list, "POST": connections.begin}, ("user",)),
            ("/v1/connections/{id}", {"GET": connections.show, "DELETE": connections.end}, ()),
            ("/v1/consents", {"GET": consents.list}, ("state",)),
            ("/v1/consents/{id}", {"GET": consents.show, "DELETE": consents.forget}, ()),
            ("/v1/consents/{id}/approve", {"POST": consents.approve}, ()),
            ("/v1/consents/{id}/deny", {"POST": consents.deny}, ()),
            ("/v1/consents/{id}/grant", {"POST": consents.grant}, ()),
            ("/v1/tasks", {"GET": tasks.list}, ()),
            ("/v1/tasks/{id}", {"GET": tasks.show}, ()),
            ("/v1/tasks/{id}/answer", {"POST": tasks.answer}, ()),
            ("/v1/tasks/{id}/cancel", {"POST": tasks.cancel}, ()),
            ("/v1/tasks/{id}/resume", {"POST": tasks.resume}, ()),
            (
                "/v1/documents",
                {"GET": documents.list, "POST": documents.upload},
                ("path", "source", "space", "folder", "limit", "cursor", "meta", "meta."),
            ),
            (
                "/v1/documents/{id}",
                {"GET": documents.show, "PUT": documents.replace, "DELETE": documents.remove},
                ("meta", "meta."),
            ),
            ("/v1/documents/{id}/text", {"GET": documents.read}, ("start",)),
            (
                "/v1/grants",
                {"GET": documents.grants, "POST": documents.grant, "DELETE": documents.revoke},
                ("principal", "space"),
            ),
            ("/v1/audit", {"GET": AuditRoutes(self._api).list}, AUDIT_QUERY),
            ("/v1/search", {"GET": tools.search}, ("q", "limit")),
            ("/openapi.json", {"GET": OpenApiRoute(self._api).show}, ("form",)),
            ("/v1/events", {"GET": self.events.listen}, ()),
        ]
        routes = [Route(path, endpoint=PathApp(self._api, answers, query=query)) for path, answers, query in places]
        return [*routes, Route("/v1/{rest:path}", endpoint=UnknownPath(self._api))]
