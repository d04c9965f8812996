"""Environment: expand variables and files in a config, once, when it is loaded."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from pegboard.config.yaml.config_files import read_text
from pegboard.config.yaml.near_references import near_reference
from pegboard.config.yaml.parser import scalar_value
from pegboard.config.yaml.tree import At, Items, Scalar, ScalarValue, Table
from pegboard.model.error import Problem
from pegboard.model.json_types import JSONValue, is_list, is_object
from pegboard.model.secret import Secret

SECRET_FILE_BYTES = 64 * 1024  # bytes of a file that `${file:…}` names

# `$$` · `${file:PATH}` · `${NAME}` · `${NAME:-default}` · and invalid forms of them.
_REFERENCE = re.compile(
    r"\$(?:(?P<dollar>\$)|\{file:(?P<file>[^{}]+)\}|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>(?:(?!\$\{)[^}])*))?\}|(?P<broken>\{))"
)


_ADDRESS_KEYS = frozenset({"url", "base_url", "spec"})
# Addresses of plain words only: a login, a query or a segment of random letters may be a credential.
_PLAIN_ADDRESS = re.compile(r"https?://[A-Za-z0-9.\[\]:-]+(?:/(?:v\d+(?:\.\d+)*|[a-z][a-z._~-]{0,23}))*/?")


class Expanded(str):
    """A text with expanded variables. It must not be shown: messages quote the file's own text instead."""

    __slots__ = ("is_plain",)
    is_plain: bool

    def __new__(cls, text: str, *, is_plain: bool) -> Expanded:
        expanded = super().__new__(cls, text)
        expanded.is_plain = is_plain
        return expanded

    def typed(self) -> ScalarValue:
        """Return the value for a place that accepts any: unquoted, the YAML value; quoted, the text."""
        return scalar_value(str(self)) if self.is_plain else str(self)


class Environment:
    """The environment of one load, and the values used from it.

    `secrets` has every variable and file that was used and is not empty, except addresses without a credential.
    `defaulted` has the variables whose default was used, with the place. `unset` has the places of unset variables and
    unreadable files. `problems` are other faults, such as `$NAME` where a secret is expected; `warnings` are such
    texts elsewhere. Relative file paths start at `folder`, the folder of the config.
    """

    def __init__(self, env: Mapping[str, str], *, folder: Path = Path()) -> None:
        self._env, self._folder = env, folder
        self._allowed: tuple[str, ...] | None = None
        self.secrets: dict[str, Secret] = {}
        self.defaulted: dict[str, str] = {}
        self.unset: list[tuple[At, Problem]] = []
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []

    def restrict(self, globs: tuple[str, ...]) -> None:
        """Allow only variables and files that match one of these globs from now on."""
        self._allowed = globs

    def fault(self, name: str) -> str | None:
        """Return why a variable may not be read; `None` if it may."""
        if self._allowed is None or any(fnmatchcase(name, glob) for glob in self._allowed):
            return None
        shown = f"file {name[5:]!r}" if name.startswith("file:") else f"variable {name!r}"
        return f"the {shown} is not under `env:` of the main file. Add it there if it is meant"

    def variable(self, name: str) -> str | None:
        """Return the value of a variable, and record it as a secret; `None` if it is unset or may not be read."""
        if self.fault(name) is not None:
            return None
        value = self._env.get(name)
        if value:
            self.secrets[name] = Secret(value)
        return value

    def plain(self, at: At) -> JSONValue:
        """Return the tree below `at` as plain values, with `Expanded` texts in place of variables."""
        node = at.node
        if isinstance(node, Table):
            for key in node.items:
                if "${" in key:
                    self.problems.append((at / key).problem("use variables in values, not in keys", at_key=True))
            return {key: self.plain(at / key) for key in node.items}
        if isinstance(node, Items):
            return [self.plain(at / index) for index in range(len(node.items))]
        return self._expand(node, at)

    def _expand(self, node: Scalar, at: At) -> ScalarValue:
        text = node.value
        if not isinstance(text, str):
            return text
        if (near := near_reference(text, at.steps, self._env)) is not None:
            (self.problems if near.is_secret or near.is_address else self.warnings).append(at.problem(near.message))
        if "$" not in text:
            return text
        is_expanded = False

        def replace(match: re.Match[str]) -> str:
            nonlocal is_expanded
            if match["dollar"]:
                return "$"
            if match["broken"]:
                message = "'${' starts no ${NAME}, ${NAME:-default} or ${file:PATH}; for the text '${' write '$${'"
                self.problems.append(at.problem(message))
                return match.group()
            is_expanded = True
            return self._content(match, at) if match["file"] else self._value(match, at)

        expanded = _REFERENCE.sub(replace, text)
        return Expanded(expanded, is_plain=node.is_plain) if is_expanded else expanded

    def _is_address(self, match: re.Match[str], at: At) -> bool:
        """Tell whether a variable provides the beginning of an address, which contains no secret."""
        is_beginning = match.start() == 0 and bool(at.steps) and at.steps[-1] in _ADDRESS_KEYS
        return is_beginning and _PLAIN_ADDRESS.fullmatch(self._env.get(match["name"], "")) is not None

    def _content(self, match: re.Match[str], at: At) -> str:
        """Return the contents of a file, such as a container's secret, without the end of its last line."""
        name = match["file"]
        path = self._folder / name
        if (fault := self.fault(f"file:{name}")) is not None:
            self.problems.append(at.problem(fault))
            return match.group()
        content = read_text(path, max_bytes=SECRET_FILE_BYTES)
        if isinstance(content, Problem):
            # The rest of the message is advice for a config.
            reason = content.message.partition(";")[0]
            self.unset.append((at, at.problem(f"the file {str(path)!r} {reason}")))
            return match.group()
        text = re.sub(r"\r?\n\Z", "", content)
        if text:
            self.secrets[f"file:{name}"] = Secret(text)
        return text

    def _value(self, match: re.Match[str], at: At) -> str:
        name, default = match["name"], match["default"]
        fault = self.fault(name)
        if fault is not None:
            self.problems.append(at.problem(fault))
            return match.group()
        value = self._env.get(name) if self._is_address(match, at) else self.variable(name)
        if default is not None and not value:
            self.defaulted.setdefault(name, at.origin)
            return default
        if value is None:
            message = f"the variable {name!r} is not set; set it, or write a default: ${{{name}:-…}}"
            self.unset.append((at, at.problem(message, variable=name)))
            return match.group()
        return value


# ---------------------------------------------------------------- plain values


def typed(value: JSONValue) -> JSONValue:
    """Return a plain value with expanded texts read as YAML; for places that accept any value."""
    return _changed(value, Expanded.typed)


def concealed(value: JSONValue) -> JSONValue:
    """Return a plain value with expanded texts as secrets; for headers, keys and the config of a tool."""
    return _changed(value, lambda text: Secret(str(text)))


def _changed(value: JSONValue, change: Callable[[Expanded], JSONValue]) -> JSONValue:
    if isinstance(value, Expanded):
        return change(value)
    if is_object(value):
        return {key: _changed(item, change) for key, item in value.items()}
    if is_list(value):
        return [_changed(item, change) for item in value]
    return value
