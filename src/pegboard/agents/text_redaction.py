"""Text redaction: removes secrets from streamed text, even if they are split between pieces."""

from __future__ import annotations

from pegboard.core.redaction import Redactor


class TextStream:
    """A streamed text. Only a possible beginning of a secret waits for the next piece."""

    def __init__(self, redactor: Redactor | None) -> None:
        self._redactor, self._waiting = redactor, ""

    def feed(self, piece: str) -> str:
        """Return the part of the text that can be sent now."""
        if self._redactor is None:
            return piece
        text = self._redactor.text(self._waiting + piece)
        cut = self._redactor.unfinished(text)
        self._waiting = text[cut:]
        return text[:cut]

    def end(self) -> str:
        """Return the waiting rest, which cannot be a secret because the text has ended."""
        rest, self._waiting = self._waiting, ""
        return rest
