"""Redaction: remove every known secret from what goes out."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, quote_plus

from pegboard.model.json_types import is_list, is_object
from pegboard.model.secret import Secret

REDACTED = "[redacted]"
# A shorter value would blot out ordinary text wherever it happens to occur.
_MIN_CHARS = 4  # not a limit: a shorter one is an ordinary word


def _spellings(value: str) -> Iterable[str]:
    """Yield the forms in which `value` may leave: as it is, in JSON, URL-encoded, in base64 at any offset."""
    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    for encoded in (quote(value, safe=""), quote(value), quote_plus(value)):
        yield encoded
        yield re.sub(r"%[0-9A-F]{2}", lambda match: match.group().lower(), encoded)
    raw = value.encode()
    for lead in range(3):
        # Only the characters that depend on nothing but the secret; its neighbours decide the rest.
        start, end = (0, 2, 3)[lead], ((lead + len(raw)) * 8) // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(b"\0" * lead + raw).decode()[start:end]


class Redactor:
    """Replaces every known secret, in every spelling, by `[redacted]`."""

    def __init__(self, secrets: Iterable[Secret]) -> None:
        values = {secret.reveal() for secret in secrets}
        forms = {form for value in values if len(value) >= _MIN_CHARS for form in _spellings(value)}
        self.forms = tuple(sorted(forms, key=lambda form: (-len(form), form)))
        """Every spelling that is looked for, the longest first."""
        self._pattern = re.compile("|".join(map(re.escape, self.forms))) if forms else None

    def finds(self, text: str) -> bool:
        """Tell whether any secret stands in `text`, which may be JSON."""
        return self._pattern is not None and self._pattern.search(text) is not None

    def text(self, text: str) -> str:
        """Return `text` without secrets."""
        return text if self._pattern is None else self._pattern.sub(REDACTED, text)

    def value(self, value: Any) -> Any:
        """Return a JSON value without secrets in its strings and keys; unchanged parts are shared."""
        if isinstance(value, str):
            return self.text(value)
        if is_object(value):
            return {self.value(key): self.value(item) for key, item in value.items()}
        if is_list(value):
            return [self.value(item) for item in value]
        return value
