"""Usage page: the number, outcomes and durations of calls; for operators."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, get_args

from starlette.responses import Response

from pegboard.audit.recent_calls import RECENT_CALLS, CountedCalls
from pegboard.audit.usage import UsageField, UsageRow, UsageSpan
from pegboard.discovery.list_costs import list_costs
from pegboard.discovery.token_count import BY_BYTES, estimated_tokens
from pegboard.model.json_types import JSON
from pegboard.server.console.audit_page import audit_of
from pegboard.server.console.frame import frame
from pegboard.server.console.natural_order import natural_key
from pegboard.server.console.outcome_words import outcome_in_words
from pegboard.server.console.page_error import PageError, only_operators
from pegboard.server.console.pages import Pages
from pegboard.server.console.shown_time import took
from pegboard.server.console.visit import Visit
from pegboard.storage.store_error import StoreError

USAGE_ROWS_SHOWN = 100  # values of a field, and never called tools
USAGE_LISTS = 20  # profiles whose lists are counted

_PERIOD = "7d"
_FIELDS: Mapping[str, UsageField] = {field: field for field in get_args(UsageField)}


class _Period(NamedTuple):
    """A period, and the length of the spans of its plot."""

    period_s: float
    span_s: float


_PERIODS = {
    "1h": _Period(3_600.0, 60.0), "24h": _Period(86_400.0, 1_800.0), "7d": _Period(7 * 86_400.0, 10_800.0),
    "30d": _Period(30 * 86_400.0, 43_200.0),
}  # fmt: skip
_PERIOD_WORDS = {"1h": "hour", "24h": "24 hours", "7d": "7 days", "30d": "30 days"}


class UsageLine(NamedTuple):
    """A value of a field with its counts in words; `share` is that of the most frequent one, in hundredths."""

    row: UsageRow
    share: int
    errors: str
    p50: str
    p95: str
    tokens: int
    costs: str


class UsagePage:
    """`/console/usage`, for operators; it counts the same records as `pegboard usage`."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    async def show(self, visit: Visit) -> Response:
        only_operators(visit)
        audit = audit_of(visit)
        period = visit.query.get("since", "")
        by = _FIELDS.get(visit.query.get("by", ""), "tool")
        values: dict[str, object] = {
            "has_audit": audit is not None, "by": by, "fields": tuple(_FIELDS), "periods": _PERIOD_WORDS,
            "period": period if period in _PERIODS else _PERIOD, "lists": await _lists(visit), "most": RECENT_CALLS,
            "whole": None,
        }  # fmt: skip
        if audit is not None:
            period_s, span_s = _PERIODS.get(period, _PERIODS[_PERIOD])
            try:
                counted = await asyncio.to_thread(
                    audit.recent_calls.counted, by, now=visit.now(), period_s=period_s, span_s=span_s
                )
            except StoreError as error:
                raise PageError(503, "Not now", f"The audit cannot be read: {error}.") from None
            values.update(_values(visit, counted, period_s))
        return self._pages.page("usage.html", {**frame(visit, "usage"), **values})


def _values(visit: Visit, counted: CountedCalls, period_s: float) -> dict[str, object]:
    whole, rows = counted.whole, counted.rows
    declared = visit.gateway.registry.snapshot().entries
    never = sorted((entry.wire_name for entry in declared if entry.qualified_id not in counted.tools), key=natural_key)
    most = max((row.calls for row in rows), default=1)
    return {
        "whole": _line(whole, whole.calls or 1), "rows": [_line(row, most) for row in rows[:USAGE_ROWS_SHOWN]],
        "left_out": len(rows[USAGE_ROWS_SHOWN:]), "never": never[:USAGE_ROWS_SHOWN],
        "never_left_out": len(never[USAGE_ROWS_SHOWN:]), "declared": len(declared),
        "refused": [row.name for row in rows if row.is_always_refused][:USAGE_ROWS_SHOWN],
        "spans": [(_time(span.at, period_s), _line(span.usage, most)) for span in counted.spans if span.usage.calls],
        "plot": json.dumps(_plot(counted.spans)),
    }  # fmt: skip


def _line(row: UsageRow, most: int) -> UsageLine:
    errors = ", ".join(f"{outcome_in_words(kind)} {count:,}" for kind, count in row.errors.items())
    times = ["" if seconds is None else took(seconds) for seconds in (row.p50_s, row.p95_s)]
    tokens = estimated_tokens(row.argument_bytes + row.result_bytes)
    costs = ", ".join(f"{amount:,g} {unit}" for unit, amount in row.costs.items())
    return UsageLine(row, round(100 * row.calls / most), errors, times[0], times[1], tokens, costs)


def _plot(spans: Sequence[UsageSpan]) -> JSON:
    """Return the numbers of the plots: times, calls, failed calls, and percentiles in milliseconds."""
    counts = [span.usage for span in spans]
    return {
        "at": [round(span.at) for span in spans],
        "calls": [row.calls for row in counts],
        "errors": [sum(row.errors.values()) for row in counts],
        "p50": [None if row.p50_s is None else round(row.p50_s * 1e3, 3) for row in counts],
        "p95": [None if row.p95_s is None else round(row.p95_s * 1e3, 3) for row in counts],
    }


async def _lists(visit: Visit) -> list[JSON]:
    """Return the tokens of each profile's tool list for this caller, and the saving of its exposure."""
    gateway, costs = visit.gateway, list[JSON]()
    for profile in visit.profiles[:USAGE_LISTS] or (None,):
        view = gateway.catalog.view(gateway.context(visit.looks_as), profile=profile)
        cost = await list_costs(gateway.catalog.discovery, view, BY_BYTES, exposures=())
        costs.append({**cost, "listed": cost["tokens"][cost["shown_as"]], "direct": cost["tokens"]["direct"]})
    return costs


def _time(at: float, period_s: float) -> str:
    form = "%H:%M" if period_s <= _PERIODS["24h"].period_s else "%m-%d %H:%M"
    return datetime.fromtimestamp(at, tz=UTC).strftime(form)
