"""Template rendering: renders an agent's templates; runs only in our sandbox process."""

from __future__ import annotations

import json
import re
import secrets
from typing import Any

from pegboard.model.json_types import is_list, is_object
from pegboard.sources.builtin.jinja_rendering import (
    Environment,
    OutputTooLargeError,
    TemplateRefusedError,
    filled,
    limited_time,
    new_environment,
    to_json,
)

# They enclose the placeholder of a value while the template itself is parsed as JSON.
_OPEN, _CLOSE = "\ue000", "\ue001"


class _Values:
    """The values of one rendering and their placeholders, which the author of a value cannot guess."""

    def __init__(self) -> None:
        self._values: list[Any] = []
        self._start = f"{_OPEN}{secrets.randbelow(10**18)}_"
        self.mark = re.compile(f"{self._start}([0-9]+){_CLOSE}")
        # A JSON string in the template, complete or not; or a placeholder outside of strings.
        self.piece = re.compile(rf'"(?:[^"\\]|\\.)*"?|{self.mark.pattern}', re.DOTALL)
        self._split = re.compile(f"({self._start}[0-9]+{_CLOSE})")

    def marked(self, value: Any) -> str:
        """Return the placeholder of a value in the template; text that was already assembled keeps its placeholders."""
        _defined(value)
        if isinstance(value, str) and self._start in value:
            pieces = self._split.split(value)
            return "".join(
                piece if index % 2 else piece and self._placeholder(piece) for index, piece in enumerate(pieces)
            )
        return self._placeholder(value)

    def _placeholder(self, value: Any) -> str:
        self._values.append(value)
        return f"{self._start}{len(self._values) - 1}{_CLOSE}"

    def of(self, mark: re.Match[str]) -> Any:
        """Return the value of a placeholder."""
        return self._values[int(mark[1])]


class _Json(str):
    """The output of `tojson`, with its original value."""

    __slots__ = ("value",)
    value: Any


class _Environment(Environment):
    """Resolves `data.items` to the key, if it exists: argument names win over Python methods."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        return obj[attribute] if is_object(obj) and attribute in obj else super().getattr(obj, attribute)


def _defined(value: Any) -> Any:
    if callable(value):
        str(value)  # raises for an undefined value, with its name
        name = getattr(value, "__name__", None) or getattr(value, "name", None)
        if isinstance(name, str):
            raise TemplateRefusedError(f"{name!r} is undefined as a value: it is a function.")
        raise TemplateRefusedError(f"a {type(value).__name__} is not a JSON value. Name the part you want.")
    return value


def text(request: dict[str, Any], payload: bytes) -> str:
    """Return the text of `template` with the names in the payload; both forms of `{{ company }}` work."""
    environment = new_environment(_Environment)
    environment.finalize = _defined
    try:
        with limited_time(request["timeout_s"]):
            return filled(environment, request["template"], json.loads(payload), request["max_chars"])
    except OutputTooLargeError as error:
        raise TemplateRefusedError(str(error)) from None


def json_object(request: dict[str, Any], payload: bytes) -> dict[str, Any]:
    """Return the JSON object that `template` makes from the `data` in the payload.

    The template's own text is parsed as JSON with placeholders; the values are inserted afterwards, so that they cannot
    be parsed as JSON. Inside quotes a value is text; outside of them numbers, booleans, none and results of `tojson`
    keep their types.
    """
    values = _Values()
    environment = new_environment(_Environment)
    environment.finalize = values.marked
    environment.filters |= {"tojson": _to_json}  # pyright: ignore[reportUnknownMemberType] - untyped
    try:
        with limited_time(request["timeout_s"]):
            skeleton = filled(environment, request["template"], {"data": json.loads(payload)}, request["max_chars"])
            whole = _with_values(_parsed(skeleton, values), values)
            if len(json.dumps(whole, ensure_ascii=False)) > request["max_chars"]:
                raise OutputTooLargeError(f"The template gave more than {request['max_chars']} characters.")
    except OutputTooLargeError as error:
        raise TemplateRefusedError(str(error)) from None
    return whole


def _to_json(value: Any, indent: int | None = None) -> str:
    written = _Json(to_json(value, indent))
    written.value = value
    return written


def _parsed(skeleton: str, values: _Values) -> dict[str, Any]:
    """Return the JSON of the template's own text; an unquoted placeholder becomes a separate string."""

    def quoted(piece: re.Match[str]) -> str:
        if piece[1] is None:
            return piece[0]
        value = values.of(piece)
        if not (isinstance(value, _Json) or value is None or isinstance(value, bool | int | float)):
            kind = "a text" if isinstance(value, str) else f"a {type(value).__name__}"
            raise TemplateRefusedError(f"{kind} is outside of quotes. Put it in quotes, or add `| tojson`.")
        return f'"{_OPEN}{piece[0]}"'

    try:
        parsed = json.loads(values.piece.sub(quoted, skeleton), parse_constant=_refuse_constant)
    except ValueError as error:
        raise TemplateRefusedError(f"its output is not JSON: {error}.") from None
    if not is_object(parsed):
        raise TemplateRefusedError('its output is not a JSON object, such as {"topic": "{{ data.query }}"}.')
    return parsed


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _with_values(parsed: Any, values: _Values) -> Any:
    """Return the JSON with each placeholder replaced by its value."""
    if is_object(parsed):
        pairs: dict[str, Any] = {}
        for key, item in parsed.items():
            name = _with_values(key, values)
            if not isinstance(name, str):
                raise TemplateRefusedError("a key is not a string. Put it in quotes.")
            if name in pairs:
                raise TemplateRefusedError(f"its output has the key {name[:80]!r} twice.")
            pairs[name] = _with_values(item, values)
        return pairs
    if is_list(parsed):
        return [_with_values(item, values) for item in parsed]
    if not isinstance(parsed, str):
        return parsed
    whole = values.mark.fullmatch(parsed, 1) if parsed.startswith(_OPEN) else None
    if whole is not None:
        value = values.of(whole)
        return value.value if isinstance(value, _Json) else value
    return values.mark.sub(lambda mark: _as_text(values.of(mark)), parsed)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value)
