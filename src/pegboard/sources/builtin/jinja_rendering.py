"""Jinja rendering: renders a template in Jinja's sandbox; runs only in our sandbox process."""

from __future__ import annotations

import json
import signal
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from traceback import walk_tb
from typing import Any

from jinja2 import StrictUndefined, TemplateError
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

TEMPLATE_EXPONENT = 100  # the largest exponent in a template
TEMPLATE_POWER_BASE = 10**12  # the largest base of a power in a template


class OutputTooLargeError(Exception):
    """The rendered text is too long."""


class TemplateRefusedError(Exception):
    """The template is invalid, or uses something forbidden."""


class Environment(ImmutableSandboxedEnvironment):
    """A sandbox that also limits powers, whose result is unbounded and cannot be interrupted."""

    intercepted_binops = frozenset({"**"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if abs(right) > TEMPLATE_EXPONENT or abs(left) > TEMPLATE_POWER_BASE:
            raise TemplateRefusedError(f"{operator} takes exponents up to {TEMPLATE_EXPONENT}.")
        return left**right


class TooSlowError(BaseException):
    """The time is over; a template cannot catch this."""


def _stop(number: int, frame: object) -> None:
    raise TooSlowError


def render(request: dict[str, Any], payload: bytes) -> str:
    """Return the text of `request["template"]`, at most `request["max_chars"]` characters.

    The payload is the JSON of its `data`. The values are data: template syntax in them stays text.
    """
    environment = new_environment()
    # The template's time starts here; the parent's limit includes our start.
    with limited_time(request["timeout_s"]):
        return filled(environment, request["template"], {"data": json.loads(payload)}, request["max_chars"])


def new_environment(kind: type[Environment] = Environment) -> Environment:
    """Return a sandbox where undefined names are errors."""
    environment = kind(undefined=StrictUndefined, autoescape=False)
    # Jinja's global functions lead to all of Python through their attributes, and none is needed.
    environment.globals = {}
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False, "ensure_ascii": False}
    environment.filters |= {"tojson": to_json}  # pyright: ignore[reportUnknownMemberType] - untyped
    return environment


@contextmanager
def limited_time(timeout_s: float) -> Generator[None]:
    """Stop the block when the time is over.

    Raises:
        TimeoutError: it was stopped.
    """
    signal.signal(signal.SIGALRM, _stop)
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    try:
        yield
    except TooSlowError:
        raise TimeoutError(f"It did not finish within {timeout_s:g} s.") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def filled(environment: Environment, template: str, names: Mapping[str, Any], max_chars: int) -> str:
    """Return the text of a template rendered with these names.

    Raises:
        OutputTooLargeError: the text is too long.
        TemplateRefusedError: the template is invalid, or uses undefined or forbidden names.
    """
    pieces: list[str] = []
    length = 0
    try:
        for piece in environment.from_string(template).generate(**names):
            length += len(piece)
            if length > max_chars:
                raise OutputTooLargeError(f"The template gave more than {max_chars} characters. Ask for less.")
            pieces.append(piece)
    except SecurityError as exc:
        raise TemplateRefusedError(f"{_line_of(exc, template)}it reaches for what is not data.") from None
    except (TemplateError, TemplateRefusedError) as exc:
        raise TemplateRefusedError(f"{_line_of(exc, template)}{str(exc).rstrip('.')}.") from None
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError) as exc:
        raise TemplateRefusedError(f"{_line_of(exc, template)}{type(exc).__name__}: {str(exc)[:200]}.") from None
    return "".join(pieces)


def _line_of(error: BaseException, template: str) -> str:
    """Return the line of an error in a multi-line template, without its text, which callers may not see."""
    if "\n" not in template.strip():
        return ""
    lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == "<template>"]
    number = lines[-1] if lines else getattr(error, "lineno", None)
    return f"line {number}: " if number else ""


def to_json(value: Any, indent: int | None = None) -> str:
    """Write JSON unchanged; Jinja's own filter escapes for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent)
