"""Operations: what one operation of an API takes and gives, and the declaration of a tool made of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
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
from pegboard.sources.openapi.schema_translation import SchemaTranslation

Where = Literal["path", "query", "header", "cookie", "body"]
# The header parameters that OpenAPI says to ignore: other parts of an operation declare them.
_DECLARED_ELSEWHERE = frozenset({"accept", "content-type", "authorization"})
_WORDED = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PLACE = re.compile(r"\{([^{}/]+)\}")
_QUERY = re.compile(r"[A-Za-z0-9_.~%=&+-]*")
# With one of these keywords the properties of an object are not all that it says.
_COMPOSED = frozenset({
    "allOf", "anyOf", "oneOf", "not", "if", "patternProperties", "dependentSchemas", "propertyNames", "minProperties",
    "maxProperties", "dependentRequired", "unevaluatedProperties", "nullable", "const", "enum",
})  # fmt: skip


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
    operation_id = operation.get("operationId")
    if isinstance(operation_id, str) and operation_id.strip():
        return operation_id
    return re.sub("_+", "_", legal(f"{method}_{path}".replace("{", "").replace("}", ""))).strip("_")


@dataclass(slots=True)
class _Arguments:
    """The arguments of one operation while they are collected, with the schema of each."""

    translation: SchemaTranslation
    by_name: dict[str, Argument] = field(default_factory=dict[str, Argument])
    properties: JSON = field(default_factory=dict[str, Any])
    required: list[str] = field(default_factory=list[str])

    def add(self, argument: Argument, schema: JSONValue, *, is_required: bool = False) -> None:
        self.by_name[argument.name] = argument
        self.properties[argument.name] = schema
        if is_required:
            self.required.append(argument.name)

    def schema(self) -> JSON:
        """Return the input schema of all of them."""
        schema: JSON = {"type": "object", "properties": self.properties}
        if self.required:
            schema["required"] = list(dict.fromkeys(self.required))
        return self.translation.with_definitions({**schema, "additionalProperties": False})


@dataclass(kw_only=True, slots=True)
class OperationReader:
    """Reads the operations of one document. `ours` are the headers and query names that the configuration sends."""

    document: Document
    bounds: Bounds
    ours: frozenset[str] = frozenset()

    def read(self, method: str, path: str, item: JSON, operation: JSON) -> Operation:
        """Return one operation.

        Raises:
            UnfitError: it cannot be taken.
        """
        _check_path(path)
        collected = _Arguments(SchemaTranslation(self.document, bounds=self.bounds, is_request=True))
        for parameter in self._parameters(item, operation):
            self._add_parameter(parameter, collected)
        unfilled = set(_PLACE.findall(path)) - {arg.wire for arg in collected.by_name.values() if arg.where == "path"}
        if unfilled:
            raise UnfitError(f"its path has {{{sorted(unfilled)[0]}}}, which no parameter fills")
        body = self._body(operation, collected)
        schema = collected.schema()
        self._check(schema)
        return Operation(
            method=method.upper(),
            path=path,
            arguments=tuple(collected.by_name.values()),
            body=body,
            description=self._description(method, path, operation),
            input_schema=schema,
            output_schema=self._output(operation),
            annotations=_hints(method),
        )

    def _check(self, schema: JSON) -> None:
        try:
            compile_schema(schema, bounds=self.bounds)
        except (CallError, DefinitionError, RecursionError) as error:
            raise UnfitError(f"its schema cannot be used: {error}") from None

    def _description(self, method: str, path: str, operation: JSON) -> str:
        texts = [
            str(operation[key]).strip() for key in ("summary", "description") if isinstance(operation.get(key), str)
        ]
        text = "\n\n".join(dict.fromkeys(text for text in texts if text)) or f"{method.upper()} {path}"
        return cleaned(text, max_bytes=self.bounds.description_bytes)

    # ------------------------------------------------------------ parameters

    def _parameters(self, item: JSON, operation: JSON) -> Iterator[JSON]:
        """Yield the parameters of path and operation; the operation's win. Required places of the path come first."""
        by_place: dict[tuple[str, str], JSON] = {}
        for holder in (item, operation):
            listed = holder.get("parameters", [])
            if not is_list(listed):
                raise UnfitError("its parameters are no list")
            for value in listed:
                parameter = self.document.follow(value, "a parameter")
                by_place[str(parameter.get("name")), str(parameter.get("in"))] = parameter
        order = {where: place for place, where in enumerate(STYLES)}
        yield from sorted(by_place.values(), key=lambda parameter: order.get(str(parameter.get("in")), 9))

    def _add_parameter(self, parameter: JSON, collected: _Arguments) -> None:
        wire, where = parameter.get("name"), parameter.get("in")
        if not isinstance(wire, str) or not wire or has_hidden(wire) or where not in tuple(STYLES):
            raise UnfitError(
                f"a parameter has no usable name and place: {cleaned(str(wire))[:40]!r} in {str(where)[:20]!r}"
            )
        is_required = parameter.get("required") is True or where == "path"
        if (where == "header" and wire.lower() in _DECLARED_ELSEWHERE) or f"{where}:{wire.lower()}" in self.ours:
            return
        if where == "header" and not _is_header(wire):
            if is_required:
                raise UnfitError(f"it needs the header {wire[:40]!r}, which cannot be set")
            return
        style = parameter.get("style", STYLES[where][0])
        if style not in STYLES[where]:
            raise UnfitError(f"the parameter {wire[:40]!r} has the style {str(style)[:20]!r}")
        schema, as_json = _schema_of(parameter)
        argument = Argument(
            name=_free_name(wire, where, collected.by_name),
            wire=wire,
            where=where,
            style=style,
            explode=parameter.get("explode", style == "form") is True,
            allow_reserved=parameter.get("allowReserved") is True,
            as_json=as_json,
        )
        translated = collected.translation.translate(schema)
        description = parameter.get("description")
        if is_object(translated) and isinstance(description, str) and "description" not in translated:
            words = cleaned(description, max_bytes=self.bounds.description_bytes)
            translated = {**translated, "description": words}
        collected.add(argument, translated, is_required=is_required)

    # ------------------------------------------------------------ body

    def _body(self, operation: JSON, collected: _Arguments) -> Body | None:
        """Return how the body is written, if there is one; its arguments are added to those that are collected."""
        if operation.get("requestBody") is None:
            return None
        declared = self.document.follow(operation["requestBody"], "its requestBody")
        is_required = declared.get("required") is True
        media, content = content_of(declared)
        if media is None:
            if is_required:
                kinds = ", ".join(map(str, declared.get("content") or ()))[:80]
                raise UnfitError(f"its body is none of JSON, form or text: {kinds}")
            return None
        schema: JSONValue = content.get("schema", {})
        members = None if media.startswith("text/") else self._members(schema, collected, is_required=is_required)
        if members is None:
            return self._one_argument(media, content, collected, is_required=is_required)
        fields = {} if is_json(media) else fields_of(content, members["properties"], self.document, media=media)
        translated = collected.translation.translate(members)
        needed: Any = translated.get("required", [])
        if not is_list(needed) or not all(isinstance(name, str) for name in needed):
            raise UnfitError("its schema cannot be used: `required` is no list of names")
        for name, inner in translated.get("properties", {}).items():
            is_file = name in fields and fields[name].is_file
            argument = Argument(name=name, wire=name, where="body")
            collected.add(argument, as_base64(inner) if is_file else inner)
        collected.required += needed
        return Body(media=media, fields=fields)

    def _one_argument(self, media: str, content: JSON, collected: _Arguments, *, is_required: bool) -> Body:
        """Return a body that is one argument."""
        schema: JSONValue = content.get("schema", {})
        fields: Mapping[str, Field] = {}
        if media in (FORM, MULTIPART):
            target = {} if isinstance(schema, bool) else self.document.follow(schema, "the schema of its body")
            members: Any = target.get("properties", {})
            if target.get("type") not in ("object", ["object"]) or media == MULTIPART or not is_object(members):
                raise UnfitError("its body is a form whose fields are not known")
            fields = fields_of(content, members, self.document, media=media)
        name = _free_name("body", "body", collected.by_name)
        argument = Argument(name=name, wire=name, where="body")
        collected.add(argument, collected.translation.translate(schema), is_required=is_required)
        return Body(media=media, argument=name, fields=fields)

    def _members(self, schema: JSONValue, collected: _Arguments, *, is_required: bool) -> JSON | None:
        """Return the schema of a body whose properties may stand among the parameters; `None` for any other."""
        if isinstance(schema, bool):
            return None
        target = self.document.follow(schema, "the schema of its body")
        members: Any = target.get("properties")
        is_plain = target.get("type") in ("object", ["object"]) and is_object(members) and not _COMPOSED & set(target)
        is_plain = is_plain and target.get("additionalProperties") in (None, False)
        if not is_plain or not all(_WORDED.fullmatch(name) and name not in collected.by_name for name in members):
            return None
        if not is_required and target.get("required"):
            return None
        return target

    # ------------------------------------------------------------ what comes back

    def _output(self, operation: JSON) -> JSON | None:
        """Return the schema of the answer, where every documented success is the same JSON."""
        responses = operation.get("responses")
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
            translation = SchemaTranslation(self.document, bounds=self.bounds, is_request=False)
            translated = translation.translate(schema)
            output = translation.with_definitions(translated) if is_object(translated) else None
            if output:
                self._check(output)
        except UnfitError:
            # A promise that cannot be read is not made; the answer comes all the same.
            return None
        return output or None


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


def _schema_of(parameter: JSON) -> tuple[JSONValue, bool]:
    """Return the schema of a parameter, and whether it is written as JSON."""
    content: Any = parameter.get("content")
    if not is_object(content):
        return parameter.get("schema", {}), False
    media = next(iter(content), "")
    if len(content) != 1 or not is_json(media_of(media)) or not is_object(content[media]):
        raise UnfitError(f"the parameter {str(parameter.get('name'))[:40]!r} is written as {str(media)[:40]!r}")
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
