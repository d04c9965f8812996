"""EarlierChannel: what the channels of the revisions before 2026-07-28 have alike."""

from __future__ import annotations

from pegboard.model.error import CallError
from pegboard.model.task import TaskSupport
from pegboard.server.mcp.asking.client_channel import ClientChannel

METHOD_NOT_FOUND = -32601


class EarlierChannel(ClientChannel):
    """The way back to a client of an earlier revision, which says itself whether a call shall be a task."""

    task_ttl_s: float | None = None
    """For how long it wants to have it kept."""

    def follows_task(self, support: TaskSupport, *, asked: bool) -> bool:
        """Tell whether a call shall be a task: where it may be one, and the request said so.

        Raises:
            CallError: the tool forbids what was asked for, or requires what was not. Source: MCP 2025-11-25, tasks.
        """
        if support == "required" and not self.wants_task:
            self.refused_with = METHOD_NOT_FOUND
            raise CallError("invalid_arguments", "This tool runs as a task only: call it with `task`.")
        if support == "forbidden" and self.wants_task:
            self.refused_with = METHOD_NOT_FOUND
            raise CallError("invalid_arguments", "This tool cannot run as a task: call it without `task`.")
        return self.wants_task
