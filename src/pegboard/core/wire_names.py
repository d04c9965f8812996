"""Wire names: the unique name of each tool on the wire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct

from pegboard.core.names import fold, is_tool_name, shortened

# If two tools claim a bare name, the namespace that is listed first gets it.
_BARE_ORDER = ("main", "builtin", "docs")


class Named(NamedTuple):
    """The parts of a wire name."""

    namespace: str
    name: str
    is_toolset: bool


class WireNames(Struct, frozen=True, weakref=True):
    """The wire names of some tools, unique and independent of their order.

    Toolsets are `namespace__tool`; others have bare names. If tools claim the same bare name, `main` wins over
    `builtin`, `docs` and the rest, in this order. Remaining conflicts and long names get a hash tail.
    """

    by_tool: dict[Named, str]
    _claims: dict[str, int]
    """The number of tools that claim a bare name, by its folded form."""
    _wishes: dict[str, int]
    """The number of tools that want or have a name, by its folded form."""

    @classmethod
    def of(cls, tools: Iterable[Named]) -> WireNames:
        """Return the names of all these."""
        named = list(tools)
        claims: dict[str, list[tuple[int, str]]] = {}
        for namespace, name, is_toolset in named:
            if not is_toolset:
                rank = _BARE_ORDER.index(namespace) if namespace in _BARE_ORDER else len(_BARE_ORDER)
                claims.setdefault(fold(name), []).append((rank, namespace))
        wanted: list[str] = []
        for namespace, name, is_toolset in named:
            keeps_bare = not is_toolset and min(claims[fold(name)])[1] == namespace
            wanted.append(name if keeps_bare else f"{namespace}__{name}")
        settled = _settled(named, wanted)
        wishes = Counter(map(fold, wanted))
        wishes.update(fold(name) for name, wish in zip(settled, wanted, strict=True) if name != wish)
        return cls(dict(zip(named, settled, strict=True)), {key: len(who) for key, who in claims.items()}, dict(wishes))

    def may_have(self, folded_name: str) -> bool:
        """Tell whether a tool may have this name; some names are only claimed."""
        return folded_name in self._wishes

    def after(self, *, removed: Sequence[Named], added: Sequence[Named]) -> WireNames | None:
        """Return the names after a change, without looking at the other tools.

        `None` if a changed tool conflicts with another, so that all must be named again.
        """
        if sorted(removed) == sorted(added):
            return self
        # Not `dict()`, which rewrites every item after a deletion.
        by_tool, claims, wishes = self.by_tool.copy(), self._claims.copy(), self._wishes.copy()
        for tool in removed:
            own, wish = fold(tool.name), by_tool.pop(tool)
            if wish not in (tool.name, f"{tool.namespace}__{tool.name}") or wishes.pop(fold(wish)) > 1:
                return None
            if not tool.is_toolset and claims.pop(own) > 1:
                return None
        for tool in added:
            wish = f"{tool.namespace}__{tool.name}" if tool.is_toolset else tool.name
            if not is_tool_name(wish) or fold(wish) in wishes or (not tool.is_toolset and fold(tool.name) in claims):
                return None
            by_tool[tool] = wish
            wishes[fold(wish)] = 1
            if not tool.is_toolset:
                claims[fold(tool.name)] = 1
        return WireNames(by_tool, claims, wishes)


def _settled(tools: Sequence[Named], wanted: Sequence[str]) -> list[str]:
    settled = [name if is_tool_name(name) else "" for name in wanted]
    while True:
        counts = Counter(fold(name) for name in settled if name)
        meets = [i for i, name in enumerate(settled) if not name or (counts[fold(name)] > 1 and name == wanted[i])]
        if not meets:
            return settled
        # A tail may conflict with a chosen name; that tool then gets its own tail in the next round.
        for i in meets:
            settled[i] = shortened(wanted[i], f"{tools[i].namespace}.{tools[i].name}")
