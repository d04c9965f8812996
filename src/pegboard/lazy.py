"""Lazy: import a heavy package at its first use. The only way to import late, so that a search finds every place.

It stands in the `else` of an `if TYPE_CHECKING:` that imports the same module, so that the type checker knows what the
name is, and import-linter counts the edge:

    if TYPE_CHECKING:
        import numpy as np
    else:
        np = LazyModule("numpy")

`tools/gates.py` holds the form, and the list of what may be loaded so.
"""

from __future__ import annotations

import importlib
from typing import Any


class LazyModule:
    """A module that is imported when something of it is first asked for."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        module = importlib.import_module(self._module)
        try:
            value = getattr(module, name)
        except AttributeError:
            # A module inside of a package is there only once it is imported itself.
            value = importlib.import_module(f"{self._module}.{name}")
        # Kept as a plain attribute: the next access costs what one of a module does.
        self.__dict__[name] = value
        return value
