"""Signature: read a tool from a function's parameters, return annotation and docstring."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import typing
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import TYPE_CHECKING, Any, Literal, cast, get_args, get_origin

import typing_extensions
from msgspec import Struct, field

from pegboard.authoring.field import MISSING
from pegboard.authoring.parameter_schema import Parameter, ParameterSchema, parameter, parameter_schema
from pegboard.lazy import LazyModule
from pegboard.model.call_context import CallContext
from pegboard.model.context import ToolContext
from pegboard.model.error import DefinitionError, Problem
from pegboard.model.record import replace

if TYPE_CHECKING:
    import docstring_parser as _docstrings
else:
    _docstrings = LazyModule("docstring_parser")


EACH = "each"
"""The key for the conversion of all further arguments."""


class FunctionSignature(Struct, frozen=True, kw_only=True):
    """The contents of a signature.

    `context` is the name of the injected parameter, `wants_call` whether it is a `CallContext`. `reserved` are names
    that no argument may have: the context's, and parameters fixed by a partial. `extra` describes further arguments of
    `**kwargs`, `None` without them. `returns` is the return annotation. `stray_words` are parameters that the docstring
    describes but the function does not have.
    """

    parameters: ParameterSchema
    description: str = ""
    context: str | None = None
    wants_call: bool = False
    reserved: frozenset[str] = field(default_factory=frozenset[str])
    extra: ParameterSchema | None = None
    returns: Any = inspect.Signature.empty
    stray_words: tuple[str, ...] = ()


def read_function(fn: Callable[..., Any], *, where: str) -> FunctionSignature:
    """Read a function or any other callable.

    Raises:
        DefinitionError: a parameter that no JSON object can fill, or an annotation without a JSON Schema.
    """
    bare = underlying(fn)
    if hasattr(fn, "dispatch") and hasattr(fn, "registry"):
        message = "`singledispatch` chooses by an argument without a name, and arguments have names; wrap it."
        raise DefinitionError(Problem(where=where, message=message))
    hints = type_hints(bare, where=where)
    description, described = _docstring_of(fn, bare)
    fixed, signature = _fixed(fn), _signature(fn, where)
    parameters: list[Parameter] = []
    contexts: dict[str, type[ToolContext]] = {}
    extra: ParameterSchema | None = None
    for name, item in signature.items():
        annotation = _annotation_of(item, hints)
        if item.kind in (item.VAR_POSITIONAL, item.POSITIONAL_ONLY):
            raise DefinitionError(Problem(where=where, path=f"parameter {name!r}", message=_BY_NAME))
        if item.kind is item.VAR_KEYWORD and get_origin(annotation) in _UNPACKED:
            unpacked = _unpacked(name, get_args(annotation)[0], described, where=where)
            parameters += [each for each in unpacked if (each.python_name or each.name) not in fixed]
        elif item.kind is item.VAR_KEYWORD:
            extra = parameter_schema([parameter(EACH, annotation)], where=where)
        elif (context := context_type(annotation)) is not None:
            contexts[name] = context
        elif name not in fixed:
            parameters.append(_argument(item, annotation, described.get(name, ""), where=where))
    reserved = fixed | contexts.keys()
    _check_contexts([*contexts], where=where)
    _check_names(parameters, reserved, where=where)
    return FunctionSignature(
        parameters=parameter_schema(parameters, where=where),
        description=description,
        context=next(iter(contexts), None),
        wants_call=any(issubclass(context, CallContext) for context in contexts.values()),
        reserved=frozenset(reserved),
        extra=extra,
        returns=hints.get("return", inspect.Signature.empty),
        stray_words=() if extra is not None else _stray_words(described, signature, parameters),
    )


def _docstring_of(fn: Callable[..., Any], bare: Any) -> tuple[str, dict[str, str]]:
    """Return the docstring of a function as `docstring` does; that of a partial is its class's, which is useless."""
    if bare.__doc__:
        return docstring(bare)
    return ("", {}) if _is_partial(fn) else docstring(fn)


def _annotation_of(item: inspect.Parameter, hints: Mapping[str, Any]) -> Any:
    """Return the resolved annotation of a parameter; `Any` if there is none, or only an unresolved string."""
    is_unresolved = item.annotation is item.empty or isinstance(item.annotation, str)
    return hints.get(item.name, Any if is_unresolved else item.annotation)


def _argument(item: inspect.Parameter, annotation: Any, description: str, *, where: str) -> Parameter:
    """Return a parameter that the model fills in.

    Raises:
        DefinitionError: it has no type, and a name that usually means `self` or a context.
    """
    if item.annotation is item.empty and item.name in _MEANT_OTHERWISE:
        message = _MEANT_OTHERWISE[item.name]
        raise DefinitionError(Problem(where=where, path=f"parameter {item.name!r}", message=message))
    # `...` means "required", as in a pydantic field.
    default = MISSING if item.default is item.empty or item.default is ... else item.default
    return parameter(item.name, annotation, default=default, description=description)


def _check_contexts(names: Sequence[str], *, where: str) -> None:
    if len(names) > 1:
        listed = " and ".join(map(repr, names))
        raise DefinitionError(Problem(where=where, message=f"{listed} both ask for the context; keep one of them."))


def _check_names(parameters: Iterable[Parameter], reserved: Collection[str], *, where: str) -> None:
    for item in parameters:
        if item.name in reserved:
            message = f"has the name {item.name!r}, which is not for the model; give it another one."
            raise DefinitionError(Problem(where=where, path=f"parameter {item.python_name!r}", message=message))


def _stray_words(
    described: Mapping[str, str], signature: Mapping[str, inspect.Parameter], parameters: list[Parameter]
) -> tuple[str, ...]:
    own = {name for item in parameters for name in (item.name, item.python_name, *item.spec.aliases)}
    return tuple(name for name in described if name not in own and name not in signature)


def _unpacked(name: str, keys: Any, described: Mapping[str, str], *, where: str) -> list[Parameter]:
    """Return a parameter for each key of the `TypedDict` in `**name: Unpack[…]`.

    Raises:
        DefinitionError: `Unpack` is not of a TypedDict, or a type in it is unknown.
    """
    if not typing_extensions.is_typeddict(keys):
        message = f"Unpack[{keys!r}]: only the keys of a TypedDict are known beforehand; give one."
        raise DefinitionError(Problem(where=where, path=f"parameter {name!r}", message=message))
    parameters: list[Parameter] = []
    for key, hint in type_hints(keys, where=where).items():
        # `Required` in the annotation wins over the class's own record, which is wrong if annotations are strings.
        is_required, annotation = key in keys.__required_keys__, hint
        while (qualifier := get_origin(annotation)) in _QUALIFIERS:
            is_required = is_required if qualifier is typing_extensions.ReadOnly else qualifier is typing.Required
            annotation = get_args(annotation)[0]
        item = parameter(key, annotation, description=described.get(key, ""))
        parameters.append(replace(item, may_lack=not is_required))
    return parameters


# Before Python 3.12 there are two with the same meaning.
_UNPACKED = (typing.Unpack, typing_extensions.Unpack)
_QUALIFIERS = (typing.Required, typing.NotRequired, typing_extensions.ReadOnly)
# Without a type they would be published, and a model would have to fill them in.
_OF_A_METHOD = (
    "is filled by an object, and here is none: register the method of an object, `catalog.tool(thing.method)`, or "
    "derive a class from Tool. If the model should send it, give it a type."
)
_OF_A_CALL = (
    "has no annotation: write `{0}: ToolContext` or `{0}: CallContext` for the context of a call. If the model should "
    "send it, give it a type."
)
_MEANT_OTHERWISE: Mapping[str, str] = {
    "self": _OF_A_METHOD,
    "cls": _OF_A_METHOD,
    "ctx": _OF_A_CALL.format("ctx"),
    "context": _OF_A_CALL.format("context"),
}
_BY_NAME = "cannot be given by name, and arguments come as a JSON object; make it a plain parameter."


def _signature(fn: Callable[..., Any], where: str) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(fn).parameters
    except (ValueError, TypeError) as error:
        message = f"{fn!r} has no readable signature ({error}); wrap it in your own function."
        raise DefinitionError(Problem(where=where, message=message)) from None


def _is_partial(fn: object) -> bool:
    return isinstance(fn, functools.partial)


def _fixed(fn: Any) -> set[str]:
    """Return the parameters fixed by a partial, which the model neither sees nor changes."""
    names: set[str] = set()
    while isinstance(fn, functools.partial):
        names |= set(fn.keywords)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType] - any function
        fn = fn.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - any function
    return names


def own_hints(owner: type, *, where: str) -> dict[str, Any]:
    """Return the resolved annotations of a class without its bases; raises as `type_hints` does."""
    probe = type("probe", (), {"__annotations__": inspect.get_annotations(owner)})
    # A field may have the name of a type: module names take precedence over class names.
    module: dict[str, Any] = getattr(sys.modules.get(owner.__module__), "__dict__", {})
    return type_hints(probe, where=where, names=(dict(vars(owner)), module))


def type_hints(
    owner: Any, *, where: str, names: tuple[dict[str, Any] | None, Mapping[str, Any] | None] = (None, None)
) -> dict[str, Any]:
    """Return the resolved annotations of a function or class; `names` are other namespaces for resolving them.

    Raises:
        DefinitionError: a name in them is unknown.
    """
    try:
        return typing.get_type_hints(owner, *names, include_extras=True)
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        message = f"an annotation cannot be resolved: {error}. Import the name at module level, outside TYPE_CHECKING."
        raise DefinitionError(Problem(where=where, message=message)) from error


def docstring(owner: Any) -> tuple[str, dict[str, str]]:
    """Return the description and the parameter texts of a docstring in any common style."""
    text = inspect.cleandoc(owner.__doc__) if owner.__doc__ else ""
    if "\n" not in text and not text.startswith((":", "@")):
        # A single line describes no parameters. Most tools need no parser, which tries all styles.
        return text, {}
    parsed = _docstrings.parse(text)
    parts = [part.strip() for part in (parsed.short_description, parsed.long_description) if part]
    # Some docstrings have `a, b: both`, and `**options` as in the signature.
    described = {
        name.split(" ")[0].lstrip("*"): " ".join((item.description or "").split())
        for item in parsed.params
        for name in item.arg_name.split(", ")
    }
    return "\n\n".join(parts), described


def context_type(annotation: Any) -> type[ToolContext] | None:
    """Return the context class of an annotation, including inside `Annotated[…]` and unions with `None`."""
    if inspect.isclass(annotation):
        return annotation if issubclass(annotation, ToolContext) else None
    if get_origin(annotation) is None:
        return None
    parts = [part for part in get_args(annotation) if part is not type(None)]
    if get_origin(annotation) is typing.Annotated:
        parts = parts[:1]
    return context_type(parts[0]) if len(parts) == 1 else None


def asks_for_call(method: Callable[..., Any], name: str, *, where: str) -> bool:
    """Return the context that a method's parameter `name` gets: the call's, unless it is annotated with the request's.

    Only this annotation is resolved, not the rest of the signature.

    Raises:
        DefinitionError: the annotation is another type, or its name is unknown.
    """
    annotation: Any = inspect.signature(method).parameters[name].annotation
    if isinstance(annotation, str):
        word = annotation.rsplit(".", 1)[-1]
        if word in ("CallContext", "ToolContext"):
            # These two are recognised by name, since they are often imported for the type checker only.
            return word == "CallContext"
        probe: Any = type("probe", (), {"__annotations__": {name: annotation}, "__module__": method.__module__})
        annotation = type_hints(probe, where=where)[name]
    if annotation in (inspect.Parameter.empty, Any, object):
        return True
    context = context_type(annotation)
    if context is None:
        message = f"{annotation!r} is not a context type; write `{name}: ToolContext` or `{name}: CallContext`."
        raise DefinitionError(Problem(where=where, path=f"parameter {name!r}", message=message))
    return issubclass(context, CallContext)


def is_async(fn: Callable[..., Any]) -> bool:
    """Tell whether a call returns an awaitable, also through a partial, a decorator or `__call__`."""
    layer: Any = fn
    while layer is not None:
        bare = underlying(layer)
        if inspect.iscoroutinefunction(layer) or inspect.iscoroutinefunction(bare):
            return True
        layer = getattr(bare, "__wrapped__", None)
    return False


_ITERATORS: Mapping[Any, Literal["sync", "async"]] = {
    Iterator: "sync", Generator: "sync", AsyncIterator: "async", AsyncGenerator: "async", AsyncIterable: "async",
}  # fmt: skip


def is_generator(fn: Callable[..., Any]) -> bool:
    """Tell whether a call returns a generator."""
    bare = underlying(fn)
    return inspect.isgeneratorfunction(bare) or inspect.isasyncgenfunction(bare)


def iteration(fn: Callable[..., Any], returns: Any) -> Literal["sync", "async"] | None:
    """Return how the values of a call are iterated over; `None` if it returns one value."""
    bare = underlying(fn)
    if inspect.isasyncgenfunction(bare):
        return "async"
    return "sync" if inspect.isgeneratorfunction(bare) else _ITERATORS.get(_iterator_of(returns))


def collected_type(returns: Any) -> Any:
    """Return the annotation of the list of all values, for the annotation of an iterator; others stay."""
    if _iterator_of(returns) not in _ITERATORS:
        return returns
    items = get_args(returns)
    return list[items[0]] if items else list[Any]


def _iterator_of(annotation: Any) -> Any:
    origin = get_origin(annotation) or annotation
    return origin if isinstance(origin, type) else None


def is_context_manager(fn: Callable[..., Any]) -> bool:
    """Tell whether a function is a `contextlib` context manager."""
    return getattr(underlying(fn), "__globals__", None) is vars(contextlib)


# ---------------------------------------------------------------- location of a declaration


def underlying(fn: Callable[..., Any]) -> Any:
    """Return the function behind a partial, a static method or an object that can be called."""
    bare: Any = fn
    while isinstance(bare, functools.partial | staticmethod):
        bare = bare.func if isinstance(bare, functools.partial) else bare.__func__  # pyright: ignore[reportUnknownMemberType] - any function
    if inspect.isroutine(bare) or isinstance(bare, type):
        return bare
    return getattr(cast("Any", type(bare)), "__call__", bare)


def origin_of(fn: Callable[..., Any]) -> str:
    """Return the location of a function as `module:line`; without a line for code that has none."""
    bare = inspect.unwrap(underlying(fn))
    module = getattr(bare, "__module__", None) or "?"
    line = getattr(getattr(bare, "__code__", None), "co_firstlineno", None)
    return module if line is None else f"{module}:{line}"
