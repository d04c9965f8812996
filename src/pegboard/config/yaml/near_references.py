"""Near references: what stands for a variable elsewhere, and is a plain text here: `$NAME`, `{{NAME}}`, `%NAME%`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pegboard.config.yaml.source_line import names_secret
from pegboard.config.yaml.tree import Step

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
# Of shells, PowerShell, Compose, Actions, templates, cmd and frameworks. `$$NAME` is how a plain `$NAME` is written.
_FORMS = (
    rf"\$env:{_NAME}", rf"\$\({_NAME}\)", rf"\$(?!env:){_NAME}", rf"\{{\{{\s*(?:env|secrets)?\.?{_NAME}\s*\}}\}}",
    rf"\{{{_NAME}\}}", rf"%{_NAME}%", rf"env:{_NAME}", rf"os\.environ/{_NAME}",
)  # fmt: skip
_NEAR = re.compile(rf"(?<![\w$%{{\\])(?:{'|'.join(_FORMS)})(?![\w}}])")
_LAST_NAME = re.compile(rf"({_NAME})[\s)}}%]*\Z")
# Everything below them goes to a server or a program as it is.
_OF_SECRETS = frozenset({"headers", "auth", "env", "secrets"})
# Below them a text may be a template, or what a model is told.
_OF_TEXTS = frozenset({"body", "template", "parameters", "examples", "schema", "description", "prompts"})
# There stands the name of a variable, and not what it holds.
_OF_NAMES = frozenset({"secret", "api_key_env"})
# Their value is an address or a file, which never begins with such a reference.
_OF_ADDRESSES = frozenset({"url", "base_url", "spec", "endpoint"})
_LOGIN = re.compile(r"://[^\s/@]*\Z")


class NearReference(NamedTuple):
    """What was written, and of which variable.

    `is_secret` where a secret is expected, `is_name` where a name is, `is_address` where an address would begin.
    """

    written: str
    name: str
    is_secret: bool
    is_name: bool
    is_address: bool = False

    @property
    def message(self) -> str:
        """What to say of it."""
        if self.is_name:
            return f"{self.written!r} is taken as it stands; here the name of a variable is written alone: {self.name}"
        if self.is_address:
            return f"{self.written!r} is not expanded; for the value of the variable write ${{{self.name}}}"
        plain = f"; for the plain text write ${self.written}" if self.written.startswith("$") else ""
        return f"{self.written!r} is taken as it stands; a variable is written ${{{self.name}}}{plain}"


def near_reference(text: str, steps: Sequence[Step], env: Mapping[str, str]) -> NearReference | None:
    """Return the first of them in a text that nothing would be put into; `None` where there is none.

    Args:
        text: the value as it stands in the file.
        steps: where it stands.
        env: the variables that there are. In small letters, what is none of them may be any word.
    """
    keys = [step for step in steps if isinstance(step, str)]
    if not _OF_TEXTS.isdisjoint(keys):
        return None
    is_secret_place = bool(keys) and (names_secret(keys[-1]) or not _OF_SECRETS.isdisjoint(keys[1:]))
    for match in _NEAR.finditer(text):
        written = match.group()
        found = _LAST_NAME.search(written)
        assert found is not None  # each form has a name
        name = found[1]
        is_whole = written == text.strip()
        is_secret = is_secret_place or _LOGIN.search(text, 0, match.start()) is not None
        is_address = bool(keys) and keys[-1] in _OF_ADDRESSES and not text[: match.start()].strip()
        if name in env or (name.isupper() and (is_secret or is_whole or is_address)):
            is_name = bool(keys) and keys[-1] in _OF_NAMES
            return NearReference(written, name, is_secret, is_name, is_address)
    return None
