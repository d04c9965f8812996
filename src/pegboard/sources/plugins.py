"""Plugins: kinds of tools from other packages, found by entry points of the group `pegboard.sources`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from msgspec import Struct

from pegboard.core.names import nearest
from pegboard.core.ports import Source
from pegboard.model.bounds import Bounds
from pegboard.model.error import DefinitionError
from pegboard.model.tool import ToolEntry, ToolSpec

if TYPE_CHECKING:
    from pydantic import BaseModel

GROUP: Final = "pegboard.sources"
_KIND = re.compile("[a-z][a-z0-9_]{0,31}")


class Declaration(Struct, frozen=True, kw_only=True):
    """One tool of a plugin's kind, as declared in a config.

    `spec` has the common options: name, description, `parameters` as input schema, groups, limits. `settings` is the
    validated value under the key with the kind's name; `None` for a kind without settings. `folder` is the config's
    folder.
    """

    spec: ToolSpec
    settings: Any
    folder: Path
    bounds: Bounds


Make: TypeAlias = "Callable[[Declaration], ToolEntry | Sequence[ToolEntry] | Source]"


class PluginKind(Struct, frozen=True, kw_only=True):
    """A kind of tools and its factory."""

    name: str
    plugin: str
    settings: type[BaseModel] | None
    make: Make


class Registrar:
    """The argument of a plugin's `register(registrar)`."""

    def __init__(self, plugin: str, taken: Mapping[str, str]) -> None:
        self.kinds: dict[str, PluginKind] = {}
        self._plugin, self._taken = plugin, taken

    def kind(self, name: str, make: Make, *, settings: type[BaseModel] | None = None) -> None:
        """Register a kind: `type: name` in a config, with its settings under the key `name`.

        `make(declaration)` returns a tool, such as `declaration.spec.bind(handler)`, several tools, or a source.

        Raises:
            DefinitionError: the name is invalid or taken.
        """
        if not _KIND.fullmatch(name):
            raise DefinitionError(f"{name!r} is not a valid name of a kind: use 1 to 32 of a-z 0-9 _, a letter first")
        owner = self._taken.get(name) or (self._plugin if name in self.kinds else None)
        if owner is not None or name in ToolSpec.__struct_fields__:
            raise DefinitionError(f"the kind {name!r} is taken already by {owner or 'a key of every tool'}")
        self.kinds[name] = PluginKind(name=name, plugin=self._plugin, settings=settings, make=make)


class Imports(Protocol):
    """Decides which Python modules a config may name."""

    def module_fault(self, name: str) -> str | None:
        """Return why this module may not be named; `None` if it may."""
        ...

    def object_fault(self, module: str, target: Any) -> str | None:
        """Return why an object of a module may not be used; `None` if it may."""
        ...


def load_plugin(name: str, *, taken: Mapping[str, str], imports: Imports) -> Mapping[str, PluginKind]:
    """Import the plugin of this name, and return its kinds. `taken` maps existing kinds to their owners.

    `imports` is consulted before the import, and about the imported object.

    Raises:
        DefinitionError: the plugin is unknown, in two packages, or fails.
    """
    points = [point for point in entry_points(group=GROUP) if point.name == name]
    if not points:
        known = {point.name for point in entry_points(group=GROUP)}
        raise DefinitionError(
            f"no installed package brings the plugin {name!r}.{nearest(name, known, label='Plugins')}"
        )
    owners = sorted({_package_of(point) for point in points})
    if len(owners) > 1:
        raise DefinitionError(f"several installed packages bring the plugin {name!r}: {', '.join(owners)}. Keep one")
    registrar = Registrar(f"the plugin {name!r}", taken)
    point = points[0]
    _check(name, imports.module_fault(point.module))
    try:
        loaded: Any = point.load()
        register = getattr(loaded, "register", loaded)
        _check(name, imports.object_fault(point.module, register) if callable(register) else None)
        register(registrar)
    except DefinitionError as error:
        raise DefinitionError(f"the plugin {name!r} cannot be used: {error}") from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - boundary: foreign code; an import may raise anything, SystemExit too
        reason = " ".join(str(error).split())[:300]
        raise DefinitionError(f"the plugin {name!r} cannot be loaded: {type(error).__name__}: {reason}") from None
    return registrar.kinds


def _check(name: str, fault: str | None) -> None:
    if fault is not None:
        raise DefinitionError(f"the plugin {name!r} is not loaded: {fault}")


def _package_of(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value
