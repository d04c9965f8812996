"""Defaults: tools that code declares at import; a reset sets them aside, and loading the defaults restores them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

from pegboard.core.names import fold
from pegboard.core.registry import Registry
from pegboard.model.record import replace
from pegboard.model.tool import ToolEntry

_BY_NAME = ("predicates", "groups", "profiles", "mirrors", "resources")
_IN_ORDER = ("hooks", "named_later")


class Defaults:
    """The tools that decorators and classes declared on one catalog. State of the catalog.

    A reset sets aside the current declarations. A second reset before `bring_back` adds nothing, since tools declared
    in between belong to a test. Declarations of a default loader are not set aside, because the loader runs again.
    """

    def __init__(self) -> None:
        self._decorated: set[str] = set()
        self._classes: list[weakref.ref[type]] = []
        self._functions: dict[str, Callable[..., Any]] = {}
        self.predicates: dict[str, Callable[..., Any]] = {}
        """The functions of predicates, by name."""
        self._aside: dict[str, dict[Any, Any]] | None = None
        self._is_loading = False
        self._named_by_loaders: dict[str, frozenset[str]] = dict.fromkeys(_BY_NAME, frozenset[str]())
        self._listed_by_loaders: tuple[Any, ...] = ()
        self._tools_of_loaders: dict[str, ToolEntry] = {}
        self._sources_of_loaders: frozenset[str] = frozenset()

    def note(self, *entries: ToolEntry) -> None:
        """Remember tools that a decorator declared."""
        if not self._is_loading:
            self._decorated |= {fold(entry.qualified_id) for entry in entries}

    def note_function(self, fn: Callable[..., Any], *entries: ToolEntry) -> None:
        """Remember the function behind tools that a decorator declared."""
        self.note(*entries)
        self._functions |= {fold(entry.qualified_id): fn for entry in entries}

    def function_of(self, entry: ToolEntry) -> Callable[..., Any] | None:
        """Return the function that a decorator declared under the name of a tool."""
        return self._functions.get(fold(entry.qualified_id))

    def note_class(self, tool: type) -> None:
        """Remember a class of tools, for as long as it lives."""
        if not self._is_loading and not self.holds(tool):
            self._classes.append(weakref.ref(tool))

    def holds(self, tool: type) -> bool:
        """Tell whether a class was registered here."""
        return any(known() is tool for known in self._classes)

    def namesake(self, tool: type) -> type | None:
        """Return the earlier class with the same name, e.g. from a notebook cell that is run again."""
        name = (tool.__module__, tool.__qualname__)
        known = (ref() for ref in self._classes)
        return next((each for each in known if each is not None and (each.__module__, each.__qualname__) == name), None)

    def keeps_source(self, name: str, registry: Registry) -> bool:
        """Tell whether a loader that runs again adds a source that is there; it stays as it is, with its connection."""
        return self._is_loading and name in self._sources_of_loaders and name in registry.sources

    def forget(self, key: str) -> None:
        """Forget a tool that was removed or replaced; by folded qualified id."""
        self._decorated.discard(key)
        self._functions.pop(key, None)
        self._classes = [ref for ref in self._classes if _key_of(ref()) != key]

    def forget_class(self, tool: type) -> None:
        """Forget a class that another one replaced."""
        self._classes = [ref for ref in self._classes if ref() is not tool]

    @contextmanager
    def loading(self, registry: Registry) -> Generator[None]:
        """Attribute the declarations in the block to default loaders.

        What they declared before, and nobody changed since, is removed first: they declare it again.
        """
        whole = registry.declarations
        self._unload(registry)
        before, self._is_loading = registry.declarations, True
        try:
            yield
        except BaseException:
            registry.swap(whole)
            raise
        else:
            self._tools_of_loaders = {
                key: entry for key, entry in registry.declarations.tools.items() if before.tools.get(key) is not entry
            }
        finally:
            self._is_loading, after = False, registry.declarations
            self._sources_of_loaders |= frozenset(after.sources) - frozenset(before.sources)
            for field in _BY_NAME:
                new = frozenset(getattr(after, field)) - frozenset(getattr(before, field))
                self._named_by_loaders[field] |= new
            known = [item for field in _IN_ORDER for item in getattr(before, field)]
            items = [item for field in _IN_ORDER for item in getattr(after, field)]
            self._listed_by_loaders = tuple(item for item in items if not _is_among(item, known))

    def _unload(self, registry: Registry) -> None:
        declared = registry.declarations
        for key, entry in self._tools_of_loaders.items():
            if declared.tools.get(key) is entry:
                declared = declared.without(key)
        for key in self._named_by_loaders["resources"]:
            if key in declared.resources:
                declared = declared.without(key)
        for field in ("predicates", "groups", "profiles", "mirrors"):
            own = self._named_by_loaders[field]
            declared = replace(declared, **{field: {n: v for n, v in getattr(declared, field).items() if n not in own}})
        for field in _IN_ORDER:
            others = tuple(one for one in getattr(declared, field) if not _is_among(one, self._listed_by_loaders))
            declared = replace(declared, **{field: others})
        if self._tools_of_loaders or self._listed_by_loaders or any(self._named_by_loaders.values()):
            registry.swap(declared)

    def set_aside(self, registry: Registry) -> None:
        """Keep the current declarations for `bring_back`."""
        if self._aside is not None:
            return
        declared = registry.declarations
        self._aside = {
            field: {n: v for n, v in getattr(declared, field).items() if n not in self._named_by_loaders[field]}
            for field in _BY_NAME
        }
        # Classes are not included: one that is not referenced elsewhere must be collectable.
        self._aside["tools"] = {key: declared.tools[key] for key in declared.tools if key in self._decorated}
        for field in _IN_ORDER:
            items = enumerate(item for item in getattr(declared, field) if not _is_among(item, self._listed_by_loaders))
            self._aside[field] = dict(items)

    def bring_back(self, registry: Registry) -> None:
        """Declare again what a reset removed, unless its name is taken by now."""
        if self._aside is None:
            return
        aside, self._aside = self._aside, None
        add_named: dict[str, Callable[[Any, Any], None]] = {
            "predicates": registry.add_predicate,
            "groups": registry.add_group,
            "profiles": lambda _, profile: registry.add_profile(profile),
            "mirrors": registry.add_mirror,
            "resources": lambda _, entry: registry.add(entry),
        }
        for field in _BY_NAME:
            for name, value in aside[field].items():
                if name not in getattr(registry.declarations, field):
                    add_named[field](name, value)
        for hook in aside["hooks"].values():
            registry.add_hook(hook)
        for later in aside["named_later"].values():
            registry.add_named_later(*later)
        self._bring_back_tools(registry, aside["tools"])

    def _bring_back_tools(self, registry: Registry, decorated: Mapping[str, ToolEntry]) -> None:
        # An unreferenced class may still wait for the garbage collector.
        gc.collect()
        self._classes = [ref for ref in self._classes if ref() is not None]
        living = {_key_of(tool): tool.tool_entry for ref in self._classes if (tool := _tool(ref)) is not None}
        present = registry.declarations.tools
        registry.add(*(entry for key, entry in {**decorated, **living}.items() if key not in present))


def _tool(ref: weakref.ref[type]) -> Any:
    return ref()


def _key_of(tool: Any) -> str:
    return "" if tool is None else fold(tool.tool_entry.qualified_id)


def _is_among(item: object, others: Any) -> bool:
    return any(item is other for other in others)
