"""Skill: files that explain how to use the tools of a namespace together; an agent reads them on demand."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from pegboard.model.json_types import JSONValue

SKILL_FILES = 512  # files of one skill

MAIN_FILE = "SKILL.md"


class SkillFile(Struct, frozen=True, kw_only=True):
    """One file of a skill, unchanged. `path` is relative to the skill's folder, with slashes; `digest` is SHA-256."""

    uri: str
    path: str
    content: bytes
    digest: str
    mime_type: str
    is_text: bool


class Skill(Struct, frozen=True, kw_only=True):
    """The skill of one namespace: the front matter of its SKILL.md, and its files by path."""

    namespace: str
    uri: str
    name: str
    description: str
    front_matter: Mapping[str, JSONValue]
    files: Mapping[str, SkillFile]
