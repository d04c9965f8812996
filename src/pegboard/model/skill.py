"""Skill: how to use the tools of a namespace together, as files that an agent reads when it needs them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from pegboard.model.json_types import JSONValue

SKILL_FILES = 512  # of one skill

MAIN_FILE = "SKILL.md"


class SkillFile(Struct, frozen=True, kw_only=True):
    """One file of a skill, as it is. `path` is relative to the skill's folder, with slashes; `digest` is SHA-256."""

    uri: str
    path: str
    content: bytes
    digest: str
    mime_type: str
    is_text: bool


class Skill(Struct, frozen=True, kw_only=True):
    """The skill of one namespace: what the front matter of its SKILL.md says, and its files by their path."""

    namespace: str
    uri: str
    name: str
    description: str
    front_matter: Mapping[str, JSONValue]
    files: Mapping[str, SkillFile]
