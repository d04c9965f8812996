"""Declared again: tells a function that was defined again, e.g. by a notebook cell or a reload, from a second one."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from types import FrameType, FunctionType
from typing import Any

from pegboard.authoring.signature import underlying


def is_declared_again(earlier: Callable[..., Any], fn: Callable[..., Any]) -> bool:
    """Tell whether `fn` is the function `earlier`, defined again because its module or notebook cell ran again.

    Two functions of one name that one run of a module defines are a mistake, and are distinguished by their code: both
    are in the code of the module that is running.
    """
    old, new = _function(earlier), _function(fn)
    if old is None or new is None or old is new:
        return False
    if "<locals>" in new.__qualname__ or (old.__module__, old.__qualname__) != (new.__module__, new.__qualname__):
        return False
    running = next(_running_modules(new), None)
    if running is not None:
        return not any(part is old.__code__ for part in running.f_code.co_consts)
    # Declared from elsewhere: the module has one function of this name, and it is the new one.
    module = sys.modules.get(new.__module__)
    return _function(getattr(module, new.__qualname__, None)) is new


def _function(fn: Any) -> FunctionType | None:
    bare = inspect.unwrap(underlying(fn)) if callable(fn) else None
    return bare if isinstance(bare, FunctionType) else None


def _running_modules(fn: FunctionType) -> Iterator[FrameType]:
    """Yield the frames that run the module of a function, or a cell of its notebook."""
    frame: FrameType | None = sys._getframe()  # pyright: ignore[reportPrivateUsage] - the documented way to the caller
    while frame is not None:
        if frame.f_globals is fn.__globals__ and frame.f_locals is frame.f_globals:
            yield frame
        frame = frame.f_back
