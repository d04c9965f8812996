"""Tool names: our names for the tools of a source."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from pegboard.core.names import MAX_NAME_CHARS, fold, legal, shortened


def own_names(
    foreign: Iterable[str], *, rename: Mapping[str, str], namespace: str, known: Collection[str] = ()
) -> dict[str, str]:
    """Return our name for each foreign one, unique and independent of their order.

    A legal name is kept. A name that conflicts with another, or has no letters, gets a hash tail. `known` names have
    priority over new ones.
    """
    taken: set[str] = set()
    named: dict[str, str] = {}
    # Names that need no change come first, so that others cannot displace them. Of names that differ only in case, the
    # lower-case one comes first.
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
