"""Brought packages: which modules are there because Pegboard is, or Python, and not because an operator wanted them."""

from __future__ import annotations

import functools
import importlib.util
import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from msgspec import Struct

_OWN = "pegboard"
# What installs packages, and stands in most environments.
_OF_PYTHON = ("pip", "setuptools", "wheel")
_REQUIREMENT = re.compile(r"\s*(?P<name>[\w.-]+)\s*(?:\[(?P<extras>[^\]]*)\])?[^;]*(?:;(?P<marker>.*))?")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)")
_SEPARATORS = re.compile(r"[-_.]+")
_MODULES = (".py", ".so", ".pyd")


class Brought(Struct, frozen=True, kw_only=True):
    """A package that was not asked for: its name, and with what it comes."""

    package: str
    by: str


def bringer(module: str) -> Brought | None:
    """Return the package that a module is of, where that comes with Pegboard or with Python; `None` for all others.

    Reads what the installed packages say of themselves, once in a process: it takes a fraction of a second.
    """
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        for root, brought in _modules().get(".".join(parts[:end]), ()):
            # A folder of tests that an operator has may be called as one that a package left beside itself.
            if root in roots(parts[0]):
                return brought
    return None


def roots(top: str) -> set[Path]:
    """Return the folders in which a module or package at the top is found; several for one that is spread."""
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return set()
    if spec is None:
        return set()
    places = list(spec.submodule_search_locations or ([spec.origin] if spec.origin else []))
    return {Path(place).resolve().parent for place in places}


@functools.cache
def _modules() -> dict[str, list[tuple[Path, Brought]]]:
    """Return the names below which all modules are of a brought package, each with the folder that it stands in."""
    modules: dict[str, list[tuple[Path, Brought]]] = {}
    for package, by in _packages():
        root = Path(str(package.locate_file(""))).resolve()
        for name in _tops(package):
            modules.setdefault(name, []).append((root, Brought(package=package.name, by=by)))
    return modules


def _packages() -> list[tuple[Distribution, str]]:
    """Return what is installed of what Pegboard needs, with every extra, and of what those need in turn."""
    found: dict[str, tuple[Distribution, str]] = {}
    asked: set[tuple[str, str | None]] = set()
    waiting: list[tuple[str, str | None, str]] = [(_OWN, None, "Pegboard")]
    waiting += [(name, None, "Python") for name in _OF_PYTHON]
    while waiting:
        name, extra, by = waiting.pop()
        if (name, extra) in asked:
            continue
        asked.add((name, extra))
        if name not in found:
            try:
                found[name] = distribution(name), by
            except PackageNotFoundError:
                continue
        for requirement in found[name][0].requires or ():
            match = _REQUIREMENT.match(requirement)
            if match is None:
                continue
            # Whether an extra was wanted is written down nowhere, so that of our own all count.
            only_for = _EXTRA.findall(match["marker"] or "")
            if only_for and extra not in only_for and name != _OWN:
                continue
            needed = _SEPARATORS.sub("-", match["name"]).lower()
            extras = [part.strip() for part in (match["extras"] or "").split(",") if part.strip()]
            waiting += [(needed, wanted, by) for wanted in (None, *extras)]
    return list(found.values())


def _tops(package: Distribution) -> set[str]:
    """Return the shortest names of modules that are of this package alone: `yaml`, and `google.genai`, not `google`."""
    names = [str(file) for file in package.files or ()]
    files = [name for name in names if name.endswith(_MODULES) and not name.startswith("..")]
    regular = {path.rpartition("/")[0] for path in files if path.rpartition("/")[2].startswith("__init__.")}
    tops: set[str] = set()
    for path in files:
        parts = path.split("/")
        folders = ["/".join(parts[:end]) for end in range(1, len(parts))]
        shortest = next((folder for folder in folders if folder in regular), path.partition(".")[0])
        tops.add(shortest.replace("/", "."))
    return tops
