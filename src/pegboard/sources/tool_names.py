"""Tool names: what the tools of one source are called here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pegboard.core.names import MAX_NAME_CHARS, fold, legal, shortened


def own_names(foreign: Iterable[str], *, rename: Mapping[str, str], namespace: str) -> dict[str, str]:
    """Return our name for each foreign one; the same in whatever order they come, and no two alike.

    A name that is legal as it stands keeps itself; one that must be changed, or meets another, gets a hash tail.
    """
    taken: set[str] = set()
    named: dict[str, str] = {}
    # Those that need no change come first, so that no neighbour can push them aside.
    for name in sorted(set(foreign), key=lambda name: (name not in rename, legal(name) != name, name)):
        wanted = rename.get(name) or legal(name)
        if fold(wanted) in taken or len(name) > MAX_NAME_CHARS:
            wanted = shortened(wanted, f"{namespace}.{name}")
        taken.add(fold(wanted))
        named[name] = wanted
    return named
