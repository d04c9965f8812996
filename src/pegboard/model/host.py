"""Host: what the host application lends to every request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pegboard.model.consent import Approve
from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSONValue
from pegboard.model.secret import Secret


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Host:
    """Settings, secrets, factories, services and the consent prompt that the host lends. One value per config.

    Raises:
        DefinitionError: a secret is not wrapped in `Secret`.
    """

    settings: Mapping[str, JSONValue] = field(default_factory=dict[str, Any], repr=False)
    secrets: Mapping[str, Secret] = field(default_factory=dict[str, Secret], repr=False)
    upstream_credentials: Mapping[str, Secret] = field(default_factory=dict[str, Secret], repr=False)
    factories: Mapping[str, Callable[..., Any]] = field(default_factory=dict[str, Callable[..., Any]], repr=False)
    services: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    approve: Approve | None = None

    def __post_init__(self) -> None:
        lent: dict[str, Any] = {**self.upstream_credentials, **self.secrets}
        for name, value in lent.items():
            if not isinstance(value, Secret):
                raise DefinitionError(f"The secret {name!r} is a plain {type(value).__name__}: wrap it, Secret(…).")


NO_HOST = Host()
