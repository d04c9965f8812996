"""Resource: the records of resources, prompts and completions, and the matching of URIs with them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote

from msgspec import Struct

from pegboard.model.json_types import JSON

TEMPLATE_STEPS = 100_000  # length of a URI times variables of a template; above this the URI does not match

# The characters that a variable cannot contain.
_PLAIN, _SLASHED = frozenset("/?#"), frozenset("\n")
_VARIABLE = re.compile(r"\{(\+?)([A-Za-z_][A-Za-z0-9_]*)\}")


class ResourceSpec(Struct, frozen=True, kw_only=True):
    """A resource or a template of resources: `uri` is a template if it has `{variables}`.

    `{+path}` matches slashes too. `way` has the ids of the upstream servers, the nearest first; empty for our own
    resources. `members` lists the resources of a template for a caller's context; without it none are listed. Unlisted
    resources can still be read by their URI.
    """

    uri: str
    name: str
    title: str | None = None
    description: str = ""
    mime_type: str | None = None
    size: int | None = None
    annotations: Mapping[str, Any] | None = None
    icons: tuple[JSON, ...] = ()
    meta: Mapping[str, Any] | None = None
    way: tuple[str, ...] = ()
    members: Callable[[Any], Awaitable[Sequence[ResourceSpec]]] | None = None
    is_listed: bool = True

    @property
    def variables(self) -> tuple[str, ...]:
        """The names in the template, in order."""
        return tuple(name for _, name in _VARIABLE.findall(self.uri))

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the values of the variables in a URI; `None` if the URI does not match."""
        if not self.variables:
            return {} if uri == self.uri else None
        raw = _values(self.uri, uri)
        if raw is None:
            return None
        values = {name: unquote(value) for name, value in raw.items()}
        # NUL ends a text for some programs and cannot be stored, so it is refused here as in arguments.
        if "\0" in "".join(values.values()):
            return None
        slashed = {name for plus, name in _VARIABLE.findall(self.uri) if plus}
        return values if all(name in slashed or _is_segment(value) for name, value in values.items()) else None


class PromptArgument(NamedTuple):
    """One argument of a prompt; all arguments are text."""

    name: str
    description: str = ""
    is_required: bool = False


class PromptSpec(Struct, frozen=True, kw_only=True):
    """A prompt for a person to choose; `way` is as in `ResourceSpec`."""

    name: str
    title: str | None = None
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()
    icons: tuple[JSON, ...] = ()
    meta: Mapping[str, Any] | None = None
    way: tuple[str, ...] = ()


class CompletionSpec(Struct, frozen=True, kw_only=True):
    """Suggestions for one argument of a prompt, or one variable of a resource template."""

    argument: str
    prompt: str | None = None
    resource: str | None = None

    def completes(self, named: str, argument: str) -> bool:
        """Tell whether these suggestions are for this argument of the prompt or template named `named`."""
        return argument == self.argument and named in (self.prompt, self.resource)


DocumentOperation = Literal["upload", "list", "show", "read", "remove"]


class DocumentSpec(Struct, frozen=True, kw_only=True):
    """An operation on the documents of a caller, such as an upload. No list shows it, and no model can call it."""

    name: DocumentOperation


Offer = ResourceSpec | PromptSpec | CompletionSpec | DocumentSpec
"""The entries of a catalog that are not tools."""


def _values(template: str, uri: str) -> dict[str, str] | None:
    """Return the values of the variables, the first ones as long as possible; `None` if the URI does not match."""
    # Text, "+" or nothing, name, text, …
    words = _VARIABLE.split(template)
    literals, names = words[::3], words[2::3]
    excluded = [_SLASHED if plus else _PLAIN for plus in words[1::3]]
    if len(uri) * len(names) > TEMPLATE_STEPS or not uri.startswith(literals[0]):
        return None
    # The places where each variable may end so that the rest of the template still fits, from the last variable on. A
    # regular expression would try every way to split the text among several variables.
    ends = [{len(uri) - len(literals[-1])} if uri.endswith(literals[-1]) else set[int]()]
    for text, marks in zip(literals[-2:0:-1], excluded[:0:-1], strict=True):
        starts = _starts(uri, ends[0], marks)
        ends.insert(0, {start - len(text) for start in starts if uri.endswith(text, 0, start)})
    values: dict[str, str] = {}
    at = len(literals[0])
    for name, marks, may_end, text in zip(names, excluded, ends, literals[1:], strict=True):
        stop = next((place for place in range(at, len(uri)) if uri[place] in marks), len(uri))
        end = max((end for end in may_end if at < end <= stop), default=None)
        if end is None:
            return None
        values[name] = uri[at:end]
        at = end + len(text)
    return values


def _starts(uri: str, ends: set[int], marks: frozenset[str]) -> Iterator[int]:
    """Yield the places where a variable without these characters may start so that it ends at one of `ends`."""
    is_open = False
    for place in reversed(range(len(uri))):
        is_open = (is_open or place + 1 in ends) and uri[place] not in marks
        if is_open:
            yield place


def _is_segment(value: str) -> bool:
    """Tell whether a decoded value is a single path segment, as the template requires."""
    return value not in (".", "..") and not set(value) & {"/", "\\", "\0"}
