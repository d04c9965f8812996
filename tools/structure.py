"""Structure: what the folders promise and no linter knows: no circle of imports, and few basenames that stand twice.

Every import counts: at the top, inside a function, under `if TYPE_CHECKING:`, and late through `LazyModule`. Run as
`python tools/structure.py [ROOT]`; prints what breaks the promise, one a line, and exits 1 if anything does.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

PACKAGE = "pegboard"
MAX_SAME_BASENAME = 2


def modules(root: Path) -> dict[str, Path]:
    """Return the modules below `root/src` by their dotted names; a package is named without `__init__`."""
    named: dict[str, Path] = {}
    for path in sorted((root / "src").rglob("*.py")):
        parts = path.relative_to(root / "src").with_suffix("").parts
        named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return named


def imported(tree: ast.Module, known: Mapping[str, Path]) -> Iterator[str]:
    """Yield the modules that a file names in any import, also late ones."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names if alias.name in known)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                for alias in names:
                    whole = f"{module}.{alias.name}"
                    if whole in known:
                        yield whole
                    elif module in known:
                        yield module
            case ast.Call(func=ast.Name(id="LazyModule"), args=[ast.Constant(value=str(module))]) if module in known:
                yield module
            case _:
                pass


def import_graph(root: Path) -> dict[str, set[str]]:
    """Return which module imports which others of the package."""
    known = modules(root)
    return {
        name: set(imported(ast.parse(path.read_text(encoding="utf-8")), known)) - {name} for name, path in known.items()
    }


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other, however far round (Tarjan's components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    components: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            component = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(component) > 1:
                components.append(sorted(component))

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return components


def repeated_basenames(root: Path) -> dict[str, list[str]]:
    """Return the file names that stand more than twice in `src`, with their places."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in modules(root).values():
        if path.name not in ("__init__.py", "limits.py"):  # each folder may have both
            places[path.name].append(path.relative_to(root).as_posix())
    return {name: found for name, found in places.items() if len(found) > MAX_SAME_BASENAME}


def offenders(root: Path) -> list[str]:
    """Return what breaks the promise, in words."""
    broken = [f"a circle of imports: {' ⇄ '.join(group)}" for group in circles(import_graph(root))]
    for name, places in sorted(repeated_basenames(root).items()):
        broken.append(f"{name} stands {len(places)} times: {', '.join(places)}; say more in the name")
    return broken


def main() -> int:
    """Print the offenders of a tree and a line that counts what was read."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    broken = offenders(root)
    print(*broken, sep="\n", end="\n" if broken else "")
    graph = import_graph(root)
    print(f"{len(broken)} offenders; {len(graph)} modules, {sum(map(len, graph.values()))} imports between them")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
