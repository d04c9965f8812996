"""Text redaction: take secrets out of a text that comes piece by piece, also those that stand across two pieces."""

from __future__ import annotations

from pegboard.core.redaction import Redactor


class TextStream:
    """A text on its way out. What may be the beginning of a secret waits for what comes after it, and nothing else."""

    def __init__(self, redactor: Redactor | None) -> None:
        self._redactor, self._waiting = redactor, ""
        self._forms: tuple[str, ...] = () if redactor is None else redactor.forms
        self._first = frozenset(form[0] for form in self._forms)
        self._longest = max(map(len, self._forms), default=0)

    def feed(self, piece: str) -> str:
        """Return what of the text so far can go out."""
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
        """Return what still waits: the text is over, so it was the beginning of nothing."""
        rest, self._waiting = self._waiting, ""
        return rest
