"""Moment: an age or a time, as the options `--since` and `--until` take it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

Moment = timedelta | datetime
"""An age such as 30m, 12h or 7d, or a time; a time without a zone is UTC, as in the rows of the audit."""


def seconds_of(moment: Moment) -> float:
    """Return an age or a time as seconds since 1970."""
    if isinstance(moment, timedelta):
        return time.time() - moment.total_seconds()
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
