"""eval: how well tool search finds the tools that your own requests need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter
from msgspec import Struct

from pegboard.cli.command_error import CommandError, Exit
from pegboard.cli.options import SharedOptions
from pegboard.cli.project import opened
from pegboard.cli.terminal import Column
from pegboard.config.embedders import embedder_named
from pegboard.config.yaml.parser import parse
from pegboard.config.yaml.tree import plain_value
from pegboard.core.names import nearest_one
from pegboard.core.ports import Embedder
from pegboard.core.view import View
from pegboard.discovery.evaluation import RECALLED, Evaluation, JudgedRequest, evaluated
from pegboard.discovery.finder import Finder
from pegboard.discovery.token_count import tokenizer
from pegboard.model.bounds import MIB
from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSON, JSONValue

EVAL_FILE_BYTES = 16 * MIB  # bytes of a file of requests
EVAL_FILE_VALUES = 500_000  # values in it
EVAL_SHOWN = 10  # missed requests, and confused pairs, that the text output lists

_EXAMPLE = 'requests: [{query: "what is Apple worth today", tools: [quote]}]'
_COLUMNS = (
    Column(head="Searched by", style="bold"),
    *(Column(head=f"recall@{k}") for k in RECALLED),
    *(Column(head=level) for level in ("strong", "fair", "weak")),
    Column(head="tokens"),
)


class _Row(Struct, forbid_unknown_fields=True):
    """A request as the file has it."""

    query: str = ""
    tools: list[str] = []
    queries: list[str] = []


class _File(Struct, forbid_unknown_fields=True):
    """A file of requests."""

    requests: list[_Row]


async def eval_command(
    path: Annotated[Path, Parameter(name="file", help="Requests as YAML, JSON, or JSON lines.")],
    *,
    embedder: Annotated[
        str | None,
        Parameter(help="Compare with this embedder: `static`, `hashing`, or a folder with an ONNX model."),
    ] = None,
    at_least: Annotated[
        float | None,
        Parameter(
            help="Exit with 1 if the share of the right tools among the first five is lower than this, such as 0.8."
        ),
    ] = None,
    options: SharedOptions,
) -> Exit:
    """Measure how well `searchTools` finds the right tools for your own requests.

    No model is asked. Each request has a `query` and the `tools` that serve it: all that it needs, or none if no tool
    serves it. With `queries` a request has several needs, which are searched for one by one. The table shows the share
    of the right tools among the first hits, how many answers of each confidence are right, and the tokens of an
    answer; then the requests whose tools were missed, and the tools that were ranked before them. With --embedder, or
    an embedder in the config, words alone are shown as well.
    """
    rows = _read(path)
    async with opened(options, lists_only=True, only_reads=True) as (project, view):
        await view.prepare()
        requests = _requests(rows, view, path)
        finder, counting = project.catalog.discovery.finder, tokenizer()
        configured = finder.embedder
        ways: list[tuple[str, Embedder | None]] = [("words alone", None)]
        if configured is not None:
            ways.append((configured.model_id, configured))
        if embedder is not None:
            ways.append((embedder, _embedder(embedder)))
        runs: list[Evaluation] = []
        for how, chosen in ways:
            with_embedder = Finder(project.catalog.registry, embedder=chosen)
            with_embedder.use_requests(finder.requests)
            runs.append(await evaluated(with_embedder, view, requests, how=how, counting=counting))
        results: list[JSON] = project.clean([run.as_json() for run in runs], view.ctx)
    if options.json:
        options.terminal.json({"profile": options.chosen_profile, "counted_by": counting.name, "runs": results})
    else:
        options.terminal.table(_COLUMNS, [_cells(result) for result in results])
        options.terminal.say("")
        for line in _details(results[-1], options.seen_by):
            options.terminal.say(line)
        options.terminal.say(f"Tokens of an answer, counted by {counting.name}.")
    recall = runs[-1].recall(5)
    if at_least is not None and recall is not None and recall < at_least:
        raise CommandError(
            f"recall@5 is {recall:.3f}, less than --at-least {at_least:g}.", kind="below_limit", code=Exit.REFUSED
        )
    return Exit.DONE


def _read(path: Path) -> list[_Row]:
    """Return the requests of a file.

    Raises:
        CommandError: it cannot be read, or it is not a file of requests.
    """
    try:
        if path.stat().st_size > EVAL_FILE_BYTES:
            raise CommandError(f"{str(path)!r} is larger than {EVAL_FILE_BYTES:,} bytes. Split it.")
        text = path.read_text(encoding="utf-8-sig")  # raw: the operator's file, named on the command line
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise CommandError(f"{str(path)!r} cannot be read: {reason}.", kind="not_found") from None
    try:
        if path.suffix.lower() in (".jsonl", ".ndjson"):
            rows = [msgspec.json.decode(line, type=_Row) for line in text.splitlines() if line.strip()]
        else:
            root, problems = parse(text, file="line", scalar_keys=True, max_nodes=EVAL_FILE_VALUES)
            if problems:
                raise DefinitionError(str(problems[0]))
            rows = msgspec.convert(None if root is None else plain_value(root), _File).requests
    except (msgspec.ValidationError, msgspec.DecodeError, DefinitionError) as error:
        raise CommandError(f"{str(path)!r} is not a file of requests: {error}. Write {_EXAMPLE}.") from None
    if not rows:
        raise CommandError(f"{str(path)!r} has no requests. Write {_EXAMPLE}.")
    return rows


def _requests(rows: Sequence[_Row], view: View, path: Path) -> list[JudgedRequest]:
    """Return the requests with the ids of their tools.

    Raises:
        CommandError: a request has no text, or names a tool that the caller does not see.
    """
    ids: dict[str, str | None] = {}
    for entry in view.tools():
        for name in {entry.spec.name, entry.wire_name, entry.qualified_id}:
            # A short name that two tools have means neither.
            ids[name] = None if name in ids and ids[name] != entry.qualified_id else entry.qualified_id
    requests: list[JudgedRequest] = []
    for number, row in enumerate(rows, 1):
        queries = [each for each in row.queries if each.strip()]
        if not row.query.strip() and not queries:
            raise CommandError(f"Request {number} of {str(path)!r} has no `query`.")
        tool_ids: list[str] = []
        for name in row.tools:
            if (id_ := ids.get(name)) is None:
                near = nearest_one(name, [known for known, tool_id in ids.items() if tool_id is not None])
                hint = f" Did you mean {near!r}?" if near else " `pegboard list` shows the tools of this caller."
                raise CommandError(f"Request {number} names the tool {name!r}, which is not here.{hint}")
            tool_ids.append(id_)
        query = row.query.strip() or "; ".join(queries)
        requests.append(JudgedRequest(query=query, tools=tuple(dict.fromkeys(tool_ids)), queries=tuple(queries)))
    return requests


def _embedder(named: str) -> Embedder:
    """Return an embedder by its type, or by a folder with its model.

    Raises:
        CommandError: there is no such embedder, or its package is missing.
    """
    try:
        return embedder_named(named)
    except DefinitionError as error:
        raise CommandError(f"--embedder {named}: {error}.") from None


def _cells(result: JSON) -> list[str]:
    recall: dict[str, float | None] = result["recall"]
    shares = ["-" if recall[str(k)] is None else f"{recall[str(k)]:.3f}" for k in RECALLED]
    levels: list[str] = []
    for level in ("strong", "fair", "weak"):
        counts: dict[str, int] = result["confidence"][level]
        levels.append(f"{counts['right']} of {counts['requests']} right" if counts["requests"] else "-")
    return [result["how"], *shares, *levels, f"{result['tokens']:,}"]


def _details(result: JSON, seen_by: str) -> Iterator[str]:
    missed: list[JSON] = result["missed"]
    for outcome in missed[:EVAL_SHOWN]:
        hits = _names(outcome["found"]) or "nothing"
        yield f"Missed {_names(outcome['tools'])} for {outcome['query']!r}: found {hits}."
    confused: list[JSON] = result["confused"]
    for outcome in confused[:EVAL_SHOWN]:
        times = "once" if outcome["requests"] == 1 else f"{outcome['requests']} times"
        yield f"{outcome['with']} was ranked before {outcome['tool']} {times}."
    if missed or confused:
        yield ""
    requests, servable = result["requests"], result["servable"]
    yield (
        f"{requests} request{'' if requests == 1 else 's'} {seen_by}, {servable} of which a tool serves; "
        f"{len(missed)} missed a tool among the first five, {result['how']}."
    )


def _names(listed: Sequence[JSONValue]) -> str:
    return ", ".join(map(str, listed))
