"""Skill reader: reads a folder with a SKILL.md and other files, and checks the rules of the extension.

The front matter is YAML 1.2, core schema, as other readers parse it; PyYAML alone implements 1.1.
"""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Iterator
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from pegboard.egress.files import Root
from pegboard.model.bounds import MIB
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.json_types import JSON, JSONValue, is_object
from pegboard.model.skill import MAIN_FILE, SKILL_FILES, Skill, SkillFile

SKILL_BYTES = 16 * MIB  # bytes of all files of a skill
SKILL_FRONT_MATTER_CHARS = 65_536  # characters of the front matter of a SKILL.md
SKILL_FRONT_MATTER_VALUES = 10_000  # values in the front matter

MARKDOWN = "text/markdown"
_FRONT_MATTER = re.compile(r"---\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_INTEGER = re.compile(r"[-+]?[0-9]{1,1000}|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NAME = re.compile(r"(?!.*--)[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?")
_RESERVED = "io.modelcontextprotocol/"


def read_skill(namespace: str, folder: Path) -> Skill:
    """Return the skill of a namespace from its folder. Hidden files and folders are left out.

    Raises:
        DefinitionError: it cannot be read, has links, is too large, or its front matter is invalid.
    """
    name = namespace.replace("_", "-").lower()
    if not _NAME.fullmatch(name):
        raise DefinitionError(f"The namespace {namespace!r} cannot have a skill: {name!r} is not a valid skill name.")
    if not folder.is_dir():
        raise DefinitionError(f"The skill of {namespace!r} needs a folder: there is none at {str(folder)!r}.")
    try:
        contents = dict(_files(Root(path=folder.resolve(), hard_links=True)))
    except CallError as error:
        raise DefinitionError(f"The skill of {namespace!r} cannot be read: {error}") from None
    if MAIN_FILE not in contents:
        raise DefinitionError(f"The skill of {namespace!r} needs a {MAIN_FILE}: there is none in {str(folder)!r}.")
    front_matter = _front_matter(contents[MAIN_FILE], folder / MAIN_FILE)
    _check(front_matter, name, folder / MAIN_FILE)
    base = f"skill://{name}"
    return Skill(
        namespace=namespace, uri=f"{base}/{MAIN_FILE}", name=name, description=front_matter["description"],
        front_matter=front_matter, files={path: _file(base, path, content) for path, content in contents.items()},
    )  # fmt: skip


def _files(root: Root) -> Iterator[tuple[str, bytes]]:
    """Yield each file below a folder with its path, in order. Links are refused."""
    folders, left, count = ["."], SKILL_BYTES, 0
    while folders:
        entries = root.listing(folders.pop(), max_entries=2 * SKILL_FILES)
        for entry in entries:
            path = entry.path.removeprefix("./")
            if path.rpartition("/")[2].startswith("."):
                continue
            if entry.kind == "folder":
                folders.append(path)
                continue
            count, left = count + 1, left - entry.size_bytes
            # A list at its limit may be incomplete.
            if count > SKILL_FILES or left < 0 or len(entries) == 2 * SKILL_FILES:
                text = f"at most {SKILL_FILES} files of {SKILL_BYTES:,} bytes together"
                raise DefinitionError(f"The skill in {str(root.path)!r} is too large: {text}.")
            with root.open_read(path) as file:
                yield path, file.read()


def _file(base: str, path: str, content: bytes) -> SkillFile:
    kind = MARKDOWN if path.endswith(".md") else mimetypes.guess_type(path)[0]
    try:
        content.decode()
        is_text = b"\x00" not in content
    except UnicodeDecodeError:
        is_text = False
    return SkillFile(
        uri=f"{base}/{quote(path)}", path=path, content=content, digest=f"sha256:{sha256(content).hexdigest()}",
        mime_type=kind or ("text/plain" if is_text else "application/octet-stream"), is_text=is_text,
    )  # fmt: skip


# ---------------------------------------------------------------- front matter


def _front_matter(content: bytes, path: Path) -> JSON:
    try:
        match = _FRONT_MATTER.match(content.decode())
        text = "" if match is None or len(match[1]) > SKILL_FRONT_MATTER_CHARS else match[1]
        untyped: Any = yaml
        composed = untyped.compose(text, Loader=yaml.SafeLoader)
        read = None if composed is None else _value(composed, [SKILL_FRONT_MATTER_VALUES])
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DefinitionError(f"{str(path)!r}: its front matter cannot be read: {error}.") from None
    if not is_object(read):
        what = "front matter: a line ---, `name:` and `description:` in YAML, and a line ---"
        raise DefinitionError(f"{str(path)!r} must begin with {what}.")
    return read


def _value(node: Any, left: list[int]) -> JSONValue:
    """Return the value of a node; `left` counts the remaining values, with aliases expanded."""
    left[0] -= 1
    if left[0] < 0:
        raise ValueError("it has too many values")
    match node:
        case yaml.SequenceNode():
            return [_value(item, left) for item in node.value]
        case yaml.MappingNode():
            keys = [_value(key, left) for key, _ in node.value]
            if not all(isinstance(key, str) for key in keys) or len(set(map(str, keys))) != len(keys):
                raise ValueError("each key must be a text, and be there once")
            return {str(key): _value(value, left) for key, (_, value) in zip(keys, node.value, strict=True)}
        case _:
            return node.value if node.style is not None else _plain(node.value)


def _plain(text: str) -> JSONValue:
    """Return the value of a scalar without quotes in the core schema of YAML 1.2."""
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return text[0] in "tT"
    if _INTEGER.fullmatch(text):
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if _FLOAT.fullmatch(text) and isfinite(number := float(text)):
        return number
    return text


def _check(front_matter: JSON, name: str, path: Path) -> None:
    if front_matter.get("name") != name:
        raise DefinitionError(f"{str(path)!r}: its name is {front_matter.get('name')!r}; write `name: {name}`.")
    description = front_matter.get("description")
    if not isinstance(description, str) or not description.strip():
        raise DefinitionError(f"{str(path)!r} has no `description:`, which says when to use it.")
    metadata = front_matter.get("metadata")
    reserved = [key for key in metadata if key.startswith(_RESERVED)] if is_object(metadata) else []
    if reserved:
        raise DefinitionError(f"{str(path)!r}: the key {reserved[0]!r} below `metadata` is reserved for MCP itself.")
