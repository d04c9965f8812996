"""plan: what a changed config gives and takes."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, redirect_stdout
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from pegboard.catalog import Catalog
from pegboard.cli.command_error import CommandError, Exit
from pegboard.cli.markdown import as_code, markdown_table
from pegboard.cli.options import Options, SharedOptions
from pegboard.cli.project import CLI_STOP_GRACE_S, CONFIG_NAME, Project, find_config, load
from pegboard.cli.revision import checked_out
from pegboard.cli.terminal import Column
from pegboard.config import Config, context_for, load_catalog
from pegboard.discovery.token_count import tokenizer
from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSON
from pegboard.planning.comparison import Side, compare
from pegboard.planning.plan_record import CHANGE_ORDER, plan_record, plan_sentence

FailOn = Literal["lost", "breaking", "weaker"]

_AGAINST = "Config to compare with: a git revision, or a file."
_FAIL_ON = "Exit with 1 if there is such a change; may be repeated. A change that cannot be judged counts too."
_MARKDOWN = "Print Markdown, for a comment on a pull request."
# A change that cannot be judged may be harmful.
_FAILING: dict[FailOn, tuple[str, ...]] = {
    "lost": ("lost",),
    "breaking": ("breaking", "unclear"),
    "weaker": ("weaker", "changed"),
}
_COLUMNS = (
    Column(head="Change", style="bold"), Column(head="Tool"), Column(head="Cause"), Column(head="Detail"),
    Column(head="Profiles", style="dim"),
)  # fmt: skip


async def plan_command(
    *,
    against: Annotated[str, Parameter(help=_AGAINST, show_default=True)] = "HEAD",
    fail_on: Annotated[tuple[FailOn, ...], Parameter(help=_FAIL_ON, negative_iterable=())] = (),
    markdown: Annotated[bool, Parameter(help=_MARKDOWN)] = False,
    options: SharedOptions,
) -> Exit:
    """Show the effects of a changed config on each profile: tools, schemas and guards.

    Compares visible tools, schemas, guards and token counts. No server is started: tools of MCP servers come from
    pegboard.lock, those of APIs from files. Python files of both configs are imported, and so run.
    """
    path = find_config(options.config, start=Path.cwd())
    counting = tokenizer()
    async with _old_config(path, against) as (old_path, label):
        with redirect_stdout(sys.stderr):
            old_catalog, old_config = _loaded_before(old_path, path, label)
            project = load(options.without_profile, only_reads=True)
            secrets = (*old_catalog.secrets, *project.catalog.secrets)
            options.terminal.secrets = lambda: secrets
            before = _side(old_catalog, old_config, options)
            after = _side(project.catalog, project.config, options)
            only = options.chosen_profile
            if only is not None and only not in old_catalog.registry.profiles:
                project.check_profile(only)
            try:
                plan = await compare(before, after, against=label, counting=counting, only=only)
            finally:
                await old_catalog.close(grace_s=CLI_STOP_GRACE_S)
                await project.catalog.close(grace_s=CLI_STOP_GRACE_S)
        answer = _clean(
            plan_record(plan, counted_by=counting.name, old_folder=str(old_path.parent)), before, after, project
        )
    if options.json:
        options.terminal.json(answer)
    elif markdown:
        options.terminal.say(_as_markdown(answer))
    else:
        _print(options, answer)
    failing = [kind for name in fail_on for kind in _FAILING[name]]
    return Exit.REFUSED if failing and plan.count(*failing) else Exit.DONE


# ---------------------------------------------------------------- the two configs


@asynccontextmanager
async def _old_config(path: Path, against: str) -> AsyncGenerator[tuple[Path, str]]:
    """Give the config to compare with, and what to call it."""
    if "://" in against:
        text = f"--against {against!r}: a config can run code, so it is not loaded from a URL."
        raise CommandError(f"{text} Download it and read it, then name the file.")
    named = _named_file(against)
    if named is not None:
        yield named, str(named)
        return
    async with checked_out(path, against) as (old, commit):
        yield old, f"{against} ({commit})"


def _named_file(against: str) -> Path | None:
    """Return the config file of that name, or in the folder of that name; `None` if there is none."""
    named = Path(against)
    named = named / CONFIG_NAME if named.is_dir() else named
    return named if named.is_file() else None


def _loaded_before(old: Path, path: Path, label: str) -> tuple[Catalog, Config]:
    try:
        with _without(path.absolute().parent):
            return load_catalog(old, env=os.environ, leave_out=True)
    except DefinitionError as error:
        raise CommandError(
            f"The config of {label} has problems, so it cannot be compared. Name another with --against.",
            kind="invalid_config",
            problems=error.problems,
        ) from None


@contextmanager
def _without(folder: Path) -> Generator[None]:
    """Keep the modules next to today's config from being imported for the old one."""
    kept = list(sys.path)
    sys.path[:] = [entry for entry in kept if Path(entry or ".").resolve() != folder.resolve()]
    try:
        yield
    finally:
        sys.path[:] = kept


def _side(catalog: Catalog, config: Config, options: Options) -> Side:
    who = options.identity
    ctx = context_for(config, user=who.user, space=who.space, roles=who.roles, session=who.session or "cli")
    return Side(catalog=catalog, config=config, ctx=ctx)


def _clean(answer: JSON, before: Side, after: Side, project: Project) -> JSON:
    for side in (before, after):
        answer = Project(catalog=side.catalog, config=side.config).clean(answer, side.ctx)
    return answer


# ---------------------------------------------------------------- the answer


def _rows(answer: JSON) -> list[list[str]]:
    """Return one row for each change, with all profiles that it concerns."""
    profiles: dict[tuple[str, ...], list[str]] = {}
    groups = [(one["profile"] or "(all groups)", one["changes"]) for one in answer["profiles"]]
    for name, changes in [*groups, ("(all)", answer["all_profiles"])]:
        for change in changes:
            detail = change["detail"]
            if change["example"]:
                detail += (
                    f"; {'no longer valid' if change['what'] == 'input' else 'newly possible'}: {change['example']}"
                )
            key = (change["kind"], change["tool"] or "", change["what"], detail)
            profiles.setdefault(key, []).append(name)
    rows = sorted(profiles.items(), key=lambda item: (CHANGE_ORDER.index(item[0][0]), item[0]))
    return [[*key, ", ".join(names)] for key, names in rows]


def _token_rows(answer: JSON) -> list[list[str]]:
    rows: list[list[str]] = []
    for one in answer["profiles"]:
        costs = [f"{old:,} → {new:,}" if old != new else f"{new:,}" for old, new in one["tokens"].values()]
        modes: list[str] = one["shown_as"]
        shown = " → ".join(dict.fromkeys(mode for mode in modes if mode))
        rows.append([one["profile"] or "(all groups)", shown, *costs])
    return rows


def _print(options: Options, answer: JSON) -> None:
    terminal = options.terminal
    if rows := _rows(answer):
        terminal.table(_COLUMNS, rows)
        terminal.say("")
    heads = ("Tokens of profile", "Shown as", *answer["profiles"][0]["tokens"]) if answer["profiles"] else ()
    if heads:
        terminal.table([Column(head=head) for head in heads], _token_rows(answer))
        terminal.say("")
    for text in answer["not_compared"]:
        terminal.say(f"Not compared: {text}")
    terminal.say(plan_sentence(answer))


def _as_markdown(answer: JSON) -> str:
    against = answer["against"]
    lines = [f"### Pegboard plan\n\n{plan_sentence(answer).replace(against, as_code(against))}\n"]
    if rows := _rows(answer):
        heads = ("Change", "Tool", "Cause", "Detail", "Profiles")
        lines += markdown_table(heads, [[f"**{row[0]}**", *map(as_code, row[1:])] for row in rows])
    if answer["profiles"]:
        heads = ("Tokens of profile", "Shown as", *answer["profiles"][0]["tokens"])
        lines += markdown_table(heads, [[as_code(row[0]), *row[1:]] for row in _token_rows(answer)])
    lines += [f"* Not compared: {as_code(text)}" for text in answer["not_compared"]]
    return "\n".join(lines)
