"""Credential redaction: keep what we authenticate with out of what the other side makes us say.

The catalog redacts the secrets that it knows; this holds also for a tool that is registered by hand, and for a text
that the other side cut in the middle of a secret.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import takewhile
from typing import Any

from pegboard.core.redaction import REDACTED, Redactor
from pegboard.model.bounds import GIVEN_AWAY_SECRET_CHARS
from pegboard.model.call_context import CallContext
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, is_awaitable, is_list, is_object
from pegboard.model.result import call_error
from pegboard.model.secret import Secret
from pegboard.model.tool import Handler


class CredentialRedactor:
    """Takes secrets out of values and errors: whole ones in whatever spelling, and their beginnings as they are."""

    def __init__(self, secrets: Iterable[Secret]) -> None:
        known = tuple(secrets)
        self._redactor = Redactor(known)
        # No text with spaces or the address of something: much that is not a secret begins like those.
        keys = {text for text in (secret.reveal() for secret in known) if not re.search(r"\s|://|^/", text)}
        self._keys = sorted(text for text in keys if len(text) > GIVEN_AWAY_SECRET_CHARS)

    def text(self, text: str) -> str:
        """Return a text without them."""
        clean = self._redactor.text(text)
        for key in self._keys:
            start = clean.find(key[:GIVEN_AWAY_SECRET_CHARS])
            while start >= 0:
                same = takewhile(lambda pair: pair[0] == pair[1], zip(clean[start:], key, strict=False))
                end = start + len(list(same))
                clean = clean[:start] + REDACTED + clean[end:]
                start = clean.find(key[:GIVEN_AWAY_SECRET_CHARS], start + len(REDACTED))
        return clean

    def value(self, value: Any) -> Any:
        """Return a JSON value without them."""
        if isinstance(value, str):
            return self.text(value)
        if is_object(value):
            return {self.text(key): self.value(item) for key, item in value.items()}
        if is_list(value):
            return [self.value(item) for item in value]
        return value

    def error(self, exc: CallError) -> CallError:
        """Return an error without them."""
        error = exc.error
        details = self.value(dict(error.details))
        clean = replace(error, message=self.text(error.message), hint=self.text(error.hint), details=details)
        return call_error(clean)


def without_credentials(handler: Handler, secrets: Iterable[Secret]) -> Handler:
    """Return the handler with the secrets taken out of its values and errors."""
    redactor = CredentialRedactor(secrets)

    def run(ctx: CallContext, args: JSON) -> Any:
        try:
            value = handler(ctx, args)
        except CallError as exc:
            raise redactor.error(exc) from None
        return _awaited(value, redactor) if is_awaitable(value) else redactor.value(value)

    return run


async def _awaited(value: Awaitable[Any], redactor: CredentialRedactor) -> Any:
    try:
        return redactor.value(await value)
    except CallError as exc:
        raise redactor.error(exc) from None


def credentials_in(value: Secret) -> Iterator[Secret]:
    """Yield the value of a header, and of one such as `Bearer key` the key alone: the other side may repeat just it."""
    yield value
    scheme, _, credential = value.reveal().partition(" ")
    if scheme.isalpha() and credential.strip():
        yield Secret(credential.strip())


def revealed(values: Mapping[str, str | Secret]) -> dict[str, str]:
    """Return headers, or variables of an environment, as they are sent."""
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in values.items()}
