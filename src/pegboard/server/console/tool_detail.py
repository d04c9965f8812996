"""Tool detail: the page of one tool: why a caller may use it, what it takes, what it costs, how to call it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from starlette.responses import Response

from pegboard.auth.rule_callers import rule_callers
from pegboard.core.call.resolve import callable_tool
from pegboard.core.view import View
from pegboard.discovery.token_count import estimated_tokens
from pegboard.discovery.tool_page import hints, whole
from pegboard.model.decision import Code, Decision
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.model.record import replace
from pegboard.model.tool import ToolEntry
from pegboard.providers.mcp import mcp_tool
from pegboard.server.consent_inbox import ConsentInbox, shown_arguments_of
from pegboard.server.console.audit_page import audit_of
from pegboard.server.console.board import asks_first
from pegboard.server.console.decision_words import explanation_of, meaning_of
from pegboard.server.console.frame import frame
from pegboard.server.console.look_first import fitting
from pegboard.server.console.page_error import PageError
from pegboard.server.console.pages import Pages
from pegboard.server.console.pending_config import PendingConfig
from pegboard.server.console.schema_form import FormError, arguments_of, fields_of, has_files, whole_arguments
from pegboard.server.console.shown_json import exact_json
from pegboard.server.console.trial import Outcome, tried
from pegboard.server.console.visit import LOOKING, Lens, Visit
from pegboard.server.principal import Identity, Principal

REACH_ASKED = 100  # callers and profiles checked on a tool's page

_FACTS = (
    "source", "origin", "consent", "rate_limit", "timeout_s", "max_concurrency", "max_result_bytes", "task",
    "deprecated", "replaced_by",
)  # fmt: skip
_GOES_WITHOUT_SAYING = (None, "", "never", "forbidden")


class Reach(NamedTuple):
    """Whether a caller with a profile has a tool: its code, what it means, and the tool's page seen by this caller."""

    who: str
    profile: str
    code: Code
    meaning: str
    href: str


class Parameter(NamedTuple):
    """A top-level parameter of a tool."""

    name: str
    type: str
    is_required: bool
    description: str
    default: str


class ToolPage:
    """`/console/tools/{name}`; `pending` are the files of the config, `None` if the host made the catalog."""

    def __init__(self, pages: Pages, pending: PendingConfig | None = None) -> None:
        self._pages, self._pending = pages, pending

    async def show(self, visit: Visit) -> Response:
        """Show the tool with an empty form, or with the example of its declaration."""
        return await self._page(visit)

    async def call(self, visit: Visit) -> Response:
        """Call the tool with the arguments of a form, and show the page with the result."""
        entry, _ = await tool_of(visit, visit.view(), visit.path["name"])
        form = visit.form
        try:
            arguments = (
                whole_arguments(form["json"])
                if "json" in form
                else arguments_of(entry.spec.input_schema, form, visit.files)
            )
        except FormError as fault:
            return await self._page(visit, fault=str(fault))
        return await self._page(visit, outcome=await tried(visit, entry.wire_name, arguments), arguments=arguments)

    async def _page(
        self, visit: Visit, *, outcome: Outcome | None = None, arguments: JSON | None = None, fault: str = ""
    ) -> Response:
        view, name = visit.view(), visit.path["name"]
        entry, decision = await tool_of(visit, view, name)
        facts, schema, form = whole(entry, decision), entry.spec.input_schema, visit.form
        usual = await _of_waiting_call(visit, entry) or (example_arguments(entry) if entry.spec.examples else {})
        reach = await _reach(visit, entry)
        sent = form if form and "json" not in form else None
        fields = fields_of(schema, arguments or usual, sent)
        values = {
            "tool": facts, "decision": decision,
            "explained": explanation_of(decision, asks=asks_first(entry)), "hints": hints(entry),
            "meaning": meaning_of(decision.code, asks=asks_first(entry)),
            "declared": _declared(visit, decision), "reach": reach, "effect": _effect(self._pending),
            "affected": sorted({one.who for one in reach if one.profile == visit.looks_as.profile}),
            "facts": [_fact(key, facts[key]) for key in _FACTS if facts[key] not in _GOES_WITHOUT_SAYING],
            "parameters": parameters(schema), "tokens": tokens_of(entry),
            "calls": ways_to_call(visit, entry, arguments),
            "may_try": visit.is_own and visit.acts_as is not None and decision.visible,
            "fields": fields, "outcome": outcome, "fault": fault,
            "json": form.get("json") or exact_json(arguments or usual), "by_json": "json" in form,
            "has_files": has_files(fields), "has_audit": audit_of(visit) is not None,
            "waiting": visit.query.get("waiting", "")[:100],
        }  # fmt: skip
        has_media = outcome is not None and any(block.source for block in outcome.blocks)
        status = 422 if fault else 200
        return self._pages.page("tool.html", {**frame(visit, "board"), **values}, status=status, has_media=has_media)


async def _of_waiting_call(visit: Visit, entry: ToolEntry) -> JSON:
    """Return the arguments of a call that waits for this person, as far as this tool takes them, too."""
    if not (consent_id := visit.query.get("waiting", "")):
        return {}
    try:
        consent = await ConsentInbox(visit.gateway.catalog, visit.person).record(consent_id)
    except CallError:  # decided meanwhile, or of others: the form is empty
        return {}
    return fitting(entry.spec.input_schema, shown_arguments_of(consent) or {})


async def tool_of(visit: Visit, view: View, name: str) -> tuple[ToolEntry, Decision]:
    """Return a tool with the decision on it; only operators learn of hidden tools.

    Raises:
        PageError: there is no such tool for this person.
    """
    entry = await callable_tool(view, name)
    if entry is None and visit.is_operator:
        entry = view.snapshot.find(name)
    if entry is None:
        raise PageError(404, "No such tool", view.absence(name))
    return entry, await view.awhy(name)


def _declared(visit: Visit, decision: Decision) -> str:
    """Return the file and line of the profile that a fix changes; empty if a fix changes something else."""
    profile = visit.gateway.registry.profiles.get(visit.looks_as.profile or "")
    return "" if profile is None or decision.code not in ("group", "policy") else profile.origin


def _effect(pending: PendingConfig | None) -> Literal["host", "itself", "sources", "signal"]:
    """Return what makes this server use a changed file of the config."""
    if pending is None:
        return "host"
    return "itself" if pending.is_watched else "sources" if pending.may_take else "signal"


def _fact(key: str, value: JSONValue) -> tuple[str, str]:
    """Return the name and the value of a fact for people: `timeout`, `30 s`."""
    if isinstance(value, int | float):
        number = f"{value:,.10g}"
        return key.removesuffix("_s").replace("_", " "), f"{number} s" if key.endswith("_s") else number
    return key.replace("_", " "), str(value)


def tokens_of(entry: ToolEntry) -> int:
    """Return the approximate number of tokens that the tool's definition adds to a prompt."""
    return estimated_tokens(len(json.dumps(mcp_tool(entry), separators=(",", ":"), default=str)))


async def _reach(visit: Visit, entry: ToolEntry) -> list[Reach]:
    """Return callers who see the tool, for operators: the caller they look at and those of the rules, by profile."""
    if not visit.is_operator:
        return []
    rules, looks_as = visit.gateway.registry.declarations.identity, visit.looks_as.identity
    # Without rules everybody is the same caller.
    callers = () if rules is None else tuple(rule_callers(rules, visit.profiles))
    is_of_rules = (looks_as.user, looks_as.space) in {(each.user, each.space) for each in callers if each.user}
    asked = [
        (visit.lens.whose or "you", looks_as, replace(visit.lens, profile=profile))
        for profile in (() if is_of_rules else visit.profiles)
    ]
    for caller in callers:
        who = Identity(credential=LOOKING, user=caller.user, space=caller.space, roles=caller.roles)
        lens = Lens(user=caller.user or "", space=caller.space or "", role=", ".join(caller.roles))
        name = f"{caller.name} (depends on {', '.join(caller.unknown)})" if caller.unknown else caller.name
        asked += [(name, who, replace(lens, profile=profile or "")) for profile in caller.profiles]
    found = list[Reach]()
    for name, who, lens in asked[:REACH_ASKED]:
        view = visit.view(Principal(identity=who, profile=lens.profile or None, session=who.credential))
        code = (await view.awhy(entry.wire_name)).code
        href = visit.address(f"/tools/{entry.wire_name}", lens.query())
        meaning = meaning_of(code, asks=asks_first(entry))
        found.append(Reach(name, lens.profile, code, meaning, href))
    return found


def parameters(schema: JSON) -> list[Parameter]:
    """Return the top-level parameters of an input schema, the required ones first."""
    properties: Any = schema.get("properties", {})
    required: Any = schema.get("required", [])
    if not is_object(properties):
        return []
    found = [_parameter(name, form, name in required) for name, form in properties.items()]
    return sorted(found, key=lambda parameter: not parameter.is_required)


def _parameter(name: str, form: JSONValue, is_required: bool) -> Parameter:
    if not is_object(form):
        return Parameter(name, "any", is_required, "", "")
    default = json.dumps(form["default"], default=str) if "default" in form else ""
    return Parameter(name, type_words(form), is_required, str(form.get("description", "")), default)


def type_words(form: Mapping[str, Any]) -> str:
    """Return the type of a schema in words, such as `array of string` or `"a" | "b"`."""
    if is_list(values := form.get("enum")):
        return " | ".join(json.dumps(value, default=str) for value in values)
    if "const" in form:
        return json.dumps(form["const"], default=str)
    for key in ("anyOf", "oneOf"):
        if is_list(options := form.get(key)):
            return " | ".join(type_words(option) if is_object(option) else "any" for option in options)
    kind = form.get("type", "any")
    if is_list(kind):
        return " | ".join(map(str, kind))
    if kind == "array" and is_object(items := form.get("items")):
        return f"array of {type_words(items)}"
    if kind == "string" and isinstance(named := form.get("format"), str):
        return f"string ({named})"
    return str(form["$ref"]).rpartition("/")[2] if "$ref" in form else str(kind)


def ways_to_call(visit: Visit, entry: ToolEntry, arguments: JSON | None = None) -> list[tuple[str, str]]:
    """Return the same call for a shell, for Python and over MCP: a title and a text each."""
    name, arguments = entry.wire_name, example_arguments(entry) if arguments is None else arguments
    profile = visit.looks_as.profile
    needs_key = visit.gateway.registry.declarations.identity is not None
    query = f"?profile={profile}" if profile else ""
    body = json.dumps(arguments, ensure_ascii=True)
    key = " \\\n  -H 'Authorization: Bearer YOUR_KEY'" if needs_key else ""
    url = f"{visit.origin}/v1/tools/{name}/call{query}"
    curl = f"curl {shlex.quote(url)}{key} \\\n  -H 'Content-Type: application/json' \\\n  -d {shlex.quote(body)}"
    headers = '\n    headers={"Authorization": "Bearer YOUR_KEY"},' if needs_key else ""
    python = (
        f"import httpx2\n\nanswer = httpx2.post(\n    {url!r},{headers}\n"
        f"    json={arguments!a},\n)\nprint(answer.json())"
    )
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    place = f"{visit.origin}/mcp/{profile}" if profile else f"{visit.origin}/mcp"
    return [("curl", curl), ("Python", python), ("MCP", f"POST {place}\n\n{json.dumps(message, indent=2)}")]


def example_arguments(entry: ToolEntry) -> JSON:
    """Return arguments for an example: the first declared one, or else a value for each required parameter."""
    for example in entry.spec.examples:
        if is_object(example):
            return example
    schema = entry.spec.input_schema
    properties: Any = schema.get("properties", {})
    required: Any = schema.get("required", [])
    return {name: _example(properties.get(name)) for name in required if isinstance(name, str)}


def _example(form: JSONValue) -> JSONValue:
    if not is_object(form):
        return "text"
    for key in ("default", "const"):
        if key in form:
            return form[key]
    for key in ("examples", "enum"):
        if is_list(values := form.get(key)) and values:
            return values[0]
    kind = form.get("type")
    usual: dict[str, JSONValue] = {
        "string": "text", "integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}, "null": None,
    }  # fmt: skip
    return usual.get(kind if isinstance(kind, str) else "", "text")
