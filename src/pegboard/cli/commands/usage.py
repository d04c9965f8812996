"""usage: what was called, by whom, how it ended and how long it took."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from pegboard.audit.audit_query import AuditFilter, calls_since
from pegboard.audit.audit_row import AuditRow
from pegboard.audit.usage import UsageField, UsageRow, usage
from pegboard.cli.command_error import CommandError
from pegboard.cli.moment import Moment, seconds_of
from pegboard.cli.opened_audit import opened_audit
from pegboard.cli.options import Options, SharedOptions
from pegboard.cli.project import CLI_STOP_GRACE_S, Project, find_config, load
from pegboard.cli.terminal import Column
from pegboard.core.call.budget_levels import budget_levels
from pegboard.discovery.list_costs import list_costs
from pegboard.discovery.token_count import estimated_tokens, tokenizer
from pegboard.model.json_types import JSON
from pegboard.server.worker_checks import budgets_in_memory

_BY = "The field that calls are grouped by."
_SINCE = "Only calls since then: an age such as 30m, 12h or 7d, or a time in UTC such as 2026-11-27T10:00."
_UNTIL = "Only calls before then: an age or a time."
_TOOL = "Only calls of this tool, by id or requested name; a glob."
_USER = "Only calls of this user."
_SPACE = "Only calls in this space."
_LIMIT = "The maximum number of rows."
_BAR_CELLS = 20  # cells of the longest bar
_SHOWN_BUDGETS = 20  # counters of budgets in the table
_SHOWN_ERRORS = 3  # kinds of errors in a line


async def usage_command(
    *,
    by: Annotated[UsageField, Parameter(help=_BY, show_default=True)] = "tool",
    since: Annotated[Moment, Parameter(help=_SINCE, show_default=False)] = timedelta(days=7),
    until: Annotated[Moment, Parameter(help=_UNTIL, show_default=False)] = timedelta(),
    tool: Annotated[str, Parameter(help=_TOOL)] = "",
    user: Annotated[str, Parameter(help=_USER)] = "",
    space: Annotated[str, Parameter(help=_SPACE)] = "",
    limit: Annotated[int, Parameter(help=_LIMIT)] = 50,
    options: SharedOptions,
) -> None:
    """Count the calls in the audit, with their errors, latency, tokens and cost.

    Without filters it shows the budgets too, with what is left of them.

    Needs an `audit:` in the config. Tokens of arguments and results are bytes / 4.3. No source is started.
    """
    begin, end = seconds_of(since), seconds_of(until)
    if begin >= end:
        raise CommandError(f"--since {since} must be longer ago than --until {until}.")
    wanted = AuditFilter(tool=tool, user=user, space=space, profile=options.chosen_profile or "", since=begin)
    names = set[str]()
    with opened_audit(find_config(options.config, start=Path.cwd())) as (_, store):
        whole, rows = usage(_counted(calls_since(store, begin), wanted, end, names), by)
    with redirect_stdout(sys.stderr):
        project = load(options.without_profile, only_reads=True)
        try:
            answer = await _as_json(project, options, whole, rows)
        finally:
            await project.catalog.close(grace_s=CLI_STOP_GRACE_S)
        is_whole = not (tool or user or space or options.chosen_profile)
        if is_whole:
            declared = project.catalog.snapshot().entries
            answer["never_called"] = [entry.qualified_id for entry in declared if entry.qualified_id not in names]
            answer["budgets"] = await _budgets(project)
        answer = {"by": by, "since": begin, "until": end, **answer}
        answer = project.clean(answer, project.context(options.identity))
    left_out = len(rows) - limit
    answer["rows"] = answer["rows"][:limit]
    answer["left_out"] = max(left_out, 0)
    if options.json:
        options.terminal.json(answer)
    else:
        _print(options, answer)


def _counted(rows: Iterable[AuditRow], wanted: AuditFilter, end: float, names: set[str]) -> Iterable[AuditRow]:
    """Yield the wanted rows until a time, and note the tools that they name."""
    for row in rows:
        if row.at < end and wanted.accepts(row):
            names.add(row.tool)
            yield row


async def _as_json(project: Project, options: Options, whole: UsageRow, rows: list[UsageRow]) -> JSON:
    counting, catalog = tokenizer(), project.catalog
    ctx = project.context(options.identity)
    profiles = (options.chosen_profile,) if options.chosen_profile else tuple(catalog.registry.profiles) or (None,)
    known = [name for name in profiles if name is None or name in catalog.registry.profiles]
    lists = [await list_costs(catalog.discovery, catalog.view(ctx, profile=name), counting) for name in known]
    return {
        "total": _row(whole),
        "rows": [_row(row) for row in rows],
        "always_refused": [row.name for row in rows if row.is_always_refused],
        "lists": [
            {
                "profile": each["profile"],
                "tokens": each["tokens"][each["shown_as"]],
                "saved": each["saved"],
            }
            for each in lists
        ],
    }


async def _budgets(project: Project) -> list[JSON]:
    """Return the level of every budget; counts in the memory of a server are unknown here."""
    catalog = project.catalog
    if budgets_in_memory(catalog):
        return []
    try:
        return [level.as_json() for level in await budget_levels(catalog.executor)]
    except OSError as error:
        raise CommandError(f"The store of budgets cannot be read: {error}") from None


def _row(row: UsageRow) -> JSON:
    shown: JSON = msgspec.to_builtins(row)
    return {**shown, "tokens": estimated_tokens(row.argument_bytes + row.result_bytes)}


def _print(options: Options, answer: JSON) -> None:
    terminal, rows = options.terminal, answer["rows"]
    if rows:
        most = max(row["calls"] for row in rows)
        has_costs = bool(answer["total"]["costs"])
        heads = (answer["by"].capitalize(), "Calls", "", "Ran", "Errors", "p50", "p95", "Tokens", *["Cost"] * has_costs)
        columns = [Column(head=heads[0], style="bold"), *(Column(head=head) for head in heads[1:])]
        terminal.table(columns, [_cells(row, most)[: len(heads)] for row in rows])
        terminal.say("")
    if budgets := answer.get("budgets"):
        heads = ("Budget", "Of", "Used", "", "Left", "Begins again")
        columns = [Column(head=heads[0], style="bold"), *(Column(head=head) for head in heads[1:])]
        terminal.table(columns, [_budget_cells(each) for each in budgets[:_SHOWN_BUDGETS]])
        if len(budgets) > _SHOWN_BUDGETS:
            terminal.say(f"The {_SHOWN_BUDGETS} fullest of {len(budgets):,} counters of budgets; --json has all.")
        terminal.say("")
    for label, key in (("Always refused", "always_refused"), ("Never called", "never_called")):
        if answer.get(key):
            terminal.say(f"{label}: {', '.join(answer[key])}.")
    for one in answer["lists"]:
        name = one["profile"] or "(all groups)"
        terminal.say(f"The list of {name} has {one['tokens']:,} tokens; its exposure saves {one['saved']:,}.")
    total = answer["total"]
    more = f" {answer['left_out']} more rows with --limit." if answer["left_out"] else ""
    terminal.say(f"{total['calls']:,} calls, {total['ran']:,} of them ran.{more}")


def _cells(row: JSON, most: int) -> list[str]:
    bar = "█" * max(1, round(_BAR_CELLS * row["calls"] / most))
    kinds = list(row["errors"].items())
    errors = [f"{kind} {count:,}" for kind, count in kinds[:_SHOWN_ERRORS]] + ["…"] * (len(kinds) > _SHOWN_ERRORS)
    times = [_ms(row["p50_s"]), _ms(row["p95_s"])]
    return [
        row["name"],
        f"{row['calls']:,}",
        bar,
        f"{row['ran']:,}",
        ", ".join(errors),
        *times,
        f"{row['tokens']:,}",
        _costs(row),
    ]


def _costs(row: JSON) -> str:
    return ", ".join(f"{amount:,g} {unit}" for unit, amount in row["costs"].items())


def _budget_cells(budget: JSON) -> list[str]:
    used, limit, unit = budget["used"], budget["limit"], budget["unit"]
    whose = ", ".join(f"{each} {value or '(none)'}" for each, value in budget["of"].items())
    bar = "█" * min(_BAR_CELLS, round(_BAR_CELLS * used / limit)) if limit else ""
    ends = datetime.fromtimestamp(budget["ends"], UTC).isoformat(timespec="minutes").replace("+00:00", "Z")
    return [budget["budget"], whose, f"{used:,g} of {limit:,g} {unit}", bar, f"{budget['left']:,g}", ends]


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:,.1f} ms"
