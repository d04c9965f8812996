"""Placeholders: write the values of a PostgreSQL statement as the server itself names them.

`%s` and `%(name)s` become `$1`, `$2` … before anybody looks at the words: what is judged is what is sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from psycopg.types.json import Jsonb

from pegboard.model.error import CallError
from pegboard.model.json_types import JSONValue, is_object

_PLACEHOLDER: Final = re.compile(r"%(?:(?P<percent>%)|(?P<next>s)|\((?P<name>\w{1,63})\)s)?")

Params = Sequence[JSONValue] | Mapping[str, JSONValue] | None


def numbered(text: str, params: Params) -> tuple[str, list[Any] | None]:
    """Return the statement with `$1`, `$2` …, and their values in this order.

    Without params the text stays as it is, so that `%` needs no doubling.

    Raises:
        CallError: invalid_arguments when placeholders and params do not fit together.
    """
    if not params:
        return text, None
    found: list[str | int] = []

    def number(match: re.Match[str]) -> str:
        if match["percent"]:
            return "%"
        if not (match["next"] or match["name"]):
            raise _misfit("a '%' is neither %s nor %(name)s; with params, write '%%' for the sign")
        if isinstance(params, Mapping) is not bool(match["name"]):
            raise _misfit("%s takes a list of params, and %(name)s a mapping")
        key = match["name"] or len(found)
        if key not in found:
            found.append(key)
        return f"${found.index(key) + 1}"

    numbers = _PLACEHOLDER.sub(number, text)
    return numbers, [_adapted(value) for value in _values(params, found)]


def _values(params: Sequence[JSONValue] | Mapping[str, JSONValue], found: Sequence[str | int]) -> list[JSONValue]:
    if not isinstance(params, Mapping):
        if len(found) != len(params):
            raise _misfit(f"it has {len(found)} placeholders and {len(params)} params")
        return list(params)
    missing = [str(name) for name in found if name not in params]
    if missing:
        raise _misfit(f"the param {missing[0]!r} is missing")
    return [params[str(name)] for name in found]


def _adapted(value: JSONValue) -> Any:
    return Jsonb(value) if is_object(value) else value


def _misfit(what: str) -> CallError:
    return CallError("invalid_arguments", f"The statement and its params do not fit together: {what}. Correct them.")
