"""SkillHandlers: the MCP extension for skills, in both eras: the list of skills, their files and folders."""

from __future__ import annotations

import base64

from pegboard.core.digests import digest
from pegboard.model.json_types import JSON
from pegboard.model.skill import Skill, SkillFile
from pegboard.resources.skills import DIRECTORY, Child, children_of, file_of, skill_entry
from pegboard.server.mcp.handlers.lists import MCP_PAGE_RESOURCES, Lists, page_of
from pegboard.server.mcp.limits import LIST_TTL_MS
from pegboard.server.mcp.protocol.jsonrpc import INVALID_PARAMS, RpcError
from pegboard.server.mcp.protocol.requests import McpRequest
from pegboard.server.sealing import Sealing

MCP_PAGE_SKILLS = 20  # skills on one page; each lists its files

_KEPT: JSON = {"ttlMs": LIST_TTL_MS, "cacheScope": "private"}


class SkillHandlers:
    """skills/list, skills/get and resources/directory/read."""

    def __init__(self, lists: Lists, sealing: Sealing) -> None:
        self._lists, self._sealing = lists, sealing

    async def list(self, request: McpRequest) -> JSON:
        """Handle skills/list."""
        principal = request.principal
        entries = list(map(skill_entry, await self._lists.skills(principal)))
        first, end, more = page_of(
            self._sealing, "skills", principal, digest(entries), MCP_PAGE_SKILLS, len(entries),
            request.params.get("cursor"),
        )  # fmt: skip
        return {"skills": entries[first:end], **_KEPT, **more}

    async def get(self, request: McpRequest) -> JSON:
        """Handle skills/get."""
        uri = request.params["uri"]
        for skill in await self._lists.skills(request.principal):
            if skill.uri == uri:
                return {"skill": skill_entry(skill), **_KEPT}
        raise RpcError(INVALID_PARAMS, f"No skill {uri!r} is available to this caller.", {"uri": uri})

    async def read_directory(self, request: McpRequest) -> JSON:
        """Handle resources/directory/read."""
        principal, uri = request.principal, request.params["uri"]
        children = children_of(await self._lists.skills(principal), uri)
        if children is None:
            text = f"No folder {uri!r} is available to this caller."
            raise RpcError(INVALID_PARAMS, text, {"uri": uri})
        items = list(map(_shown, children))
        first, end, more = page_of(
            self._sealing, f"folder {uri}", principal, digest(items), MCP_PAGE_RESOURCES, len(items),
            request.params.get("cursor"),
        )  # fmt: skip
        return {"resources": items[first:end], **_KEPT, **more}


def _shown(child: Child) -> JSON:
    mime_type = DIRECTORY if child.file is None else child.file.mime_type
    size = {} if child.file is None else {"size": len(child.file.content)}
    return {"uri": child.uri, "name": child.name, "mimeType": mime_type, **size}


def skill_contents(skills: list[Skill], uri: str) -> JSON | None:
    """Return the contents of a skill's file; `None` if the URI does not belong to a skill."""
    file = file_of(skills, uri)
    return None if file is None else _contents(file)


def _contents(file: SkillFile) -> JSON:
    shown: JSON = {"uri": file.uri, "mimeType": file.mime_type}
    if file.is_text:
        return {**shown, "text": file.content.decode()}
    return {**shown, "blob": base64.b64encode(file.content).decode()}
