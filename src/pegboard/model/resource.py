"""Resource: the records of resources, prompts and completions, and which of them a URI means."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

from pegboard.frozen import frozen
from pegboard.model.json_types import JSON

_VARIABLE = re.compile(r"\{(\+?)([A-Za-z_][A-Za-z0-9_]*)\}")


@frozen
class ResourceSpec:
    """A resource, or a family of them: `uri` is a template when it has `{variables}`; `{+path}` takes slashes too.

    `way` has the ids of the servers behind it, the nearest first; empty for one of our own. `members` tells, of a
    template, which resources of it a caller has now, given the caller's context; without it none of them are listed.
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

    @property
    def variables(self) -> tuple[str, ...]:
        """The names in the template, in order."""
        return tuple(name for _, name in _VARIABLE.findall(self.uri))

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the values of the variables for a URI of this resource; `None` when it is another's."""
        if not self.variables:
            return {} if uri == self.uri else None
        found = re.fullmatch(_pattern(self.uri), uri)
        if found is None:
            return None
        values = {name: unquote(value) for name, value in found.groupdict().items()}
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


@frozen
class PromptSpec:
    """A prompt that a person may choose; `way` as that of a resource."""

    name: str
    title: str | None = None
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()
    icons: tuple[JSON, ...] = ()
    meta: Mapping[str, Any] | None = None
    way: tuple[str, ...] = ()


@frozen
class CompletionSpec:
    """Suggestions for one argument of a prompt, or one variable of a resource template."""

    argument: str
    prompt: str | None = None
    resource: str | None = None

    def completes(self, named: str, argument: str) -> bool:
        """Tell whether these are the suggestions for an argument of the prompt or template of that name."""
        return argument == self.argument and named in (self.prompt, self.resource)


@frozen
class UploadSpec:
    """What takes in a file that a caller sends to a door. No list shows it, and no model calls it."""

    name: str


Offer = ResourceSpec | PromptSpec | CompletionSpec | UploadSpec
"""What a catalog offers beside tools."""


def _pattern(template: str) -> str:
    parts: list[str] = []
    end = 0
    for found in _VARIABLE.finditer(template):
        parts.append(re.escape(template[end : found.start()]))
        parts.append(f"(?P<{found[2]}>{'.+' if found[1] else '[^/?#]+'})")
        end = found.end()
    return "".join(parts) + re.escape(template[end:])


def _is_segment(value: str) -> bool:
    """Tell whether a decoded value is one path segment, as its place in the template says."""
    return value not in (".", "..") and not set(value) & {"/", "\\", "\0"}
