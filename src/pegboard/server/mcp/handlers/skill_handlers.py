"""SkillHandlers: the extension for skills over MCP, in both eras: which there are, their files and folders."""

from __future__ import annotations

import base64
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from pydantic import Field

from pegboard.core.digests import digest
from pegboard.model.json_types import JSON
from pegboard.model.skill import Skill, SkillFile
from pegboard.resources.skills import DIRECTORY, Child, children_of, file_of, skill_entry
from pegboard.server.gateway import INVALID_PARAMS, RpcError
from pegboard.server.mcp.handlers.lists import MCP_PAGE_RESOURCES, Lists, page_of
from pegboard.server.mcp.limits import LIST_TTL_MS
from pegboard.server.mcp.sdk_handlers import Principals, complete
from pegboard.server.sealing import Sealing

MCP_PAGE_SKILLS = 20  # in one page: each lists its files

Ctx = ServerRequestContext[Any, Any]
_KEPT: JSON = {"ttlMs": LIST_TTL_MS, "cacheScope": "private"}


class SkillParams(types.RequestParams):
    """What skills/get takes."""

    uri: str = Field(min_length=1)


class DirectoryParams(types.PaginatedRequestParams):
    """What resources/directory/read takes."""

    uri: str = Field(min_length=1)


class SkillHandlers:
    """skills/list, skills/get and resources/directory/read."""

    def __init__(self, lists: Lists, sealing: Sealing, principals: Principals) -> None:
        self._lists, self._sealing, self._principal_of = lists, sealing, principals.of

    def register(self, server: Server[Any]) -> None:
        """Add the handlers to a server; without a skill they answer that there is none."""
        add = server.add_request_handler
        add("skills/list", types.PaginatedRequestParams, self.list)
        add("skills/get", SkillParams, self.get)
        add("resources/directory/read", DirectoryParams, self.read_directory)

    async def list(self, ctx: Ctx, params: types.PaginatedRequestParams) -> JSON:
        principal = self._principal_of(ctx)
        entries = list(map(skill_entry, await self._lists.skills(principal)))
        first, end, more = page_of(
            self._sealing, "skills", principal, digest(entries), MCP_PAGE_SKILLS, len(entries), params.cursor
        )
        return complete(ctx, {"skills": entries[first:end], **_KEPT, **more})

    async def get(self, ctx: Ctx, params: SkillParams) -> JSON:
        for skill in await self._lists.skills(self._principal_of(ctx)):
            if skill.uri == params.uri:
                return complete(ctx, {"skill": skill_entry(skill), **_KEPT})
        raise RpcError(INVALID_PARAMS, f"No skill {params.uri!r} is available to this caller.", {"uri": params.uri})

    async def read_directory(self, ctx: Ctx, params: DirectoryParams) -> JSON:
        principal = self._principal_of(ctx)
        children = children_of(await self._lists.skills(principal), params.uri)
        if children is None:
            text = f"No folder {params.uri!r} is available to this caller."
            raise RpcError(INVALID_PARAMS, text, {"uri": params.uri})
        items = list(map(_shown, children))
        first, end, more = page_of(
            self._sealing, f"folder {params.uri}", principal, digest(items), MCP_PAGE_RESOURCES, len(items),
            params.cursor,
        )  # fmt: skip
        return complete(ctx, {"resources": items[first:end], **_KEPT, **more})


def _shown(child: Child) -> JSON:
    mime_type = DIRECTORY if child.file is None else child.file.mime_type
    size = {} if child.file is None else {"size": len(child.file.content)}
    return {"uri": child.uri, "name": child.name, "mimeType": mime_type, **size}


def skill_contents(skills: list[Skill], uri: str) -> JSON | None:
    """Return the contents of a file of a skill; `None` where there is none of this URI."""
    file = file_of(skills, uri)
    return None if file is None else _contents(file)


def _contents(file: SkillFile) -> JSON:
    shown: JSON = {"uri": file.uri, "mimeType": file.mime_type}
    if file.is_text:
        return {**shown, "text": file.content.decode()}
    return {**shown, "blob": base64.b64encode(file.content).decode()}
