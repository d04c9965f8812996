"""Kinds: the types of tools that a config may declare. A new kind is one module, and one row here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from pegboard.base.loading import Later
from pegboard.config.config import Declared
from pegboard.config.kinds.tool import ToolForm
from pegboard.config.wiring import Wiring

F = TypeVar("F", bound=ToolForm)


@dataclass(frozen=True, slots=True)
class Kind(Generic[F]):
    """One type of tools: the keys that one may have, and what puts it into the catalog that is being wired."""

    form: type[F]
    declare: Callable[[Declared[F], Wiring], None]


class _Kinds(Mapping[str, Kind[Any]]):
    """The kinds by the name of their type. Each is loaded when it is asked for: most configs have few of them."""

    def __init__(self, forms: Mapping[str, str]) -> None:
        self._forms = forms

    def __getitem__(self, name: str) -> Kind[Any]:
        form, module = self._forms[name], Later(f"{__name__}.{name}")
        return Kind(getattr(module, form), module.declare)

    def __iter__(self) -> Iterator[str]:
        return iter(self._forms)

    def __len__(self) -> int:
        return len(self._forms)


KINDS: Final[Mapping[str, Kind[Any]]] = _Kinds({
    "builtin": "BuiltinForm", "client": "ClientForm", "internal": "InternalForm", "mcp": "McpForm",
    "openapi": "OpenApiForm", "webhook": "WebhookForm",
})  # fmt: skip
