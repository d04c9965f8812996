"""AuditRoutes: the record of calls, for operators."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from pegboard.audit.audit import Audit
from pegboard.audit.audit_query import AuditFilter, newest_page, shown_row
from pegboard.audit.audit_store import AuditStore
from pegboard.model.json_types import JSON
from pegboard.server.http_api.api_app import Api, ApiRequest
from pegboard.server.http_api.limits import API_MOST_PAGE_TOOLS, API_PAGE_TOOLS
from pegboard.server.http_api.problem_details import ProblemError, not_found
from pegboard.server.http_api.responses import Reply, json_reply
from pegboard.storage.store_error import StoreError

OPERATOR = "operator"
"""The role that may read the audit."""
FILTER_PARAMETERS = {
    "tool": "tool", "user": "user", "key": "key", "space": "space", "profile": "in_profile", "agent": "agent",
    "kind": "kind", "call_id": "call_id", "since": "since", "until": "until", "longer_than_s": "slower_than",
}  # fmt: skip
"""The parameter of each field of `AuditFilter`."""
AUDIT_QUERY = (*FILTER_PARAMETERS.values(), "limit", "cursor")
_TIMES, _SECONDS = ("since", "until"), ("longer_than_s",)


class AuditRoutes:
    """GET /v1/audit. Callers without the role `operator` get the answer for an unknown path."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def list(self, request: ApiRequest) -> Reply:
        """Answer with the newest rows that match, and the cursor of the next page if there is one."""
        store, query = self._store(request), request.query
        wanted = _filter(query)
        limit = _limit(query.get("limit", str(API_PAGE_TOOLS)))
        try:
            page = await asyncio.to_thread(newest_page, store, wanted, limit=limit, cursor=query.get("cursor", ""))
        except StoreError:
            text = "The store of the audit does not answer. Try again in a moment."
            raise ProblemError(503, "storage_unavailable", text, headers={"retry-after": "1"}) from None
        except LookupError as error:
            raise ProblemError(400, "bad_request", str(error)) from None
        answer: JSON = {"rows": [shown_row(row) for row in page.rows]}
        if page.cursor:
            answer["nextCursor"] = page.cursor
        return json_reply(answer)

    def _store(self, request: ApiRequest) -> AuditStore:
        audit = self._api.gateway.catalog.executor.ports.audit
        roles = self._api.gateway.context(request.principal).roles
        if OPERATOR not in roles or not isinstance(audit, Audit):
            raise not_found("There is no audit here for this caller.")
        return audit.writer.store


def _filter(query: Mapping[str, str]) -> AuditFilter:
    """Return the filter of a query. Empty parameters accept everything."""
    values: dict[str, str | float] = {}
    for field, parameter in FILTER_PARAMETERS.items():
        if text := query.get(parameter, ""):
            is_time, is_seconds = field in _TIMES, field in _SECONDS
            values[field] = _time(parameter, text) if is_time else _seconds(parameter, text) if is_seconds else text
    return msgspec.convert(values, AuditFilter)


def _limit(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= API_MOST_PAGE_TOOLS:
        raise ProblemError(
            400, "bad_request", f"limit={text[:20]!r}: a number from 1 to {API_MOST_PAGE_TOOLS} is needed."
        )
    return int(text)


def _seconds(parameter: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ProblemError(400, "bad_request", f"{parameter}={text[:20]!r}: seconds such as 2 or 0.5 are needed.")
    return seconds


def _time(parameter: str, text: str) -> float:
    """Return the seconds since 1970 of an ISO time, or of an age such as 30m, 12h or 7d."""
    unit_s = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}.get(text[-1])
    if unit_s is not None and text[:-1].isascii() and text[:-1].isdigit() and len(text) < 10:
        return time.time() - int(text[:-1]) * unit_s
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        form = "a time such as 2026-11-27T10:00:00Z, or an age such as 30m, 12h or 7d, is needed."
        raise ProblemError(400, "bad_request", f"{parameter}={text[:40]!r}: {form}") from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
