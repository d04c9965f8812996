"""Rate limit: the calls that a time window allows, and the callers that share them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

from msgspec import Struct

from pegboard.model.error import DefinitionError

# ASCII digits only, and no more than a machine number has.
_FORM = re.compile(r"([0-9]{1,18})/([0-9]{1,15}\.?[0-9]{0,9}|\.[0-9]{1,9})s")
# What other libraries and people write: `10/minute`, `10 per 2 hours`, `10/60`, `10`.
_OTHER_FORM = re.compile(r"([0-9]{1,18})(?:\s*(?:/|\bper\b|\ban?\b)\s*([0-9]{0,6})\s*([a-z]*?)s?)?", re.IGNORECASE)
_UNITS_S = {
    "": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hr": 3600, "hour": 3600, "d": 86400,
    "day": 86400,
}  # fmt: skip
LimitScope = Literal["caller", "tool", "user", "space", "agent", "session"]


WhenStoreIsDown = Literal["closed", "open", "local"]
# The keys in a config and in Python, and their fields.
_KEYS = {
    "max_calls": "max_calls",
    "window_seconds": "window_s",
    "scope": "scope",
    "when_store_is_down": "when_store_is_down",
}


class RateLimit(Struct, frozen=True, kw_only=True):
    """At most `max_calls` in any `window_s` seconds, counted separately for each `scope` and tool.

    `when_store_is_down` decides what happens while a shared store does not respond; `None` means `local` for read-only
    tools and `closed` for the others.
    """

    max_calls: int
    window_s: float
    scope: LimitScope = "caller"
    when_store_is_down: WhenStoreIsDown | None = None

    @classmethod
    def parse(cls, limit: str | Mapping[str, Any]) -> RateLimit:
        """Read `"10/60s"`, ten calls in sixty seconds, or the mapping `{"max_calls": 10, "window_seconds": 60}`.

        A mapping may have `scope` and `when_store_is_down` too.

        Raises:
            DefinitionError: the limit has another form.
        """
        return cls._parse_text(limit) if isinstance(limit, str) else cls._parse_mapping(limit)

    @classmethod
    def _parse_mapping(cls, mapping: Mapping[str, Any]) -> RateLimit:
        unknown = [key for key in mapping if key not in _KEYS]
        if unknown or not {"max_calls", "window_seconds"} <= mapping.keys():
            raise DefinitionError(
                f"{dict(mapping)!r} is not a rate limit; it has max_calls and window_seconds, and may have scope and "
                'when_store_is_down: {"max_calls": 10, "window_seconds": 60}.'
            )
        return cls(**{_KEYS[key]: value for key, value in mapping.items()})

    @classmethod
    def _parse_text(cls, text: str) -> RateLimit:
        form = _FORM.fullmatch(text)
        if form is None:
            raise DefinitionError(f"{text!r} is not a rate limit; {_instead(text)}.")
        return cls(max_calls=int(form[1]), window_s=float(form[2]))

    def __post_init__(self) -> None:
        whole: Any = self.max_calls
        length: Any = self.window_s
        if isinstance(whole, bool) or not isinstance(whole, int):
            raise DefinitionError(f"A rate limit of {whole!r} calls: max_calls must be a whole number.")
        if isinstance(length, bool) or not isinstance(length, int | float):
            raise DefinitionError(f"A rate limit in a window of {length!r}: it must be a number of seconds.")
        for key, value, words in (
            ("scope", self.scope, get_args(LimitScope)),
            ("when_store_is_down", self.when_store_is_down, (None, *get_args(WhenStoreIsDown))),
        ):
            if value not in words:
                raise DefinitionError(f"{key}={value!r} of a rate limit must be one of {', '.join(map(str, words))}.")
        if whole < 0 or not length > 0:
            raise DefinitionError(
                f"A rate limit of {self.max_calls} calls in {self.window_s} s makes no sense: "
                "calls must be 0 or more, the window longer than 0 s."
            )


def _instead(text: str) -> str:
    """Return the correct spelling for a text that is not a rate limit."""
    form = _OTHER_FORM.fullmatch(text.strip())
    unit_s = None if form is None else _UNITS_S.get((form[3] or "").lower())
    if form is None or unit_s is None or form[2] == "0":
        return 'write calls and seconds, such as "10/60s" for 10 calls in 60 seconds'
    calls = int(form[1])
    window_s = 60 if form[3] is None else int(form[2] or 1) * unit_s
    return f'write calls and seconds, such as "{calls}/{window_s}s" for {calls} calls in {window_s} seconds'
