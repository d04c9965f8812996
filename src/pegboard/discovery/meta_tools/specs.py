"""Specs: the names, descriptions and schemas of the three meta tools.

The schemas are strict, to guide the model. The tools themselves validate the actual arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pegboard.core.limits import NO_LIMIT_S
from pegboard.discovery.limits import SEARCH_QUERIES
from pegboard.discovery.meta_tools.intent import CONTEXT_SCHEMA
from pegboard.model.json_types import JSON
from pegboard.model.tool import Annotations, ToolSpec

ANSWER: Final[JSON] = {
    "type": "object",
    "properties": {"success": {"type": "boolean"}, "data": {"type": "object"}, "error": {"type": "string"}},
    "required": ["success"],
}
"""The output schema of all three; `data` differs."""


class MetaNames(NamedTuple):
    """A profile's names for the three tools."""

    search: str = "searchTools"
    get: str = "getTools"
    use: str = "useTools"

    @classmethod
    def renamed(cls, rename: Mapping[str, str]) -> MetaNames:
        """Return the names after a profile's `rename`."""
        return cls(*(rename.get(name, name) for name in cls()))


def spec_of(
    name: str,
    names: MetaNames,
    *,
    namespace: str,
    digest: str,
    with_search: bool,
    require_context: bool,
    max_calls: int,
) -> ToolSpec:
    """Return the declaration of one of the three; `digest` describes the catalog in `getTools`."""
    if name == names.use:
        schema = use_schema(max_calls=max_calls, require_context=require_context)
        described = use_description(names)
        # Each call of a batch has its own limit, and a person may take as long as the request lasts to answer.
        return ToolSpec(
            name=name,
            namespace=namespace,
            title="Use tools",
            description=described,
            input_schema=schema,
            output_schema=ANSWER,
            timeout_s=NO_LIMIT_S,
        )
    is_get = name == names.get
    return ToolSpec(
        name=name,
        namespace=namespace,
        title="Get tools" if is_get else "Search tools",
        output_schema=ANSWER,
        description=get_description(names, with_search=with_search, digest=digest)
        if is_get
        else search_description(names),
        input_schema=get_schema() if is_get else search_schema(),
        annotations=Annotations(read_only=True),
    )


def search_schema() -> JSON:
    """Return the input schema of `searchTools`."""
    queries = _array({"type": "string"}, minItems=1, maxItems=SEARCH_QUERIES, description="One need each, in few words")
    detail = {"enum": ["name", "brief", "full"], "default": "brief"}
    limit = {"type": "integer", "minimum": 1, "maximum": 50, "default": 8}
    return _object({"queries": queries, "limit": limit, "detail": detail}, ["queries"])


def get_schema() -> JSON:
    """Return the input schema of `getTools`."""
    tools = _array({"type": "string"}, minItems=1, description='Names, or ["*"] for one line each')
    item = _object({"agent": {"type": "string"}, "tools": tools}, ["agent"])
    return _object({"context": {"type": "object"}, "request": _array(item, minItems=1)}, ["request"])


def use_schema(*, max_calls: int, require_context: bool) -> JSON:
    """Return the input schema of `useTools`."""
    call = _object(
        {
            "agent": {"type": "string"},
            "tool": {"type": "string"},
            "params": {"type": "object"},
            "continueOnFailure": {"type": "boolean"},
        },
        ["agent", "tool", "params"],
    )
    properties = {
        "context": CONTEXT_SCHEMA,
        "strategy": {"enum": ["serial", "parallel"], "default": "serial"},
        "calls": _array(call, minItems=1, maxItems=max_calls),
    }
    return _object(properties, ["context", "calls"] if require_context else ["calls"])


def search_description(names: MetaNames) -> str:
    """Return the description of `searchTools`."""
    return (
        'Find tools by what you need, in any language. `queries`: one for each need, e.g. ["resize a picture", '
        f'"send an email"], not the whole task in one. `confidence` of a hit: strong, fair, or weak (compare the '
        f"descriptions before you call). A hit with an inputSchema can be run by {names.use} at once; {names.get} "
        "shows the parameters of the others."
    )


def use_description(names: MetaNames) -> str:
    """Return the description of `useTools`."""
    return (
        f"Run tools with the parameters that {names.get} showed. Serial stops at the first failure unless that call "
        "says continueOnFailure; parallel runs independent calls together."
    )


def get_description(names: MetaNames, *, with_search: bool, digest: str) -> str:
    """Return the description of `getTools`; `digest` lists the catalog."""
    steps = [f"{names.get} for the parameters", f"{names.use} to run"]
    shows = "Only it shows"
    if with_search:
        steps.insert(0, f"{names.search} to find")
        shows = f"Only it, and the first hits of {names.search}, show"
    return (
        f"REQUIRED FIRST STEP: You MUST call {names.get} BEFORE calling {names.use}. "
        f"{shows} the parameters; calls with guessed ones are refused.\n"
        f"Workflow: {' → '.join(steps)}.\n"
        f"{digest}"
    )


def _object(properties: Mapping[str, Any], required: list[str]) -> JSON:
    return {"type": "object", "properties": dict(properties), "required": required, "additionalProperties": False}


def _array(items: JSON, **more: Any) -> JSON:
    return {"type": "array", "items": items, **more}
