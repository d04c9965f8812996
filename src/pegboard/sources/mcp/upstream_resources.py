"""Upstream resources: a server's resources, templates, prompts and completions."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import is_
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

from msgspec import Struct, field

from pegboard.core.definition_redaction import DefinitionRedactor
from pegboard.core.digests import digest
from pegboard.model.call_context import CallContext
from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSON
from pegboard.model.record import replace
from pegboard.model.resource import CompletionSpec, Offer, PromptArgument, PromptSpec, ResourceSpec
from pegboard.model.result import ToolResult
from pegboard.model.secret import Secret
from pegboard.model.tool import Annotations, ToolEntry, ToolSpec
from pegboard.sources.foreign_text import cleaned, has_hidden
from pegboard.sources.mcp.foreign_metadata import (
    MCP_URI_CHARS,
    kept_annotations,
    kept_icons,
    kept_meta,
    kept_size,
    meta_here,
    uri_here,
)
from pegboard.sources.mcp.server_settings import ServerSettings
from pegboard.sources.tool_names import own_names

MCP_PROMPT_ARGUMENTS = 50  # arguments of a foreign prompt
MCP_ARGUMENT_CHARS = 64  # characters of such an argument's name

log = logging.getLogger("pegboard")
Kind = Literal["resource", "template", "prompt"]
What = Literal["read", "prompt", "complete"]
_VARIABLE = re.compile(r"\{(\+?)([A-Za-z_][A-Za-z0-9_]*)\}")
_LINKED = "what_it_linked"
_SEGMENT = "-._~!$'()*,;:@&=+"


class UpstreamResources(Struct, frozen=True, kw_only=True):
    """The lists of a server in wire form, and whether it supports completion.

    `reads` tells whether it can read resources, including unlisted ones. `ways` has the ids of the servers behind each
    item of a Pegboard, the nearest first, by kind and by URI or name.
    """

    resources: Sequence[JSON] = ()
    templates: Sequence[JSON] = ()
    prompts: Sequence[JSON] = ()
    completes: bool = False
    reads: bool = False
    ways: Mapping[tuple[Kind, str], tuple[str, ...]] = field(default_factory=dict[tuple[Kind, str], tuple[str, ...]])


class ResourceRequest(Struct, frozen=True, kw_only=True):
    """A request for one offer; `mark` is the signature of a link, for an unlisted resource."""

    what: What
    named: str
    args: Mapping[str, str] = field(default_factory=dict[str, str])
    is_prompt: bool = False
    argument: str = ""
    mark: str | None = None


Run = Callable[[ResourceRequest, "CallContext"], Awaitable[ToolResult]]


class OfferedItem(NamedTuple):
    """One item of the lists: its entry, followed by those of its completions.

    `digest` is equal for two items only if everything about them is, so that one may stand for the other.
    """

    digest: str
    entries: tuple[ToolEntry, ...]


def resource_entries(upstream: UpstreamResources, settings: ServerSettings, run: Run) -> tuple[ToolEntry, ...]:
    """Return the valid items of the lists, under the server's namespace; invalid ones are left out."""
    return tuple([entry for item in offered_items(upstream, settings, run) for entry in item.entries])


def offered_items(upstream: UpstreamResources, settings: ServerSettings, run: Run) -> list[OfferedItem]:
    """Return the valid items of the lists, one by one; the last one reads resources that are not listed."""
    listed = [
        *(("resource", each) for each in upstream.resources if _is_fit(each, "uri")),
        *(("template", each) for each in upstream.templates if _is_fit(each, "uriTemplate")),
        *(("prompt", each) for each in upstream.prompts if _is_fit(each, "name")),
    ]
    items: list[OfferedItem] = []
    room, taken_ids = settings.bounds.upstream_tools, set[str]()
    for kind in ("resource", "template", "prompt"):
        of_kind = {_key(each): each for each_kind, each in listed if each_kind == kind}
        names = own_names({_slug(each) for each in of_kind.values()}, rename={}, namespace=settings.name)
        taken: set[str] = set()
        for each in of_kind.values():
            name = names[_slug(each)]
            if name in taken or room <= 0:
                continue
            taken.add(name)
            way = upstream.ways.get((kind, _key(each)), ())
            full_name = f"{settings.name}__{name}"
            entries = tuple(_entries_of(kind, full_name, each, settings, run, completes=upstream.completes, way=way))
            items.append(OfferedItem(digest([kind, full_name, each, list(way), upstream.completes]), entries[:room]))
            room -= len(entries)
            taken_ids.update(entry.qualified_id for entry in entries)
    if upstream.reads and (linked := _linked(settings, run)).qualified_id not in taken_ids:
        items.append(OfferedItem(digest(["linked"]), (linked,)))
    return items


def items_without_secrets(source: str, items: Sequence[OfferedItem], secrets: Iterable[Secret]) -> list[OfferedItem]:
    """Return the items with these secrets redacted; those with a secret in a name or an address are left out."""
    redactor = DefinitionRedactor(secrets)
    cleaned_items: list[OfferedItem] = []
    for item in items:
        try:
            entries = tuple([redactor.entry(entry) for entry in item.entries])
        except DefinitionError as error:
            log.warning("Source %r: an item was left out: %s", source, error)
            continue
        is_same = all(map(is_, entries, item.entries))
        cleaned_items.append(item if is_same else OfferedItem(digest([item.digest, "redacted"]), entries))
    return cleaned_items


def _linked(settings: ServerSettings, run: Run) -> ToolEntry:
    """Return the entry that reads resources which the server mentioned but does not list."""
    (name,) = own_names([f"{settings.name}__{_LINKED}"], rename={}, namespace="resource").values()
    uri = uri_here(settings.name, "link/{mark}/{+uri}")

    async def handle(ctx: CallContext, args: JSON, /) -> ToolResult:
        return await run(ResourceRequest(what="read", named=args["uri"], mark=args["mark"]), ctx)

    entry = _entry("resource", name, ["mark", "uri"], ["mark", "uri"], handle, settings)
    # A link may come from a tool in any of the server's groups.
    spec = replace(entry.spec, groups=tuple(sorted(settings.all_groups)))
    return replace(entry, spec=spec, offer=ResourceSpec(uri=uri, name=name, is_listed=False))


def _key(each: JSON) -> str:
    return each.get("uri") or each.get("uriTemplate") or each["name"]


def _slug(each: JSON) -> str:
    """Return the identifying text: for a resource its URI, since several may have one name."""
    return re.sub(r"[^A-Za-z0-9]+", "_", _key(each)).strip("_") or "_" if _key(each) != each["name"] else each["name"]


def _is_fit(each: JSON, key: str) -> bool:
    value = each.get(key)
    if not isinstance(value, str) or not 0 < len(value) <= MCP_URI_CHARS or has_hidden(value):
        return False
    rest = _VARIABLE.sub("", value)
    is_simple = "{" not in rest and "}" not in rest
    return is_simple if key == "uriTemplate" else key == "name" or rest == value


class _Listed(NamedTuple):
    """One offered item: its arguments, its request to the server, and its completions."""

    offer: Offer
    arguments: Sequence[str]
    required: Sequence[str]
    request: ResourceRequest
    target: Mapping[str, str]


def _entries_of(
    kind: Kind, name: str, each: JSON, settings: ServerSettings, run: Run, *, completes: bool, way: tuple[str, ...]
) -> Iterator[ToolEntry]:
    space, read = ("prompt", _prompt) if kind == "prompt" else ("resource", _resource)
    (name,) = own_names([name], rename={}, namespace=space).values()
    offer, arguments, required, request, target = read(each, {**_words(each, settings, name), "way": way}, settings)

    async def handle(ctx: CallContext, args: JSON, /) -> ToolResult:
        named = request.named if request.is_prompt else _expanded(request.named, args)
        return await run(replace(request, named=named, args=args), ctx)

    yield replace(_entry(space, name, arguments, required, handle, settings), offer=offer)
    for argument in arguments if completes else ():
        others = [other for other in arguments if other not in (argument, "value")]
        completion = replace(request, what="complete", argument=argument)
        handler = partial(_complete, run, completion)
        entry = _entry("completion", f"{name}_{argument}", ["value", *others], ["value"], handler, settings)
        yield replace(entry, offer=CompletionSpec(argument=argument, **target))


def _prompt(each: JSON, words: Mapping[str, Any], settings: ServerSettings) -> _Listed:
    arguments = tuple(
        PromptArgument(item["name"], _clean(item.get("description"), settings), bool(item.get("required")))
        for item in [item for item in each.get("arguments") or () if _is_argument(item)][:MCP_PROMPT_ARGUMENTS]
    )
    return _Listed(
        offer=PromptSpec(**words, arguments=arguments),
        arguments=[argument.name for argument in arguments],
        required=[argument.name for argument in arguments if argument.is_required],
        request=ResourceRequest(what="prompt", named=each["name"], is_prompt=True),
        target={"prompt": words["name"]},
    )


def _resource(each: JSON, words: Mapping[str, Any], settings: ServerSettings) -> _Listed:
    """Read a resource or a template; the URI of a resource has no variables."""
    uri = _key(each)
    variables = [variable for _, variable in _VARIABLE.findall(uri)]
    here = uri_here(settings.name, uri)
    offer = ResourceSpec(
        **words,
        uri=here,
        mime_type=_clean(each.get("mimeType"), settings) or None,
        size=kept_size(each.get("size")),
        annotations=kept_annotations(each.get("annotations")) or None,
    )
    return _Listed(offer, variables, variables, ResourceRequest(what="read", named=uri), {"resource": here})


async def _complete(run: Run, completion: ResourceRequest, ctx: CallContext, args: JSON, /) -> ToolResult:
    return await run(replace(completion, args=args), ctx)


def _entry(
    space: str, name: str, variables: Sequence[str], required: Sequence[str], handler: Any, settings: ServerSettings
) -> ToolEntry:
    (legal,) = own_names([name], rename={}, namespace=space).values()
    fields: dict[str, Any] = {
        "input_schema": {
            "type": "object",
            "properties": {variable: {"type": "string"} for variable in variables},
            "required": list(required),
        },
        "annotations": Annotations(read_only=True),
        "groups": settings.groups,
        "timeout_s": settings.timeout_s,
        "origin": settings.origin or f"MCP server {settings.name!r}",
    }
    spec = ToolSpec(name=legal, namespace=space, **(fields | dict(settings.own)))
    return ToolEntry(spec=spec, handler=handler, runs="async", source=settings.name, is_foreign=True)


def _words(each: JSON, settings: ServerSettings, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "title": _clean(each.get("title"), settings) or None,
        "description": _clean(each.get("description"), settings),
        "icons": kept_icons(each.get("icons")),
        "meta": meta_here(kept_meta(each.get("_meta")), settings.name) or None,
    }


def _clean(text: object, settings: ServerSettings) -> str:
    return cleaned(text, max_bytes=settings.bounds.description_bytes) if isinstance(text, str) else ""


def _is_argument(value: Any) -> bool:
    name: Any = value.get("name") if isinstance(value, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - JSON
    return isinstance(name, str) and 0 < len(name) <= MCP_ARGUMENT_CHARS and not has_hidden(name)


def _expanded(template: str, args: Mapping[str, Any]) -> str:
    """Return the URI of a template for these values. `{+path}` keeps slashes, `{name}` is one segment."""
    return _VARIABLE.sub(lambda match: quote(str(args[match[2]]), safe=_SEGMENT + "/?" * bool(match[1])), template)
