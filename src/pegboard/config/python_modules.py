"""Python modules: import an operator's modules, collect their registrations, and leave no state for the next load.

* Modules in the config's folder are importable, but those of Python and installed packages take precedence: a `yaml.py`
  there replaces no package. They are importable only while a config is built, so a module must import its neighbours at
  the top, not inside a function that runs later.
* During the import, `pegboard.default_catalog` writes to the catalog that is being built. So nothing has to be copied,
  and nothing is left for another config in the same process.
* Modules from the folder, and modules that registered something, are executed again by the next load, so that edits
  take effect. A library that only provides a handler is not executed twice. Modules that the host had imported are used
  as they are: their registrations are those on `default_catalog` under their name.
* If a load fails, the modules of the previous load are restored.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from pegboard.catalog import Catalog, default_catalog
from pegboard.model.tool import ToolEntry

# One load at a time: `sys.modules` and the target of default_catalog belong to the process.
_lock = threading.RLock()
# Modules that the next load executes again; and modules that were imported for a single function only.
_brought: dict[str, ModuleType] = {}
_homes: dict[str, ModuleType] = {}


def _renew_lock() -> None:
    """Let a forked child load: a thread of its parent may have been loading."""
    global _lock  # noqa: PLW0603 - it belongs to the process, as does the state that it guards
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


@contextmanager
def importing(folder: Path) -> Generator[set[str]]:
    """Make the modules of `folder` importable, and have modules of an earlier load imported again.

    Yields a set; the caller adds the names of the modules that it collects from. If the block raises, the
    previous modules are restored.
    """
    with _lock:
        former = {name: module for name, module in _brought.items() if sys.modules.get(name) is module}
        for name in former:
            del sys.modules[name]
        before = dict(sys.modules)
        finder = _FolderFinder(folder.resolve())
        moved = _move_behind(folder)
        collected: set[str] = set()

        def imported() -> dict[str, ModuleType]:
            if sys.modules == before:  # most loads import nothing, and this is quicker than a look at thousands
                return {}
            return {name: module for name, module in sys.modules.items() if before.get(name) is not module}

        def brought() -> dict[str, ModuleType]:
            tops = {name.partition(".")[0] for name in collected}
            new = imported()
            return {name: new[name] for name in new if name.partition(".")[0] in tops or finder.is_inside(name)}

        sys.meta_path.insert(0, finder)
        importlib.invalidate_caches()
        try:
            yield collected
        except BaseException:
            for name in brought():
                del sys.modules[name]
            sys.modules.update(former)
            raise
        finally:
            sys.meta_path.remove(finder)
            _move_back(moved)
        _brought.clear()
        _brought.update(brought())
        _homes.update((n, module) for n, module in imported().items() if n not in before and n not in _brought)


def hidden_modules(folder: Path, pattern: str = "*") -> dict[str, str]:
    """Return the modules in a folder that can never be imported, each with the file that Python imports instead."""
    names = {path.stem for path in folder.glob(f"{pattern}.py")}
    names |= {path.parent.name for path in folder.glob(f"{pattern}/__init__.py")}
    with _lock:
        moved = _move_behind(folder)
        try:
            places = {name: _installed(name, folder.resolve()) for name in sorted(names) if name.isidentifier()}
        finally:
            _move_back(moved)
    return {name: place for name, place in places.items() if place is not None}


@contextmanager
def importable_last(folder: Path) -> Generator[None]:
    """Make the modules of a folder importable, after those of Python and of installed packages."""
    with _lock:
        moved = _move_behind(folder)
        last = str(folder.resolve())
        if not moved:
            sys.path.append(last)
        try:
            yield
        finally:
            if not moved and last in sys.path:
                sys.path.remove(last)
            _move_back(moved)


def hidden_module(name: str, place: str) -> str:
    """Return the problem of a module in the config's folder that can never be imported, with a remedy."""
    return (
        f"the module {name!r} in the folder of this config is never imported: Python takes the one of that name in "
        f"{place!r}. Rename yours"
    )


def _move_behind(folder: Path) -> list[tuple[int, str]]:
    """Move a folder to the end of `sys.path`; return where it was."""
    place = folder.resolve()
    moved = [(index, entry) for index, entry in enumerate(sys.path) if Path(entry or ".").resolve() == place]
    moved_entries = [entry for _, entry in moved]
    sys.path[:] = [*(entry for entry in sys.path if entry not in moved_entries), *moved_entries]
    return moved


def _move_back(moved: list[tuple[int, str]]) -> None:
    # Imported modules may have added entries to `sys.path`, which stay.
    for index, entry in moved:
        if entry in sys.path:
            del sys.path[len(sys.path) - 1 - sys.path[::-1].index(entry)]
            sys.path.insert(index, entry)


def _installed(name: str, folder: Path) -> str | None:
    """Return the location of a module of this name outside the folder; `None` if there is none."""
    if name in sys.stdlib_module_names:
        return "Python's standard library"
    for finder in sys.meta_path:
        find = None if isinstance(finder, _FolderFinder) else getattr(finder, "find_spec", None)
        spec: ModuleSpec | None = None if find is None else find(name, None)
        # A folder without `__init__.py` is a package only if there is no other module of that name.
        if spec is not None and spec.loader is not None and spec.origin is not None:
            file = Path(spec.origin)
            parent = file.parent if spec.submodule_search_locations is None else file.parent.parent
            return None if parent.resolve() == folder else spec.origin
    return None


def forget_home(name: str) -> None:
    """Forget a module that an earlier load imported for one function, since its tools were not collected."""
    for known in list(sys.modules):
        if (known == name or known.startswith(f"{name}.")) and _homes.get(known) is sys.modules[known]:
            del sys.modules[known], _homes[known]


@contextmanager
def registering_on(catalog: Catalog) -> Generator[None]:
    """Let `pegboard.default_catalog` write into `catalog`."""
    with _lock, default_catalog.written_to(catalog):
        yield


def brought_files() -> list[Path]:
    """Return the files of the modules that the next load executes again."""
    return [Path(module.__file__) for module in list(_brought.values()) if module.__file__]


def is_imported(name: str) -> bool:
    """Tell whether the process has imported this module."""
    return name in sys.modules


def registrations_of(name: str, catalog: Catalog) -> None:
    """Add to `catalog` the tools, predicates and hooks of `default_catalog` that come from a module or below it.

    Raises:
        DuplicateToolError: a tool's name is taken.
    """

    def comes_from(module: str) -> bool:
        return module == name or module.startswith(f"{name}.")

    theirs = default_catalog.registry
    for entry in theirs.build().entries:
        if comes_from(_home_of_entry(entry)):
            catalog.registry.add(entry)
    for called, question in theirs.predicates.items():
        if comes_from(_home_of(question.key)):
            catalog.registry.add_predicate(called, question, replace_existing=True)
    for hook in theirs.hooks:
        if comes_from(_home_of(hook.run)):
            catalog.add_hook(hook)


def homes_of_registrations(catalog: Catalog) -> set[str]:
    """Return the modules that registered something on `catalog`, including libraries that other modules import."""
    registry = catalog.registry
    homes = {_home_of_entry(entry) for entry in registry.build().entries}
    homes |= {_home_of(question.key) for question in registry.predicates.values()}
    return homes | {_home_of(hook.run) for hook in registry.hooks}


def _home_of(owner: object) -> str:
    return str(getattr(owner, "__module__", ""))


def _home_of_entry(entry: ToolEntry) -> str:
    return entry.spec.origin.rpartition(":")[0]


class _FolderFinder:
    """Finds modules in one folder, unless another finder has them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if path is None and _installed(name, self._folder) is not None:
            return None
        spec = PathFinder.find_spec(name, [str(self._folder)] if path is None else path, target)
        if spec is None:
            return None
        if spec.origin is None or not spec.has_location:
            # A folder without __init__.py is a package only if there is no regular one of that name.
            return spec if path is None and PathFinder.find_spec(name) is None else None
        if not Path(spec.origin).resolve().is_relative_to(self._folder) or not isinstance(
            spec.loader, SourceFileLoader
        ):
            return None
        spec.loader = _Uncached(name, spec.origin)
        spec.cached = None
        return spec

    def is_inside(self, name: str) -> bool:
        """Tell whether a module of this name has been imported from the folder."""
        module = sys.modules.get(name)
        places = [getattr(module, "__file__", None), *list(getattr(module, "__path__", []))]
        return any(place is not None and Path(place).resolve().is_relative_to(self._folder) for place in places)


class _Uncached(SourceFileLoader):
    """Compiles the source each time: caches compare time in seconds and size, which two edits may share."""

    def path_stats(self, path: Any) -> Any:
        raise OSError(f"no cache for {path}")
