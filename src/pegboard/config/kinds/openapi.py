"""OpenAPI: the operations of an HTTP API, as tools under the name of the entry."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from pegboard.config.api_auth import completed, needs_document
from pegboard.config.build_context import BuildContext
from pegboard.config.config import Declared
from pegboard.config.forms.source_auth_form import LoginForm, SourceAuthForm, credential_headers
from pegboard.config.forms.value_types import ConcealedText, FilledText, Form, Maybe, Names, ToolName, definition_error
from pegboard.config.kinds.tool_form import ToolForm, guards_of_each_tool, keys_of_one_tool, overlaid
from pegboard.config.source_auth import SourceAuth, Upstream, source_auth, stores_connections
from pegboard.config.yaml.config_files import is_below, looks_like_config, read_text
from pegboard.config.yaml.parser import parse
from pegboard.config.yaml.problems import Report
from pegboard.config.yaml.tree import plain_value
from pegboard.core.json_reader import parse_json
from pegboard.model.bounds import Bounds
from pegboard.model.call_intent import FilledName
from pegboard.model.error import CallError, DefinitionError, Problem
from pegboard.model.json_types import JSONValue, is_list, is_object
from pegboard.model.record import replace
from pegboard.model.secret import Secret
from pegboard.model.tool import ToolSpec
from pegboard.sources.openapi.document_parts import with_parts
from pegboard.sources.openapi.limits import OPENAPI_DOCUMENT_KEYS, OPENAPI_DOCUMENT_LEVELS, OPENAPI_DOCUMENT_VALUES
from pegboard.sources.openapi.openapi_source import ApiAuth, ApiSettings, OpenApiSource
from pegboard.sources.openapi.security_schemes import SecurityNeeds

OPENAPI_YAML_VALUES = 2_000_000  # values of a description in YAML, whose positions take memory

# Keys of a single tool that apply to an API as well: all of its operations have the same end date.
_DEPRECATED = "deprecated"


class AuthForm(Form):
    """The credentials of an API. They are sent only to the host of `base_url`, or of the URL of `spec`."""

    bearer: Maybe[ConcealedText] = Field(None, description="Sent as `Authorization: Bearer …`.")
    basic: Maybe[LoginForm] = Field(None, description="Sent as `Authorization: Basic …`.")
    headers: Mapping[FilledText, ConcealedText] = Field(
        default_factory=dict[str, Any], description="Sent as headers, such as `X-API-Key`."
    )
    query: Mapping[FilledText, ConcealedText] = Field(
        default_factory=dict[str, Any], description="Sent in the query string, such as `api_key`."
    )

    @model_validator(mode="after")
    def _says_one_authorization(self) -> AuthForm:
        named = any(name.lower() == "authorization" for name in self.headers)
        if sum((self.bearer is not None, self.basic is not None, named)) > 1:
            raise definition_error("more than one Authorization; keep one")
        return self

    def sent_headers(self) -> dict[str, str | Secret]:
        """Return the headers that are sent with every request."""
        return credential_headers(self.headers, self.bearer, self.basic)


# The parts of an error that quote the text: in quotes, or the name of an alias.
_QUOTED = re.compile(r"""'[^']*'|"[^"]*"|(?<=alias )\*\S+""")
_DESCRIPTION_KEYS = ("openapi", "swagger")


class ApiForm(Form):
    """An API: its OpenAPI document, and the operations to use."""

    spec: FilledText = Field(
        description="The OpenAPI document, version 3.0 to 3.2 or Swagger 2.0: a URL, or a file relative to this one."
    )
    operations: Names = Field(
        ("*",),
        description="The operations to use: globs over the operationId, or over method and path such as `GET /pets*`.",
    )
    base_url: Maybe[FilledText] = Field(
        None, description="The base URL of the API. Default: the first server in the document."
    )
    auth: Maybe[AuthForm] = Field(None, description="The API's credentials.")
    rename: Mapping[FilledText, ToolName] = Field(
        default_factory=dict[str, str],
        description="New names for some operations: `operationId: name`, or `GET /path: name`.",
    )
    groups: Mapping[FilledText, Names] = Field(
        default_factory=dict[str, tuple[str, ...]],
        description=(
            "Groups for the operations that match a glob, as in `operations`; an operation gets the groups of all "
            "matching globs."
        ),
    )
    call_intent: Mapping[FilledText, tuple[FilledName, ...]] = Field(
        default_factory=dict[str, tuple[FilledName, ...]],
        description=(
            "The arguments that `useTools` fills in from its own argument `context`, for the operations that match a "
            "glob: `'*': [context]`."
        ),
    )


class OpenApiForm(ToolForm):
    """The operations of an HTTP API."""

    openapi: ApiForm = Field(description="The API.")
    auth: Maybe[SourceAuthForm] = Field(
        None, description="How Pegboard authenticates at the API. Default: `openapi: {auth}`."
    )

    def files_in(self, folder: Path) -> Sequence[Path]:
        """Return the files of the description in the config's folder, which are watched for changes."""
        return () if _is_url(self.openapi.spec) else (folder / self.openapi.spec,)


def declare(tool: Declared[OpenApiForm], build: BuildContext) -> None:
    """Add the API to the catalog as a source of tools; a description at a URL is fetched when the catalog starts."""
    at, api = tool.at, tool.value.openapi
    misplaced = [
        (at / key).problem("is said of one tool; an API has many. Remove it", at_key=True)
        for key in keys_of_one_tool()
        if key != _DEPRECATED and getattr(tool.value, key) is not None
    ]
    if misplaced:
        build.report.add(*misplaced)
        return
    auth = _auth(tool, build)
    if auth is None:
        return
    settings = _settings(tool, build, auth)
    if not _is_url(api.spec):
        settings = replace(settings, read=_FileReader(build, api.spec))
    source = OpenApiSource(settings)
    try:
        if not _is_url(api.spec):
            path = build.config.path.absolute().parent / api.spec
            if not path.is_file():
                raise DefinitionError("is not a file; name one relative to this one, or a URL")
            most_bytes = build.config.bounds.api_description_bytes
            if path.stat().st_size > most_bytes:
                raise DefinitionError(_too_large(build.config.bounds, "has"))
            text = read_text(path, max_bytes=most_bytes)
            if isinstance(text, Problem):
                raise DefinitionError(text.message)
            source.take(text)
        build.catalog.add_source(source)
    except DefinitionError as error:
        key, colon, text = str(error).partition(": ")
        if colon and key == "auth":
            build.report.add((at / "auth").problem(text))
            return
        if api.base_url is not None and str(error).startswith("names "):
            build.report.add((at / "openapi" / "base_url").problem(str(error)))
            return
        build.report.add((at / "openapi" / "spec").problem(f"{api.spec!r} {error}"))


class _FileReader:
    """Parses the description in a file, with the files that it refers to.

    These are in its folder, or in the folder of the config; all others are left out.
    """

    def __init__(self, build: BuildContext, spec: str) -> None:
        self._bounds = build.config.bounds
        config_folder = build.config.path.absolute().parent
        self._path = config_folder / spec
        self._folders = (self._path.parent, config_folder)
        self._bytes_left, self._values_left = self._bounds.api_description_bytes, OPENAPI_DOCUMENT_VALUES

    def __call__(self, text: str) -> JSONValue:
        self._bytes_left = self._bounds.api_description_bytes - len(text)
        root = description_value(text, bounds=self._bounds)
        self._values_left = OPENAPI_DOCUMENT_VALUES - _values_in(root)
        return with_parts(root, name=self._path.name, read=self._part)

    def _part(self, relative: str) -> JSONValue:
        path = self._path.parent / relative
        try:
            if not any(is_below(path, folder) for folder in self._folders) or not path.is_file():
                return None
        except (OSError, ValueError):
            return None
        text = read_text(path, max_bytes=max(self._bytes_left, 0))
        if isinstance(text, Problem):
            if path.stat().st_size > self._bytes_left:
                raise DefinitionError(_too_large(self._bounds, "has, with the files that it refers to,"))
            return None
        self._bytes_left -= len(text)
        try:
            part = description_value(text, bounds=self._bounds)
        except DefinitionError:
            return None
        # Aliases make a small file large, so bytes are not enough.
        self._values_left -= _values_in(part)
        if self._values_left < 0:
            most = f"{OPENAPI_DOCUMENT_VALUES:,} values"
            raise DefinitionError(f"has, with the files that it refers to, more than {most}; use fewer YAML aliases")
        return part


def _values_in(value: JSONValue) -> int:
    """Return the number of values in a document, without itself."""
    count = 0
    stack: list[JSONValue] = [value]
    while stack:
        inside = stack.pop()
        inner = inside.values() if is_object(inside) else inside if is_list(inside) else ()
        count += len(inner)
        stack.extend(inner)
    return count


def _too_large(bounds: Bounds, has: str) -> str:
    most_bytes = bounds.api_description_bytes
    return f"{has} more than {most_bytes:,} bytes; allow more with `limits: {{api_description_bytes: …}}`"


def _is_url(spec: str) -> bool:
    return spec.startswith(("http://", "https://"))


def _auth(tool: Declared[OpenApiForm], build: BuildContext) -> SourceAuth | None:
    """Return the authentication of requests to the API; `None` after reporting a problem."""
    form, api = tool.value, tool.value.openapi
    if form.auth is not None and form.auth.mode not in ("none", "static") and api.auth is not None and api.auth.bearer:
        build.report.add((tool.at / "openapi" / "auth").problem("`auth:` of the tool sends an Authorization as well"))
        return None
    if form.auth is not None and needs_document(form.auth):
        if form.auth.mode == "user" and stores_connections(tool.at / "auth", build) is None:
            return None
        return SourceAuth()
    return _source_auth(form.auth, tool, build)


def _source_auth(
    auth: SourceAuthForm | None, tool: Declared[OpenApiForm], build: BuildContext, *, is_from_document: bool = False
) -> SourceAuth | None:
    api = tool.value.openapi
    upstream = Upstream(
        source=tool.value.name,
        url=api.base_url or (_origin(api.spec) if _is_url(api.spec) else ""),
        headers=(api.auth or AuthForm.model_validate({})).sent_headers(),
        is_from_document=is_from_document,
    )
    return source_auth(auth, tool.at / "auth", build, upstream)


def _authenticate(tool: Declared[OpenApiForm], build: BuildContext, needs: SecurityNeeds) -> ApiAuth:
    """Return the authentication of requests to the API, from `auth:` and the security schemes of its document.

    Raises:
        DefinitionError: the two do not fit.
    """
    form, api = tool.value.auth, tool.value.openapi
    assert form is not None
    done = completed(form, needs)
    # A document at a URL is read after the config was checked.
    build = replace(build, report=Report())
    query: Mapping[str, str | Secret] = {} if api.auth is None else api.auth.query
    if form.key is not None:
        headers = (api.auth or AuthForm.model_validate({})).sent_headers()
        return ApiAuth(headers={**headers, **form.static_headers(), **done.headers}, query={**query, **done.query})
    auth = _source_auth(done.form, tool, build, is_from_document=done.is_from_document)
    if auth is None:
        problems = build.report.sorted(build.config.files, build.config.secrets)
        raise DefinitionError(f"auth: {'; '.join(problem.message for problem in problems)}")
    return ApiAuth(headers=auth.headers, query=query, credentials=auth.credentials)


def _origin(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


def _settings(tool: Declared[OpenApiForm], build: BuildContext, auth: SourceAuth) -> ApiSettings:
    api, form = tool.value.openapi, tool.value.auth
    spec = overlaid(ToolSpec(name=tool.value.name), tool, build)
    query: Mapping[str, str | Secret] = {} if api.auth is None else api.auth.query
    return ApiSettings(
        name=tool.value.name,
        read=lambda text: description_value(text, bounds=build.config.bounds),
        spec=api.spec if _is_url(api.spec) else None,
        operations=tuple(api.operations),
        base_url=api.base_url,
        headers=auth.headers,
        query=query,
        credentials=auth.credentials,
        authenticate=None if form is None or not needs_document(form) else partial(_authenticate, tool, build),
        groups=spec.groups,
        rename=api.rename,
        operation_groups=api.groups,
        call_intent=api.call_intent,
        own={key: getattr(spec, key) for key in (*guards_of_each_tool(), _DEPRECATED)},
        timeout_s=spec.timeout_s or build.config.bounds.tool_timeout_s,
        origin=tool.at.origin,
        bounds=build.config.bounds,
    )


def description_value(text: str, *, bounds: Bounds) -> JSONValue:
    """Parse a description in JSON or YAML.

    Raises:
        DefinitionError: it is neither, or too large.
    """
    room = replace(
        bounds,
        request_body_bytes=bounds.api_description_bytes,
        json_keys=OPENAPI_DOCUMENT_KEYS,
        json_values=OPENAPI_DOCUMENT_VALUES,
        json_depth=OPENAPI_DOCUMENT_LEVELS,
    )
    if text.lstrip()[:1] == "{":
        try:
            return parse_json(text, bounds=room)
        except CallError as error:
            reason = _of_a_document(error.error.message)
            raise DefinitionError(f"cannot be read as JSON: {_unquoted(reason, text)}") from None
    root, problems = parse(
        text, file="line", scalar_keys=True, max_nodes=OPENAPI_YAML_VALUES, max_depth=OPENAPI_DOCUMENT_LEVELS
    )
    if problems or root is None:
        reason = _unquoted(str(problems[0]), text) if problems else "it is empty"
        raise DefinitionError(f"cannot be read as YAML: {reason}")
    return plain_value(root)


def _of_a_document(message: str) -> str:
    """Return an error about JSON arguments, reworded for a document."""
    reason = message.removeprefix("The arguments were refused unread: ")
    return re.sub(r"^they (are|have) ", lambda verb: "it is " if verb[1] == "are" else "it has ", reason)


def _unquoted(reason: str, text: str) -> str:
    """Return an error without quotes from a text that is not a description: it may be any file."""
    return reason if looks_like_config(text, _DESCRIPTION_KEYS) else _QUOTED.sub("…", reason)
