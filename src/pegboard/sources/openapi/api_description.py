"""API description: an OpenAPI description with its references and server addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from pegboard.core.schema import check_bounds
from pegboard.egress.failures import EgressError
from pegboard.egress.urls import parse_url
from pegboard.model.bounds import Bounds
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.json_types import JSON, JSONValue, at_pointer, is_list, is_object
from pegboard.model.record import replace
from pegboard.sources.openapi.limits import (
    OPENAPI_DOCUMENT_KEYS,
    OPENAPI_DOCUMENT_LEVELS,
    OPENAPI_DOCUMENT_VALUES,
    OPENAPI_REF_HOPS,
)
from pegboard.sources.openapi.swagger import as_openapi, is_swagger

# The supported methods. `query` is from OpenAPI 3.2.
METHODS: Final = ("get", "head", "options", "query", "post", "put", "patch", "delete")
_VERSION = re.compile(r"3\.[012](\.\d+)?(-.+)?")
_VARIABLE = re.compile(r"\{([^{}]+)\}")


class UnfitError(Exception):
    """An operation is unsupported; the text says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A checked description. `is_30` tells that its schemas are those of OpenAPI 3.0."""

    root: JSON
    is_30: bool
    # Schemas by their own ids and anchors, computed when a reference needs them.
    _own_names: dict[str, JSONValue] = field(default_factory=dict[str, JSONValue], compare=False, repr=False)

    @classmethod
    def read(cls, value: JSONValue, *, bounds: Bounds) -> Document:
        """Check a description.

        Raises:
            DefinitionError: it is not OpenAPI 3.0 to 3.2 or Swagger 2.0, or too large.
        """
        if not is_object(value):
            raise DefinitionError("is not an OpenAPI description: it holds no mapping")
        if not is_swagger(value):
            _check_version(value)
        try:
            sizes = {"json_keys": OPENAPI_DOCUMENT_KEYS, "json_values": OPENAPI_DOCUMENT_VALUES}
            check_bounds(value, bounds=replace(bounds, json_depth=OPENAPI_DOCUMENT_LEVELS, **sizes))
        except CallError as error:
            raise DefinitionError(f"cannot be taken: {error.error.message}") from None
        if not is_object(value.get("paths", {})):
            raise DefinitionError("has no mapping under `paths`")
        root = as_openapi(value) if is_swagger(value) else value
        return cls(root=root, is_30=str(root["openapi"]).strip().startswith("3.0"))

    def follow(self, value: JSONValue, what: str) -> JSON:
        """Return an object, following its reference.

        Raises:
            UnfitError: it refers to something outside of the document, to nothing, or to itself.
        """
        for _ in range(OPENAPI_REF_HOPS):
            if not is_object(value):
                raise UnfitError(f"{what} is not an object")
            reference = reference_of(value)
            if reference is None:
                return value
            value = self.target(reference)
        raise UnfitError(f"{what} has a $ref that leads to itself")

    def target(self, reference: str) -> JSONValue:
        """Return the target of a reference.

        Raises:
            UnfitError: it points outside of the document, or to nothing.
        """
        at = reference
        for _ in range(OPENAPI_REF_HOPS):
            name, _, pointer = at.partition("#/")
            value: JSONValue = self._called(name, reference) if name or not pointer else self.root
            steps = unquote(pointer).split("/") if pointer else []
            while steps and (inner := at_pointer(value, steps[:1])):
                value = inner[0]
                del steps[0]
            if not steps:
                return value
            # `components: {schemas: {$ref: schemas.yaml}}`: the path leads on in the target.
            onward = reference_of(value) if is_object(value) else None
            if onward is None:
                break
            at = "/".join([onward, *steps])
        raise UnfitError(f"it refers to {reference[:80]!r}, which does not exist")

    def _called(self, name: str, reference: str) -> JSONValue:
        """Return the schema with this `$id`, `$anchor` or `$dynamicAnchor`. Nothing is ever fetched.

        Raises:
            UnfitError: none has it, or several do.
        """
        if not self._own_names:
            self._own_names.update(_names_in(self.root))
        schema = self._own_names.get(name)
        if not is_object(schema):
            where = "which is not in the document or in a readable file below its folder or the folder of the config"
            raise UnfitError(f"it refers to {reference[:80]!r}, {where}")
        return schema

    def _followed(self, value: JSONValue) -> JSON:
        """Return an object, following its reference; an empty one if there is none."""
        try:
            return self.follow(value, "it")
        except UnfitError:
            return {}

    def operations(self) -> Iterator[tuple[str, str, JSON, JSON]]:
        """Yield (method, path, path item, operation) in document order; values that are not objects are skipped."""
        for path, declared in self._followed(self.root.get("paths")).items():
            if path.startswith("x-"):
                continue
            item = self._followed(declared)
            # Keys next to a path's reference count as well.
            item = {**item, **declared} if is_object(declared) else item
            more = item.get("additionalOperations")
            others = {str(name): value for name, value in more.items()} if is_object(more) else {}
            for method, operation in ((name, item.get(name)) for name in (*METHODS, "trace")):
                if is_object(operation):
                    # Some documents keep each operation in a file.
                    yield method, path, item, {**operation, **self._followed(operation)}
            for method, operation in others.items():
                if is_object(operation):
                    yield method, path, item, operation


def _check_version(root: JSON) -> None:
    if "swagger" in root and "openapi" not in root:
        raise DefinitionError(f"is Swagger {str(root['swagger'])[:20]}; convert it to OpenAPI 3")
    # YAML reads `openapi: 3.1` as a number.
    version = str(root["openapi"]).strip() if isinstance(root.get("openapi"), str | float) else ""
    if not _VERSION.fullmatch(version):
        raise DefinitionError(f"is not OpenAPI 3.0, 3.1 or 3.2: it says `openapi: {str(root.get('openapi'))[:20]}`")


def reference_of(schema: JSON) -> str | None:
    """Return a schema's reference. `$dynamicRef` is treated as a static reference."""
    for key in ("$ref", "$dynamicRef"):
        if isinstance(reference := schema.get(key), str):
            return reference
    return None


def _names_in(root: JSON) -> dict[str, JSONValue]:
    """Return the schemas of a document by their own names; ambiguous names are left out."""
    names: dict[str, JSONValue] = {"": None, "#": None}
    stack: list[JSONValue] = [root]
    while stack:
        value = stack.pop()
        if is_object(value):
            own = {f"#{value[key]}" for key in ("$anchor", "$dynamicAnchor") if isinstance(value.get(key), str)}
            if isinstance(value.get("$id"), str):
                own |= {value["$id"], f"{value['$id']}#"}
            for name in own:
                names[name] = None if name in names else value
            stack.extend(value.values())
        elif is_list(value):
            stack.extend(value)
    return names


def server_of(holder: JSON, *, spec_url: str | None) -> str | None:
    """Return the first server of a document, path or operation, as a full URL; `None` if there is none.

    Raises:
        DefinitionError: it is invalid.
    """
    servers: Any = holder.get("servers")
    first: Any = servers[0] if is_list(servers) and servers else None
    declared: Any = first.get("url") if is_object(first) else None
    if declared is None:
        return None
    variables: JSON = first["variables"] if is_object(first.get("variables")) else {}

    def default_of(match: re.Match[str]) -> str:
        variable = variables.get(match[1])
        return str(variable.get("default", match[0])) if is_object(variable) else match[0]

    url = _VARIABLE.sub(default_of, str(declared))
    parts = _split(url)
    if not parts.scheme and parts.netloc and spec_url is None:
        url = f"https:{url}"
    elif not parts.scheme:
        if spec_url is None:
            raise DefinitionError(f"names the server {url[:80]!r}, which is not a complete URL; set `base_url`")
        check_path(parts.path)
        url = urljoin(spec_url, url)
    return checked_base(url)


def checked_base(url: str) -> str:
    """Return the base URL of all paths, without a trailing slash.

    Raises:
        DefinitionError: it is not a plain http or https URL.
    """
    if variable := _VARIABLE.search(url):
        raise DefinitionError(
            f"names the server {url[:80]!r}, whose variable {variable[0]!r} has no default; set `base_url`"
        )
    try:
        read = parse_url(url)
    except EgressError as error:
        raise DefinitionError(f"names a server that cannot be used: {error.error.message}") from None
    parts = _split(url)
    check_path(parts.path)
    if read.query or read.fragment or parts.query or parts.fragment or "{" in url:
        raise DefinitionError(f"names the server {url[:80]!r}, which has more than scheme, host and path")
    return f"{read.scheme}://{read.netloc.decode('ascii')}{parts.path.rstrip('/')}"


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:
        raise DefinitionError(f"names the server {url[:80]!r}, which is not a URL: {error}") from None


def check_path(path: str) -> None:
    """Refuse a server path with `.` or `..`.

    Raises:
        DefinitionError: a segment is `.` or `..`, in any spelling.
    """
    if "\\" in path or any(unquote(unquote(segment)) in (".", "..") for segment in path.split("/")):
        raise DefinitionError(f"names a server whose path climbs: {path[:80]!r}")


def origin_of(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of a URL."""
    read = parse_url(url)
    return read.scheme, read.raw_host.decode("ascii"), read.port or (443 if read.scheme == "https" else 80)
