"""Expressions: evaluates JMESPath with limits on time and on the size of every intermediate value."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, cast

import jmespath.exceptions
import jmespath.functions
import jmespath.parser
import jmespath.visitor

from pegboard.model.error import CallError, DefinitionError
from pegboard.model.json_types import JSONValue, is_list, is_object

_CHECK_EVERY = 64  # steps between two checks of the clock
_VISITORS: dict[str, Any] = {
    name.removeprefix("visit_"): getattr(jmespath.visitor.TreeInterpreter, name)
    for name in dir(jmespath.visitor.TreeInterpreter)
    if name.startswith("visit_")
}
# All other kinds return a part of their input, or a boolean.
_GROWING = frozenset(kind for kind in _VISITORS if "projection" in kind or "multi_select" in kind or "function" in kind)


class _Meter:
    """Measures values as if they were serialised, and checks the time.

    JMESPath shares parts: `[@, @] | [@, @] | …` is small in memory, but doubles with every step once it is serialised
    or compared. So every new container is measured, using the known sizes of its parts.
    """

    def __init__(self, *, timeout_s: float, max_size: int) -> None:
        self._until = time.monotonic() + timeout_s
        self._timeout_s = timeout_s
        self._max_size = max_size
        # By id; the values are kept alive here, so that ids are not reused.
        self._sizes: dict[int, tuple[int, object]] = {}
        self._ticks = 0

    def tick(self) -> None:
        self._ticks += 1
        if self._ticks % _CHECK_EVERY == 0 and time.monotonic() > self._until:
            text = f"The expression did not finish within {self._timeout_s:g} s. Use less data or a simpler expression."
            raise CallError("timeout", text)

    def size(self, value: Any) -> int:
        """Return the approximate number of characters of a value as JSON.

        Raises:
            CallError: result_too_large; timeout.
        """
        self.tick()
        if isinstance(value, str):
            size = len(value) + 2
        elif not (is_list(value) or is_object(value)):
            return 8
        else:
            known = self._sizes.get(id(value))
            if known is not None:
                return known[0]
            size = 2
            for item in value:
                size += self.size(item) + 1
            if is_object(value):
                size += sum([self.size(item) + 1 for item in value.values()])
            self._sizes[id(value)] = (size, value)
        if size > self._max_size:
            text = f"A value of the expression has more than {self._max_size} characters. Select less."
            raise CallError("result_too_large", text)
        return size


class _Functions(jmespath.functions.Functions):
    """JMESPath's functions; their arguments are measured first."""

    def __init__(self, meter: _Meter) -> None:
        self._meter = meter

    def call_function(self, function_name: str, resolved_args: Iterable[Any]) -> Any:
        for argument in resolved_args:
            self._meter.size(argument)
        return super().call_function(function_name, resolved_args)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - untyped


class _Interpreter(jmespath.visitor.TreeInterpreter):
    """Evaluates an expression; the value of every step is measured before the next one uses it."""

    def __init__(self, meter: _Meter) -> None:
        super().__init__(jmespath.visitor.Options(custom_functions=_Functions(meter)))  # pyright: ignore[reportUnknownMemberType] - untyped
        self._meter = meter

    def visit(self, node: Any, *args: Any, **kwargs: Any) -> Any:
        self._meter.tick()
        kind: str = node["type"]
        value: Any = _VISITORS[kind](self, node, *args, **kwargs)
        if kind in _GROWING:
            self._meter.size(value)
        return value


def check(expression: str) -> None:
    """Refuse an invalid expression.

    Raises:
        DefinitionError: with the fault.
    """
    try:
        cast("Any", jmespath.parser.Parser()).parse(expression)
    except jmespath.exceptions.JMESPathError as exc:
        # The rest of the message draws an arrow under the text, which needs several lines.
        raise DefinitionError(" ".join(str(exc).partition(": Parse error")[0].split())[:300]) from None
    except RecursionError:
        raise DefinitionError("it is nested too deeply") from None


def evaluate(expression: str, data: JSONValue, *, timeout_s: float, max_size: int) -> JSONValue:
    """Return the value of the expression for the data.

    The data and every intermediate value may have up to 4 times `max_size`.

    Raises:
        CallError: invalid_arguments for an invalid expression; timeout; result_too_large.
    """
    meter = _Meter(timeout_s=timeout_s, max_size=max_size * 4)
    try:
        parsed = cast("Any", jmespath.parser.Parser()).parse(expression)
        result = _Interpreter(meter).visit(parsed.parsed, data)
        if meter.size(result) > max_size:
            raise CallError("result_too_large", f"The result has more than {max_size} characters. Select less.")
    except jmespath.exceptions.JMESPathError as exc:
        text = " ".join(str(exc).split())[:500]
        raise CallError("invalid_arguments", f"The expression is refused: {text}. Correct it.") from None
    except RecursionError:
        raise CallError("invalid_arguments", "The expression or the data is nested too deeply. Simplify it.") from None
    except (TypeError, ValueError, OverflowError) as exc:
        text = f"The expression cannot be computed: {str(exc)[:200]}. Correct it."
        raise CallError("invalid_arguments", text) from None
    return result
