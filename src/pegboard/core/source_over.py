"""Source over: the methods that sources over another source share, since connection and state are the other's."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pegboard.core.ports import HoldsSecrets, Source, StartsSlowly
from pegboard.model.secret import Secret
from pegboard.model.source_state import SourceState


class SourceOver:
    """Part of a source over the source in its field `source`."""

    __slots__ = ()

    source: Source

    def state(self) -> SourceState:
        """Return the state of the source."""
        return self.source.state()

    def secrets(self) -> Iterable[Secret]:
        """Return the credentials of the source."""
        return self.source.secrets() if isinstance(self.source, HoldsSecrets) else ()

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` after each change of the source's tools."""
        self.source.subscribe(on_change)

    async def start(self) -> None:
        """Start the source."""
        await self.source.start()

    async def first_listed(self) -> None:
        """Wait until the source has tried to list its tools."""
        if isinstance(self.source, StartsSlowly):
            await self.source.first_listed()

    async def stop(self) -> None:
        """Stop the source."""
        await self.source.stop()
