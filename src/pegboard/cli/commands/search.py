"""search: find tools by a description of the task, as `searchTools` does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from cyclopts import Parameter

from pegboard.cli.command_error import CommandError, Exit
from pegboard.cli.options import SharedOptions
from pegboard.cli.project import Project, opened
from pegboard.cli.terminal import Column
from pegboard.config.config import ExampleFile
from pegboard.config.config_warnings import LEFT_OUT_SHOWN
from pegboard.config.example_requests import write_file
from pegboard.config.language_models import model_named
from pegboard.core.ports import Model
from pegboard.discovery.example_requests import ExampleRequests, write_requests
from pegboard.discovery.limits import SEARCH_USUAL_HITS
from pegboard.discovery.meta_tools.search_tools import answers
from pegboard.discovery.tool_page import first_line
from pegboard.model.json_types import JSON

_COLUMNS = (
    Column(head="Tool", style="bold"),
    Column(head="Namespace"),
    Column(head="Score", style="dim"),
    Column(head="Confidence"),
    Column(head="Description"),
)


async def search_command(
    *words: Annotated[str, Parameter(name="query", help="A description of the task, in any language.")],
    limit: Annotated[int, Parameter(help="The maximum number of tools to show. Default: 8.")] = SEARCH_USUAL_HITS,
    explain: Annotated[bool, Parameter(help="Show how each score was computed.")] = False,
    write_examples: Annotated[
        bool,
        Parameter(help="Let a model write example requests for the tools, into the file of `discovery: {examples}`."),
    ] = False,
    options: SharedOptions,
) -> Exit:
    """Find tools by a description of the task.

    Uses the index of `searchTools`, and rates how likely each tool is to help. With `--write-examples` it does not
    search: a language model of the config reads each tool that has no example requests, or outdated ones, and writes
    some. After an interruption, run it again. Review the file.
    """
    if write_examples:
        return await _write_examples(options, words)
    query = " ".join(words).strip()
    if not query:
        raise CommandError('Describe what you need: pegboard search "create an issue"')
    if limit < 1:
        raise CommandError(f"--limit {limit}: there is nothing to show. Give 1 or more.")
    async with opened(options, lists_only=True, only_reads=True) as (project, view):
        finder = project.catalog.discovery.finder
        await finder.read_meanings()
        [first] = await answers(finder, view, [query], limit=limit, explain=explain)
        answer: JSON = project.clean(first, view.ctx)
    if options.json:
        options.terminal.json({"profile": options.chosen_profile, **answer})
        return Exit.DONE
    hits: list[JSON] = answer["hits"]
    if hits:
        rows = [
            [hit["call"], hit["agent"], f"{hit['score']:.2f}", hit["confidence"], first_line(hit["description"])]
            for hit in hits
        ]
        options.terminal.table(_COLUMNS, rows)
        options.terminal.say("")
    if explain:
        for line in _explained(answer):
            options.terminal.say(line)
    summary = f"{len(hits)} tool{'' if len(hits) == 1 else 's'} for {query!r} {options.seen_by}"
    near: list[str] = answer.get("nearest", [])
    options.terminal.say(f"{summary}; nearest namespaces: {', '.join(near)}." if near else f"{summary}.")
    if "note" in answer:
        options.terminal.say(answer["note"])
    if unconnected := {hit["connect"]: hit["call"] for hit in hits if "connect" in hit}:
        first = next(iter(unconnected.values()))
        options.terminal.say(
            f"Not connected: {', '.join(sorted(unconnected))}. `pegboard why {first}` says what to do."
        )
    return Exit.DONE


def _explained(answer: JSON) -> Iterator[str]:
    """Yield the parts of each score, one line each."""
    whole: JSON = answer["explained"]
    yield f"Chance {whole['chance']:.2f} of a right tool among the first five; by words alone {_chance(whole)}."
    asked: list[JSON] = whole["asked"]
    for word in asked:
        notes = [f"tells {word['rarity']:.2f}"]
        notes += [] if word["is_known"] else ["no tool has exactly this word"]
        notes += ["an argument"] if word["is_argument"] else []
        yield f"  {' = '.join(word['terms']) or '(nothing like it)'}: {', '.join(notes)}"
    hits: list[JSON] = answer["hits"]
    for hit in hits:
        parts: JSON = hit["parts"]
        yield f"{hit['call']}: {hit['score']:.2f} = {parts['share']:.2f} of the best × {whole['chance']:.2f}"
        yield f"  words {parts['by_words']:.2f} of the best, its namespace {parts['namespace']:.2f}"
        for field, words in parts["fields"].items():
            yield f"  {field}: {', '.join(f'{word} {weight:.2f}' for word, weight in words.items())}"
        if parts["begun"]:
            yield f"  begins like it: {parts['begun']:.2f}"
        if parts["likeness"] is not None:
            yield f"  likeness: {parts['likeness']:.2f} deviations beyond chance"
        if parts["use"]:
            yield f"  use: {parts['use']:.2f}, called after requests like this one"
    yield ""


def _chance(whole: JSON) -> str:
    by_words = f"{whole['chance_by_words']:.2f}"
    if whole["evidence"] is None:
        return f"{by_words}, as none matches"
    others = f"the fifth fits {whole['fifth']:.2f}, the tenth {whole['tenth']:.2f}"
    return f"{by_words} (evidence {whole['evidence']:.2f}, {whole['tools']} tools, {others})"


async def _write_examples(options: SharedOptions, words: Sequence[str]) -> Exit:
    if words:
        raise CommandError("--write-examples searches nothing. Leave the words out, or leave out --write-examples.")
    async with opened(options, lists_only=True, only_reads=True) as (project, view):
        file, model = _examples_of(project)

        def save(requests: Mapping[str, ExampleRequests]) -> None:
            try:
                write_file(file.path, requests)
            except OSError as error:
                text = f"{str(file.path)!r} cannot be written: {error.strerror}."
                raise CommandError(text, kind="not_written") from error

        finder = project.catalog.discovery.finder
        await view.prepare()
        run = await write_requests(finder.texts(view), file.requests, model, save=save)
        failed: list[JSON] = project.clean([{"tool": name, "reason": why} for name, why in run.failed], view.ctx)
    if options.json:
        counts: JSON = {"written": list(run.written), "fresh": run.fresh, "failed": failed, "left": run.left}
        options.terminal.json({"profile": options.chosen_profile, "file": str(file.path), **counts})
    else:
        for failure in failed[:LEFT_OUT_SHOWN]:
            options.terminal.say(f"{failure['tool']}: {failure['reason']}")
        count = len(run.written)
        summary = f"Wrote requests for {count} tool{'' if count == 1 else 's'} into {str(file.path)!r}"
        rest = f"; {run.fresh} had theirs, {len(failed)} failed, {run.left} were left. "
        what_next = "Review the file." if count else "Nothing is to be reviewed."
        options.terminal.say(
            summary + rest + (f"Run it again to go on. {what_next}" if run.left or failed else what_next)
        )
    return Exit.REFUSED if failed else Exit.DONE


def _examples_of(project: Project) -> tuple[ExampleFile, Model]:
    """Return the file of example requests, and the model that writes them.

    Raises:
        CommandError: the config has no such file, or no such model.
    """
    config = project.config
    if config.examples is None:
        raise CommandError(
            "The config names no file for example requests. Write `discovery: {examples: {}}` into"
            f" {str(config.path)!r}, and under `models:` the language model that is to write them, as `default`.",
            kind="not_configured",
        )
    file = config.examples.value
    if (file.model or "default") not in config.models:
        raise CommandError(
            "No language model is configured that could write requests. Name one under `models:`, such as"
            " `models: {default: {provider: openai_compatible, name: llama3.2, base_url: http://127.0.0.1:11434/v1}}`,"
            " and with another name than `default` also under `discovery: {examples: {model: …}}`.",
            kind="not_configured",
        )
    return file, model_named(file.model or "default", project.catalog, config)
