"""A project folder for a test: files in, catalog or problems out."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pegboard.catalog import Catalog
from pegboard.config import Config, context_for, load_catalog
from pegboard.core.view import View
from pegboard.model.error import DefinitionError, Problem


@dataclass
class Project:
    folder: Path
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return self.folder / "pegboard.yaml"

    def write(self, text: str, **modules: str) -> Project:
        """Write pegboard.yaml, and a module for each keyword."""
        self.path.write_text(textwrap.dedent(text), encoding="utf-8")
        for name, source in modules.items():
            self.file(f"{name}.py", source)
        return self

    def file(self, name: str, text: str) -> Project:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return self

    def load(self) -> tuple[Catalog, Config]:
        return load_catalog(self.path, env=self.env)

    def catalog(self) -> Catalog:
        return self.load()[0]

    def view(self, *, profile: str | None = None, **who: Any) -> View:
        catalog, config = self.load()
        return catalog.view(context_for(config, **who), profile=profile)

    def problems(self) -> list[Problem]:
        """Return what loading refuses; the file is named without its folder."""
        try:
            self.load()
        except DefinitionError as error:
            prefix = f"{self.folder}/"
            return [
                Problem(
                    where=problem.where.replace(prefix, ""),
                    path=problem.path,
                    message=problem.message.replace(prefix, ""),
                )
                for problem in error.problems
            ]
        return []

    def said(self) -> list[str]:
        return [str(problem) for problem in self.problems()]
