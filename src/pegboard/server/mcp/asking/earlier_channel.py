"""EarlierChannel: the common part of the channels for revisions before 2026-07-28."""

from __future__ import annotations

from pegboard.model.error import CallError
from pegboard.model.task import TaskSupport
from pegboard.server.mcp.asking.client_channel import ClientChannel

METHOD_NOT_FOUND = -32601


class EarlierChannel(ClientChannel):
    """The channel to a client of an earlier revision, where the request itself asks for a task."""

    task_ttl_s: float | None = None
    """The lifetime that the client wants for the task, in milliseconds."""

    def follows_task(self, support: TaskSupport, *, asked: bool) -> bool:
        """Tell whether a call runs as a task: the tool allows it and the request asked for it.

        Raises:
            CallError: the tool forbids or requires a task and the request differs. Source: MCP 2025-11-25, tasks.
        """
        if support == "required" and not self.wants_task:
            self.refused_with = METHOD_NOT_FOUND
            raise CallError("invalid_arguments", "This tool runs as a task only: call it with `task`.")
        if support == "forbidden" and self.wants_task:
            self.refused_with = METHOD_NOT_FOUND
            raise CallError("invalid_arguments", "This tool cannot run as a task: call it without `task`.")
        return self.wants_task
