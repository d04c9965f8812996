"""Astromesh folder: agent files of Astromesh, as files beside the config with what can be honoured here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from pegboard.cli.declarations.clear_secrets import looks_secret, names_secret
from pegboard.cli.declarations.documents import FOREIGN_ENTRIES, read_document
from pegboard.cli.declarations.proposal import EntryWriter, Proposal
from pegboard.config import mapping_text
from pegboard.config.unsupported import refusal
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object

_VERSION = "astromesh/v1"


def astromesh_proposal(folder: Path) -> Proposal:
    """Return the agents of a folder, each as a file of its own; what each loses is named."""
    files: dict[str, str] = {}
    left_out: list[str] = []
    exports: list[Any] = []
    for path in islice(sorted(folder.rglob("*.y*ml")), FOREIGN_ENTRIES):
        document = read_document(path)
        name = path.relative_to(folder).as_posix()
        if not is_object(document) or not str(document.get("apiVersion", "")).startswith("astromesh/"):
            left_out.append(f"{name}: it is no file of Astromesh")
            continue
        if document.get("kind") != "Agent" or document.get("apiVersion") != _VERSION:
            what = f"{document.get('apiVersion')} {document.get('kind')}"
            left_out.append(f"{name}: {what!r} has no counterpart here; `{_VERSION}` Agent has")
            continue
        metadata = document.get("metadata")
        agent = str(metadata.get("name")) if is_object(metadata) else path.stem
        writer = EntryWriter(label=re.sub(r"\W", "_", agent), file=name, exports=exports)
        kept = _Reader(writer, name).read(document, ())
        written = f"agents/{re.sub(r'[^A-Za-z0-9_-]', '_', agent)}.agent.yaml"
        if written in files:
            left_out.append(f"{name}: there is another agent {agent!r}")
            continue
        files[written] = mapping_text(kept)
        left_out += writer.left_out
    globs = ("agents/*.agent.yaml",) if files else ()
    return Proposal(globs=globs, files=files, exports=tuple(exports), left_out=tuple(left_out))


class _Reader:
    """Copies a document without what is refused by name."""

    def __init__(self, writer: EntryWriter, file: str) -> None:
        self._writer, self._file = writer, file

    def read(self, value: JSONValue, steps: tuple[str | int, ...]) -> Any:
        if is_object(value):
            return dict(self._kept(value, steps))
        if is_list(value):
            return [self.read(item, (*steps, place)) for place, item in enumerate(value)]
        if isinstance(value, str) and not value.startswith("${"):
            key = next((step for step in reversed(steps) if isinstance(step, str)), "")
            if looks_secret(value) or (names_secret(key) and not key.endswith("_env") and not key.endswith("tokens")):
                return self._writer.concealed(key, value, at=".".join(map(str, steps)))
        return value

    def _kept(self, value: JSON, steps: tuple[str | int, ...]) -> Iterator[tuple[str, Any]]:
        for key, inner in value.items():
            here = (*steps, key)
            reason = refusal(here) or (refusal(here, inner) if isinstance(inner, str) else None)
            if reason is None:
                yield key, self.read(inner, here)
            else:
                told = reason.partition(" yet: ")[2] or reason
                self._writer.left_out.append(f"{self._file}: {'.'.join(map(str, here))}: {told}")
