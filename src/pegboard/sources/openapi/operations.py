"""Operations: reads the parameters, body and response of an API operation, and declares a tool for it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote, unquote

from msgspec import Struct

from pegboard.core.names import legal
from pegboard.core.schema import compile_schema
from pegboard.egress.failures import EgressError
from pegboard.egress.http import as_servers_read, checked_headers
from pegboard.egress.responses import is_json
from pegboard.model.bounds import Bounds
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.model.tool import Annotations
from pegboard.sources.foreign_text import cleaned, has_hidden
from pegboard.sources.openapi.api_description import METHODS, Document, UnfitError
from pegboard.sources.openapi.parameter_styles import STYLES
from pegboard.sources.openapi.request_bodies import (
    FORM,
    MULTIPART,
    Body,
    Field,
    as_base64,
    content_of,
    fields_of,
    form_of,
    is_text,
    is_xml,
    media_of,
)
from pegboard.sources.openapi.schema_translation import SchemaTranslation, SchemaTranslator

OPENAPI_ANSWER_OBJECTS = 400  # objects in the schema of a response; references beyond them are left open
OPENAPI_LESS_ROOM = 8  # that limit is divided by this if the whole is too complex

Where = Literal["path", "query", "querystring", "header", "cookie", "body"]
# Header parameters that OpenAPI ignores, because other parts of an operation declare them.
_DECLARED_ELSEWHERE = frozenset({"accept", "content-type", "authorization"})
_WORDED = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PLACE = re.compile(r"\{([^{}/]+)\}")
# Not OpenAPI, but used by gateways: a placeholder for the rest of a path, with slashes.
_REST = re.compile(r"\{(?:\+([^{}/+*]+)|([^{}/+*]+)[+*])\}")
# Google's templates: `{name=projects/*}` is the rest of a path as well, of this form.
_TEMPLATE = re.compile(r"\{([^{}/=]+)=([^{}]+)\}")
_STARS = re.compile(r"(\*\*?)")
# A wildcard, and whether it is the end of the template: there, a colon would begin a verb.
_WILD = {("*", False): "[^/]+", ("*", True): "[^/:]+", ("**", False): ".+", ("**", True): "[^:]+"}
_SPECIAL = re.compile(r"[.+?()|^$\[\]\\]")
_QUERY = re.compile(r"[A-Za-z0-9_.~%=&+-]*")
_UNFIT_IN_PATH = re.compile(r"[#\\]|[^!-~]")
# With one of these keywords an object's `properties` are not its complete schema.
_COMPOSED = frozenset({
    "allOf", "anyOf", "oneOf", "not", "if", "patternProperties", "dependentSchemas", "propertyNames", "minProperties",
    "maxProperties", "dependentRequired", "unevaluatedProperties", "nullable", "const", "enum",
})  # fmt: skip


class Argument(Struct, frozen=True, kw_only=True):
    """One place of a request for an argument: `name` is ours, `wire` the API's."""

    name: str
    wire: str
    where: Where
    style: str = ""
    explode: bool = False
    allow_reserved: bool = False
    as_json: bool = False


class Operation(Struct, frozen=True, kw_only=True):
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
    """Return the name of an operation: its operationId, or its method and path."""
    operation_id = operation.get("operationId")
    if isinstance(operation_id, str) and operation_id.strip():
        return operation_id
    return re.sub("_+", "_", legal(f"{method}_{path}".replace("{", "").replace("}", ""))).strip("_")


@dataclass(slots=True)
class _Arguments:
    """The arguments of one operation as they are collected, with their schemas."""

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
        """Return the input schema of all arguments, without referenced definitions."""
        schema: JSON = {"type": "object", "properties": self.properties}
        if self.required:
            schema["required"] = list(dict.fromkeys(self.required))
        return {**schema, "additionalProperties": False}


@dataclass(kw_only=True, slots=True)
class OperationReader:
    """Reads the operations of one document. `ours` are the header and query names that the configuration sends."""

    document: Document
    bounds: Bounds
    ours: frozenset[str] = frozenset()
    _requests: SchemaTranslator = field(init=False)
    _answers: SchemaTranslator = field(init=False)

    def __post_init__(self) -> None:
        self._requests = SchemaTranslator(self.document, bounds=self.bounds, is_request=True)
        self._answers = SchemaTranslator(self.document, bounds=self.bounds, is_request=False)

    def read(self, method: str, path: str, item: JSON, operation: JSON) -> Operation:
        """Return one operation.

        Raises:
            UnfitError: it is unsupported.
        """
        if method not in METHODS:
            raise UnfitError(f"it is called with {cleaned(method.upper())[:20]!r}, which is not sent")
        patterns = {match[1]: _pattern_of(match[2]) for match in _TEMPLATE.finditer(path)}
        path = _TEMPLATE.sub(lambda match: f"{{{match[1]}+}}", path)
        _check_path(path)
        rests = {first or second for first, second in _REST.findall(path)}
        path = _REST.sub(lambda match: f"{{{match[1] or match[2]}}}", path)
        places = dict.fromkeys(_PLACE.findall(path.partition("?")[0]))
        collected = _Arguments(SchemaTranslation(self._requests))
        fixed = [unquote(pair.partition("=")[0]) for pair in path.partition("?")[2].split("&")]
        for parameter in self._parameters(item, operation):
            where, wire = parameter.get("in"), parameter.get("name")
            # A path parameter without a placeholder would be ignored.
            is_ignored = where == "path" and wire not in places
            # The path has this pair already.
            is_fixed = where == "query" and wire in fixed
            if not is_ignored and not is_fixed:
                self._add_parameter(parameter, collected, rests=rests, patterns=patterns)
        filled = {argument.wire for argument in collected.by_name.values() if argument.where == "path"}
        for place in places:
            if place not in filled:
                # Often missing in descriptions; a path parameter can only be text.
                described = {"name": place, "in": "path", "schema": {"type": "string"}}
                self._add_parameter(described, collected, rests=rests, patterns=patterns)
        body = self._body(operation, collected)
        schema = self._judged(collected.schema(), collected.translation, most_objects=2 * self.bounds.subschemas)
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

    def _judged(self, schema: JSON, translation: SchemaTranslation, *, most_objects: int) -> JSON:
        """Return a schema with as many definitions as can be validated; the most distant are left open first.

        Raises:
            UnfitError: it is unusable even without definitions.
        """
        fault: Exception | None = None
        for room in (most_objects, most_objects // OPENAPI_LESS_ROOM, 0):
            whole = translation.with_definitions(schema, most_objects=room)
            try:
                compile_schema(whole, bounds=self.bounds)
            except (CallError, DefinitionError, RecursionError) as error:
                fault = error
            else:
                return whole
        raise UnfitError(f"its schema cannot be used: {fault}")

    def _description(self, method: str, path: str, operation: JSON) -> str:
        texts = [
            str(operation[key]).strip() for key in ("summary", "description") if isinstance(operation.get(key), str)
        ]
        text = "\n\n".join(dict.fromkeys(text for text in texts if text)) or f"{method.upper()} {path}"
        return cleaned(text, max_bytes=self.bounds.description_bytes)

    # ------------------------------------------------------------ parameters

    def _parameters(self, item: JSON, operation: JSON) -> Iterator[JSON]:
        """Yield the parameters of path and operation; the operation's win. Required path parameters come first."""
        by_place: dict[tuple[str, str], JSON] = {}
        for holder in (item, operation):
            listed = holder.get("parameters", [])
            if not is_list(listed):
                raise UnfitError("its parameters are not a list")
            for value in listed:
                parameter = self.document.follow(value, "a parameter")
                name, where = str(parameter.get("name")), str(parameter.get("in"))
                by_place[name.lower() if where == "header" else name, where] = parameter
        order = {where: place for place, where in enumerate(STYLES)}
        yield from sorted(by_place.values(), key=lambda parameter: order.get(str(parameter.get("in")), 9))

    def _add_parameter(
        self, parameter: JSON, collected: _Arguments, *, rests: Collection[str], patterns: Mapping[str, str]
    ) -> None:
        wire, where = parameter.get("name"), parameter.get("in")
        if not isinstance(wire, str) or not wire or has_hidden(wire) or where not in tuple(STYLES):
            raise UnfitError(
                f"a parameter has no usable name and place: {cleaned(str(wire))[:40]!r} in {str(where)[:20]!r}"
            )
        is_required = parameter.get("required") is True or where == "path"
        plain = as_servers_read(wire) if where == "header" else wire.lower()
        if (where == "header" and plain in _DECLARED_ELSEWHERE) or f"{where}:{plain}" in self.ours:
            return
        if where == "header" and not _is_header(wire):
            if is_required:
                raise UnfitError(f"it needs the header {wire[:40]!r}, which cannot be set")
            return
        # A style that is invalid in this place is replaced by the default.
        style = next((style for style in STYLES[where] if style == parameter.get("style")), STYLES[where][0])
        schema, as_json = _schema_of(parameter)
        argument = Argument(
            name=_free_name(wire, where, collected.by_name),
            wire=wire,
            where=where,
            style=style,
            explode=parameter.get("explode", style in ("form", "cookie")) is True,
            allow_reserved=wire in rests if where == "path" else parameter.get("allowReserved") is True,
            as_json=as_json,
        )
        translated = collected.translation.translate(schema)
        description = parameter.get("description")
        if is_object(translated) and isinstance(description, str) and "description" not in translated:
            words = cleaned(description, max_bytes=self.bounds.description_bytes)
            translated = {**translated, "description": words}
        if where == "path" and wire in patterns:
            form: JSON = {"type": "string", "pattern": patterns[wire]}
            translated = {**form, "allOf": [translated]} if translated else form
        collected.add(argument, translated, is_required=is_required)

    # ------------------------------------------------------------ body

    def _body(self, operation: JSON, collected: _Arguments) -> Body | None:
        """Return the form of the body, if there is one, and collect its arguments."""
        if operation.get("requestBody") is None:
            return None
        declared = self._with_content(self.document.follow(operation["requestBody"], "its requestBody"))
        is_required = declared.get("required") is True
        media, content = content_of(declared)
        if media is None:
            if is_required:
                kinds = ", ".join(map(str, declared.get("content") or ()))[:80]
                raise UnfitError(f"its body is of a type that cannot be written: {kinds or 'none is named'}")
            return None
        form = self._form(content) if media in (FORM, MULTIPART) else None
        if form is not None:
            content = {**content, "schema": form}
        schema: JSONValue = content.get("schema", {})
        is_object_body = is_json(media) or form is not None
        members = self._members(schema, collected, is_required=is_required) if is_object_body else None
        if members is None:
            return self._one_argument(media, content, collected, is_required=is_required)
        fields = {} if is_json(media) else fields_of(content, members["properties"], self.document, media=media)
        translated = collected.translation.translate(self._with_files(members, fields))
        for name, inner in translated.get("properties", {}).items():
            collected.add(Argument(name=name, wire=name, where="body"), inner)
        collected.required += translated.get("required", [])
        return Body(media=media, fields=fields)

    def _with_content(self, body: JSON) -> JSON:
        """Return a body with referenced media types resolved."""
        declared: Any = body.get("content")
        content: JSON = declared if is_object(declared) else {}
        return {
            **body,
            "content": {
                media: self.document.follow(value, "its content") if is_object(value) and "$ref" in value else value
                for media, value in content.items()
            },
        }

    def _form(self, content: JSON) -> JSON:
        form = form_of(self._followed(content.get("schema", {})) or {}, self.document)
        if form is None:
            raise UnfitError("its body is a form, and the schema of the form is not an object")
        return form

    def _followed(self, schema: JSONValue) -> JSON | None:
        """Return the schema of a body; `None` leaves it open instead of refusing the tool."""
        try:
            return None if isinstance(schema, bool) else self.document.follow(schema, "the schema of its body")
        except UnfitError:
            return None

    def _with_files(self, form: JSON, fields: Mapping[str, Field]) -> JSON:
        """Return the schema of a form with files as base64 texts."""
        files = {
            name: as_base64(inner, self.document)
            for name, inner in form["properties"].items()
            if name in fields and fields[name].is_file
        }
        return {**form, "properties": {**form["properties"], **files}} if files else form

    def _one_argument(self, media: str, content: JSON, collected: _Arguments, *, is_required: bool) -> Body:
        """Return a body that is a single argument."""
        schema: Any = content.get("schema", {})
        fields: Mapping[str, Field] = {}
        if media in (FORM, MULTIPART):
            if not is_object(schema.get("properties")):
                schema = {**schema, "properties": {}}
            fields = fields_of(content, schema["properties"], self.document, media=media)
            schema = self._with_files(schema, fields)
        elif "schema" not in content and "itemSchema" in content:
            schema = {"type": "array", "items": content["itemSchema"]}
        is_file = not (is_json(media) or is_text(media) or media in (FORM, MULTIPART))
        name = _free_name("body", "body", collected.by_name)
        argument = Argument(name=name, wire=name, where="body")
        shown = as_base64(schema, self.document) if is_file else schema
        if is_text(media) and not is_object(shown):
            shown = {}
        if is_xml(media) and (self._followed(schema) or {}).get("type") != "string":
            shown = {"type": "string", "description": f"The body, as the text of its XML ({media})."}
        collected.add(argument, collected.translation.translate(shown), is_required=is_required)
        return Body(media=media, argument=name, is_file=is_file, fields=fields)

    def _members(self, schema: JSONValue, collected: _Arguments, *, is_required: bool) -> JSON | None:
        """Return the schema of a body whose properties can become separate arguments; `None` for any other."""
        if (target := self._followed(schema)) is None:
            return None
        members: Any = target.get("properties")
        # Many descriptions omit `type: object`; other types have no properties.
        is_plain = target.get("type", "object") in ("object", ["object"])
        is_plain = is_plain and is_object(members) and not _COMPOSED & set(target)
        is_plain = is_plain and target.get("additionalProperties") in (None, False)
        if not is_plain or not all(_WORDED.fullmatch(name) and name not in collected.by_name for name in members):
            return None
        if not is_required and target.get("required"):
            return None
        return target

    # ------------------------------------------------------------ what comes back

    def _output(self, operation: JSON) -> JSON | None:
        """Return the schema of the response, if every documented success has the same JSON."""
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
            self.document.follow(schema, "a response")
            translation = SchemaTranslation(self._answers)
            translated = translation.translate(schema)
            if not is_object(translated) or not translated:
                return None
            return self._judged(translated, translation, most_objects=OPENAPI_ANSWER_OBJECTS)
        except UnfitError:
            # An unreadable output schema is left out; responses are returned anyway.
            return None


def _check_path(path: str) -> None:
    # A fixed query string is not OpenAPI, but well-known descriptions have one.
    plain, _, query = path.partition("?")
    if not plain.startswith("/"):
        fault = "does not begin with '/'"
    elif any(unquote(unquote(segment)) in (".", "..") for segment in plain.split("/")):
        fault = "has a step '.' or '..', which may lead elsewhere"
    elif not _QUERY.fullmatch(query):
        fault = "has a query that is not of fixed pairs; what varies is a parameter in 'query'"
    elif strange := _UNFIT_IN_PATH.search(path):
        fault = f"has {strange[0]!r}, which a path has only encoded, as {quote(strange[0], errors='replace')!r}"
    else:
        return
    raise UnfitError(f"its path {cleaned(path)[:80]!r} {fault}")


def _pattern_of(template: str) -> str:
    """Return the regular expression for the values of a template such as `projects/*/secrets/*`.

    Without it, a value could lead to another operation: one below, or one with a verb, such as `…:access`.
    Source: google.api.HttpRule, "Path template syntax".
    """
    parts = [part for part in _STARS.split(template) if part]
    last = len(parts) - 1
    fixed = [_SPECIAL.sub(r"\\\g<0>", part) for part in parts]
    return "^" + "".join(_WILD.get((part, at == last), fixed[at]) for at, part in enumerate(parts)) + "$"


def _schema_of(parameter: JSON) -> tuple[JSONValue, bool]:
    """Return the schema of a parameter, and whether its value is sent as JSON."""
    content: Any = parameter.get("content")
    if not is_object(content):
        # In Swagger 2 the schema keywords are next to the name.
        return parameter.get("schema", parameter if "type" in parameter else {}), False
    usual = {media: value for media, value in content.items() if is_object(value)}
    media = next((media for media in usual if is_json(media_of(media))), next(iter(usual), None))
    if media is None:
        raise UnfitError(f"the parameter {str(parameter.get('name'))[:40]!r} does not say how it is written")
    return usual[media].get("schema", {}), is_json(media_of(media))


def _free_name(wire: str, where: str, taken: Mapping[str, Argument]) -> str:
    """Return our name for a parameter: its own, or with its place if the name is taken."""
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
    if method in ("get", "head", "options", "query"):
        return Annotations(read_only=True, destructive=False, idempotent=True, open_world=True)
    idempotent = True if method in ("put", "delete") else None
    return Annotations(
        read_only=False, destructive=True if method == "delete" else None, idempotent=idempotent, open_world=True
    )
