"""Operations: what one operation of an API takes and gives, and the declaration of a tool made of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote

from pegboard.core.names import legal
from pegboard.core.schema import compile_schema
from pegboard.egress.failures import EgressError
from pegboard.egress.http import checked_headers
from pegboard.egress.responses import is_json
from pegboard.model.bounds import Bounds
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.model.tool import Annotations
from pegboard.sources.foreign_text import cleaned, has_hidden
from pegboard.sources.openapi.document import Document, UnfitError
from pegboard.sources.openapi.parameter_styles import STYLES
from pegboard.sources.openapi.request_bodies import (
    FORM,
    MULTIPART,
    Body,
    Field,
    as_base64,
    content_of,
    fields_of,
    media_of,
)
from pegboard.sources.openapi.schema_translation import Drawing

Where = Literal["path", "query", "header", "cookie", "body"]
# The header parameters that OpenAPI says to ignore: other parts of an operation tell them.
_TOLD_ELSEWHERE = frozenset({"accept", "content-type", "authorization"})
_WORDED = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PLACE = re.compile(r"\{([^{}/]+)\}")
_QUERY = re.compile(r"[A-Za-z0-9_.~%=&+-]*")
# Keywords beside which the properties of an object are not all that may be said of it.
_COMPOSED = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "patternProperties", "dependentSchemas", "propertyNames",
                       "minProperties", "maxProperties", "dependentRequired", "unevaluatedProperties",
                       "nullable", "const", "enum"})  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Argument:
    """One place of a request that an argument fills: `name` is ours, `wire` theirs."""

    name: str
    wire: str
    where: Where
    style: str = ""
    explode: bool = False
    allow_reserved: bool = False
    as_json: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """One operation, ready to be called."""

    method: str
    path: str
    arguments: tuple[Argument, ...]
    body: Body | None
    description: str
    input_schema: JSON
    output_schema: JSON | None
    annotations: Annotations


def raw_name(method: str, path: str, operation: JSON) -> str:
    """Return what an operation is called: its operationId, or its method and path in words."""
    said = operation.get("operationId")
    if isinstance(said, str) and said.strip():
        return said
    return re.sub("_+", "_", legal(f"{method}_{path}".replace("{", "").replace("}", ""))).strip("_")


@dataclass(kw_only=True, slots=True)
class Reader:
    """Reads the operations of one document. `ours` are the headers and query names that the configuration sends."""

    document: Document
    bounds: Bounds
    ours: frozenset[str] = frozenset()

    def read(self, method: str, path: str, item: JSON, said: JSON) -> Operation:
        """Return one operation.

        Raises:
            UnfitError: it cannot be taken.
        """
        _check_path(path)
        drawing = Drawing(self.document, bounds=self.bounds, is_request=True)
        taken: dict[str, Argument] = {}
        properties: JSON = {}
        required: list[str] = []
        for parameter in self._parameters(item, said):
            self._parameter(parameter, drawing, taken, properties, required)
        unfilled = set(_PLACE.findall(path)) - {arg.wire for arg in taken.values() if arg.where == "path"}
        if unfilled:
            raise UnfitError(f"its path has {{{sorted(unfilled)[0]}}}, which no parameter fills")
        body = self._body(said, drawing, taken, properties, required)
        schema: JSON = {"type": "object", "properties": properties}
        if required:
            schema["required"] = list(dict.fromkeys(required))
        schema = drawing.whole({**schema, "additionalProperties": False})
        self._check(schema)
        return Operation(
            method=method.upper(),
            path=path,
            arguments=tuple(taken.values()),
            body=body,
            description=self._description(method, path, said),
            input_schema=schema,
            output_schema=self._output(said),
            annotations=_hints(method),
        )

    def _check(self, schema: JSON) -> None:
        try:
            compile_schema(schema, bounds=self.bounds)
        except (CallError, DefinitionError, RecursionError) as error:
            raise UnfitError(f"its schema cannot be used: {error}") from None

    def _description(self, method: str, path: str, said: JSON) -> str:
        texts = [str(said[key]).strip() for key in ("summary", "description") if isinstance(said.get(key), str)]
        text = "\n\n".join(dict.fromkeys(text for text in texts if text)) or f"{method.upper()} {path}"
        return cleaned(text, max_bytes=self.bounds.description_bytes)

    # ------------------------------------------------------------ parameters

    def _parameters(self, item: JSON, said: JSON) -> Iterator[JSON]:
        """Yield the parameters of path and operation; the operation's win. Required places of the path come first."""
        found: dict[tuple[str, str], JSON] = {}
        for holder in (item, said):
            listed = holder.get("parameters", [])
            if not is_list(listed):
                raise UnfitError("its parameters are no list")
            for value in listed:
                parameter = self.document.follow(value, "a parameter")
                found[str(parameter.get("name")), str(parameter.get("in"))] = parameter
        order = {where: place for place, where in enumerate(STYLES)}
        yield from sorted(found.values(), key=lambda parameter: order.get(str(parameter.get("in")), 9))

    def _parameter(
        self, said: JSON, drawing: Drawing, taken: dict[str, Argument], properties: JSON, required: list[str]
    ) -> None:
        wire, where = said.get("name"), said.get("in")
        if not isinstance(wire, str) or not wire or has_hidden(wire) or where not in tuple(STYLES):
            raise UnfitError(
                f"a parameter has no usable name and place: {cleaned(str(wire))[:40]!r} in {str(where)[:20]!r}"
            )
        is_required = said.get("required") is True or where == "path"
        if (where == "header" and wire.lower() in _TOLD_ELSEWHERE) or f"{where}:{wire.lower()}" in self.ours:
            return
        if where == "header" and not _is_header(wire):
            if is_required:
                raise UnfitError(f"it needs the header {wire[:40]!r}, which cannot be set")
            return
        style = said.get("style", STYLES[where][0])
        if style not in STYLES[where]:
            raise UnfitError(f"the parameter {wire[:40]!r} has the style {str(style)[:20]!r}")
        schema, as_json = _schema_of(said)
        name = _free_name(wire, where, taken)
        taken[name] = Argument(
            name=name,
            wire=wire,
            where=where,
            style=style,
            explode=said.get("explode", style == "form") is True,
            allow_reserved=said.get("allowReserved") is True,
            as_json=as_json,
        )
        drawn = drawing.draw(schema)
        if is_object(drawn) and isinstance(said.get("description"), str) and "description" not in drawn:
            drawn = {**drawn, "description": cleaned(said["description"], max_bytes=self.bounds.description_bytes)}
        properties[name] = drawn
        if is_required:
            required.append(name)

    # ------------------------------------------------------------ body

    def _body(
        self, said: JSON, drawing: Drawing, taken: dict[str, Argument], properties: JSON, required: list[str]
    ) -> Body | None:
        """Return how the body is written, if there is one; its arguments are added to those that are taken."""
        if said.get("requestBody") is None:
            return None
        whole = self.document.follow(said["requestBody"], "its requestBody")
        is_required = whole.get("required") is True
        media, told = content_of(whole)
        if media is None:
            if is_required:
                kinds = ", ".join(map(str, whole.get("content") or ()))[:80]
                raise UnfitError(f"its body is none of JSON, form or text: {kinds}")
            return None
        schema: JSONValue = told.get("schema", {})
        members = None if media.startswith("text/") else self._members(schema, taken, is_required=is_required)
        if members is None:
            return self._whole(media, told, drawing, taken, properties, required if is_required else [])
        fields = {} if is_json(media) else fields_of(told, members["properties"], self.document, media=media)
        drawn = drawing.draw(members)
        for name, inner in drawn.get("properties", {}).items():
            taken[name] = Argument(name=name, wire=name, where="body")
            properties[name] = as_base64(inner) if name in fields and fields[name].is_file else inner
        needed: Any = drawn.get("required", [])
        if not is_list(needed) or not all(isinstance(name, str) for name in needed):
            raise UnfitError("its schema cannot be used: `required` is no list of names")
        required += needed
        return Body(media=media, fields=fields)

    def _whole(
        self,
        media: str,
        told: JSON,
        drawing: Drawing,
        taken: dict[str, Argument],
        properties: JSON,
        required: list[str],
    ) -> Body:
        """Return a body that is one argument."""
        schema: JSONValue = told.get("schema", {})
        fields: Mapping[str, Field] = {}
        if media in (FORM, MULTIPART):
            found = {} if isinstance(schema, bool) else self.document.follow(schema, "the schema of its body")
            members: Any = found.get("properties", {})
            if found.get("type") not in ("object", ["object"]) or media == MULTIPART or not is_object(members):
                raise UnfitError("its body is a form whose fields are not known")
            fields = fields_of(told, members, self.document, media=media)
        name = _free_name("body", "body", taken)
        taken[name] = Argument(name=name, wire=name, where="body")
        properties[name] = drawing.draw(schema)
        required.append(name)
        return Body(media=media, argument=name, fields=fields)

    def _members(self, schema: JSONValue, taken: Mapping[str, Argument], *, is_required: bool) -> JSON | None:
        """Return the schema of a body whose properties may stand beside the parameters; `None` for any other."""
        if isinstance(schema, bool):
            return None
        found = self.document.follow(schema, "the schema of its body")
        members: Any = found.get("properties")
        plain = found.get("type") in ("object", ["object"]) and is_object(members) and not _COMPOSED & set(found)
        plain = plain and found.get("additionalProperties") in (None, False)
        if not plain or not all(_WORDED.fullmatch(name) and name not in taken for name in members):
            return None
        if not is_required and found.get("required"):
            return None
        return found

    # ------------------------------------------------------------ what comes back

    def _output(self, said: JSON) -> JSON | None:
        """Return the schema of the answer, where every documented success is the same JSON."""
        responses = said.get("responses")
        good = (
            {code: value for code, value in responses.items() if str(code).startswith("2")}
            if is_object(responses)
            else {}
        )
        if len(good) != 1:
            return None
        try:
            response = self.document.follow(next(iter(good.values())), "a response")
            content = response.get("content")
            if not is_object(content) or len(content) != 1 or not is_json(media_of(next(iter(content)))):
                return None
            schema = self.document.follow(next(iter(content.values())), "a response").get("schema")
            if schema is None:
                return None
            drawing = Drawing(self.document, bounds=self.bounds, is_request=False)
            drawn = drawing.draw(schema)
            whole = drawing.whole(drawn) if is_object(drawn) else None
            if whole:
                self._check(whole)
        except UnfitError:
            # A promise that cannot be read is not made; the answer comes all the same.
            return None
        return whole or None


def _check_path(path: str) -> None:
    # A fixed query string is none of OpenAPI's, but well-known descriptions have one.
    plain, _, query = path.partition("?")
    if (
        not plain.startswith("/")
        or any(unquote(unquote(segment)) in (".", "..") for segment in plain.split("/"))
        or re.search(r"[#\\\s]", plain)
        or not _QUERY.fullmatch(query)
    ):
        raise UnfitError(f"its path {path[:80]!r} is none below the server")
    if has_hidden(path) or not path.isascii():
        raise UnfitError(f"its path {cleaned(path)[:80]!r} has characters that a path cannot have")


def _schema_of(said: JSON) -> tuple[JSONValue, bool]:
    """Return the schema of a parameter, and whether it is written as JSON."""
    content: Any = said.get("content")
    if not is_object(content):
        return said.get("schema", {}), False
    media = next(iter(content), "")
    if len(content) != 1 or not is_json(media_of(media)) or not is_object(content[media]):
        raise UnfitError(f"the parameter {str(said.get('name'))[:40]!r} is written as {str(media)[:40]!r}")
    return content[media].get("schema", {}), True


def _free_name(wire: str, where: str, taken: Mapping[str, Argument]) -> str:
    """Return our name for a parameter: its own, or with its place where another place has it already."""
    plain = wire if _WORDED.fullmatch(wire) else legal(wire).strip("_") or "_"
    name = plain if plain not in taken else f"{plain[:50]}_{where}"
    while name in taken:
        name += "_"
    return name


def _is_header(name: str) -> bool:
    try:
        checked_headers({name: "x"})
    except EgressError:
        return False
    return True


def _hints(method: str) -> Annotations:
    if method in ("get", "head", "options"):
        return Annotations(read_only=True, destructive=False, idempotent=True, open_world=True)
    idempotent = True if method in ("put", "delete") else None
    return Annotations(
        read_only=False, destructive=True if method == "delete" else None, idempotent=idempotent, open_world=True
    )
