"""sql_query: run one SQL statement on the database of the config."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import quote, unquote, urlsplit

from pydantic import Field, field_validator, model_validator

from pegboard.lazy import LazyModule
from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.model.call_context import CallContext
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.json_types import JSON
from pegboard.model.record import replace
from pegboard.model.secret import Secret
from pegboard.model.tool import Annotations, Handler, ToolSpec
from pegboard.sources.builtin.kind import BuiltinConfig, BuiltinKind, SecretText, Services, tool_spec
from pegboard.sources.builtin.sql_statement import Answer, Limits, Query

if TYPE_CHECKING:
    from pegboard.sources.builtin import postgres_engine, sqlalchemy_engine, sqlite_engine
else:
    postgres_engine = LazyModule("pegboard.sources.builtin.postgres_engine")
    sqlalchemy_engine = LazyModule("pegboard.sources.builtin.sqlalchemy_engine")
    sqlite_engine = LazyModule("pegboard.sources.builtin.sqlite_engine")


_SPACE = "{space_id}"
_POSTGRES = ("postgresql", "postgres", "postgresql+psycopg")


class SqlConfig(BuiltinConfig):
    """The database, and the rights and limits of a query.

    On SQLite, a value has at most 4 MiB. All queries of the process have 256 MiB of memory together, including those
    of other libraries that use `apsw`; to change this, set `apsw.hard_heap_limit`. Python's own `sqlite3` is not
    limited. With another driver of SQLAlchemy, a query also ends at its deadline, and the driver limits the size of a
    value. A driver that cannot stop a query is refused.
    """

    connection_string: SecretText = Field(
        description=(
            "`sqlite:///file.db`, `postgresql://…` or another SQLAlchemy URL; `{space_id}` in it gives each space its "
            "own database, file or login."
        )
    )
    read_only: bool = Field(
        True,
        description="Whether only reading is allowed; enforced by the database engine, not by inspecting the query.",
    )
    allow_superuser: bool = Field(
        False,
        description=(
            "Whether a PostgreSQL login may be a superuser or may use the server's files. In this case, only an "
            "inspection of the query's words protects the server."
        ),
    )
    allow_functions: tuple[str, ...] = Field(
        (),
        description=(
            "PostgreSQL functions that run with their owner's rights (SECURITY DEFINER) and that the login may "
            "execute, as `schema.name`. A login that may execute other such functions is refused."
        ),
    )
    max_rows: int = Field(DEFAULT_BOUNDS.sql_rows, gt=0, le=100_000, description="The maximum number of rows returned.")
    timeout_seconds: float = Field(
        DEFAULT_BOUNDS.sql_s, gt=0, le=600, description="The time limit of a query, in seconds."
    )

    @field_validator("connection_string")
    @classmethod
    def _is_a_url(cls, value: Secret) -> Secret:
        try:
            # Parsed here because its parts are needed later; a later error could quote the password.
            _ = urlsplit(value.reveal()).port
        except ValueError:
            text = "is not a database URL; write 'sqlite:///file.db' or 'postgresql://user:…@host/name'"
            raise ValueError(text) from None
        return value

    @model_validator(mode="after")
    def _superusers_are_of_postgres(self) -> Self:
        if self.allow_superuser and _scheme(self) not in _POSTGRES:
            raise ValueError("`allow_superuser` is for PostgreSQL; other databases have no use for it")
        if self.allow_functions and _scheme(self) not in _POSTGRES:
            raise ValueError("`allow_functions` is for PostgreSQL; other databases have no use for it")
        return self

    def secrets(self) -> Iterator[Secret]:
        """Yield the connection string, and the password in it."""
        yield self.connection_string
        password = urlsplit(self.connection_string.reveal()).password
        if password:
            yield Secret(unquote(password))
            yield Secret(password)


SPEC = tool_spec(
    "sql_query",
    "Run one SQL statement, with its values as parameters, and return its rows.",
    arguments={
        "query": {"type": "string", "minLength": 1, "maxLength": 100_000, "description": "One statement."},
        "params": {
            "type": ["array", "object"],
            "description": "Values for the placeholders: a list for ? (SQLite) or %s (PostgreSQL), or a mapping.",
        },
    },
    required=("query",),
    result={
        "columns": {"type": "array", "items": {"type": "string"}},
        "rows": {"type": "array", "items": {"type": "array"}, "description": "In the order of `columns`."},
        "row_count": {"type": "integer"},
        "truncated": {"type": "boolean", "description": "Whether there were more rows."},
        "affected_rows": {"type": ["integer", "null"], "description": "Rows changed; null for a query."},
    },
    always=("columns", "rows", "row_count", "truncated", "affected_rows"),
    annotations=Annotations(read_only=True, destructive=False, idempotent=True, open_world=False),
    examples=({"query": "SELECT name, total FROM orders WHERE total > ? ORDER BY total", "params": [100]},),
)


def make(config: SqlConfig, services: Services) -> Handler:
    """Return the handler, for the engine of the connection string.

    Raises:
        DefinitionError: no engine can enforce the config.
    """
    engine = _engine(_scheme(config), config, services)
    if _scheme(config) == "sqlite" and _SPACE not in config.connection_string.reveal() and not config.read_only:
        _check_file(sqlite_engine.path_of(config.connection_string.reveal(), services.folder), services)
    bounds, configured = services.bounds, config.model_fields_set
    limits = Limits(
        max_rows=config.max_rows if "max_rows" in configured else bounds.sql_rows,
        timeout_s=config.timeout_seconds if "timeout_seconds" in configured else bounds.sql_s,
        max_bytes=min(bounds.sql_result_bytes, bounds.result_bytes) * 3 // 4,
    )

    def run(ctx: CallContext, args: JSON) -> JSON:
        url = _for_space(config.connection_string.reveal(), ctx.space_id)
        query = Query(
            text=args["query"],
            params=args.get("params"),
            read_only=config.read_only,
            limits=limits,
            allow_superuser=config.allow_superuser,
            allow_functions=frozenset(config.allow_functions),
            deciding_tables=services.deciding_tables,
        )
        return result(engine(url, query))

    return run


def _scheme(config: SqlConfig) -> str:
    return urlsplit(config.connection_string.reveal()).scheme.lower()


def _engine(scheme: str, config: SqlConfig, services: Services) -> Callable[[str, Query], Answer]:
    """Return the function that runs a query on a database."""
    if scheme == "sqlite":

        def run(url: str, query: Query) -> Answer:
            path = sqlite_engine.path_of(url, services.folder)
            # A file whose name contains the caller's space is not even read: it was not configured by name.
            if not query.read_only or _SPACE in config.connection_string.reveal():
                try:
                    _check_file(path, services)
                except DefinitionError as error:
                    raise CallError("config_invalid", str(error)) from None
            return sqlite_engine.run(path, query)

        return run
    if scheme in _POSTGRES:
        return lambda url, query: postgres_engine.run(re.sub(r"^[a-z+]+", "postgresql", url, count=1), query)
    sqlalchemy_engine.check(config.connection_string.reveal(), read_only=config.read_only)
    return sqlalchemy_engine.run


def _check_file(path: Path, services: Services) -> None:
    """Refuse a file where Pegboard stores keys, consents or other security data.

    Raises:
        DefinitionError: it is such a file.
    """
    if services.decides(path.resolve()):
        text = "The database decides what runs here, or who may run it, which no tool writes. Name another one"
        raise DefinitionError(f"{text}, or set `read_only: true`.")


def _for_space(url: str, space_id: str | None) -> str:
    if _SPACE not in url:
        return url
    # Only names that are the same on every file system and in every URL, so that two spaces cannot share a file.
    if space_id is None or not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", space_id):
        raise CallError("tool_error", "Each space has its own database here, and this caller has no such space.")
    return url.replace(_SPACE, quote(space_id, safe=""))


def result(answer: Answer) -> JSON:
    """Return an answer as this tool gives it."""
    return {
        "columns": list(answer.columns),
        "rows": [list(row) for row in answer.rows],
        "row_count": len(answer.rows),
        "truncated": answer.truncated,
        "affected_rows": answer.affected_rows,
    }


def adapt(config: SqlConfig, spec: ToolSpec, services: Services) -> ToolSpec:
    """Return the declaration; a tool that may write declares that."""
    if config.read_only:
        return spec
    hints = Annotations(read_only=False, destructive=True, idempotent=False, open_world=False)
    return replace(spec, annotations=hints)


def packages(config: SqlConfig) -> Mapping[str, str]:
    """Return the driver package for the connection string; SQLite comes with Python."""
    scheme = _scheme(config)
    if scheme in _POSTGRES:
        return {"psycopg": "postgres"}
    return {} if scheme == "sqlite" else {"sqlalchemy": "tools"}


KIND = BuiltinKind(spec=SPEC, config=SqlConfig, make=make, runs="thread", adapt=adapt, packages=packages)
