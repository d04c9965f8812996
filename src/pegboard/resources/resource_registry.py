"""Registry: the resources, prompts and completions of a catalog, declared, selected and found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pegboard.authoring.definition import ToolOptions, function_entry, origin_of
from pegboard.core.judge import Selection
from pegboard.core.ports import Caller
from pegboard.core.registry import Registry
from pegboard.core.view import View, ViewParts
from pegboard.model.context import ToolContext
from pegboard.model.error import DefinitionError
from pegboard.model.policy import OPEN_POLICY
from pegboard.model.resource import CompletionSpec, PromptArgument, PromptSpec, ResourceSpec, Spec
from pegboard.model.tool import ToolEntry
from pegboard.resources.prompt_messages import with_messages
from pegboard.resources.upstream import Beside, Offering

_SHARED = ("predicates", "groups", "profiles", "hooks")


class Offers:
    """The resources, prompts and completions of a catalog.

    Args:
        registry: the catalog's own; its profiles, groups, predicates and hooks hold here too.
        caller: the catalog's executor.
        context_type: the catalog's.
    """

    def __init__(self, registry: Registry, caller: Caller, *, context_type: type[ToolContext] = ToolContext) -> None:
        self._base = registry
        self._registry = Registry(read_built=_nothing_built, context_type=context_type, bounds=registry.bounds)
        self._parts = ViewParts(registry=self._registry, caller=caller, exporters={})
        self._specs: dict[str, Spec] = {}
        self._foreign: dict[str, Spec] = {}
        self._touched: list[Callable[[str], object]] = []
        self._follow()
        registry.subscribe(self._follow)

    def _follow(self) -> None:
        """Share what is the catalog's own, also after a reload has replaced it."""
        for name in _SHARED:
            setattr(self._registry, name, getattr(self._base, name))
        beside = {name: Beside(source) for name, source in self._base.sources.items() if isinstance(source, Offering)}
        self._foreign = {key: spec for source in beside.values() for key, spec in source.specs.items()}
        self._registry.sources = {**beside}
        self._registry.changed()

    # -- declare

    def resource(self, uri: str, /, *, mime_type: str | None = None, **options: Any) -> Callable[[Any], Any]:
        """Declare a function as a resource; with `{variables}` in the URI, which are its parameters, as a template.

        It returns text, bytes, content blocks, or JSON. Options are those of a tool.

        Raises:
            DefinitionError: the variables are not its parameters, or an option that cannot be honoured.
            DuplicateToolError: the name is taken.
        """

        def declare(fn: Callable[..., Any]) -> Callable[..., Any]:
            entry = _entry(fn, "resource", options)
            spec = ResourceSpec(uri=uri, mime_type=mime_type, **_words(entry))
            if set(spec.variables) != set(entry.spec.input_schema.get("properties", {})):
                raise DefinitionError(
                    f"{origin_of(fn)}: the parameters must be the variables of {uri!r}: {list(spec.variables)}."
                )
            self._add(entry, spec)
            return fn

        return declare

    def prompt(self, fn: Any = None, /, **options: Any) -> Any:
        """Declare a function as a prompt; its text parameters are the arguments.

        It returns the text of one user message, a `Message`, or a list of these.

        Raises:
            DefinitionError: a parameter that is no text, or an option that cannot be honoured.
            DuplicateToolError: the name is taken.
        """

        def declare(declared: Callable[..., Any]) -> Callable[..., Any]:
            entry = with_messages(_entry(declared, "prompt", options))
            self._add(entry, PromptSpec(arguments=_arguments(entry, origin_of(declared)), **_words(entry)))
            return declared

        return declare if fn is None else declare(fn)

    def completion(
        self, argument: str, /, *, prompt: str | None = None, resource: str | None = None, **options: Any
    ) -> Callable[[Any], Any]:
        """Declare a function `(value, …)` as the suggestions for an argument of a prompt or resource template.

        Further parameters are the other arguments that are filled in already. It returns a list of
        texts. It is seen by those who see what it completes.

        Raises:
            DefinitionError: not one of prompt and resource is named, or an option that cannot be honoured.
            DuplicateToolError: there is a completion for it already.
        """
        if (prompt is None) == (resource is None):
            raise DefinitionError(f"completion({argument!r}): name prompt=… or resource=…, one of them.")

        def declare(fn: Callable[..., Any]) -> Callable[..., Any]:
            target = self._target(prompt, resource)
            said = {"name": f"{target.spec.name}_{argument}"[:64], "groups": target.spec.groups, **options}
            entry = _entry(fn, "completion", said)
            self._add(entry, CompletionSpec(argument=argument, prompt=prompt, resource=resource))
            return fn

        return declare

    def _target(self, prompt: str | None, resource: str | None) -> ToolEntry:
        for entry in self._registry.snapshot().entries:
            spec = self._specs.get(entry.qualified_id)
            if isinstance(spec, PromptSpec) and spec.name == prompt:
                return entry
            if isinstance(spec, ResourceSpec) and spec.uri == resource:
                return entry
        raise DefinitionError(f"There is no {'prompt' if prompt else 'resource'} {prompt or resource!r} to complete.")

    def _add(self, entry: ToolEntry, spec: Spec) -> None:
        key = entry.qualified_id
        known = self._specs.get(key)
        # Before it is added: those who are told of the change ask for it.
        self._specs[key] = spec
        try:
            self._registry.add(entry)
        except DefinitionError:
            self._specs.pop(key)
            if known is not None:
                self._specs[key] = known
            raise
        for group in entry.spec.groups:
            # A profile may name a group that no tool has.
            self._base.groups.setdefault(group, "")

    def remove(self, qualified_id: str) -> None:
        """Take back what is declared under `resource.name` or `prompt.name`; `KeyError` when there is none."""
        self._registry.remove(qualified_id)
        self._specs.pop(qualified_id, None)

    def take(self, other: Offers) -> None:
        """Replace all declarations by those of `other`; a reload. Subscribers stay ours."""
        self._specs = other._specs
        self._registry.take(other._registry)
        self._follow()

    def touch(self, uri: str) -> None:
        """Tell those who subscribed to a resource that it has changed."""
        for notify in tuple(self._touched):
            notify(uri)

    def subscribe(
        self, notify: Callable[[], object], *, touched: Callable[[str], object] | None = None
    ) -> Callable[[], None]:
        """Call `notify` after each change of the lists, `touched` with the URI of each resource that is touched."""
        end = self._registry.subscribe(notify)
        if touched is None:
            return end
        self._touched.append(touched)

        def end_both() -> None:
            end()
            self._touched.remove(touched)

        return end_both

    # -- ask

    def view(self, ctx: ToolContext, *, profile: str | None = None) -> View:
        """Return what one caller may have now; the entries of its list have their specs from `spec`."""
        found = None if profile is None else self._base.profile(profile)
        selection = Selection(
            include=None if found is None else found.include,
            policy=OPEN_POLICY if found is None else found.policy,
            profile=profile,
            origin="" if found is None else found.origin,
        )
        return View(self._parts, ctx, selection, profile=found)

    def spec(self, entry: ToolEntry) -> Spec:
        """Return the resource, prompt or completion that an entry stands for."""
        key = entry.qualified_id
        return self._specs.get(key) or self._foreign[key]

    @property
    def specs(self) -> Iterable[Spec]:
        """Everything declared, whoever may have it."""
        return [*self._specs.values(), *self._foreign.values()]

    def resources(self, view: View) -> list[tuple[ToolEntry, ResourceSpec]]:
        """Return the visible resources and templates."""
        pairs = ((entry, self.spec(entry)) for entry in view.tools())
        return [(entry, spec) for entry, spec in pairs if isinstance(spec, ResourceSpec)]

    def prompts(self, view: View) -> list[tuple[ToolEntry, PromptSpec]]:
        """Return the visible prompts."""
        pairs = ((entry, self.spec(entry)) for entry in view.tools())
        return [(entry, spec) for entry, spec in pairs if isinstance(spec, PromptSpec)]

    def resources_of(self, uri: str) -> list[tuple[str, ResourceSpec, dict[str, str]]]:
        """Return (qualified id, spec, values of its variables) of every resource that a URI means, whoever may have it.

        One whose URI is written out comes before templates.
        """
        found = [
            (key, spec, values)
            for key, spec in {**self._foreign, **self._specs}.items()
            if isinstance(spec, ResourceSpec) and (values := spec.match(uri)) is not None
        ]
        return sorted(found, key=lambda item: len(item[2]))

    async def find_resource(self, uri: str, view: View) -> tuple[str, ResourceSpec, dict[str, str]] | None:
        """Return the first of them that a view has: what is hidden stands in the way of nothing."""
        for found in self.resources_of(uri):
            if await view.afind(found[0]) is not None:
                return found
        return None


def _entry(fn: Callable[..., Any], namespace: str, said: Mapping[str, Any]) -> ToolEntry:
    options = ToolOptions.of(said, where=origin_of(fn))
    # What it returns is no structured value with a schema: it becomes contents, messages or words.
    return function_entry(fn, options.replaced(namespace=namespace, output=Any))


def _words(entry: ToolEntry) -> dict[str, Any]:
    spec = entry.spec
    said = {"name": spec.name, "title": spec.title, "description": spec.description, "icons": spec.icons}
    return {**said, "meta": dict(spec.meta) or None}


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


def _nothing_built(_built: object, _entry: ToolEntry) -> Sequence[ToolEntry]:
    raise DefinitionError("Resources, prompts and completions are declared by functions, not by builders.")
