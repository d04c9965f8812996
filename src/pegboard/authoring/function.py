"""Function: make a tool of a Python function."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator
from typing import Any, cast

from pegboard.authoring import signature
from pegboard.authoring.aliases import declared, published, resolve
from pegboard.authoring.options import ToolOptions
from pegboard.authoring.output_schema import output_reader, output_schema, output_writer
from pegboard.authoring.signature import EACH, origin_of, underlying
from pegboard.core.names import snake_case
from pegboard.core.schema import json_path
from pegboard.model.call_context import CallContext
from pegboard.model.error import CallError, DefinitionError, Problem
from pegboard.model.json_types import JSON
from pegboard.model.record import replace
from pegboard.model.tool import Handler, Runs, ToolEntry

GENERATED_VALUES = 100_000  # values that a generator may give in one call


def function_entry(fn: Callable[..., Any], options: ToolOptions) -> ToolEntry:
    """Return the tool for a function: schema from the annotations, descriptions from the docstring.

    Raises:
        DefinitionError: see `signature.read_function`.
    """
    where = origin_of(fn)
    _refuse_what_is_no_function(fn, where)
    reading = signature.read_function(fn, where=where)
    spec = options.base_spec(name=_name(fn, options, where), description=reading.description, origin=where)
    values = signature.iteration(fn, reading.returns)
    returned = reading.returns if values is None else signature.collected_type(reading.returns)
    returns = returned if options["output"] is None else options["output"]
    fields = reading.parameters.fields
    aliases = resolve(declared(fields, options["aliases"] or {}), where=where)
    spec = replace(
        spec,
        input_schema=published(_with_extra(reading, options, where), fields, aliases),
        output_schema=output_schema(returns, where=where),
        aliases=aliases,
        allow_unknown=reading.extra is not None,
    )
    is_async: bool = signature.is_async(fn) or values == "async"
    runs: Runs = "async" if is_async else "inline" if options["inline"] else "thread"
    handler = _handler(fn, reading)
    if values is not None:
        handler = _collecting_async(handler) if is_async else _collecting(handler)
    writer = output_writer(returns)
    if writer is not None:
        handler = _writing_async(handler, writer) if is_async else _writing(handler, writer)
    return ToolEntry(
        spec=spec,
        handler=handler,
        runs=runs,
        needs_context=reading.context is not None,
        reread=output_reader(returns),
        stray_words=reading.stray_words,
    )


def _refuse_what_is_no_function(fn: Any, where: str) -> None:
    fault = ""
    if inspect.isclass(fn):
        fault = f"{fn.__name__} is a class: derive it from Tool, or give a function that makes one."
    elif not callable(fn):
        fault, where = f"{fn!r} cannot be called; give a function.{_hint_for(fn)}", ""
    elif signature.is_context_manager(fn):
        name = getattr(underlying(fn), "__name__", "it")
        fault = f"{name!r} makes a context manager, which is not a result: enter it in a function that returns a value."
    if fault:
        raise DefinitionError(Problem(where=where, message=fault))


def _hint_for(value: Any) -> str:
    """Return a hint for an object that is not a function; empty if we have none."""
    if isinstance(value, str):
        return f" A name goes in `name={value!r}`."
    if type(value).__module__.startswith("langchain"):
        return " Tools of LangChain are registered with `pegboard.adapters.langchain.declared`."
    return ""


def _name(fn: Any, options: ToolOptions, where: str) -> str:
    bare = underlying(fn)
    name = bare.__name__ if inspect.isroutine(fn) or bare.__name__ != "__call__" else snake_case(type(fn).__name__)
    if name == "<lambda>" and options["name"] is None:
        raise DefinitionError(Problem(where=where, message="a lambda has no name: say name='…'."))
    return name


def _with_extra(reading: signature.FunctionSignature, options: ToolOptions, where: str) -> JSON:
    """Return the input schema; `**kwargs` accepts further arguments of its annotation or `additional_properties`."""
    schema: JSON = reading.parameters.schema
    additional = options.declared.get("additional_properties")
    if reading.extra is None:
        if additional is False:
            return {**schema, "additionalProperties": False}
        if additional is not None:
            message = "additional_properties: the function has no **kwargs to take them."
            raise DefinitionError(Problem(where=where, message=message))
        return schema
    each = reading.extra.schema
    if additional is None:
        additional = each["properties"][EACH] or True
    here, there = schema.get("$defs", {}), each.get("$defs", {})
    if any(here[name] != there[name] for name in here.keys() & there.keys()):
        # Two classes have the same name: the rule is enforced in the call instead of published.
        additional, there = True, {}
    definitions: JSON = {**there, **here}
    return {**schema, "additionalProperties": additional, **({"$defs": definitions} if definitions else {})}


# ---------------------------------------------------------------- the call


def _handler(fn: Callable[..., Any], reading: signature.FunctionSignature) -> Handler:
    """Return the handler: passes arguments by name, converts them, and injects the context."""
    values: Callable[[JSON], JSON] | None = None if reading.parameters.is_plain else reading.parameters.values
    # Most conversions are for `int`, since JSON Schema accepts 3.0; then only floats need a look.
    is_of_floats_alone: bool = values is not None and reading.parameters.coerces_integers_alone
    name, wants_call = reading.context, reading.wants_call
    extra = reading.extra
    reserved: frozenset[str] = reading.reserved if extra is not None else frozenset()
    each: Callable[[JSON], JSON] | None = None if extra is None or extra.is_plain else extra.values
    own = frozenset(reading.parameters.schema["properties"])

    def handler(ctx: CallContext, args: JSON) -> Any:
        if reserved and not reserved.isdisjoint(args):
            raise _not_an_argument(sorted(reserved & set(args)))
        if each is not None:
            args = {**args, **{key: _as(each, key, value) for key, value in args.items() if key not in own}}
        if is_of_floats_alone:
            for value in args.values():
                if type(value) is float:
                    args = cast("Any", values)(args)
                    break
        elif values is not None:
            args = values(args)
        if name is None:
            return fn(**args)
        return fn(**args, **{name: ctx if wants_call else ctx.plain()})

    return handler


def _as(each: Callable[[JSON], JSON], key: str, value: Any) -> Any:
    """Convert a further argument by its annotation; an error has the caller's name for it."""
    try:
        return each({EACH: value})[EACH]
    except CallError as error:
        raise CallError("invalid_arguments", str(error).replace(json_path([EACH]), json_path([key]))) from None


def _not_an_argument(names: list[str]) -> CallError:
    listed = "; ".join(f"$.{name}: {name!r} is not an argument here" for name in names)
    return CallError("invalid_arguments", f"Invalid arguments: {listed}. Correct them and call again.")


def _collecting(handler: Handler) -> Handler:
    """Return a handler that gives all values of a generator as a list."""

    def collected(ctx: CallContext, args: JSON) -> Any:
        values: Any = handler(ctx, args)
        return values if not isinstance(values, Iterator) else _all_of(cast("Iterator[Any]", values))

    return collected


def _collecting_async(handler: Handler) -> Handler:
    async def collected(ctx: CallContext, args: JSON) -> Any:
        values: Any = handler(ctx, args)
        values = await values if inspect.isawaitable(values) else values
        if isinstance(values, Iterator):
            return _all_of(cast("Iterator[Any]", values))
        if not isinstance(values, AsyncIterable):
            return values
        items: list[Any] = []
        iterator = aiter(cast("AsyncIterable[Any]", values))
        try:
            async for value in iterator:
                _check_count(items)
                items.append(value)
        finally:
            # An open connection is closed now, not when it is collected as garbage.
            close: Any = getattr(iterator, "aclose", None)
            if close is not None:
                await close()
        return items

    return collected


def _all_of(values: Iterator[Any]) -> list[Any]:
    items: list[Any] = []
    try:
        for value in values:
            _check_count(items)
            items.append(value)
    finally:
        close: Any = getattr(values, "close", None)
        if close is not None:
            close()
    return items


def _check_count(items: list[Any]) -> None:
    if len(items) >= GENERATED_VALUES:
        text = f"The tool gave more than {GENERATED_VALUES:,} values. Ask for fewer, e.g. with a narrower search."
        raise CallError("result_too_large", text, outcome_unknown=True)


def _writing(handler: Handler, write: Callable[[Any], Any]) -> Handler:
    return lambda ctx, args: write(handler(ctx, args))


def _writing_async(handler: Handler, write: Callable[[Any], Any]) -> Handler:
    async def written(ctx: CallContext, args: JSON) -> Any:
        return write(await cast("Awaitable[Any]", handler(ctx, args)))

    return written
