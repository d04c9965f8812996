"""Look first: calls of tools that only read, which a person makes before deciding on a call that waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pegboard.core.validated_entry import judges
from pegboard.model.consent import Consent
from pegboard.model.json_types import JSON, JSONValue, is_object
from pegboard.model.tool import ToolEntry
from pegboard.server.consent_inbox import may_edit, shown_arguments_of
from pegboard.server.console.board import asks_first
from pegboard.server.console.shown_json import ShownValue, exact_json, one_line, shown_value
from pegboard.server.console.trial import Outcome, TriedCall, tried_together
from pegboard.server.console.visit import Visit

READERS_ASKED = 20  # read-only tools checked for whether the person may use them
READERS_SHOWN = 4  # tools that only read, offered for a call that waits
LOOKS_TOGETHER = 30  # calls that one click makes
LOOK_SHOWN_CHARS = 2_000  # of a value of a result
LABEL_CHARS = 60  # of an argument on a button

_TYPE_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean"}


class Look(NamedTuple):
    """A call that only reads: the tool and its arguments."""

    tool: str
    arguments: JSON

    @property
    def label(self) -> str:
        """The arguments in one line."""
        return ", ".join(f"{name} {one_line(value, LABEL_CHARS)}" for name, value in self.arguments.items())

    @property
    def json(self) -> str:
        """The arguments as a form sends them."""
        return exact_json(self.arguments)


class Looked(NamedTuple):
    """A call that was made, with its outcome; `fields` has the fields of its result if that is a JSON object."""

    look: Look
    outcome: Outcome
    fields: Sequence[ShownValue]


class Lookup(NamedTuple):
    """What a person can look at before deciding on one call.

    `ready` are the calls whose arguments are all in the waiting call; one click makes them all. `done` are those that
    were made. `further` are calls that a person makes one by one, with the arguments in sight: those whose arguments
    became known by a result, and those that reach outside: an agent chose their arguments, so such a call could itself
    send what the waiting call would send. `forms` are the names of the other tools, whose form a person
    fills in.
    """

    ready: Sequence[Look]
    done: Sequence[Looked] = ()
    further: Sequence[Look] = ()
    forms: Sequence[str] = ()


async def readers_of(visit: Visit, tool: str) -> list[ToolEntry]:
    """Return tools of the same namespace that only read, and that this person may call without being asked.

    Agents and tasks are left out: they cost money or time.
    """
    if visit.acts_as is None:
        return []
    view, found = visit.view(visit.acts_as), list[ToolEntry]()
    entry = view.snapshot.find(tool)
    if entry is None:
        return found
    near = [
        each for each in view.snapshot.entries
        if each.spec.namespace == entry.spec.namespace and each.spec.annotations.read_only and each is not entry
        and not asks_first(each) and not view.connects_first(each) and not each.agent and each.spec.task != "required"
    ]  # fmt: skip
    for each in near[:READERS_ASKED]:
        if len(found) < READERS_SHOWN and await view.afind(each.wire_name) is not None:
            found.append(each)
    return found


def lookup_of(visit: Visit, consent: Consent, readers: Sequence[ToolEntry], done: Sequence[Looked] = ()) -> Lookup:
    """Return what a person can look at before deciding on a call, after the calls that were `done`."""
    asked, known = _known(consent), dict[str, JSONValue]()
    for looked in done:
        known.update(looked.outcome.fields)
    ready, further, forms = list[Look](), list[Look](), list[str]()
    made = [(looked.look.tool, looked.look.arguments) for looked in done]
    for entry in readers:
        of_call, of_results = _look(visit, entry, asked), _look(visit, entry, {**known, **asked})
        if of_call is not None and not entry.spec.annotations.open_world:
            ready.append(of_call)
        elif of_results is not None and (of_results.tool, of_results.arguments) not in made:
            further.append(of_results)
        elif of_results is None:
            forms.append(entry.wire_name)
    return Lookup(ready, done, further, forms)


async def look(visit: Visit, looks: Sequence[Look]) -> list[Looked]:
    """Make calls as the person who is logged in, at most `LOOKS_TOGETHER` of them."""
    chosen = looks[:LOOKS_TOGETHER]
    outcomes = await tried_together(visit, [TriedCall(each.tool, each.arguments) for each in chosen])
    return [
        Looked(
            each,
            _without_media(outcome),
            [shown_value(name, value, LOOK_SHOWN_CHARS) for name, value in outcome.fields.items()],
        )
        for each, outcome in zip(chosen, outcomes, strict=True)
    ]


def _without_media(outcome: Outcome) -> Outcome:
    """Return an outcome with its images and sounds described: the policy of the list allows none."""
    return outcome._replace(
        blocks=[each._replace(kind="note", source="") if each.source else each for each in outcome.blocks]
    )


def fitting(schema: JSON, arguments: Mapping[str, JSONValue]) -> JSON:
    """Return the arguments that a tool with this schema takes, too: those with the same name and a simple type."""
    properties: Any = schema.get("properties", {})
    types = {name: form.get("type") for name, form in properties.items() if is_object(form)}
    return {
        name: value for name, value in arguments.items()
        if isinstance(value, str | int | float) and types.get(name) == _TYPE_NAMES.get(type(value))
    }  # fmt: skip


def _known(consent: Consent) -> Mapping[str, JSONValue]:
    """Return the arguments of the waiting call; empty if they hold values that are not shown."""
    return (shown_arguments_of(consent) or {}) if may_edit(consent) else {}


def _look(visit: Visit, entry: ToolEntry, known: Mapping[str, JSONValue]) -> Look | None:
    """Return the call of a tool with what is known; `None` if that is nothing, or not enough."""
    arguments = fitting(entry.spec.input_schema, known)
    if not arguments or not judges(entry, visit.gateway.registry.bounds)[0].is_valid(arguments):
        return None
    return Look(entry.wire_name, arguments)
