"""Claim templates: texts in a rule with `{claim}` placeholders for claims of the credential."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from pegboard.model.error import DefinitionError

CLAIM_CHARS = 256  # characters of a text made from claims

_PLACE = re.compile(r"\{([^{}]*)\}")


class MissingClaimError(Exception):
    """The credential lacks a claim that a rule needs."""


class Template:
    """A text such as `{sub}` or `team-{team}`.

    Raises:
        DefinitionError: a brace outside of a `{claim}`, or an empty `{}`.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.claims = tuple(_PLACE.findall(text))
        if not text or "" in self.claims or set(_PLACE.sub("", text)) & set("{}"):
            raise DefinitionError(f"{text!r} is not a valid template; write a plain name, or {{sub}} for a claim.")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Template) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Template({self.text!r})"

    @property
    def is_plain(self) -> bool:
        """Whether the text has no placeholders."""
        return not self.claims

    def one(self, claims: Mapping[str, Any]) -> str:
        """Return the text for one credential.

        Raises:
            MissingClaimError: a claim is missing or empty, or is neither a text nor a whole number.
        """
        return _checked(_PLACE.sub(lambda match: _text(claims.get(match[1])), self.text))

    def several(self, claims: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the texts for one credential: several if the template is a single claim with a list.

        Raises:
            MissingClaimError: as `one`.
        """
        value = claims.get(self.claims[0]) if self.text == f"{{{''.join(self.claims)}}}" else None
        if not isinstance(value, list):
            return (self.one(claims),)
        return tuple(_checked(_text(item)) for item in cast("list[object]", value))


def _text(value: object) -> str:
    # A bool is an int in Python, but does not identify anybody.
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise MissingClaimError
    return str(value)


def _checked(text: str) -> str:
    if len(text) > CLAIM_CHARS or not text.isprintable():
        raise MissingClaimError
    return text
