"""Loading: bring in a module when it is used, not when Pegboard is imported."""

from __future__ import annotations

import importlib
from typing import Any


class Later:
    """A module that is imported at its first use. The only way to import late, so that a search for it finds them all.

    Importing Pegboard must stay cheaper than importing pydantic (design §6), so what only a
    registration, a question or a call needs comes in with the first of them.
    """

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self._module), name)
        # Kept as a plain attribute: the next access costs what one of a module does.
        self.__dict__[name] = value
        return value
