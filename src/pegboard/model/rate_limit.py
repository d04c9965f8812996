"""Rate limit: how many calls in how long a window, and what is counted together."""

from __future__ import annotations

import re
from typing import Literal

from pegboard.frozen import frozen
from pegboard.model.error import DefinitionError

# Digits of ASCII, and no more of them than a number of the machine has.
_FORM = re.compile(r"([0-9]{1,18})/([0-9]{1,15}\.?[0-9]{0,9}|\.[0-9]{1,9})s")
LimitScope = Literal["caller", "tool", "user", "space", "agent", "session"]


WhenStoreIsDown = Literal["closed", "open", "local"]


@frozen
class RateLimit:
    """At most `max_calls` in any `window_s` seconds, counted apart for each `scope` and tool.

    `when_store_is_down` decides while a shared store does not answer; `None` means `local` for
    read-only tools and `closed` for the rest.
    """

    max_calls: int
    window_s: float
    scope: LimitScope = "caller"
    when_store_is_down: WhenStoreIsDown | None = None

    @classmethod
    def parse(cls, text: str) -> RateLimit:
        """Read `"10/60s"`: ten calls in sixty seconds.

        Raises:
            DefinitionError: the text has another form.
        """
        form = _FORM.fullmatch(text)
        if form is None:
            raise DefinitionError(f'{text!r} is no rate limit; write for example "10/60s": ten calls in 60 seconds.')
        return cls(max_calls=int(form[1]), window_s=float(form[2]))

    def __post_init__(self) -> None:
        if self.max_calls < 0 or self.window_s <= 0:
            raise DefinitionError(
                f"A rate limit of {self.max_calls} calls in {self.window_s} s makes no sense: "
                "calls must be 0 or more, the window longer than 0 s."
            )
