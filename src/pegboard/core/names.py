"""Names: valid spellings of tool names, and suggestions for unknown ones."""

from __future__ import annotations

import difflib
import fnmatch
import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from pegboard.model.error import DefinitionError

GLOBS_REMEMBERED = 4_096  # compiled globs in the cache
NAMES_COMPARED = 500  # names compared with an unknown one when suggesting a correction

MAX_NAME_CHARS = 64
META_NAMESPACE = "pegboard__meta"
"""The namespace of the meta tools. Nobody else can declare tools in it: namespaces have no double underscore."""
_META_NAMES = frozenset({"gettools", "searchtools", "usetools"})
_FOREIGN_PREFIXES = frozenset({"main", "mcp", "pegboard"})
_TOOL = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NAMESPACE = re.compile(r"[A-Za-z0-9_-]{1,32}")
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def is_tool_name(name: str) -> bool:
    """Tell whether this is a valid tool name: 1 to 64 characters that every provider accepts."""
    return _TOOL.fullmatch(name) is not None


def check_tool_name(name: str) -> str:
    """Return `name`, or raise `DefinitionError` if it is not a valid tool name."""
    if not is_tool_name(name):
        raise DefinitionError(
            f"Tool name {name!r}: use 1 to 64 of the characters A-Z a-z 0-9 _ -, for example {legal(name)!r}."
        )
    return name


def check_namespace(namespace: str) -> str:
    """Return `namespace`, or raise `DefinitionError`; `__` is reserved for wire names."""
    if not _NAMESPACE.fullmatch(namespace) or "__" in namespace:
        raise DefinitionError(f"Namespace {namespace!r}: use 1 to 32 of A-Z a-z 0-9 _ -, without '__'.")
    return namespace


def private_name_fault(name: str, *, namespace: str) -> str | None:
    """Return why a private tool of an agent cannot have this name; `None` if it can.

    Its bare name takes precedence in its agent's view, so it must not look like the name of another tool.
    """
    if fold(name) in _META_NAMES:
        return f"{name!r} is the name of a meta tool. Rename the agent's tool"
    if "__" in name:
        return f"{name!r} looks like a tool of a namespace or a server, because of '__'. Write one underscore"
    if fold(name) in _FOREIGN_PREFIXES or fold(namespace) in _FOREIGN_PREFIXES:
        taken = name if fold(name) in _FOREIGN_PREFIXES else namespace
        return f"{taken!r} is the name of tools of the catalog. Rename the agent's tool or namespace"
    return None


def legal(name: str) -> str:
    """Return a foreign name with every illegal character, also dots and slashes, replaced by `_`; never empty."""
    return _ILLEGAL.sub("_", name)[:MAX_NAME_CHARS] or "_"


def snake_case(class_name: str) -> str:
    """Return the default tool name of a class: `SendEmailTool` gives `send_email`."""
    return _WORD_START.sub("_", class_name).lower().removesuffix("_tool")


def fold(name: str) -> str:
    """Return the form of a name for comparing whether names are unique."""
    return name.casefold()


def shortened(name: str, qualified_id: str) -> str:
    """Return a legal name of at most 64 characters with a tail of 8 hex digits derived from the qualified id."""
    tail = hashlib.sha256(qualified_id.encode()).hexdigest()[:8]
    return f"{_ILLEGAL.sub('_', name)[: MAX_NAME_CHARS - 9]}_{tail}"


@lru_cache(maxsize=GLOBS_REMEMBERED)
def _glob(pattern: str) -> Callable[[str], object]:
    return re.compile(fnmatch.translate(fold(pattern))).match


def matches(pattern: str, candidates: Iterable[str]) -> bool:
    """Tell whether a glob matches one of the names, ignoring case."""
    return matches_folded(pattern, map(fold, candidates))


def matches_folded(pattern: str, folded: Iterable[str]) -> bool:
    """Like `matches`, for names that are already casefolded."""
    return any(map(_glob(pattern), folded))


def nearest_one(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to `name`, if one is similar enough."""
    # The comparison is quadratic in length, so only some names of similar length are compared.
    likely = [item for item in known if abs(len(item) - len(name)) <= 3 + len(item) // 4]
    folded = fold(name)
    # `difflib` treats letters of different case as different.
    if (alike := next((item for item in likely if fold(item) == folded), None)) is not None:
        return alike
    return next(iter(difflib.get_close_matches(name[: MAX_NAME_CHARS * 2], likely[:NAMES_COMPARED], n=1)), None)


def nearest(name: str, known: Iterable[str], *, label: str) -> str:
    """Return ` Did you mean 'x'?`, or a list of the known names, as the end of an error text."""
    names = sorted(known)
    near = nearest_one(name, names)
    return f" Did you mean {near!r}?" if near else listing(names, label=label)


def listing(names: Sequence[str], *, label: str) -> str:
    """Return the sorted names as the end of an error text."""
    more = f", +{len(names) - 20} more" if len(names) > 20 else ""
    listed = ", ".join(names[:20]) + more
    return f" {label}: {listed or 'none'}."
