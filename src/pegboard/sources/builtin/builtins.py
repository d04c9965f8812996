"""Builtins: the tools that come with Pegboard, by name, and how Python makes one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from pegboard.core.names import nearest
from pegboard.model.error import DefinitionError, Problem
from pegboard.model.json_types import JSONValue
from pegboard.model.record import replace
from pegboard.model.tool import ToolEntry
from pegboard.sources.builtin import (
    cache_store,
    datetime_now,
    graphql_query,
    http_request,
    json_transform,
    rag_ingest,
    rag_query,
    read_file,
    send_email,
    send_slack,
    send_webhook,
    sql_query,
    text_summarize,
    web_scrape,
    web_search,
    wikipedia,
    write_file,
)
from pegboard.sources.builtin.kind import BuiltinKind, Services

BUILTINS: Final[Mapping[str, BuiltinKind[Any]]] = {
    "datetime_now": datetime_now.KIND,
    "json_transform": json_transform.KIND,
    "cache_store": cache_store.KIND,
    "http_request": http_request.KIND,
    "graphql_query": graphql_query.KIND,
    "web_search": web_search.KIND,
    "web_scrape": web_scrape.KIND,
    "wikipedia": wikipedia.KIND,
    "read_file": read_file.KIND,
    "write_file": write_file.KIND,
    "sql_query": sql_query.KIND,
    "send_webhook": send_webhook.KIND,
    "send_slack": send_slack.KIND,
    "send_email": send_email.KIND,
    "text_summarize": text_summarize.KIND,
    "rag_query": rag_query.KIND,
    "rag_ingest": rag_ingest.KIND,
}


def builtin_kind(name: str) -> BuiltinKind[Any]:
    """Return a built-in tool by its name.

    Raises:
        DefinitionError: the name is unknown.
    """
    if name not in BUILTINS:
        raise DefinitionError(f"There is no built-in tool {name!r}.{nearest(name, BUILTINS, label='Built-in tools')}")
    return BUILTINS[name]


def builtin_entry(
    name: str,
    *,
    config: Mapping[str, JSONValue] | None = None,
    as_name: str | None = None,
    services: Services | None = None,
    **fields: Any,
) -> ToolEntry:
    """Return the built-in tool `name` with a config, ready to register.

    `as_name` sets another name, so that one tool can be registered with several configs. `fields` are other fields of
    its declaration, e.g. `groups`.

    Raises:
        DefinitionError: an unknown name, an unknown or missing config key, or an invalid value.
    """
    kind = builtin_kind(name)
    try:
        settings = kind.configured(config or {})
    except ValidationError as error:
        raise DefinitionError([_problem(name, kind, fault) for fault in error.errors(include_input=False)]) from None
    entry = kind.entry(settings, services or Services())
    return replace(entry, spec=replace(entry.spec, name=as_name or name, **fields), fingerprint="", wire_name="")


def _problem(name: str, kind: BuiltinKind[Any], fault: Any) -> Problem:
    path = ".".join(str(step) for step in fault["loc"])
    if fault["type"] == "extra_forbidden":
        known = [field.alias or key for key, field in kind.config.model_fields.items()]
        message = f"unknown key {path!r}.{nearest(path, known, label='Keys')}"
    elif fault["type"] == "missing":
        message = f"the key {path!r} is missing"
    elif fault["type"] == "value_error":
        message = str(fault["ctx"]["error"])
    else:
        message = str(fault["msg"])
    return Problem(where=f"builtin {name!r}", path=path, message=message)
