"""Mending: tries guesses, one fault after the other, and keeps those that fix more faults than they cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jsonschema_rs

from pegboard.core.schema import Compiled
from pegboard.core.schema_cost import MAX_STEPS
from pegboard.model.bounds import KIB
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.providers.repair.guesses import Guess, Repair, guesses

REPAIR_TRIES = 200  # tries for one call
REPAIR_LEAST_TRIES = 8  # tries for one call with large arguments
REPAIRED_FAULTS = 100  # faults of the worst arguments that are repaired
REPAIR_LOOKED_AT_BYTES = 256 * KIB  # bytes scanned by all tries together: the larger the arguments, the fewer tries
REPAIR_COST = 4 * MAX_STEPS  # steps of all tries together: enough to correct a hundred numbers sent as strings
REPAIR_STEPS_IN_A_BRANCH = 8  # corrections inside one alternative of a schema

Kind = jsonschema_rs.ValidationErrorKind
# The rule and the path of a fault.
Fault = tuple[str, tuple[str | int, ...], str]


class Mended(NamedTuple):
    """Valid arguments, and the corrections in order."""

    args: JSON
    repairs: tuple[Repair, ...]


class _State(NamedTuple):
    args: JSON
    repairs: tuple[Repair, ...]
    errors: list[Any]


def mended(compiled: Compiled, args: JSON, aliases: Mapping[str, str], *, size: int) -> Mended | None:
    """Return the arguments, `size` bytes of JSON, corrected until they are valid; `None` if no guesses achieve that."""
    tries = min(REPAIR_TRIES, max(REPAIR_LEAST_TRIES, REPAIR_LOOKED_AT_BYTES // max(size, 1)))
    work = _Mending(compiled, aliases, tries)
    faulty = work.errors(args)
    if len(faulty) >= REPAIRED_FAULTS:
        # The list is cut off, so each corrected fault would reveal another one.
        return None
    state: _State | None = _State(args, (), faulty)
    while state is not None and state.errors:
        state = work.step(state)
    return None if state is None else Mended(state.args, state.repairs)


class _Mending:
    """One attempt: its validator, and the number of validations left."""

    def __init__(self, compiled: Compiled, aliases: Mapping[str, str], tries: int) -> None:
        self._compiled, self._aliases = compiled, aliases
        self._tries_left, self._left_steps = tries, REPAIR_COST

    def errors(self, args: JSON) -> list[Any]:
        """Return the faults; the list may be cut off.

        Raises:
            CallError: `schema_too_complex`, if all validations together take too long.
        """
        self._tries_left -= 1
        self._left_steps -= self._compiled.explaining_steps(args)
        if self._left_steps < 0:
            raise CallError("schema_too_complex", "These arguments take too long to repair.")
        return self._compiled.errors(args)[:REPAIRED_FAULTS]

    def step(self, state: _State) -> _State | None:
        """Return the arguments with one fault less, `None` if no guess fixes one."""
        for error in state.errors:
            for guess in self._guesses(error, state):
                if self._tries_left <= 0:
                    return None
                after = self.errors(guess.args)
                if _is_better(error, state.errors, after, guess):
                    return _State(guess.args, (*state.repairs, guess.repair), after)
            mended_inside = self._through_branches(error, state)
            if mended_inside is not None:
                return mended_inside
        return None

    def _guesses(self, error: Any, state: _State) -> Iterator[Guess]:
        return guesses(error, state.args, self._compiled, self._aliases)

    def _through_branches(self, error: Any, state: _State) -> _State | None:
        """Correct a value until it fits one of the alternatives."""
        branches = _branches(error)
        for number in range(len(branches)):
            args, repairs = state.args, state.repairs
            inner: list[Any] = branches[number]
            for _ in range(REPAIR_STEPS_IN_A_BRANCH):
                guess = next((item for fault in inner for item in self._guesses(fault, _State(args, (), []))), None)
                if guess is None or self._tries_left <= 0:
                    break
                args, repairs = guess.args, (*repairs, guess.repair)
                after = self.errors(args)
                again = next((item for item in after if _fault(item) == _fault(error)), None)
                if again is None:
                    if {_fault(item) for item in after} <= {_fault(item) for item in state.errors}:
                        return _State(args, repairs, after)
                    break
                inner = _branches(again)[number]
        return None


def _branches(error: Any) -> list[list[Any]]:
    match error.kind:
        case Kind.AnyOf(context=branches) | Kind.OneOfNotValid(context=branches):
            return branches
        case _:
            return []


def _is_better(error: Any, before: list[Any], after: list[Any], guess: Guess) -> bool:
    """Tell whether a guess fixes its fault and causes new ones at most in the value that it inserted."""
    was, now = {_fault(item) for item in before}, {_fault(item) for item in after}
    new = now - was
    if guess.is_careful and new:
        return False
    place = tuple(guess.steps)
    if any(path[: len(place)] != place for _, path, _ in new):
        return False
    return _fault(error) not in now


def _fault(error: Any) -> Fault:
    match error.kind:
        case Kind.Required(property=name):
            rule = str(name)
        case Kind.AdditionalProperties(unexpected=names) | Kind.UnevaluatedProperties(unexpected=names):
            rule = "\0".join(names)
        case _:
            rule = ""
    return error.kind.name, tuple(error.instance_path), rule
