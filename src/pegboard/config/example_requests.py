"""Example requests: read and write the file with people's example requests for each tool."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import Field

from pegboard.config.forms.validation import validated
from pegboard.config.forms.value_types import FilledText, Form, Maybe, Text
from pegboard.config.yaml.config_files import has_top_level_key, read_text
from pegboard.config.yaml.parser import parse
from pegboard.config.yaml.problems import Report
from pegboard.config.yaml.tree import At, Table, plain_value
from pegboard.discovery.example_requests import EXAMPLE_REQUEST_CHARS, EXAMPLE_REQUESTS, ExampleRequests
from pegboard.model.bounds import MIB
from pegboard.model.error import Problem
from pegboard.storage.whole_file import write_whole

EXAMPLE_FILE_BYTES = 16 * MIB  # bytes of the file
EXAMPLE_FILE_VALUES = 500_000  # values in the file

_HEAD = """\
# Example requests for each tool. Tool search uses them in addition to the tools' own descriptions.
# `pegboard search --write-examples` writes it. Review it like code, and change what is wrong. `definition` marks what
# the tool at that time: once it changes, its requests are stale, are ignored, and the next run replaces them.
# Requests without it are yours; they stay as they are, whatever becomes of the tool. No other comment is kept.
"""
_NO_REQUESTS = "this is not a file of example requests: no line begins with `tools:`"


class RequestsForm(Form):
    """Example requests for one tool."""

    definition: Maybe[FilledText] = Field(
        None, description="The hash of the tool's definition when the requests were written."
    )
    requests: tuple[FilledText, ...] = Field(description="Requests in people's own words.")


class RequestsFile(Form):
    """Requests by the ids of the tools, such as `shop.refund`."""

    tools: Mapping[Text, RequestsForm] = Field(description="The tools.")


def read_requests(path: Path, report: Report) -> Mapping[str, ExampleRequests]:
    """Return the requests in a file; problems are reported. A missing file has none."""
    if not path.exists():
        return {}
    text = read_text(path, max_bytes=EXAMPLE_FILE_BYTES)
    if isinstance(text, Problem):
        report.add(text)
        return {}
    root, problems = parse(text, file=str(path), scalar_keys=True, max_nodes=EXAMPLE_FILE_VALUES)
    if problems:
        has_tools = has_top_level_key(text, RequestsFile.model_fields)
    else:
        has_tools = root is None or (isinstance(root, Table) and "tools" in root.items)
    if not has_tools:
        # Do not quote the file: the path may name any file.
        report.add(Problem(where=str(path), message=_NO_REQUESTS))
        return {}
    report.add(*problems)
    if problems or root is None:
        return {}
    # Variables are not expanded: a model wrote part of the file, and must not be able to name secrets.
    file = validated(RequestsFile, plain_value(root), At(root), report=report)
    if file is None:
        return {}
    for name, form in file.tools.items():
        report.add(*(Problem(where=str(path), path=name, message=fault) for fault in _faults(form)))
    return {
        name: ExampleRequests(requests=form.requests, definition=form.definition) for name, form in file.tools.items()
    }


def _faults(form: RequestsForm) -> Iterator[str]:
    if len(form.requests) > EXAMPLE_REQUESTS:
        yield f"{len(form.requests)} requests; a tool may have {EXAMPLE_REQUESTS}. Keep those that differ most"
    longest = max(map(len, form.requests), default=0)
    if longest > EXAMPLE_REQUEST_CHARS:
        limit = f"the limit is {EXAMPLE_REQUEST_CHARS}"
        yield f"a request has {longest} characters; {limit}. Describe the need, not the task"


def write_file(path: Path, requests: Mapping[str, ExampleRequests]) -> None:
    """Write the whole file, in the order of the ids; a link stays a link.

    Raises:
        OSError: it cannot be written; the old file is still there.
    """
    path = path.resolve()
    umask = os.umask(0o077)
    os.umask(umask)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~umask
    write_whole(path, _text(requests).encode(), mode=mode)


def _text(requests: Mapping[str, ExampleRequests]) -> str:
    lines = [_HEAD + ("tools:" if requests else "tools: {}")]
    for name, examples in sorted(requests.items()):
        lines.append(f"  {_quoted(name)}:")
        if examples.definition is not None:
            lines.append(f"    definition: {_quoted(examples.definition)}")
        lines.append("    requests:" if examples.requests else "    requests: []")
        lines += [f"      - {_quoted(request)}" for request in examples.requests]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Return a text as a YAML string, which may be written as in JSON; letters of every script stay readable."""
    return json.dumps(text, ensure_ascii=not text.isprintable())
