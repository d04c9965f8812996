"""Request context: the caller and purpose of a request, with the settings and secrets of a config."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pegboard.config.config import Config
from pegboard.model.context import ToolContext


def context_for(
    config: Config,
    *,
    user: str | None = None,
    space: str | None = None,
    roles: Sequence[str] | frozenset[str] = (),
    session: str | None = None,
    context_type: type[ToolContext] = ToolContext,
    **fields: Any,
) -> ToolContext:
    """Return the context of one request, with the settings and secrets of the config.

    `fields` are other fields of the context, e.g. `agent=` or `factories=`; `settings=` and `secrets=`
    are added to those of the config and win over them.
    """
    if user is None and space is None and not roles:
        space = config.space
    settings = {**config.settings, **fields.pop("settings", {})}
    secrets = {**config.secrets, **fields.pop("secrets", {})}
    return context_type(
        user_id=user,
        space_id=space,
        roles=frozenset(roles),
        session_id=session,
        settings=settings,
        secrets=secrets,
        **fields,
    )
