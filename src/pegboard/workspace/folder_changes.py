"""Folder changes: reports changes in a folder as the operating system sees them. Needs `pegboard[watch]`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import watchfiles

WATCH_DEBOUNCE_S = 0.4  # seconds without another change until changes are reported
WATCH_TICK_S = 2.0  # seconds until a report comes without a change


async def changes_in(folder: Path, *, is_ignored: Callable[[Path], bool]) -> AsyncIterator[frozenset[str]]:
    """Yield the paths that changed below a folder, and an empty set now and then.

    Hidden files and those that `is_ignored` do not count.

    Raises:
        OSError: changes of this folder cannot be watched.
    """

    def counts(_: watchfiles.Change, path: str) -> bool:
        below = Path(path)
        is_hidden = below.is_relative_to(folder) and any(
            part.startswith(".") for part in below.relative_to(folder).parts
        )
        return not is_hidden and not is_ignored(below)

    untyped: Any = watchfiles
    changes: AsyncIterator[set[tuple[Any, str]]] = untyped.awatch(
        folder,
        watch_filter=counts,
        step=round(WATCH_DEBOUNCE_S * 1000),
        rust_timeout=round(WATCH_TICK_S * 1000),
        yield_on_timeout=True,
        ignore_permission_denied=True,
    )
    async for changed in changes:
        yield frozenset(path for _, path in changed)
