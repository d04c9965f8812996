"""Text redaction: removes secrets from streamed text, even if they are split between pieces."""

from __future__ import annotations

from pegboard.core.redaction import Redactor


class TextStream:
    """A streamed text. Only a possible beginning of a secret waits for the next piece."""

    def __init__(self, redactor: Redactor | None) -> None:
        self._redactor, self._waiting = redactor, ""
        self._forms: tuple[str, ...] = () if redactor is None else redactor.forms
        self._first = frozenset(form[0] for form in self._forms)
        self._longest = max(map(len, self._forms), default=0)

    def feed(self, piece: str) -> str:
        """Return the part of the text that can be sent now."""
        if self._redactor is None or not self._forms:
            return piece
        text = self._redactor.text(self._waiting + piece)
        cut = len(text)
        for start in range(max(len(text) - self._longest + 1, 0), len(text)):
            if text[start] in self._first:
                tail = text[start:]
                if any(form.startswith(tail) for form in self._forms):
                    cut = start
                    break
        self._waiting = text[cut:]
        return text[:cut]

    def end(self) -> str:
        """Return the waiting rest, which cannot be a secret because the text has ended."""
        rest, self._waiting = self._waiting, ""
        return rest
