"""Files: a config on disk, with the files of its agents, as an operator has it."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path

from pegboard import Catalog, DefinitionError
from pegboard.config.build import load_catalog

MAIN = "files: [agents/*.yaml]\n"


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in {"pegboard.yaml": MAIN, **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return folder / "pegboard.yaml"


def load(folder: Path, files: Mapping[str, str], *, env: Mapping[str, str] | None = None) -> Catalog:
    return load_catalog(write(folder, files), env=env or {})[0]


def faults(folder: Path, files: Mapping[str, str], *, env: Mapping[str, str] | None = None) -> list[str]:
    """Return what a load refuses, each as `file:line: path: message`."""
    try:
        load(folder, files, env=env)
    except DefinitionError as error:
        return [
            f"{problem.where.removeprefix(str(folder) + '/').rpartition(':')[0]}: {problem.path}: {problem.message}"
            for problem in error.problems
        ]
    return []


def agent_file(name: str, spec: str, *, version: str = "pegboard/v1") -> str:
    model = f"model: {{provider: openai_compatible, base_url: 'http://127.0.0.1:9/v1', name: {name}}}"
    lines = [f"apiVersion: {version}", "kind: Agent", f"metadata: {{name: {name}}}", "spec:", f"  {model}"]
    return "\n".join(lines) + "\n" + textwrap.indent(textwrap.dedent(spec), "  ")
