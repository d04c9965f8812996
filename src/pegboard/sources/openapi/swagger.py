"""Swagger: converts descriptions in Swagger 2.0 to OpenAPI 3.0.

`definitions`, `parameters` and `responses` stay at the top of the document, where the references lead. Parts that
cannot be converted are left as they are, and are refused with their operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final
from urllib.parse import unquote

from pegboard.model.json_types import JSON, JSONValue, at_pointer, is_list, is_object
from pegboard.sources.openapi.limits import OPENAPI_REF_HOPS

_FORM: Final = "application/x-www-form-urlencoded"
_MULTIPART: Final = "multipart/form-data"
_JSON: Final = "application/json"
_MEDIA_TYPES: Final = 100  # of the whole document or of an operation; further ones are ignored
_METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch")
# These keys of a parameter are not part of its schema.
_OF_PARAMETERS: Final = frozenset({"name", "in", "description", "required", "collectionFormat", "allowEmptyValue"})
_STYLES: Final = {
    "csv": ("form", False), "ssv": ("spaceDelimited", False), "tsv": ("tabDelimited", False),
    "pipes": ("pipeDelimited", False), "multi": ("form", True),
}  # fmt: skip
_FLOWS: Final = {"application": "clientCredentials", "accessCode": "authorizationCode"}


def is_swagger(root: JSON) -> bool:
    """Tell whether a description is in Swagger 2.0; YAML reads `swagger: 2.0` as a number."""
    return "openapi" not in root and str(root.get("swagger")) in ("2.0", "2")


def as_openapi(root: JSON) -> JSON:
    """Return a description in Swagger 2.0 as OpenAPI 3.0."""
    paths: JSON = {}
    # Azure declares paths with a query under `x-ms-paths`.
    for key in ("paths", "x-ms-paths"):
        declared = _followed(root.get(key), root)
        paths |= declared if is_object(declared) else {}
    conversion = _Conversion(root)
    return {
        **root,
        "openapi": "3.0.3",
        "servers": [{"url": url} for url in _servers(root)],
        "paths": {path: conversion.path_item(item) for path, item in paths.items()},
        "components": {"securitySchemes": _security_schemes(root)},
    }


class _Conversion:
    """Converts the paths of one document. A part is converted once, however many references lead to it.

    Otherwise, a small document that refers 500 times to a large part would fill the memory.
    """

    def __init__(self, root: JSON) -> None:
        self._root = root
        # By the id of the part, which lives as long as `root`, and what else decides about the outcome.
        self._made: dict[tuple[int, str], JSON] = {}

    def _once(self, part: JSON, convert: Callable[[JSON], JSON], of: str = "") -> JSON:
        key = id(part), f"{convert.__name__} {of}"
        if key not in self._made:
            self._made[key] = convert(part)
        return self._made[key]

    def path_item(self, item: JSONValue) -> JSONValue:
        item = _followed(item, self._root)
        return self._once(item, self._path_item) if is_object(item) else item

    def _path_item(self, item: JSON) -> JSON:
        shared = item.get("parameters")
        operations = {
            method: self._operation(item[method], shared) for method in _METHODS if is_object(item.get(method))
        }
        return {**{key: value for key, value in item.items() if key != "parameters"}, **operations}

    def _operation(self, operation: JSON, shared: JSONValue) -> JSON:
        by_place: dict[tuple[str, str], JSON] = {}
        for holder in (shared, operation.get("parameters")):
            for value in holder if is_list(holder) else ():
                parameter = _followed(value, self._root)
                if is_object(parameter):
                    by_place[str(parameter.get("name")), str(parameter.get("in", len(by_place)))] = parameter
        parameters = list(by_place.values())
        fields = [each for each in parameters if each.get("in") == "formData" and isinstance(each.get("name"), str)]
        bodies = [each for each in parameters if each.get("in") == "body"]
        plain = [each for each in parameters if each.get("in") not in ("body", "formData")]
        converted = {
            **operation,
            "parameters": [self._once(each, _parameter) for each in plain],
            "responses": self._responses(operation),
        }
        consumes = _texts(operation.get("consumes", self._root.get("consumes")))
        if bodies:
            media_types = [media for media in consumes if media not in (_FORM, _MULTIPART)] or consumes or [_JSON]
            content: JSON = {"schema": bodies[0].get("schema", {})}
            converted["requestBody"] = {
                "required": bodies[0].get("required") is True,
                "content": dict.fromkeys(media_types, content),
            }
        elif fields:
            converted["requestBody"] = _form([(each, self._once(each, _field_schema)) for each in fields], consumes)
        return converted

    def _responses(self, operation: JSON) -> JSON:
        declared = operation.get("responses")
        produces = _texts(operation.get("produces", self._root.get("produces")))
        # The request prefers JSON.
        media = next((each for each in produces if "json" in each), produces[0] if produces else _JSON)

        def with_content(response: JSON) -> JSON:
            return {**response, "content": {media: {"schema": response["schema"]}}}

        responses: JSON = {}
        for code, value in declared.items() if is_object(declared) else ():
            response = _followed(value, self._root)
            if is_object(response) and "schema" in response:
                response = self._once(response, with_content, media)
            responses[code] = response
        return responses


def _servers(root: JSON) -> list[str]:
    """Return the base URL; it is relative if the document has no host or no scheme."""
    base = str(root.get("basePath") or "")
    path = "" if base.strip("/") == "" else "/" + base.strip("/")
    host = root.get("host")
    parameterized = root.get("x-ms-parameterized-host")
    if is_object(parameterized) and isinstance(parameterized.get("hostTemplate"), str):
        host = parameterized["hostTemplate"]
    if not isinstance(host, str) or not host.strip("/"):
        return [path] if path else []
    # Many documents write the scheme in the host.
    written, separator, rest = host.strip().rpartition("://")
    schemes = [written] if separator else _texts(root.get("schemes"))
    scheme = next((each for each in ("https", "http") if each in schemes), "")
    return [f"{scheme}:" * bool(scheme) + f"//{rest.strip('/')}{path}"]


def _parameter(parameter: JSON) -> JSON:
    if "$ref" in parameter or "schema" in parameter:
        return parameter
    where = parameter.get("in")
    style, explode = _style(parameter)
    kept = {key: parameter[key] for key in ("name", "in", "description", "required") if key in parameter}
    is_styled = parameter.get("type") == "array" and where == "query"
    styled: JSON = {"style": style, "explode": explode} if is_styled else {}
    return {**kept, **styled, "schema": _schema(parameter)}


def _style(parameter: JSON) -> tuple[str, bool]:
    return _STYLES.get(str(parameter.get("collectionFormat")), _STYLES["csv"])


def _schema(parameter: JSON) -> JSON:
    return {key: value for key, value in parameter.items() if key not in _OF_PARAMETERS}


def _field_schema(field: JSON) -> JSON:
    schema = _schema(field)
    if schema.get("type") == "file":
        schema |= {"type": "string", "format": "binary"}
    return schema | ({"description": field["description"]} if "description" in field else {})


def _form(fields: Iterable[tuple[JSON, JSON]], consumes: list[str]) -> JSON:
    """Return the body of a form with these fields, each with its schema."""
    properties: JSON = {}
    required: list[Any] = []
    encoding: JSON = {}
    has_file = False
    for each, schema in fields:
        name = each["name"]
        properties[name] = schema
        if each.get("type") == "file":
            has_file = True
        elif each.get("type") == "array":
            style, explode = _style(each)
            encoding[name] = {"style": style, "explode": explode}
        if each.get("required") is True:
            required.append(name)
    media = _MULTIPART if has_file or (_MULTIPART in consumes and _FORM not in consumes) else _FORM
    whole = {"type": "object", "properties": properties, "required": required}
    return {"required": bool(required), "content": {media: {"schema": whole, "encoding": encoding}}}


def _security_schemes(root: JSON) -> JSON:
    declared = root.get("securityDefinitions")
    return {name: _scheme(value) for name, value in declared.items()} if is_object(declared) else {}


def _scheme(scheme: JSONValue) -> JSONValue:
    if not is_object(scheme):
        return scheme
    if scheme.get("type") == "basic":
        return {**scheme, "type": "http", "scheme": "basic"}
    if scheme.get("type") == "oauth2":
        flow = str(scheme.get("flow"))
        return {**scheme, "flows": {_FLOWS.get(flow, flow): scheme}}
    return scheme


def _followed(value: JSONValue, root: JSON) -> JSONValue:
    """Return the target of a reference; the reference itself if it leads nowhere."""
    at = value
    for _ in range(OPENAPI_REF_HOPS):
        reference = at.get("$ref") if is_object(at) else None
        if not isinstance(reference, str):
            return at
        targets = at_pointer(root, unquote(reference[2:]).split("/")) if reference[:2] == "#/" else []
        if not targets:
            break
        at = targets[0]
    return value


def _texts(value: JSONValue) -> list[str]:
    return [item.strip() for item in value[:_MEDIA_TYPES] if isinstance(item, str)] if is_list(value) else []
