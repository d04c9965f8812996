"""Build context: the catalog being built, with its config and problems, and the import of Python objects."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from pegboard.catalog import Catalog
from pegboard.config.config import Config
from pegboard.config.python_modules import hidden_module, hidden_modules, registering_on
from pegboard.config.yaml.problems import Report
from pegboard.config.yaml.tree import At
from pegboard.core.names import nearest, nearest_one
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.tool import ToolEntry

if TYPE_CHECKING:
    from pegboard.workspace.store.document_store import SqlDocumentStore

# Frames of an import that do not belong to the module itself.
_NO_NAME = re.compile(r"cannot import name '(?P<name>\w+)' from '(?P<module>[\w.]+)'")
_NOT_THEIRS = ("<", str(Path(__file__).parents[1]), importlib.__file__)


class BuildContext(Struct, kw_only=True):
    """The state of building one catalog.

    `registered` are the tools that `python:` modules registered, by folded qualified id, those in `main` by name alone.
    `collected` are the modules that `python:` names and those that registered something. `is_private` means that
    `catalog` is a temporary one for the tools of one agent; registered tools stay in the main catalog. `missed` means
    that a `python:` module failed, so tools that it would have registered are not reported as missing. `documents` is
    the store of `workspace:`. `exchanges_tokens` means that a source exchanges the tokens of callers.
    """

    config: Config
    catalog: Catalog
    report: Report
    collected: set[str]
    registered: dict[str, ToolEntry] = field(default_factory=dict[str, ToolEntry])
    missed: bool = False
    is_private: bool = False
    documents: SqlDocumentStore | None = None
    exchanges_tokens: bool = False
    _aside: Catalog = field(default_factory=Catalog)

    def module(self, name: str, at: At, *, collect: bool = False) -> Any:
        """Import a module; `None` after reporting a problem.

        Its registrations go to the catalog only with `collect`: a module that is imported for one function declares no
        tools.
        """
        fault = self.config.imports.module_fault(name)
        if fault is not None:
            self.report.add(at.problem(fault))
            return None
        top, folder = name.partition(".")[0], self.config.path.absolute().parent
        if name.endswith(".py") and (folder / name).is_file():
            text = f"{name!r} is a file; write the name of its module: `{name.removesuffix('.py')}`"
            self.report.add(at.problem(text))
            return None
        if (place := hidden_modules(folder, top).get(top)) is not None:
            self.report.add(at.problem(hidden_module(top, place)))
            return None
        if collect:
            self.collected.add(name)
        try:
            with registering_on(self.catalog if collect else self._aside):
                module = importlib.import_module(name)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - boundary: foreign code; a module may raise anything, SystemExit too
            module_names = [path.stem for path in folder.glob("*.py")]
            self.report.add(at.problem(f"the module {name!r} cannot be imported: {_fault(error, name, module_names)}"))
            return None
        # A name may be an alias of another module, such as `six.moves.subprocess`.
        return module if self._may_use(name, module, at) else None

    def resolve(self, reference: str, at: At) -> Any:
        """Return the object that `python:module:name` means; `None` after reporting that there is no such callable."""
        _, module_name, path = reference.split(":")
        target = self.module(module_name, at)
        if target is None:
            return None
        for step in path.split("."):
            if step.startswith("__"):
                self.report.add(at.problem(f"{step!r} is internal to Python; name a function of {module_name!r}"))
                return None
            if not hasattr(target, step):
                known = [name for name in dir(target) if not name.startswith("_")]
                self.report.add(at.problem(f"{module_name!r} has no {path!r}.{nearest(step, known, label='It has')}"))
                return None
            target = getattr(target, step)
            if inspect.ismodule(target) and not self._may_use(module_name, target, at):
                return None
        if not callable(target) and not isinstance(target, ToolEntry):
            self.report.add(at.problem(f"{reference!r} is a {type(target).__name__}, not a function"))
            return None
        return target if self._may_use(module_name, target, at) else None

    def _may_use(self, module: str, target: Any, at: At) -> bool:
        """Tell whether an object reached through `module` may be used; report why not."""
        fault = self.config.imports.object_fault(module, target)
        if fault is not None:
            self.report.add(at.problem(fault))
        return fault is None

    def refused(self, error: DefinitionError | CallError, at: At) -> None:
        """Report the errors of core at `at`."""
        messages = [error.error.message] if isinstance(error, CallError) else [p.message for p in error.problems]
        by_place: dict[str, tuple[At, list[str]]] = {}
        for message in messages:
            # Errors such as `renamed_from='x' is …` begin with a key; they are reported at that key, if it is there.
            named = at / message.partition(" ")[0].partition("=")[0]
            place = named if named.exists else at
            by_place.setdefault(place.path, (place, []))[1].append(message)
        for place, problem in by_place.values():
            self.report.add(place.problem("; ".join(problem)))


def _fault(error: BaseException, module: str, module_names: Sequence[str]) -> str:
    """Return the error of an import, with its line if the fault is in the module itself."""
    if (
        isinstance(error, ModuleNotFoundError)
        and error.name
        and (module == error.name or module.startswith(f"{error.name}."))
    ):
        near = nearest_one(error.name, module_names)
        hint = f". Did you mean {near!r}?" if near else ""
        return f"there is no module {error.name!r} next to this file or among the installed packages{hint}"
    kind = type(error).__name__
    text = "; ".join(str(error).splitlines()) + _spelling_hint(error)
    if isinstance(error, SyntaxError):
        return f"{kind}: {error.msg} ({(error.filename or module).rpartition('/')[2]}:{error.lineno})"
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_NOT_THEIRS)
    ]
    place = f" ({frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno})" if frames else ""
    return f"{kind}: {text}{place}"


def _spelling_hint(error: BaseException) -> str:
    """Return a suggestion for a misspelled name; Python suggests one only when it prints a traceback."""
    missing = _NO_NAME.match(str(error)) if isinstance(error, ImportError) else None
    if missing is not None and (module := sys.modules.get(missing["module"])) is not None:
        wanted, known = missing["name"], dir(module)
    elif isinstance(error, AttributeError) and error.name is not None and "Did you mean" not in str(error):
        wanted, known = error.name, dir(error.obj)
    else:
        return ""
    near = nearest_one(wanted, [name for name in known if not name.startswith("_")])
    return f". Did you mean {near!r}?" if near else ""
