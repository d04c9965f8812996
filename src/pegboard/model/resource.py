"""Resource: the records of resources, prompts and completions, and which of them a URI means."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

from msgspec import Struct

from pegboard.model.json_types import JSON

TEMPLATE_STEPS = 100_000  # characters of a URI times variables of a template; with more it is none of its resources

# What a variable cannot have in it.
_PLAIN, _SLASHED = frozenset("/?#"), frozenset("\n")
_VARIABLE = re.compile(r"\{(\+?)([A-Za-z_][A-Za-z0-9_]*)\}")


class ResourceSpec(Struct, frozen=True, kw_only=True):
    """A resource, or a family of them: `uri` is a template when it has `{variables}`; `{+path}` takes slashes too.

    `way` has the ids of the servers behind it, the nearest first; empty for one of our own. `members` tells, of a
    template, which resources of it a caller has now, given the caller's context; without it none of them are listed.
    One that is not listed can be read by whoever was given its address.
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
        """Return the values of the variables for a URI of this resource; `None` when it is another's."""
        if not self.variables:
            return {} if uri == self.uri else None
        raw = _values(self.uri, uri)
        if raw is None:
            return None
        values = {name: unquote(value) for name, value in raw.items()}
        # As in arguments, which JSON brings: NUL means the end of a text to some, and is stored nowhere.
        if "\0" in "".join(values.values()):
            return None
        slashed = {name for plus, name in _VARIABLE.findall(self.uri) if plus}
        return values if all(name in slashed or _is_segment(value) for name, value in values.items()) else None


class PromptArgument(NamedTuple):
    """One argument of a prompt; all are text."""

    name: str
    description: str = ""
    is_required: bool = False


class PromptSpec(Struct, frozen=True, kw_only=True):
    """A prompt that a person may choose; `way` as that of a resource."""

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
        """Tell whether these are the suggestions for an argument of the prompt or template of that name."""
        return argument == self.argument and named in (self.prompt, self.resource)


class UploadSpec(Struct, frozen=True, kw_only=True):
    """What takes in a file that a caller sends to a door. No list shows it, and no model calls it."""

    name: str


Offer = ResourceSpec | PromptSpec | CompletionSpec | UploadSpec
"""What a catalog offers beside tools."""


def _values(template: str, uri: str) -> dict[str, str] | None:
    """Return what the variables stand for, the first ones as long as can be; `None` where the URI is another's."""
    # Text, "+" or nothing, name, text, …
    words = _VARIABLE.split(template)
    literals, names = words[::3], words[2::3]
    excluded = [_SLASHED if plus else _PLAIN for plus in words[1::3]]
    if len(uri) * len(names) > TEMPLATE_STEPS or not uri.startswith(literals[0]):
        return None
    # Where each variable may end so that all behind it still fits, from the last one on: a regular expression would
    # try every way to share a text out among several variables.
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
    """Yield where a variable may start that has none of these marks, and ends at one of those places."""
    is_open = False
    for place in reversed(range(len(uri))):
        is_open = (is_open or place + 1 in ends) and uri[place] not in marks
        if is_open:
            yield place


def _is_segment(value: str) -> bool:
    """Tell whether a decoded value is one path segment, as its place in the template says."""
    return value not in (".", "..") and not set(value) & {"/", "\\", "\0"}
