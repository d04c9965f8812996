"""Kind: the parts of a built-in tool, and how a config makes a tool from them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar, cast

from msgspec import Struct, field
from pydantic import BaseModel, ConfigDict, PlainValidator, WithJsonSchema, model_validator

from pegboard.core.digests import digest
from pegboard.core.ports import DocumentStore, Model
from pegboard.egress.connections import Resolve, system_resolve
from pegboard.egress.credential_redaction import without_credentials
from pegboard.egress.files import decides_nothing
from pegboard.extras import needs_package
from pegboard.model.bounds import DEFAULT_BOUNDS, Bounds
from pegboard.model.context import ToolContext
from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.model.record import replace
from pegboard.model.secret import Secret
from pegboard.model.tool import Annotations, Handler, Runs, ToolEntry, ToolSpec

# seconds that the executor waits past a tool's own deadline, so that the tool can report the timeout
BUILTIN_GRACE_S = 1.0


def _secret(value: object) -> Secret:
    if not isinstance(value, str):
        raise ValueError("expected text")
    return Secret(value)


SecretText = Annotated[Secret, PlainValidator(_secret), WithJsonSchema({"type": "string", "writeOnly": True})]


def _revealed(value: Any) -> Any:
    """Return a config value with environment texts revealed; the fields decide which ones are secret."""
    if isinstance(value, Secret):
        return value.reveal()
    if is_object(value):
        return {key: _revealed(item) for key, item in value.items()}
    if is_list(value):
        return [_revealed(item) for item in value]
    return value


class BuiltinConfig(BaseModel):
    """The settings of one built-in tool. Unknown keys are refused; messages never quote a value."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _reveal(cls, raw: Any) -> Any:
        return _revealed(raw)

    def deadline_s(self) -> float | None:
        """Return the time limit of a call; `None` leaves it to the executor."""
        seconds: float | None = getattr(self, "timeout_seconds", None)
        return seconds

    def secrets(self) -> Iterator[Secret]:
        """Yield every secret in the settings, for redacting the tool's results."""
        for name in type(self).model_fields:
            value: Any = getattr(self, name)
            yield from _secrets_in(value)


def _secrets_in(value: Any) -> Iterator[Secret]:
    if isinstance(value, Secret):
        yield value
    elif is_object(value):
        for item in value.values():
            yield from _secrets_in(item)


def _place(value: Any) -> Any:
    """Return a setting as part of the destination's identity; for a secret, its address without credentials."""
    if isinstance(value, Secret):
        scheme, _, rest = value.reveal().partition("://")
        return f"{scheme}://{rest.rpartition('@')[2]}" if rest else "***"
    return value


class NoConfig(BuiltinConfig):
    """A tool with nothing to set."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Services(Struct, frozen=True, kw_only=True):
    """The services for a built-in tool.

    `folder` is the base of relative paths in the config; `clock` counts seconds, `now` returns the time of day;
    `resolve` looks up host names; `models` are from the config, by name, and `documents` is its store. `decides`
    tells whether a file determines what code runs here; no tool writes such files. `deciding_tables` are the
    corresponding PostgreSQL tables, each with the name of a column.
    """

    folder: Path = field(default_factory=Path)
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = _utc_now
    resolve: Resolve = system_resolve
    bounds: Bounds = DEFAULT_BOUNDS
    models: Mapping[str, Model] = field(default_factory=dict[str, Model])
    documents: DocumentStore | None = None
    decides: Callable[[Path], bool] = decides_nothing
    deciding_tables: frozenset[tuple[str, str]] = frozenset()


C = TypeVar("C", bound=BuiltinConfig)


class BuiltinKind(Struct, Generic[C], frozen=True, kw_only=True):
    """One built-in tool: its declaration, its settings, and the factory of its handler.

    `adapt` changes the declaration according to the settings, e.g. whether the tool is read-only. `packages` returns
    the optional packages for these settings, each with the extra of Pegboard that installs it.
    """

    spec: ToolSpec
    config: type[C]
    make: Callable[[C, Services], Handler]
    runs: Runs = "async"
    needs_context: bool = True
    adapt: Callable[[C, ToolSpec, Services], ToolSpec] | None = None
    packages: Callable[[C], Mapping[str, str]] = lambda config: {}

    def configured(self, raw: Mapping[str, JSONValue]) -> C:
        """Return the settings in a config.

        Raises:
            ValidationError: an unknown or missing key, or an invalid value.
        """
        return self.config.model_validate(dict(raw))

    def entry(self, config: C, services: Services) -> ToolEntry:
        """Return the tool with these settings.

        Raises:
            DefinitionError: the settings do not work here, e.g. a folder or a package is missing.
        """
        for package, extra in self.packages(config).items():
            if find_spec(package) is None:
                raise DefinitionError(f"{self.spec.name!r} {needs_package(package, extra)}")
        deadline_s = config.deadline_s()
        spec = self.spec if deadline_s is None else replace(self.spec, timeout_s=deadline_s + BUILTIN_GRACE_S)
        if self.adapt is not None:
            spec = self.adapt(config, spec, services)
        handler = self.make(config, services)
        secrets = tuple(config.secrets())
        if secrets:
            handler = without_credentials(handler, secrets)
        settings = {name: _place(value) for name, value in config.model_dump().items()}
        reaches = digest([self.spec.name, settings]) if settings else ""
        return ToolEntry(spec=spec, handler=handler, runs=self.runs, needs_context=self.needs_context, reaches=reaches)


def tool_spec(
    name: str,
    description: str,
    *,
    arguments: Mapping[str, JSON],
    required: Sequence[str] = (),
    result: Mapping[str, JSON],
    always: Sequence[str] = (),
    annotations: Annotations,
    examples: Sequence[JSON],
    available: object = None,
) -> ToolSpec:
    """Return the declaration of a built-in tool with these argument and result properties."""
    input_schema: JSON = {"type": "object", "properties": dict(arguments)}
    if required:
        input_schema["required"] = list(required)
    output_schema: JSON = {"type": "object", "properties": dict(result), "required": list(always)}
    return ToolSpec(
        name=name,
        namespace="builtin",
        description=description,
        input_schema=input_schema,
        output_schema=output_schema,
        annotations=annotations,
        examples=tuple(cast("Sequence[JSONValue]", examples)),
        available=available,
        origin=f"pegboard.sources.builtin.{name}",
    )


class Requirement:
    """A predicate on the context with a description as its name, which `why` shows."""

    def __init__(self, words: str, is_met: Callable[[ToolContext], bool]) -> None:
        self.__qualname__ = words
        self._is_met = is_met

    def __call__(self, ctx: ToolContext) -> bool:
        return self._is_met(ctx)


def available_where(spec: ToolSpec, words: str, is_met: Callable[[ToolContext], bool]) -> ToolSpec:
    """Return the declaration, hidden from contexts where `is_met` is false; `words` say what is needed."""
    return replace(spec, available=Requirement(words, is_met))


def rows_of(always: Mapping[str, JSON], **sometimes: JSON) -> JSON:
    """Return the schema of a list of objects with these properties."""
    row: JSON = {"type": "object", "properties": {**always, **sometimes}, "required": list(always)}
    return {"type": "array", "items": row}
