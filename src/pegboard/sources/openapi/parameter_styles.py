"""Parameter styles: serialises arguments for paths, queries, headers and cookies by OpenAPI's `style` and `explode`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import quote

from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.sources.http_service import scalar

STYLES: Final = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject", "tabDelimited"),
    "querystring": ("",),
    "header": ("simple",),
    "cookie": ("form", "cookie"),
}
# `tabDelimited` is Swagger 2.0's `tsv`.
_DELIMITERS = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C", "tabDelimited": "%09"}
# The characters that `allowReserved` keeps, without those that end a parameter.
_RESERVED = ":/?@!$'()*,;"
# Additional characters kept in the rest of a path (`{rest+}`).
_IN_PATHS = ":/@!$'()*,;"
# Characters allowed in a cookie besides letters and digits. `;` would begin another cookie.
_IN_COOKIES = "!#$%&'()*+-./:<=>?@[]^_`{|}~"


def _encoded(value: JSONValue, *, safe: str = "") -> str:
    return quote(scalar(value), safe=safe)


def in_path(name: str, value: JSONValue, *, style: str, explode: bool, is_rest: bool = False) -> str:
    """Return the value of `{name}` in a path, percent-encoded; the rest of a path keeps its slashes."""
    if is_rest and isinstance(value, str):
        return _encoded(value, safe=_IN_PATHS)
    prefix, separator = {"label": (".", "."), "matrix": (";", ";")}.get(style, ("", ","))
    named = f"{_encoded(name)}=" if style == "matrix" else ""
    between = separator if explode else ","
    if is_list(value):
        items = [_encoded(item) for item in value if item is not None]
        return (
            prefix + between.join(f"{named}{item}" for item in items) if explode else prefix + named + ",".join(items)
        )
    if is_object(value):
        pairs = [(_encoded(key), _encoded(item)) for key, item in value.items() if item is not None]
        if explode:
            return prefix + between.join(f"{key}={item}" for key, item in pairs)
        return prefix + named + ",".join(part for pair in pairs for part in pair)
    return f"{prefix}{named}{_encoded(value)}"


def in_query(name: str, value: JSONValue, *, style: str, explode: bool, allow_reserved: bool = False) -> list[str]:
    """Return the `name=value` pairs of a query string, percent-encoded; `null` gives none."""
    safe = _IN_COOKIES if style == "cookie" else _RESERVED if allow_reserved else ""
    encoded_name = _encoded(name)
    if style == "deepObject" and is_object(value):
        return list(_deep(encoded_name, value, safe))
    if style == "deepObject" and is_list(value):
        return list(_deep(encoded_name, _by_place(value), safe))
    if is_list(value):
        items = [_encoded(item, safe=safe) for item in value if item is not None]
        return (
            [f"{encoded_name}={item}" for item in items]
            if explode
            else [f"{encoded_name}={_DELIMITERS.get(style, ',').join(items)}"]
        )
    if is_object(value):
        if explode:
            # A list in an object is not defined; frameworks read the repeated name, such as Spring's `sort`.
            members = [(key, each) for key, item in value.items() for each in (item if is_list(item) else [item])]
            return [f"{_encoded(key)}={_encoded(each, safe=safe)}" for key, each in members if each is not None]
        pairs = [(_encoded(key), _encoded(item, safe=safe)) for key, item in value.items() if item is not None]
        return [f"{encoded_name}={_DELIMITERS.get(style, ',').join(part for pair in pairs for part in pair)}"]
    return [] if value is None else [f"{encoded_name}={_encoded(value, safe=safe)}"]


def _deep(prefix: str, value: JSONValue, safe: str) -> Iterator[str]:
    for key, item in value.items():
        inner = f"{prefix}%5B{_encoded(key)}%5D"
        if is_object(item):
            yield from _deep(inner, item, safe)
        elif is_list(item) and any(is_object(each) or is_list(each) for each in item):
            yield from _deep(inner, _by_place(item), safe)
        elif is_list(item):
            yield from (f"{inner}={_encoded(each, safe=safe)}" for each in item if each is not None)
        elif item is not None:
            yield f"{inner}={_encoded(item, safe=safe)}"


def _by_place(items: Sequence[JSONValue]) -> JSON:
    """Return a list in the form that `deepObject` parsers expect; the specification does not define it."""
    return {str(place): item for place, item in enumerate(items)}


def in_header(value: JSONValue, *, explode: bool) -> str:
    """Return a header's value; the client refuses characters that headers cannot contain."""
    if is_list(value):
        return ",".join(scalar(item) for item in value if item is not None)
    if is_object(value):
        join = "=" if explode else ","
        return ",".join(f"{key}{join}{scalar(item)}" for key, item in value.items() if item is not None)
    return scalar(value)
