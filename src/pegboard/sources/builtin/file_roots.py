"""File roots: the folders of a config, below which a tool may name files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from pegboard.egress.files import Root, decides_nothing


def _as_list(value: object) -> object:
    if value in ([], ()):
        raise ValueError("`roots` names no folder; name at least one, such as [files]")
    return [value] if isinstance(value, str) else value


Roots = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    BeforeValidator(_as_list),
    Field(description="The folders it may use, relative to the config file. There is no default."),
]


HardLinks = Annotated[
    bool,
    Field(
        description=(
            "Whether files with several names (hard links) may be read; another name may be outside the roots. "
            "Package caches contain many such files."
        )
    ),
]


def roots_of(
    roots: Sequence[str], folder: Path, *, hard_links: bool, write_hidden: bool = False,
    decides: Callable[[Path], bool] = decides_nothing,
) -> tuple[Root, ...]:  # fmt: skip
    """Return the roots that a config names.

    Raises:
        DefinitionError: one is not a folder.
    """
    return tuple(
        Root(path=folder / Path(root).expanduser(), write_hidden=write_hidden, hard_links=hard_links, decides=decides)
        for root in roots
    )
