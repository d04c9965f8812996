"""Allowed imports: the Python modules that a config may name. A config can run code; this limits which code."""

from __future__ import annotations

import functools
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import Struct

from pegboard.model.tool import ToolEntry

# The running program is Pegboard, whatever its module is called.
_OWN = frozenset({__name__.partition(".")[0], "pegboard_command", "__main__"})
_STDLIB = Path(sysconfig.get_path("stdlib")).resolve()
# Inside the standard library's folder, but not part of it.
_INSTALLED = frozenset({"site-packages", "dist-packages"})
# Standard modules whose functions report another module as their home.
_SPELLINGS = {"os": {"posix", "nt"}, "os.path": {"posixpath", "ntpath", "genericpath"}}


class AllowedImports(Struct, frozen=True):
    """The globs over module names in `allow_imports:`; `None` if the key is missing.

    Without the key, a config may name any installed module except those of Python and of Pegboard: these are on every
    machine and can run any program. They must be listed, with at least the first part spelled out. With the key, only
    listed modules are imported.
    """

    globs: tuple[str, ...] | None = None

    def module_fault(self, name: str) -> str | None:
        """Return why a config may not name this module; `None` if it may."""
        fitting = [glob for glob in self.globs or () if fnmatchcase(name, glob)]
        top = name.partition(".")[0]
        if any(glob.partition(".")[0] == top for glob in fitting):
            return None
        if _is_guarded(name):
            owner = "Pegboard itself" if top in _OWN else "Python itself"
            return (
                f"{name!r} is a module of {owner}, and such code runs only if the config lists it: "
                f"wrap it in your own function, or add `{name}` to `allow_imports:`"
            )
        if fitting or self.globs is None:
            return None
        return f"{name!r} is not under `allow_imports:`, so nothing is imported from it. Add it there if it is meant"

    def object_fault(self, module: str, target: Any) -> str | None:
        """Return why an object reached through an allowed module may not be used; `None` if it may.

        A module also contains other modules, and objects that it imported. Those must be allowed by their own module.
        """
        for home in _homes(target):
            if not _belongs(home, module) and (fault := self.module_fault(home)) is not None:
                return fault
        return None


def _is_guarded(name: str) -> bool:
    """Tell whether a module belongs to Pegboard or the standard library, also one that Python does not list."""
    top = name.partition(".")[0]
    if top in _OWN or top in sys.stdlib_module_names:
        return True
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return False
    if spec is None or not spec.has_location or spec.origin is None:
        return False
    place = Path(spec.origin).resolve()
    return place.is_relative_to(_STDLIB) and _INSTALLED.isdisjoint(place.relative_to(_STDLIB).parts)


def _belongs(home: str, module: str) -> bool:
    """Tell whether an object of module `home` belongs to `module`: to a submodule or to its part written in C."""
    if home == module or home.startswith(f"{module}.") or home in _SPELLINGS.get(module, ()):
        return True
    return _is_guarded(module) and home == f"_{module.rpartition('.')[2]}"


def _homes(target: Any) -> Iterator[str]:
    """Yield the modules whose code runs when `target` is called, as far as that can be seen."""
    while isinstance(target, functools.partial | functools.partialmethod):
        target = target.func
    if isinstance(target, ModuleType):
        yield target.__name__
        return
    if isinstance(target, ToolEntry):
        if target.spec.origin:
            yield target.spec.origin.rpartition(":")[0]
        return
    owner = getattr(target, "__self__", None)
    named = getattr(target, "__module__", None)
    if isinstance(named, str):
        yield named
    elif isinstance(owner, ModuleType):
        yield owner.__name__
    elif owner is not None:
        yield (owner if isinstance(owner, type) else type(owner)).__module__
    else:
        kind: Any = getattr(target, "__objclass__", None)  # a method taken from a class written in C
        yield str((kind or type(target)).__module__)
