"""Descriptions of APIs for a test: made of little, put into a project, and called once."""

import json
from typing import Any

from pegboard import ToolSpec
from tests.builtin.web import Asked, Site, as_json
from tests.config.project import Project

PET: dict[str, Any] = {
    "type": "object",
    "required": ["id", "name"],
    "properties": {
        "id": {"type": "integer", "readOnly": True},
        "name": {"type": "string"},
        "parent": {"$ref": "#/components/schemas/Pet"},
        "secret": {"type": "string", "writeOnly": True},
    },
}


def spec(paths: dict[str, Any], *, version: str = "3.1.0", **more: Any) -> dict[str, Any]:
    whole = {"openapi": version, "info": {"title": "t", "version": "1"}, "paths": paths}
    return whole | {"components": {"schemas": {"Pet": PET}}} | more


def get(*parameters: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"get": {"operationId": "ask", "parameters": list(parameters), "responses": {}} | more}


def post(
    body: dict[str, Any], *, media: str = "application/json", required: bool = True, **more: Any
) -> dict[str, Any]:
    told = {"required": required, "content": {media: {"schema": body}}}
    return {"post": {"operationId": "ask", "requestBody": told, "responses": {}} | more}


def project_of(project: Project, description: Any, url: str = "https://api.example.com", keys: str = "") -> Project:
    project.file("api.json", json.dumps(description))
    return project.write(f"tools: [{{name: api, type: openapi, openapi: {{spec: api.json, base_url: '{url}'{keys}}}}}]")


def declared(project: Project, description: Any) -> ToolSpec:
    """Return the only tool of a description."""
    [entry] = project_of(project, description).catalog().snapshot().entries
    return entry.spec


async def asked(project: Project, description: Any, args: dict[str, Any], *, keys: str = "", path: str = "") -> Asked:
    """Return the request that a call of the only tool makes."""
    site = Site(lambda _: as_json({"id": 1, "name": "rex"}))
    async with site.server() as server:
        tools = project_of(project, description, server.url + path, keys).view(user="ann")
        result = await tools.call(tools.names()[0], args)
    assert result.error is None, result.error
    return site.asked[0]


def at(where: str, schema: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"name": "p", "in": where, "required": where == "path", "schema": schema or {}} | more
