"""Forgotten user: replace the names of a person in stored rows by a pseudonym."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec
import orjson
from msgspec import Struct

# Neither names nor texts of a person: what was called, and what links the row to others.
_NOT_PERSONAL = frozenset({
    "seq", "previous", "event", "at", "call_id", "request_id", "parent_call_id", "name", "tool", "definition",
    "profile", "door", "arguments_digest", "decision", "rule", "consent", "consent_id", "outcome",
})  # fmt: skip
# In rows of others: who decided, and about whom a change was.
_ABOUT_OTHERS = frozenset({"credential", "key", "reason", "limit_keys", "detail"})
# Without the salt, nobody can confirm a guess of the name by the hash of the original row.
_REMOVED = frozenset({"salt", "arguments"})


class ForgottenUser(Struct, frozen=True, kw_only=True):
    """A person to be forgotten: the user name, the names of the person's API keys, and what replaces them."""

    user: str
    keys: frozenset[str]
    pseudonym: str

    @property
    def names(self) -> tuple[str, ...]:
        """All names, the longest first, since a key is often named after its user."""
        return tuple(sorted({self.user, *self.keys}, key=lambda name: (-len(name), name)))

    def pseudonymised(self, raw: bytes) -> bytes | None:
        """Return a stored row without the names; `None` if it has none. Arguments of the person's calls are removed."""
        if not any(msgspec.json.encode(name)[1:-1] in raw for name in self.names):
            return None
        try:
            row: Mapping[str, Any] = orjson.loads(raw)
        except orjson.JSONDecodeError:
            # `verify` names it.
            return None
        is_theirs = row.get("user") == self.user or row.get("key") in self.keys
        changed: dict[str, Any] = {}
        for field, value in row.items():
            if is_theirs and field in _REMOVED:
                continue
            is_personal = field not in _NOT_PERSONAL if is_theirs else field in _ABOUT_OTHERS
            changed[field] = self._without_names(value) if is_personal else value
        return None if changed == row else orjson.dumps(changed)

    def _without_names(self, value: object) -> object:
        if isinstance(value, str):
            for name in self.names:
                value = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", self.pseudonym, value)
            return value
        if isinstance(value, list):
            return [self._without_names(each) for each in cast("list[object]", value)]
        if isinstance(value, dict):
            parts = cast("dict[str, object]", value)
            return {str(self._without_names(name)): self._without_names(each) for name, each in parts.items()}
        return value
