"""Arguments: read them within the bounds, and validate them against the tool's schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pegboard.core.call.record import NOT_PARSED, Call
from pegboard.core.json_reader import parse_json
from pegboard.core.schema import Compiled, bounded_copy, copied, is_small, json_path, refused_arguments
from pegboard.model.bounds import Bounds
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object


def read_arguments(request: object, bounds: Bounds) -> tuple[Any, bool]:
    """Return the JSON of a request as a copy within the bounds, and whether it is flat."""
    if isinstance(request, bytes):
        return parse_json(request, bounds=bounds), False
    arguments: Any = {} if request is None else request
    if is_object(arguments):
        if is_small(arguments):
            return {**arguments}, True
    elif isinstance(arguments, Mapping):
        arguments = {**cast("JSON", arguments)}
    return bounded_copy(arguments, bounds=bounds), False


def seen_arguments(call: Call) -> JSONValue:
    """Return a copy of the arguments for observers, without anything that will be refused unread."""
    try:
        parsed, is_flat = read_arguments(call.request, call.bounds)
    except CallError:
        return "(not read)"
    call.parsed, call.is_flat = parsed, is_flat
    return {**parsed} if is_flat else copied(parsed)


def check_arguments(call: Call) -> None:
    """Validate the arguments: bounds first, then aliases, schema and defaults. Fills `call.args`.

    Invalid arguments are passed to the injected `repair`; its suggestion is validated in the same way.
    """
    try:
        if call.parsed is NOT_PARSED:
            call.parsed, call.is_flat = read_arguments(call.request, call.bounds)
        call.args = judged_arguments(call, call.parsed)
    except CallError:
        if not call.ports.repair(call, lambda mended: judged_arguments(call, read_arguments(mended, call.bounds)[0])):
            call.executor.flood.count(call.view.ctx)
            raise


def copied_arguments(call: Call) -> JSON:
    """Return a copy of the validated arguments that shares nothing with them."""
    # A flat request whose arguments were changed by neither an alias nor a default.
    return {**call.args} if call.is_flat and call.args is call.parsed else copied(call.args)


def judged_arguments(call: Call, args: JSONValue) -> JSON:
    """Return the arguments without aliases and with defaults.

    Raises:
        CallError: `invalid_arguments`, with every problem.
    """
    if not is_object(args):
        named = call.entry.spec.input_schema
        names = list(named.get("required") or ()) or list(named.get("properties") or ())
        form = ", ".join(f'"{name}": …' for name in names[:10])
        what = "JSON text" if isinstance(args, str) else "a list" if is_list(args) else "a single value"
        text = f"The arguments of {call.name!r} must be an object. Give {{{form}}} itself, not {what}."
        raise refused_arguments(text, "type", value=args)
    if call.entry.spec.aliases:
        args = unaliased(args, call.entry.spec.aliases)
    compiled = call.plan.arguments
    if not compiled.is_valid(args):
        raise _invalid(call.name, compiled, args)
    return compiled.with_defaults(args) if compiled.defaults else args


def unaliased(args: JSON, aliases: Mapping[str, str]) -> JSON:
    """Return the arguments with each alias replaced by its property; refuses two values for one property."""
    plain = {key: value for key, value in args.items() if key not in aliases}
    for alias, target in aliases.items():
        if alias in args:
            if target in plain and plain[target] != args[alias]:
                first = target if target in args else next(a for a, t in aliases.items() if t == target and a in args)
                text = f"conflicting values for {target!r} via {first!r} and {alias!r}"
                raise refused_arguments(text, "alias", path=json_path([alias]), value=args[alias])
            plain[target] = args[alias]
    return plain


def _invalid(name: str, compiled: Compiled, args: JSON) -> CallError:
    problems = compiled.problems(args)
    listed = "; ".join(f"{problem.path}: {problem.message}" for problem in problems[:10])
    more = f"; and {len(problems) - 10} more" if len(problems) > 10 else ""
    text = f"Invalid arguments for {name!r}: {listed}{more}. Correct them and call again."
    return CallError("invalid_arguments", text, details={"problems": [problem._asdict() for problem in problems]})
