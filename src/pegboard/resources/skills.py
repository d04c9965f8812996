"""Skills: the skills visible to a caller, and the files and folders that URIs refer to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple
from urllib.parse import unquote

from pegboard.model.json_types import JSON
from pegboard.model.skill import MAIN_FILE, Skill, SkillFile
from pegboard.model.tool import ToolEntry

SCHEME = "skill://"
DIRECTORY = "inode/directory"


class Child(NamedTuple):
    """One item in a folder: a file, or a folder (`file` is `None`)."""

    uri: str
    name: str
    file: SkillFile | None


def skills_of(declared: Mapping[str, Skill], visible: Iterable[ToolEntry]) -> list[Skill]:
    """Return the skills of the namespaces where a caller has a visible tool."""
    used = {entry.spec.namespace for entry in visible}
    return [skill for namespace, skill in sorted(declared.items()) if namespace in used]


def file_of(skills: Sequence[Skill], uri: str) -> SkillFile | None:
    """Return the file of a URI."""
    return next((file for skill in skills for file in skill.files.values() if file.uri == uri), None)


def children_of(skills: Sequence[Skill], uri: str) -> list[Child] | None:
    """Return the direct contents of a folder; `None` if the URI is not a folder."""
    folder = uri.rstrip("/") + "/"
    children = {
        child.uri: child
        for skill in skills
        if folder.startswith(skill.uri.removesuffix(MAIN_FILE))
        for child in _children(skill, folder)
    }
    return sorted(children.values(), key=attrgetter("uri")) if children else None


def _children(skill: Skill, folder: str) -> Iterator[Child]:
    for file in skill.files.values():
        if file.uri.startswith(folder):
            head, _, rest = file.uri.removeprefix(folder).partition("/")
            yield Child(folder + head, unquote(head), None if rest else file)


def skill_entry(skill: Skill) -> JSON:
    """Return the extension's index entry of a skill."""
    files = [{"uri": file.uri, "digest": file.digest, "size": len(file.content)} for file in skill.files.values()]
    return {"uri": skill.uri, "frontmatter": dict(skill.front_matter), "resources": files}
