"""search: find tools by what is needed, as `searchTools` does."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from pegboard.cli.command_error import CommandError
from pegboard.cli.options import SharedOptions
from pegboard.cli.project import opened
from pegboard.cli.terminal import Column
from pegboard.cli.tool_page import first_line
from pegboard.discovery.meta_tools.search_tools import answers
from pegboard.model.bounds import SEARCH_USUAL_HITS
from pegboard.model.json_types import JSON

_COLUMNS = (
    Column(head="Tool", style="bold"),
    Column(head="Agent"),
    Column(head="Score", style="dim"),
    Column(head="Confidence"),
    Column(head="Description"),
)


async def search_command(
    *words: Annotated[str, Parameter(name="query", help="What is needed, in any language.")],
    limit: Annotated[int, Parameter(help="The most tools to show; 8 by default.")] = SEARCH_USUAL_HITS,
    options: SharedOptions,
) -> None:
    """Find tools by what is needed.

    Asks the index that `searchTools` asks, and like it says of each tool how sure it is that it serves.
    """
    query = " ".join(words).strip()
    if not query:
        raise CommandError('Say what is needed: pegboard search "create an issue"')
    if limit < 1:
        raise CommandError(f"--limit {limit}: there is nothing to show. Give 1 or more.")
    async with opened(options, lists_only=True) as (project, view):
        finder = project.catalog.discovery.finder
        await finder.read_meanings()
        [found] = await answers(finder, view, [query], limit=limit)
        answer: JSON = project.clean(found, view.ctx)
    if options.json:
        options.terminal.json({"profile": options.chosen_profile, **answer})
        return
    hits: list[JSON] = answer["hits"]
    if hits:
        rows = [
            [hit["call"], hit["agent"], f"{hit['score']:.2f}", hit["confidence"], first_line(hit["description"])]
            for hit in hits
        ]
        options.terminal.table(_COLUMNS, rows)
        options.terminal.say("")
    summary = f"{len(hits)} tool{'' if len(hits) == 1 else 's'} for {query!r} {options.seen_by}"
    near: list[str] = answer.get("nearest", [])
    options.terminal.say(f"{summary}; nearest namespaces: {', '.join(near)}." if near else f"{summary}.")
    if "note" in answer:
        options.terminal.say(answer["note"])
