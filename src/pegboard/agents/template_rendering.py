"""Template rendering: fill an agent's templates; runs in our sandbox process, and nowhere else."""

from __future__ import annotations

import json
import re
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

# Stand for values while the template's own text is read as JSON: characters that no text means anything by.
_OPEN, _CLOSE = "\ue000", "\ue001"
_MARK = re.compile(f"{_OPEN}([0-9]+){_CLOSE}")
# Of the template's own JSON: a text, whole or up to the end; or a mark outside of every text.
_PIECE = re.compile(rf'"(?:[^"\\]|\\.)*"?|{_MARK.pattern}', re.DOTALL)


class _Json(str):
    """What `tojson` gave, with the value that it was made of."""

    __slots__ = ("value",)
    value: Any


class _Environment(Environment):
    """Reads `data.items` as the key where there is one: names of arguments come before methods of Python."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        return obj[attribute] if is_object(obj) and attribute in obj else super().getattr(obj, attribute)


def _defined(value: Any) -> Any:
    if callable(value):
        raise TemplateRefusedError(f"{getattr(value, '__name__', 'a function')!r} is undefined.")
    return value


def text(request: dict[str, Any], payload: bytes) -> str:
    """Return the text of `template` with the names in the payload; both forms of `{{ company }}` see the context."""
    environment = new_environment(_Environment)
    environment.finalize = _defined
    try:
        with limited_time(request["timeout_s"]):
            return filled(environment, request["template"], json.loads(payload), request["max_chars"])
    except OutputTooLargeError as error:
        raise TemplateRefusedError(str(error)) from None


def json_object(request: dict[str, Any], payload: bytes) -> dict[str, Any]:
    """Return the JSON object that `template` makes of the `data` in the payload.

    The template's own text is read as JSON with a mark where each value stands; the values come in afterwards, so that
    nothing in them can be taken for JSON. Within quotes a value is text; outside of them numbers, booleans, none and
    what `tojson` gives are values.
    """
    if _OPEN in request["template"] or _CLOSE in request["template"]:
        raise TemplateRefusedError(
            "it has characters of a private kind, U+E000 or U+E001, which stand for values here."
        )
    values: list[Any] = []

    def marked(value: Any) -> str:
        values.append(_defined(value))
        return f"{_OPEN}{len(values) - 1}{_CLOSE}"

    environment = new_environment(_Environment)
    environment.finalize = marked
    environment.filters |= {"tojson": _to_json}  # pyright: ignore[reportUnknownMemberType] - untyped
    try:
        with limited_time(request["timeout_s"]):
            skeleton = filled(environment, request["template"], {"data": json.loads(payload)}, request["max_chars"])
            made = _with_values(_parsed(skeleton, values), values)
            if len(json.dumps(made, ensure_ascii=False)) > request["max_chars"]:
                raise OutputTooLargeError(f"The template gave more than {request['max_chars']} characters.")
    except OutputTooLargeError as error:
        raise TemplateRefusedError(str(error)) from None
    return made


def _to_json(value: Any, indent: int | None = None) -> str:
    made = _Json(to_json(value, indent))
    made.value = value
    return made


def _parsed(skeleton: str, values: list[Any]) -> dict[str, Any]:
    """Return the JSON of the template's own text; a mark outside of texts becomes a text of its own."""

    def quoted(piece: re.Match[str]) -> str:
        if piece[1] is None:
            return piece[0]
        value = values[int(piece[1])]
        if not (isinstance(value, _Json) or value is None or isinstance(value, bool | int | float)):
            what = "a text" if isinstance(value, str) else f"a {type(value).__name__}"
            raise TemplateRefusedError(f"{what} stands outside of quotes. Write it within quotes, or with `| tojson`.")
        return f'"{_OPEN}{piece[0]}"'

    try:
        made = json.loads(_PIECE.sub(quoted, skeleton), parse_constant=_refuse_constant)
    except ValueError as error:
        raise TemplateRefusedError(f"what it gives is not JSON: {error}.") from None
    if not is_object(made):
        raise TemplateRefusedError('what it gives is not a JSON object, such as {"topic": "{{ data.query }}"}.')
    return made


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _with_values(made: Any, values: list[Any]) -> Any:
    """Return the JSON with each mark replaced by its value."""
    if is_object(made):
        pairs: dict[str, Any] = {}
        for key, item in made.items():
            name = _with_values(key, values)
            if not isinstance(name, str):
                raise TemplateRefusedError("a key is not a text. Write it within quotes.")
            if name in pairs:
                raise TemplateRefusedError(f"it gives the key {name[:80]!r} twice.")
            pairs[name] = _with_values(item, values)
        return pairs
    if is_list(made):
        return [_with_values(item, values) for item in made]
    if not isinstance(made, str):
        return made
    if made.startswith(_OPEN * 2):
        value = values[int(made[2:-1])]
        return value.value if isinstance(value, _Json) else value
    return _MARK.sub(lambda mark: _as_text(values[int(mark[1])]), made)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value)
