"""json_transform: compute a value from JSON by an expression, or by a template where the config allows it."""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field

from pegboard.core.after_fork import Threads
from pegboard.core.json_reader import read_answer
from pegboard.egress.sandbox import SANDBOX_START_S, SandboxError, run_sandboxed
from pegboard.lazy import LazyModule
from pegboard.model.bounds import MIB
from pegboard.model.call_context import CallContext
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, JSONValue
from pegboard.model.record import replace
from pegboard.model.tool import Annotations, Handler, ToolSpec
from pegboard.sources.builtin.kind import BuiltinConfig, BuiltinKind, Services, tool_spec

if TYPE_CHECKING:
    from pegboard.sources import expressions
else:
    expressions = LazyModule("pegboard.sources.expressions")

TRANSFORM_INLINE_S = 0.01  # seconds until an expression is restarted in a thread, where it blocks nobody
TRANSFORM_THREADS = 4  # threads for slow expressions of all callers


# Separate threads, so that expressions do not delay reads of keys or consents.
_THREADS = Threads(TRANSFORM_THREADS, name="pegboard-transform")
_RENDER = "pegboard.sources.builtin.jinja_rendering:render"


class TransformConfig(BuiltinConfig):
    """The limits of a transformation, and whether templates may be used."""

    timeout_seconds: float = Field(1.0, gt=0, le=60, description="The time limit of one transformation, in seconds.")
    template: bool = Field(False, description="Whether `language: template` (sandboxed Jinja2) may be used.")
    max_output_bytes: int = Field(1 * MIB, gt=0, description="The size limit of the result, in bytes.")
    max_memory_bytes: int = Field(256 * MIB, ge=64 * MIB, description="The memory limit of a template, in bytes.")


SPEC = tool_spec(
    "json_transform",
    "Select, filter or reshape JSON with a JMESPath expression, such as `people[?age > `30`].name`.",
    arguments={
        "data": {"description": "Any JSON to start from."},
        "expression": {"type": "string", "minLength": 1, "maxLength": 10_000, "description": "A JMESPath expression."},
    },
    required=("data", "expression"),
    result={"result": {"description": "The value; null where nothing matches."}},
    always=("result",),
    annotations=Annotations(read_only=True, destructive=False, idempotent=True, open_world=False),
    examples=({"data": {"people": [{"name": "Ann", "age": 31}]}, "expression": "people[?age > `30`].name"},),
)
_LANGUAGE: JSON = {
    "type": "string",
    "enum": ["jmespath", "template"],
    "default": "jmespath",
    "description": "`template`: a Jinja2 template that sees the value as `data` and gives text, "
    "or JSON where that is an object or list.",
}


def make(config: TransformConfig, services: Services) -> Handler:
    """Return the handler: quick expressions run inline, templates in a child process."""

    def transform(ctx: CallContext, args: JSON) -> Any:
        if args.get("language", "jmespath") == "template":
            return _rendered(config, args)
        data, expression = args["data"], args["expression"]
        try:
            return {
                "result": expressions.evaluate(
                    expression, data, timeout_s=TRANSFORM_INLINE_S, max_size=config.max_output_bytes
                )
            }
        except CallError as exc:
            if exc.error.kind != "timeout":
                raise
        return _evaluated(config, args)

    return transform


async def _evaluated(config: TransformConfig, args: JSON) -> JSON:
    def run() -> JSON:
        value = expressions.evaluate(
            args["expression"], args["data"], timeout_s=config.timeout_seconds, max_size=config.max_output_bytes
        )
        return {"result": value}

    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(_THREADS.executor, context.run, run)


async def _rendered(config: TransformConfig, args: JSON) -> JSON:
    request = {
        "template": args["expression"],
        "max_chars": config.max_output_bytes,
        "timeout_s": config.timeout_seconds,
    }
    try:
        text = await run_sandboxed(
            _RENDER,
            request,
            json.dumps(args["data"]).encode(),
            timeout_s=config.timeout_seconds + SANDBOX_START_S,
            memory_bytes=config.max_memory_bytes,
            # A character may take six in JSON (a \\u escape).
            output_bytes=6 * config.max_output_bytes + 100,
        )
    except SandboxError as exc:
        raise _refusal(exc, config) from None
    except CallError as exc:
        if exc.error.kind == "timeout":
            raise _too_slow(config) from None
        text = "The template needed more memory than it may use. Give it less to do."
        raise CallError("template_error", text) from None
    return {"result": _as_json(text)}


def _as_json(text: str) -> JSONValue:
    """Return the object or list in a JSON text; any other text unchanged, including numbers."""
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return read_answer(text.encode("utf-8", "surrogatepass"))
    except ValueError:
        return text


def _refusal(exc: SandboxError, config: TransformConfig) -> CallError:
    if exc.type_name == "OutputTooLargeError":
        return CallError("result_too_large", exc.text)
    if exc.type_name == "TimeoutError":
        return _too_slow(config)
    return CallError("template_error", f"The template is refused: {exc.text} Correct it.")


def _too_slow(config: TransformConfig) -> CallError:
    return CallError("timeout", f"The template did not finish within {config.timeout_seconds:g} s. Give it less to do.")


def adapt(config: TransformConfig, spec: ToolSpec, services: Services) -> ToolSpec:
    """Return the declaration; it offers a choice of language if templates are allowed."""
    if not config.template:
        return spec
    longer = replace(spec, timeout_s=(spec.timeout_s or 0.0) + SANDBOX_START_S)
    return longer.extended(extra_properties={"language": _LANGUAGE})


def packages(config: TransformConfig) -> Mapping[str, str]:
    """Return the packages for expressions, and for templates if they are allowed."""
    return {"jmespath": "tools", "jinja2": "tools"} if config.template else {"jmespath": "tools"}


KIND = BuiltinKind(
    spec=SPEC,
    config=TransformConfig,
    make=make,
    runs="inline",
    needs_context=False,
    adapt=adapt,
    packages=packages,
)
