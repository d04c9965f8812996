"""Jinja rendering: fill a template in Jinja's own sandbox; runs in our sandbox process, and nowhere else."""

from __future__ import annotations

import json
import signal
from typing import Any

from jinja2 import StrictUndefined, TemplateError
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pegboard.model.bounds import TEMPLATE_EXPONENT, TEMPLATE_POWER_BASE


class OutputTooLargeError(Exception):
    """The template gave more text than it may."""


class TemplateRefusedError(Exception):
    """The template is faulty, or asks for what a template must not reach."""


class _Environment(ImmutableSandboxedEnvironment):
    """A sandbox that also refuses the one operator whose result has no bound and cannot be interrupted."""

    intercepted_binops = frozenset({"**"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if abs(right) > TEMPLATE_EXPONENT or abs(left) > TEMPLATE_POWER_BASE:
            raise TemplateRefusedError(f"{operator} takes exponents up to {TEMPLATE_EXPONENT}.")
        return left**right


class TooSlowError(BaseException):
    """The time is over; nothing in a template can catch it."""


def _stop(number: int, frame: object) -> None:
    raise TooSlowError


def render(request: dict[str, Any]) -> str:
    """Return the text of `request["template"]` with `request["data"]`, at most `request["max_chars"]` characters.

    The values are data: what looks like a template in them is text.
    """
    environment = _Environment(undefined=StrictUndefined, autoescape=False)
    # Globals are functions of Jinja's own, with all of Python behind their attributes; none is needed.
    environment.globals = {}
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False, "ensure_ascii": False}
    environment.filters |= {"tojson": _to_json}  # pyright: ignore[reportUnknownMemberType] - untyped
    # From here on the template's own time runs; the parent's limit has room for our start.
    signal.signal(signal.SIGALRM, _stop)
    signal.setitimer(signal.ITIMER_REAL, request["timeout_s"])
    try:
        return _filled(environment, request)
    except TooSlowError:
        raise TimeoutError(f"It did not finish within {request['timeout_s']:g} s.") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _filled(environment: _Environment, request: dict[str, Any]) -> str:
    pieces: list[str] = []
    length = 0
    try:
        for piece in environment.from_string(request["template"]).generate(data=request["data"]):
            length += len(piece)
            if length > request["max_chars"]:
                raise OutputTooLargeError(
                    f"The template gave more than {request['max_chars']} characters. Ask for less."
                )
            pieces.append(piece)
    except SecurityError:
        raise TemplateRefusedError("it reaches for what is not data.") from None
    except TemplateError as exc:
        raise TemplateRefusedError(f"{str(exc).rstrip('.')}.") from None
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError) as exc:
        raise TemplateRefusedError(f"{type(exc).__name__}: {str(exc)[:200]}.") from None
    return "".join(pieces)


def _to_json(value: Any, indent: int | None = None) -> str:
    """Write JSON as it is; Jinja's own filter escapes for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent)
