"""Near references: find references in other programs' syntax, plain text here: `$NAME`, `{{NAME}}`, `%NAME%`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pegboard.config.yaml.source_line import names_secret
from pegboard.config.yaml.tree import Step

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
# Syntax of shells, PowerShell, Compose, Actions, templates, cmd and frameworks. `$$NAME` means a literal `$NAME`.
_FORMS = (
    rf"\$env:{_NAME}", rf"\$\({_NAME}\)", rf"\$(?!env:){_NAME}", rf"\{{\{{\s*(?:env|secrets)?\.?{_NAME}\s*\}}\}}",
    rf"\{{{_NAME}\}}", rf"%{_NAME}%", rf"env:{_NAME}", rf"os\.environ/{_NAME}",
)  # fmt: skip
_NEAR = re.compile(rf"(?<![\w$%{{\\])(?:{'|'.join(_FORMS)})(?![\w}}])")
_LAST_NAME = re.compile(rf"({_NAME})[\s)}}%]*\Z")
# Everything below these keys is sent to a server or a program unchanged.
_OF_SECRETS = frozenset({"headers", "auth", "env", "secrets"})
# Texts below these keys may be templates or prompts.
_OF_TEXTS = frozenset({"body", "template", "parameters", "examples", "schema", "description", "prompts"})
# These keys hold the name of a variable, not its value.
_OF_NAMES = frozenset({"secret", "api_key_env"})
# These keys hold an address or a file, which never begins with such a reference.
_OF_ADDRESSES = frozenset({"url", "base_url", "spec", "endpoint"})
_LOGIN = re.compile(r"://[^\s/@]*\Z")


class NearReference(NamedTuple):
    """A reference, and the variable that it names.

    `is_secret` if a secret is expected there, `is_name` if a name is, `is_address` if an address would begin there.
    """

    written: str
    name: str
    is_secret: bool
    is_name: bool
    is_address: bool = False

    @property
    def message(self) -> str:
        """The text of the warning or problem."""
        if self.is_name:
            return f"{self.written!r} is taken literally; here write only the name of the variable: {self.name}"
        if self.is_address:
            return f"{self.written!r} is not expanded; for the value of the variable write ${{{self.name}}}"
        plain = f"; for the plain text write ${self.written}" if self.written.startswith("$") else ""
        return f"{self.written!r} is taken literally; a variable is written ${{{self.name}}}{plain}"


def near_reference(text: str, steps: Sequence[Step], env: Mapping[str, str]) -> NearReference | None:
    """Return the first such reference in a text without variables; `None` if there is none.

    Args:
        text: the value in the file.
        steps: its place.
        env: the existing variables. A lower-case name that is not among them may be any word.
    """
    keys = [step for step in steps if isinstance(step, str)]
    if not _OF_TEXTS.isdisjoint(keys):
        return None
    is_secret_place = bool(keys) and (names_secret(keys[-1]) or not _OF_SECRETS.isdisjoint(keys[1:]))
    for match in _NEAR.finditer(text):
        written = match.group()
        last_name = _LAST_NAME.search(written)
        assert last_name is not None  # each form has a name
        name = last_name[1]
        is_whole = written == text.strip()
        is_secret = is_secret_place or _LOGIN.search(text, 0, match.start()) is not None
        is_address = bool(keys) and keys[-1] in _OF_ADDRESSES and not text[: match.start()].strip()
        if name in env or (name.isupper() and (is_secret or is_whole or is_address)):
            is_name = bool(keys) and keys[-1] in _OF_NAMES
            return NearReference(written, name, is_secret, is_name, is_address)
    return None
