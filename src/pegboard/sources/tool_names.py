"""Tool names: what the tools of one source are called here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from pegboard.core.names import MAX_NAME_CHARS, fold, legal, shortened


def own_names(
    foreign: Iterable[str], *, rename: Mapping[str, str], namespace: str, known: Collection[str] = ()
) -> dict[str, str]:
    """Return our name for each foreign one; the same in whatever order they come, and no two alike.

    A name that is legal as it stands keeps itself; one that meets another, or of which no letter is left, gets a hash
    tail of its own. What is `known` goes first: no newcomer takes its name from it.
    """
    taken: set[str] = set()
    named: dict[str, str] = {}
    # Those that need no change come first, so that no neighbour can push them aside.
    # Of twins in case the one in small letters, which most are called by.
    for name in sorted(
        set(foreign),
        key=lambda name: (name not in rename, name not in known, legal(name) != name, name.swapcase(), name),
    ):
        wanted = rename.get(name) or legal(name)
        if name not in rename and legal(name) != name and not wanted.strip("_-"):
            wanted = shortened("tool", f"{namespace}.{name}")
        if fold(wanted) in taken or len(name) > MAX_NAME_CHARS:
            wanted = shortened(wanted, f"{namespace}.{name}")
        taken.add(fold(wanted))
        named[name] = wanted
    return named
