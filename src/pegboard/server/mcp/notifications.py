"""Notifications: progress and log lines that go out on the stream of a call, through the SDK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, get_args

import mcp_types as types
from mcp.server.context import ServerRequestContext

from pegboard.model.json_types import JSONValue

LEVELS: tuple[str, ...] = get_args(types.LoggingLevel)


class Notifications:
    """The part of a channel that tells the client something; mixed into those that hold a request of the SDK."""

    ctx: ServerRequestContext[Any, Any]
    level: str | None = None
    wants_progress = False

    def hold(self, ctx: ServerRequestContext[Any, Any], level: str | None) -> None:
        """Speak on the stream of this request; log lines below `level`, or all when it is `None`, are not sent."""
        self.ctx, self.level = ctx, level
        self.wants_progress = "progress_token" in cast("Mapping[str, Any]", ctx.meta or {})

    async def progress(self, done: float, total: float | None, message: str) -> None:
        await self.ctx.session.report_progress(done, total, message or None)

    async def log(self, data: JSONValue, *, level: str = "info", logger: str = "pegboard") -> None:
        if self.level is None or LEVELS.index(level) < LEVELS.index(self.level):
            return
        params = types.LoggingMessageNotificationParams(
            level=cast("types.LoggingLevel", level), data=data, logger=logger
        )
        await self.ctx.session.send_notification(
            types.LoggingMessageNotification(params=params), related_request_id=self.ctx.request_id
        )
