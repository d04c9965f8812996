"""Foreign injection: find parameters that another framework would fill in, and that a model would have to fill here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

from pegboard.authoring.coercion import is_pydantic_field

# By package; `uncalled_for` has the `Depends` of FastMCP.
_FRAMEWORKS = {
    "agents": "the OpenAI Agents SDK",
    "fastapi": "FastAPI",
    "fastmcp": "FastMCP",
    "langchain": "LangChain",
    "langchain_core": "LangChain",
    "langgraph": "LangGraph",
    "mcp": "the MCP SDK",
    "pydantic_ai": "Pydantic AI",
    "starlette": "Starlette",
    "uncalled_for": "FastMCP",
}
_CONTEXTS = ("Context", "ContextWrapper", "Request", "Runtime", "RunnableConfig")


def injected_elsewhere(annotation: Any, default: Any) -> str | None:
    """Return why a parameter is not for the model: a context or a dependency of another framework; else `None`.

    Published as an argument, a dependency such as `user: str = Depends(current_user)` would be the model's to choose.
    """
    for part in _parts(annotation):
        # Of a generic model with arguments only a base is the framework's.
        for base in getattr(part, "__mro__", (part,)):
            framework, name = _framework_of(base), str(getattr(base, "__name__", ""))
            if framework and name.endswith(_CONTEXTS):
                return f"{name} is filled in by {framework}, not by Pegboard: write `ctx: CallContext` instead."
    for marker in (*_metadata(annotation), default):
        kind = marker if isinstance(marker, type) else type(marker)
        framework = _framework_of(kind)
        if framework and not is_pydantic_field(marker):
            return (
                f"{kind.__name__.lstrip('_')} is filled in by {framework}, not by Pegboard, so the model would "
                "choose the value: remove the parameter, and read the value from the context (`ctx: CallContext`)."
            )
    return None


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield the types in an annotation, without metadata and arguments of generics."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _parts(get_args(annotation)[0])
    elif isinstance(origin, type) and _framework_of(origin):
        yield origin
    elif origin is not None:
        for part in get_args(annotation):
            yield from _parts(part)
    else:
        yield annotation


def _metadata(annotation: Any) -> Iterator[Any]:
    """Yield the metadata of an annotation and of the alternatives in it, as in `Annotated[str, Depends(f)] | None`."""
    arguments = get_args(annotation)
    if get_origin(annotation) is Annotated:
        yield from arguments[1:]
        yield from _metadata(arguments[0])
    else:
        for part in arguments:
            yield from _metadata(part)


def _framework_of(kind: Any) -> str:
    return _FRAMEWORKS.get(str(getattr(kind, "__module__", "")).partition(".")[0], "")
