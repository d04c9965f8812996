"""Gates: the limits of the house style that no linter knows, each a function from a tree to its offenders.

Run as `python tools/gates.py [ROOT]`. Prints one offender a line (`path:line: what, and what to do`) and exits 1 if
there is any.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

PYTHON_FOLDERS = ("src", "tests", "bench", "tools", "examples")
SRC = "src/pegboard/"
CORE = SRC + "core/"
MODEL = SRC + "model/"
EGRESS = SRC + "egress/"

CORE_MAY_IMPORT = frozenset({"pegboard", "jsonschema_rs", "msgspec", "orjson"}) | sys.stdlib_module_names
# A heavy or framework package and the only modules that may name it.
ONLY_IN = {
    "mcp": (
        "server/mcp*",
        "sources/mcp*",
        "connections/oauth_protocol*",
        "adapters/claude_agent_sdk*",
        "adapters/fastmcp*",
        "demo.py",
    ),
    "mcp_types": ("server/mcp*", "sources/mcp*", "adapters/claude_agent_sdk*", "adapters/fastmcp*", "demo.py"),
}
REFUSED_FILE_NAMES = frozenset({"common", "data", "helper", "helpers", "info", "manager", "misc", "util", "utils"})

# Methods of a path that open a file. Ruff bans the functions (TID251) but cannot see what object a method is on.
FILE_METHODS = frozenset({"read_bytes", "read_text", "write_bytes", "write_text"})
FILE_MODE = re.compile(r"[rwxa][bt+]{0,2}")
# Methods of an event loop that connect or start; ruff cannot see these either.
LOOP_METHODS = frozenset({
    "connect_accepted_socket", "create_connection", "create_datagram_endpoint", "create_unix_connection",
    "sock_connect", "subprocess_exec", "subprocess_shell",
})  # fmt: skip
RAW_MARK = re.compile(r"# raw: \S+")
# Who may import a module by its name; ruff's ban on a module sees import statements alone.
IMPORTERS = ("lazy.py", "config/build_context.py", "workspace/parsing/detected.py", "workspace/parsing/foreign.py")

INDEX_ADDRESS = re.compile(
    r"pypi[.]org|pythonhosted[.]org|npmjs[.](?:org|com)"
    r"|(?:index-url|find-links|registry)\b[\"' =:]+(?:https?:|file:|/)"
    r"|\"resolved\": *\"(?:https?|file):"
)
MACHINE_PATH = re.compile(r"(?<![\w.:/)}>*-])/(?:work|root|Users|opt/(?:wheels|pypi))/[\w.]")

# A silenced check names its code and then says why, on the same line.
SILENCED = re.compile(r"#\s*(?:type: *ignore|pyright: *(?:ignore|basic)|pragma: *no (?:cover|branch)|noqa\b)")
SILENCED_WITH_REASON = re.compile(
    r"# (?:(?:type|pyright): ignore\[[^]]+\]|pragma: no (?:cover|branch)|noqa: [A-Z]+\d+(?:, ?[A-Z]+\d+)*)\W+\w"
)

Gate = Callable[[Path], Iterator[str]]


def python_files(root: Path, *folders: str) -> list[Path]:
    """Return the Python files below the named folders of `root`, in order."""
    found = (path for folder in folders for path in (root / folder).rglob("*.py"))
    return sorted(path for path in found if "node_modules" not in path.parts)


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file; each gate asks, one parses."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Return every node of a file's tree; each gate looks through them, one walks."""
    return tuple(ast.walk(parsed(path)))


def file_names(root: Path) -> Iterator[str]:
    """A module has one noun or one verb for a name."""
    for path in python_files(root, *PYTHON_FOLDERS):
        if path.stem in REFUSED_FILE_NAMES:
            yield f"{path.relative_to(root)}:1: {path.stem!r} says nothing; name the file after what it holds"


def imported_packages(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and top-level package of every import in a file, wherever it stands."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module.partition(".")[0]


def third_party(root: Path) -> Iterator[str]:
    """The core knows no framework, and only the doors to MCP know its SDK."""
    for path in python_files(root, SRC):
        name = path.relative_to(root).as_posix()
        inner = name.removeprefix(SRC)
        for line, package in imported_packages(path):
            if name.startswith((CORE, MODEL)) and package not in CORE_MAY_IMPORT:
                yield f"{name}:{line}: core imports {package!r}; put it behind a port"
            allowed = ONLY_IN.get(package)
            if allowed is not None and not any(fnmatch(inner, pattern) for pattern in allowed):
                yield f"{name}:{line}: imports {package!r}, which only {', '.join(allowed)} may"


def raw_files(root: Path) -> Iterator[str]:
    """Files are opened by `egress.files`; a line that must not says why with `# raw: reason`."""
    for path in python_files(root, SRC):
        name = path.relative_to(root).as_posix()
        if name.startswith(EGRESS):
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        for node in nodes_of(path):
            match node:
                case ast.Call(func=ast.Name(id="open")):
                    call = "open"
                case ast.Call(func=ast.Attribute(attr=attr)) if attr in FILE_METHODS:
                    call = f".{attr}"
                case ast.Call(func=ast.Attribute(attr="open"), args=[ast.Constant(value=str(mode)), *_]) if (
                    FILE_MODE.fullmatch(mode)
                ):
                    call = ".open"
                case _:
                    continue
            if not RAW_MARK.search(lines[node.lineno - 1]):
                yield f"{name}:{node.lineno}: raw {call}(); open files through pegboard.egress.files"


def raw_ways_out(root: Path) -> Iterator[str]:
    """Nothing calls out through an event loop, and no banned module is imported by its name."""
    for path in python_files(root, SRC):
        name = path.relative_to(root).as_posix()
        if name.startswith(EGRESS):
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        for node in nodes_of(path):
            match node:
                case ast.Call(func=ast.Attribute(attr=attr)) if attr in LOOP_METHODS and not RAW_MARK.search(
                    lines[node.lineno - 1]
                ):
                    yield f"{name}:{node.lineno}: raw .{attr}(); call out through pegboard.egress"
                case ast.Call(func=ast.Name(id="LazyModule"), args=[ast.Constant(value=str(module))]) if is_banned(
                    module
                ):
                    yield f"{name}:{node.lineno}: imports {module!r} late; call out through pegboard.egress"
                case ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__") if (
                    name.removeprefix(SRC) not in IMPORTERS
                ):
                    yield f"{name}:{node.lineno}: imports by name; import at the top, or through pegboard.loading"


@cache
def banned_modules() -> frozenset[str]:
    """Return what ruff refuses to see imported in src."""
    said = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))
    return frozenset(said["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"])


def is_banned(module: str) -> bool:
    """Tell whether a module, or one that it is part of, is banned."""
    steps = module.split(".")
    return any(".".join(steps[:count]) in banned_modules() for count in range(1, len(steps) + 1))


# Packages that take long to import, or that only an extra installs. They, and modules of ours that import one of them
# at the top, may be loaded late.
HEAVY = frozenset({
    "aiosmtplib", "apsw", "cryptography", "dbos", "docstring_parser", "fastembed", "genai_prices", "httpx2", "jinja2",
    "jmespath", "jsonschema_rs", "jwt", "langchain_core", "limits", "mcp", "mcp_types", "numpy", "opentelemetry",
    "psycopg", "pydantic", "pydantic_ai", "pydantic_core", "redis", "rich", "safetensors", "sqlalchemy",
    "sqlite3", "starlette", "tiktoken", "tokenizers", "watchfiles", "yaml",
})  # fmt: skip
# Modules that import none of them, and take long because of what they import of ours.
LARGE = frozenset({
    "pegboard.auth.present_rights", "pegboard.library", "pegboard.server.stdio", "pegboard.tasks.tasks",
    "pegboard.workspace.document_operations", "pegboard.workspace.document_resources",
    "pegboard.workspace.document_stores", "pegboard.workspace.tools.toolset", "pegboard.workspace.upload",
})  # fmt: skip


def imports_at_top(path: Path) -> Iterator[tuple[str, str]]:
    """Yield what a file imports when it is loaded: the module, and the module or name taken from it (or "")."""
    waiting: list[ast.stmt] = list(parsed(path).body)
    while waiting:
        match waiting.pop():
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=other):
                waiting += other
            case ast.If(body=body, orelse=other) | ast.Try(body=body, orelse=other):
                waiting += [*body, *other]
            case ast.Import(names=names):
                yield from ((alias.name, "") for alias in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield from ((module, f"{module}.{alias.name}") for alias in names)
            case _:
                pass


def may_be_late(root: Path, module: str) -> bool:
    """Return True for a heavy package, and for a module of ours that imports one, directly or through others."""
    waiting, seen = [module], set[str]()
    while waiting:
        module = waiting.pop()
        if module.partition(".")[0] in HEAVY or module in LARGE:
            return True
        inside = root / "src" / module.replace(".", "/")
        path = next((path for path in (inside.with_suffix(".py"), inside / "__init__.py") if path.is_file()), None)
        if path is not None and module not in seen:
            seen.add(module)
            waiting += [name for pair in imports_at_top(path) for name in pair if name]
    return False


def late_imports(root: Path) -> Iterator[str]:
    """A late import is of a heavy module, and stands where the type checker and import-linter see it too."""
    for path in python_files(root, SRC):
        name = path.relative_to(root).as_posix()
        named = {module for node in nodes_of(path) for module in typed_imports(node)}
        for node in nodes_of(path):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "LazyModule"):
                continue
            module = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
            if not isinstance(module, str) or not may_be_late(root, module):
                yield f"{name}:{node.lineno}: loads {module!r} late, which is not heavy; import it at the top"
            elif module not in named:
                yield f"{name}:{node.lineno}: loads {module!r} late, untyped; import it under `if TYPE_CHECKING:` too"


def typed_imports(node: ast.AST) -> Iterator[str]:
    """Yield the modules that an `if TYPE_CHECKING:` imports, by every name that they go by."""
    if not (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
        return
    for inner in node.body:
        if isinstance(inner, ast.Import):
            yield from (alias.name for alias in inner.names)
        elif isinstance(inner, ast.ImportFrom) and inner.module:
            yield inner.module
            yield from (f"{inner.module}.{alias.name}" for alias in inner.names)


def silenced(root: Path) -> Iterator[str]:
    """A silenced check is an exception, and an exception has a reason."""
    for path in python_files(root, SRC):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if SILENCED.search(line) and not SILENCED_WITH_REASON.search(line):
                where = f"{path.relative_to(root).as_posix()}:{number}"
                yield f"{where}: a check is silenced without code and reason on its line; add ` - why` or obey it"


def tracked_text(root: Path) -> Iterator[tuple[str, str]]:
    """Yield name and text of every tracked text file; in a tree without git, of every file not made by a tool."""
    if (root / ".git").exists():
        listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True, check=True)
        names = [name for name in listed.stdout.decode().split("\0") if name]
    else:
        inside = (path.relative_to(root) for path in sorted(root.rglob("*")) if path.is_file())
        made = ("node_modules", "build", "__pycache__")
        names = [
            path.as_posix() for path in inside if not path.parts[0].startswith(".") and not {*made} & {*path.parts}
        ]
    for name in names:
        try:
            yield name, (root / name).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue


def addresses(root: Path) -> Iterator[str]:
    """The tree names no package index and no place of one machine."""
    here = re.compile(re.escape(f"{root.resolve()}/"))
    for name, text in tracked_text(root):
        for number, line in enumerate(text.splitlines(), start=1):
            if INDEX_ADDRESS.search(line):
                yield f"{name}:{number}: the address of a package index; leave it to the machine's settings"
            if MACHINE_PATH.search(line) or here.search(line):
                yield f"{name}:{number}: a path of one machine; make it relative or an argument"


GATES: tuple[Gate, ...] = (
    file_names,
    third_party,
    raw_files,
    raw_ways_out,
    late_imports,
    silenced,
    addresses,
)


def offenders(root: Path) -> list[str]:
    """Return what every gate finds in a tree, in the order of the gates."""
    return [offender for gate in GATES for offender in gate(root)]


def main() -> int:
    """Print the offenders of a tree and their number."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    found = offenders(root)
    print(*found, sep="\n", end="\n" if found else "")
    print(f"{len(found)} offenders")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
