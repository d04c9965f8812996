"""Resources: declares, selects and finds the resources, prompts and completions of a catalog."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pegboard.authoring.declared_again import is_declared_again
from pegboard.authoring.definition import ToolOptions, function_entry, origin_of
from pegboard.core.judge import Selection
from pegboard.core.names import fold
from pegboard.core.registry import Registry
from pegboard.core.snapshot import Snapshot
from pegboard.core.view import CallRunner, View, ViewParts
from pegboard.model.context import ToolContext
from pegboard.model.error import DefinitionError
from pegboard.model.policy import OPEN_POLICY
from pegboard.model.record import replace
from pegboard.model.resource import (
    CompletionSpec,
    DocumentOperation,
    DocumentSpec,
    Offer,
    PromptArgument,
    PromptSpec,
    ResourceSpec,
)
from pegboard.model.tool import ToolEntry
from pegboard.resources.apps import APP_MIME_TYPE, APP_SCHEME, with_content_security
from pegboard.resources.prompt_messages import with_messages

# RFC 3986: clients parse the addresses of a list as URIs, and an invalid one can make them reject the list.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s]+")


class Resources:
    """The resources, prompts and completions of a catalog, in the same registry as its tools.

    Args:
        registry: the catalog's own; its profiles, groups, predicates and hooks apply here too.
        runner: the catalog's executor.
    """

    def __init__(self, registry: Registry, runner: CallRunner) -> None:
        self._registry = registry
        self._parts = ViewParts(registry=registry, runner=runner, exporters={}, kind="resources")
        self._touched: tuple[Callable[[str], object], ...] = ()
        self._functions: dict[str, Callable[..., Any]] = {}

    # -- declare

    def resource(
        self,
        uri: str,
        /,
        *,
        mime_type: str | None = None,
        csp: Mapping[str, Sequence[str]] | None = None,
        **options: Any,
    ) -> Callable[[Any], Any]:
        """Declare a function as a resource, or as a template if its URI has `{variables}`, which are its parameters.

        It returns text, bytes, content blocks, or JSON. Options are those of a tool. `ui://…` is an interface of MCP
        Apps: HTML of the type `text/html;profile=mcp-app`, which may only reach the origins in `csp`, e.g.
        `{"connect_domains": ["https://api.example.com"], "resource_domains": […]}`.

        Raises:
            DefinitionError: `uri` is invalid; `csp` is set for a resource that is not an interface, has an unknown key
                or an invalid origin; variables and parameters differ; an option is invalid.
            DuplicateToolError: the name is taken.
        """

        def declare(fn: Callable[..., Any]) -> Callable[..., Any]:
            if _SCHEME.fullmatch(uri) is None:
                raise DefinitionError(f"{origin_of(fn)}: {uri!r} is not a URI: write one such as 'notes://{{day}}'.")
            entry = _entry(fn, "resource", options)
            texts = _texts(entry)
            if csp is not None:
                texts["meta"] = with_content_security(texts["meta"] or {}, csp, uri=uri, where=origin_of(fn))
            kind = APP_MIME_TYPE if mime_type is None and uri.startswith(APP_SCHEME) else mime_type
            offer = ResourceSpec(uri=uri, mime_type=kind, **texts)
            if set(offer.variables) != set(entry.spec.input_schema.get("properties", {})):
                raise DefinitionError(
                    f"{origin_of(fn)}: the parameters must be the variables of {uri!r}: {list(offer.variables)}."
                )
            self._add(fn, entry, offer)
            return fn

        return declare

    def prompt(self, fn: Any = None, /, **options: Any) -> Any:
        """Declare a function as a prompt; its text parameters are the arguments.

        It returns the text of one user message, a `Message`, or a list of these.

        Raises:
            DefinitionError: a parameter is not text, or an option is invalid.
            DuplicateToolError: the name is taken.
        """

        def declare(declared: Callable[..., Any]) -> Callable[..., Any]:
            entry = with_messages(_entry(declared, "prompt", options))
            self._add(declared, entry, PromptSpec(arguments=_arguments(entry, origin_of(declared)), **_texts(entry)))
            return declared

        return declare if fn is None else declare(fn)

    def completion(
        self, argument: str, /, *, prompt: str | None = None, resource: str | None = None, **options: Any
    ) -> Callable[[Any], Any]:
        """Declare a function `(value, …)` as the suggestions for an argument of a prompt or resource template.

        Further parameters are other arguments that are already filled in. It returns a list of texts. It is visible to
        callers who see the completed prompt or template.

        Raises:
            DefinitionError: neither or both of prompt and resource are named, or an option is invalid.
            DuplicateToolError: there is a completion for it already.
        """
        if (prompt is None) == (resource is None):
            raise DefinitionError(f"completion({argument!r}): name prompt=… or resource=…, one of them.")

        def declare(fn: Callable[..., Any]) -> Callable[..., Any]:
            target = self._target(prompt, resource)
            named = {"name": f"{target.spec.name}_{argument}"[:64], "groups": target.spec.groups, **options}
            entry = _entry(fn, "completion", named)
            self._add(fn, entry, CompletionSpec(argument=argument, prompt=prompt, resource=resource))
            return fn

        return declare

    def _target(self, prompt: str | None, resource: str | None) -> ToolEntry:
        for entry in self._registry.declarations.resources.values():
            offer = entry.offer
            if isinstance(offer, PromptSpec) and offer.name == prompt:
                return entry
            if isinstance(offer, ResourceSpec) and offer.uri == resource:
                return entry
        raise DefinitionError(f"There is no {'prompt' if prompt else 'resource'} {prompt or resource!r} to complete.")

    def _add(self, fn: Callable[..., Any], entry: ToolEntry, offer: Offer) -> None:
        key = fold(entry.qualified_id)
        earlier = self._functions.get(key)
        is_again = earlier is not None and is_declared_again(earlier, fn)
        self._registry.add(replace(entry, offer=offer), replace_existing=is_again)
        self._functions[key] = fn

    def remove(self, qualified_id: str) -> None:
        """Remove the entry `resource.name` or `prompt.name`; `KeyError` if there is none."""
        if fold(qualified_id) not in self._registry.declarations.resources:
            raise KeyError(f"Nothing but tools is declared under {qualified_id!r}.")
        self._registry.remove(qualified_id)

    def touch(self, uri: str) -> None:
        """Notify the subscribers of a resource that it has changed."""
        for notify in self._touched:
            notify(uri)

    def subscribe(
        self, notify: Callable[[], object], *, touched: Callable[[str], object] | None = None
    ) -> Callable[[], None]:
        """Call `notify` after each change of the catalog, `touched` with the URI of each changed resource."""
        end = self._registry.subscribe(notify)
        if touched is None:
            return end
        self._touched = (*self._touched, touched)

        def end_both() -> None:
            end()
            self._touched = tuple(known for known in self._touched if known is not touched)

        return end_both

    # -- query

    def view(self, ctx: ToolContext, *, profile: str | None = None) -> View:
        """Return the entries that one caller may use now; the `offer` of each has its kind."""
        chosen = None if profile is None else self._registry.profile(profile)
        selection = Selection(
            include=None if chosen is None else chosen.include,
            policy=OPEN_POLICY if chosen is None else chosen.policy,
            profile=profile,
            origin="" if chosen is None else chosen.origin,
        )
        return View(self._parts, ctx, selection, profile=chosen)

    def spec(self, entry: ToolEntry) -> Offer:
        """Return the resource, prompt or completion of an entry."""
        assert entry.offer is not None
        return entry.offer

    @property
    def specs(self) -> Iterable[Offer]:
        """All resources, prompts and completions, for any caller."""
        return [entry.offer for entry in self._registry.snapshot("resources").entries if entry.offer is not None]

    def resources(self, view: View, *, within: Snapshot | None = None) -> list[tuple[ToolEntry, ResourceSpec]]:
        """Return the visible resources and templates that lists show; `within` is as in `View.tools`."""
        return [
            (entry, entry.offer)
            for entry in view.tools(within=within)
            if isinstance(entry.offer, ResourceSpec) and entry.offer.is_listed
        ]

    def prompts(self, view: View, *, within: Snapshot | None = None) -> list[tuple[ToolEntry, PromptSpec]]:
        """Return the visible prompts."""
        return [(entry, entry.offer) for entry in view.tools(within=within) if isinstance(entry.offer, PromptSpec)]

    def document_operation(
        self, name: DocumentOperation, view: View, *, within: Snapshot | None = None
    ) -> ToolEntry | None:
        """Return the entry of an operation on documents; `None` if this caller has none."""
        offered = DocumentSpec(name=name)
        return next((entry for entry in view.tools(within=within) if entry.offer == offered), None)

    def resources_of(self, uri: str) -> list[tuple[str, ResourceSpec, dict[str, str]]]:
        """Return (qualified id, spec, values of its variables) of every resource that a URI matches, for any caller.

        Resources with exactly this URI come before templates.
        """
        matching = [
            (entry.qualified_id, entry.offer, values)
            for entry in self._registry.snapshot("resources").entries
            if isinstance(entry.offer, ResourceSpec) and (values := entry.offer.match(uri)) is not None
        ]
        return sorted(matching, key=lambda item: len(item[2]))

    async def find_resource(self, uri: str, view: View) -> tuple[str, ResourceSpec, dict[str, str]] | None:
        """Return the first match that the view may use; hidden matches are skipped."""
        for candidate in self.resources_of(uri):
            if await view.afind(candidate[0]) is not None:
                return candidate
        return await self.find_resource(uri, view) if await view.list_all_first() else None

    async def find_prompt(self, name: str, view: View) -> str:
        """Return the qualified id of the prompt that the view shows under a name; for an unknown one, what it would be.

        The prompts of persons' accounts have other ids: two of them may be called the same.
        """
        usual, snapshot = f"prompt.{name}", self._registry.snapshot("resources")
        if snapshot.find(usual) is not None:
            return usual
        for entry in snapshot.entries:
            is_named = isinstance(entry.offer, PromptSpec) and entry.offer.name == name
            if is_named and await view.afind(entry.qualified_id) is not None:
                return entry.qualified_id
        return await self.find_prompt(name, view) if await view.list_all_first() else usual


def _entry(fn: Callable[..., Any], namespace: str, keywords: Mapping[str, Any]) -> ToolEntry:
    options = ToolOptions.of(keywords, where=origin_of(fn))
    # The return value is not structured output: it becomes contents, messages or suggestions.
    return function_entry(fn, options.replaced(namespace=namespace, output=Any))


def _texts(entry: ToolEntry) -> dict[str, Any]:
    spec = entry.spec
    texts = {"name": spec.name, "title": spec.title, "description": spec.description, "icons": spec.icons}
    return {**texts, "meta": dict(spec.meta) or None}


def _arguments(entry: ToolEntry, where: str) -> tuple[PromptArgument, ...]:
    schema = entry.spec.input_schema
    required = schema.get("required", ())
    for name, drawn in schema.get("properties", {}).items():
        if drawn.get("type") != "string":
            raise DefinitionError(f"{where}: argument {name!r} of a prompt must be a str; prompts take text only.")
    return tuple(
        PromptArgument(name, drawn.get("description", ""), name in required)
        for name, drawn in schema.get("properties", {}).items()
    )
