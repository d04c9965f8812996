"""Function: make a tool of a Python function."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

from pegboard.authoring import signature
from pegboard.authoring.aliases import declared, published, resolve
from pegboard.authoring.field import MISSING
from pegboard.authoring.json_schema import output_reader, output_schema, output_writer
from pegboard.authoring.options import ToolOptions
from pegboard.authoring.signature import origin_of, underlying
from pegboard.core.names import snake_case
from pegboard.model.call_context import CallContext
from pegboard.model.error import CallError, DefinitionError, Problem
from pegboard.model.json_types import JSON
from pegboard.model.tool import Handler, Runs, ToolEntry


def function_entry(fn: Callable[..., Any], options: ToolOptions) -> ToolEntry:
    """Return the tool for a function: schema from the annotations, words from the docstring.

    Raises:
        DefinitionError: see `signature.read_function`.
    """
    where = origin_of(fn)
    _refuse_what_is_no_function(fn, where)
    reading = signature.read_function(fn, where=where)
    spec = options.base_spec(name=_name(fn, options, where), description=reading.description, origin=where)
    returns = reading.returns if options["output"] is None else options["output"]
    fields = reading.parameters.fields
    aliases = resolve(declared(fields, options["aliases"] or {}), where=where)
    spec = replace(
        spec,
        input_schema=published(_with_extra(reading, options, where), fields, aliases),
        output_schema=output_schema(returns, where=where),
        aliases=aliases,
        allow_unknown=reading.extra is not MISSING,
    )
    is_async: bool = signature.is_async(fn)
    runs: Runs = "async" if is_async else "inline" if options["inline"] else "thread"
    handler = _handler(fn, reading)
    writer = output_writer(returns)
    if writer is not None:
        handler = _writing_async(handler, writer) if is_async else _writing(handler, writer)
    return ToolEntry(
        spec=spec,
        handler=handler,
        runs=runs,
        needs_context=reading.context is not None,
        reread=output_reader(returns),
    )


def _refuse_what_is_no_function(fn: Any, where: str) -> None:
    fault = ""
    if inspect.isclass(fn):
        fault = f"{fn.__name__} is a class: derive it from Tool, or give a function that makes one."
    elif not callable(fn):
        named = f" A name goes in `name={fn!r}`." if isinstance(fn, str) else ""
        fault, where = f"{fn!r} cannot be called; give a function.{named}", ""
    elif signature.is_generator(fn):
        name = getattr(underlying(fn), "__name__", "it")
        fault = f"{name!r} is a generator: return a list, and report what is under way with `ctx.progress`."
    if fault:
        raise DefinitionError(Problem(where=where, message=fault))


def _name(fn: Any, options: ToolOptions, where: str) -> str:
    bare = underlying(fn)
    name = bare.__name__ if inspect.isroutine(fn) or bare.__name__ != "__call__" else snake_case(type(fn).__name__)
    if name == "<lambda>" and options["name"] is None:
        raise DefinitionError(Problem(where=where, message="a lambda has no name: say name='…'."))
    return name


def _with_extra(reading: signature.FunctionSignature, options: ToolOptions, where: str) -> JSON:
    """Return the input schema; `**kwargs` takes further arguments, of its annotation or of `additional_properties`."""
    schema: JSON = reading.parameters.schema
    additional = options.declared.get("additional_properties")
    if reading.extra is MISSING:
        if additional is False:
            return {**schema, "additionalProperties": False}
        if additional is not None:
            message = "additional_properties: the function has no **kwargs to take them."
            raise DefinitionError(Problem(where=where, message=message))
        return schema
    if additional is None:
        additional = {"type": _EXTRA_TYPES[reading.extra]} if reading.extra in _EXTRA_TYPES else True
    return {**schema, "additionalProperties": additional}


_EXTRA_TYPES: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}


# ---------------------------------------------------------------- the call


def _handler(fn: Callable[..., Any], reading: signature.FunctionSignature) -> Handler:
    """Return the handler: arguments by name, coerced where the annotation means more, the context injected."""
    values: Callable[[JSON], JSON] | None = None if reading.parameters.is_plain else reading.parameters.values
    # Most types that JSON does not know are `int`, for which JSON Schema takes 3.0: looked for in one go.
    is_of_floats_alone: bool = reading.parameters.coerces_integers_alone
    name, wants_call = reading.context, reading.wants_call
    reserved: frozenset[str] = reading.reserved if reading.extra is not MISSING else frozenset()

    def handler(ctx: CallContext, args: JSON) -> Any:
        if reserved and not reserved.isdisjoint(args):
            raise _not_an_argument(sorted(reserved & set(args)))
        if values is not None and not (is_of_floats_alone and float not in map(type, args.values())):
            args = values(args)
        if name is None:
            return fn(**args)
        return fn(**args, **{name: ctx if wants_call else ctx.plain()})

    return handler


def _not_an_argument(names: list[str]) -> CallError:
    listed = "; ".join(f"$.{name}: {name!r} is not an argument here" for name in names)
    return CallError("invalid_arguments", f"Invalid arguments: {listed}. Correct them and call again.")


def _writing(handler: Handler, write: Callable[[Any], Any]) -> Handler:
    return lambda ctx, args: write(handler(ctx, args))


def _writing_async(handler: Handler, write: Callable[[Any], Any]) -> Handler:
    async def written(ctx: CallContext, args: JSON) -> Any:
        return write(await cast("Awaitable[Any]", handler(ctx, args)))

    return written
