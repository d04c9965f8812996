"""Credential redaction: removes our credentials from responses of the servers that received them.

The catalog redacts the secrets that it knows. This also covers tools registered by hand, and responses that cut off a
secret in the middle.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from typing import Any

from pegboard.core.literal_search import LiteralSearch, replaced
from pegboard.core.redaction import REDACTED, Redactor, without
from pegboard.model.call_context import CallContext
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, is_awaitable
from pegboard.model.record import replace
from pegboard.model.result import call_error
from pegboard.model.secret import Secret
from pegboard.model.tool import Handler

GIVEN_AWAY_SECRET_CHARS = 8  # characters of the beginning of a secret that reveal it in a cut-off text


class CredentialRedactor:
    """Removes secrets from values and errors: whole ones in any spelling, and their unescaped beginnings."""

    def __init__(self, secrets: Iterable[Secret]) -> None:
        known = tuple(secrets)
        self._redactor = Redactor(known)
        # Only secrets without spaces or URLs, since ordinary text may begin like those.
        keys = {text for text in (secret.reveal() for secret in known) if not re.search(r"\s|://|^/", text)}
        self._keys = sorted(text for text in keys if len(text) > GIVEN_AWAY_SECRET_CHARS)
        beginnings = {key[:GIVEN_AWAY_SECRET_CHARS] for key in self._keys}
        self._beginnings = LiteralSearch(beginnings) if beginnings else None

    def text(self, text: str) -> str:
        """Return a text without the secrets."""
        clean = self._redactor.text(text)
        if self._may_begin(clean):
            for key in self._keys:
                clean = replaced(clean, _spans_of_beginnings(clean, key), REDACTED)
        return clean

    def value(self, value: Any) -> Any:
        """Return a JSON value without the secrets."""
        return without(value, clean=self.text, may_find=self._may_find)

    def _may_find(self, text: str) -> bool:
        return self._redactor.may_find(text) or self._may_begin(text)

    def _may_begin(self, text: str) -> bool:
        return self._beginnings is not None and self._beginnings.may_be_in(text)

    def error(self, exc: CallError) -> CallError:
        """Return an error without the secrets."""
        error = exc.error
        details = self.value(dict(error.details))
        clean = replace(error, message=self.text(error.message), hint=self.text(error.hint), details=details)
        return call_error(clean)


def _spans_of_beginnings(text: str, key: str) -> list[tuple[int, int]]:
    """Return the spans of beginnings of a key, each as far as it matches."""
    spans: list[tuple[int, int]] = []
    at, beginning = 0, key[:GIVEN_AWAY_SECRET_CHARS]
    while (begin := text.find(beginning, at)) >= 0:
        at, end = begin + GIVEN_AWAY_SECRET_CHARS, begin + len(key)
        while at < end and text[at : at + 1] == key[at - begin]:
            at += 1
        spans.append((begin, at))
    return spans


def without_credentials(handler: Handler, secrets: Iterable[Secret]) -> Handler:
    """Return the handler with the secrets removed from its values and errors."""
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
    """Yield a header's value, and for `Bearer key` also the key alone, which the server may repeat."""
    yield value
    scheme, _, credential = value.reveal().partition(" ")
    if scheme.isalpha() and credential.strip():
        yield Secret(credential.strip())


def revealed(values: Mapping[str, str | Secret]) -> dict[str, str]:
    """Return headers or environment variables with their secrets revealed, for sending."""
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in values.items()}
