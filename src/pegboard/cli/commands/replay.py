"""replay: judge recorded calls under a config, without running anything."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from pegboard.audit.audit_query import AuditFilter, calls_in_export, calls_since
from pegboard.audit.audit_row import AuditRow
from pegboard.cli.command_error import CommandError, Exit
from pegboard.cli.moment import Moment, seconds_of
from pegboard.cli.opened_audit import opened_audit
from pegboard.cli.options import Options, SharedOptions
from pegboard.cli.project import CLI_STOP_GRACE_S, CONFIG_NAME, Project, find_config, left_out, load
from pegboard.cli.terminal import Column
from pegboard.model.json_types import JSON
from pegboard.planning.comparison import Side
from pegboard.planning.replayed_calls import Kind, Replay, Replayed, Replayer

FailOn = Literal["refused", "limited", "asked", "allowed", "unclear", "never"]

_FROM = (
    "Where the calls were recorded: a config with an audit, or a file of `pegboard audit export`. Default: --config."
)
_SINCE = "Only calls since then: an age such as 30m, 12h or 7d, or a time in UTC such as 2026-11-27T10:00."
_TOOL = "Only calls of this tool, by id or requested name; a glob."
_USER = "Only calls of this user."
_SPACE = "Only calls in this space."
_FAIL_ON = "Exit with 1 if there is such a call; may be repeated."
_ORDER: tuple[Kind, ...] = ("refused", "limited", "asked", "unclear", "allowed")
_WORDS: dict[str, str] = {
    "refused": "refused now", "limited": "over a limit now", "asked": "asked about now",
    "unclear": "not judged", "allowed": "allowed now",
}  # fmt: skip
_CONFIG_ENDINGS = (".yaml", ".yml", ".json")
_COLUMNS = (
    Column(head="Now", style="bold"), Column(head="Calls"), Column(head="Tool"), Column(head="Through"),
    Column(head="Code"), Column(head="Rule"), Column(head="Reason", style="dim"),
)  # fmt: skip


async def replay_command(
    *,
    from_: Annotated[Path | None, Parameter(name="--from", help=_FROM)] = None,
    since: Annotated[Moment | None, Parameter(help=_SINCE)] = None,
    tool: Annotated[str, Parameter(help=_TOOL)] = "",
    user: Annotated[str, Parameter(help=_USER)] = "",
    space: Annotated[str, Parameter(help=_SPACE)] = "",
    fail_on: Annotated[tuple[FailOn, ...], Parameter(help=_FAIL_ON, negative_iterable=(), show_default=True)] = (
        "refused",
        "limited",
    ),
    options: SharedOptions,
) -> Exit:
    """Show how recorded calls would end under a config, without running anything.

    Shows the calls that would now be refused, limited, asked about or allowed. No tool, hook, server or store of limits
    is used; what cannot be judged without them is unclear.
    """
    path = find_config(options.config, start=Path.cwd())
    with redirect_stdout(sys.stderr):
        project = load(options.without_profile, only_reads=True)
        begin = seconds_of(since) if since is not None else 0.0
        profile = options.chosen_profile or ""
        wanted = AuditFilter(tool=tool, user=user, space=space, profile=profile, since=begin)
        ctx = project.context(options.identity)
        replayer = Replayer(Side(catalog=project.catalog, config=project.config, ctx=ctx), wanted)
        try:
            with _recorded(from_ or path, begin - _longest_window_s(project)) as rows:
                for row in rows:
                    await replayer.add(row)
            made = await replayer.finished()
        finally:
            await project.catalog.close(grace_s=CLI_STOP_GRACE_S)
        answer: JSON = project.clean(_as_json(made, project), ctx)
    if options.json:
        options.terminal.json(answer)
    else:
        _print(options, answer)
    return Exit.REFUSED if any(made.counts.get(kind, 0) for kind in fail_on if kind != "never") else Exit.DONE


@contextmanager
def _recorded(source: Path, since: float) -> Generator[Iterator[AuditRow]]:
    source = source / CONFIG_NAME if source.is_dir() else source
    if source.suffix in _CONFIG_ENDINGS:
        with opened_audit(source) as (_, store):
            yield calls_since(store, since)
        return
    try:
        yield calls_in_export(source, since)
    except OSError as error:
        raise CommandError(f"--from {str(source)!r} cannot be read: {error.strerror}.", kind="no_store") from None


def _longest_window_s(project: Project) -> float:
    """Return how many seconds before a call other calls count for its limits."""
    declared = project.catalog.registry.declarations
    limits = [declared.default_limit, *(one.rate_limit for one in declared.profiles.values())]
    limits += [entry.spec.rate_limit for entry in project.catalog.snapshot().entries]
    return max((limit.window_s for limit in limits if limit is not None), default=0.0)


# ---------------------------------------------------------------- the answer


def _as_json(made: Replay, project: Project) -> JSON:
    return {
        "calls": made.calls,
        "counts": {kind: made.counts.get(kind, 0) for kind in ("same", *_ORDER)},
        "changes": [_row(one) for one in made.changes],
        "assumed": [{"what": what, "calls": count} for what, count in made.assumed.items()],
        "problems": left_out(project.config),
    }


def _grouped(changes: list[JSON]) -> list[list[str]]:
    """Return a row for the calls that change in the same way, the most serious and most frequent first."""
    groups = Counter(
        (one["change"], one["tool"], one["profile"] or one["agent"] or "", one["code"], one["rule"], one["reason"])
        for one in changes
    )
    ordered = sorted(groups.items(), key=lambda group: (_ORDER.index(group[0][0]), -group[1], group[0]))
    return [[key[0], f"{count:,}", *key[1:]] for key, count in ordered]


def _row(one: Replayed) -> JSON:
    row, verdict = one.row, one.verdict
    return {
        "call_id": row.call_id,
        "time": row.time,
        "change": one.kind,
        "tool": row.tool or row.name,
        "profile": row.profile or None,
        "agent": row.agent or None,
        "user": row.user or None,
        "key": row.key or None,
        "then": one.then,
        "outcome": row.outcome or None,
        "now": verdict.now,
        "code": verdict.code,
        "reason": verdict.reason,
        "rule": verdict.rule,
    }


def _print(options: Options, answer: JSON) -> None:
    terminal = options.terminal
    rows = _grouped(answer["changes"])
    if rows:
        terminal.table(_COLUMNS, rows)
        terminal.say("")
    for each in answer["assumed"]:
        terminal.say(f"Assumed for {each['calls']:,} of the calls: {each['what']}.")
    counts: dict[str, int] = answer["counts"]
    changed = [f"{counts[kind]:,} {_WORDS[kind]}" for kind in _ORDER if counts[kind]]
    outcomes = ", ".join([f"{counts['same']:,} as before", *changed])
    terminal.say(f"{answer['calls']:,} calls: {outcomes}.")
    if changed:
        terminal.say("`--json` names each call.")
