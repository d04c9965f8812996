"""matrix: which profiles see which tools, and which callers reach one tool."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from pegboard.cli.command_error import Exit
from pegboard.cli.completers import tool_names
from pegboard.cli.markdown import as_code, markdown_table
from pegboard.cli.options import Options, SharedOptions
from pegboard.cli.project import Project, left_out, opened
from pegboard.cli.reach import (
    ALL_GROUPS,
    Matrix,
    Reached,
    matrix,
    reached_by_agents,
    reached_by_callers,
)
from pegboard.cli.terminal import Column
from pegboard.model.decision import Decision
from pegboard.model.json_types import JSON

_TOOL = "Show who can use this tool: profiles, API keys, tokens and agents."
_MARKDOWN = "Print Markdown, for a page or a comment."
_REACH = (
    Column(head="Who", style="bold"), Column(head="Profile"), Column(head="Code"), Column(head="Reason", style="dim"),
)  # fmt: skip


async def matrix_command(
    tool: Annotated[str | None, Parameter(help=_TOOL, completer=tool_names)] = None,
    /,
    *,
    markdown: Annotated[bool, Parameter(help=_MARKDOWN)] = False,
    options: SharedOptions,
) -> Exit:
    """Show the tools of each profile, or the callers that can use one tool.

    The codes are those of `pegboard why`; `asks` is a visible tool that asks a person before a call. Exits with 1 if
    the tool is unknown to all.
    """
    async with opened(options.without_profile, tool=tool, lists_only=True, only_reads=True) as (project, view):
        project.check_profile(options.chosen_profile)
        chosen = options.chosen_profile
        profiles = (chosen,) if chosen is not None else tuple(project.catalog.registry.profiles) or (None,)
        if tool is None:
            answer = _as_json(await matrix(project, options.identity, profiles))
        else:
            answer = await _reach(project, tool, options, profiles)
        answer["problems"] = left_out(project.config)
        answer = project.clean(answer, view.ctx)
    if options.json:
        options.terminal.json(answer)
    elif tool is None:
        _print(options, answer, is_markdown=markdown)
    else:
        _print_reach(options, answer, is_markdown=markdown)
    codes = () if tool is None else {row[2] for row in _cells(answer)}
    return Exit.REFUSED if codes == {"unknown"} else Exit.DONE


# ---------------------------------------------------------------- all tools


def _as_json(reach: Matrix) -> JSON:
    profiles = [profile or ALL_GROUPS for profile in reach.profiles]
    return {
        "profiles": profiles,
        "tools": [
            {"name": name, "codes": dict(zip(profiles, map(_code, decisions), strict=True))}
            for name, decisions in reach.decisions.items()
        ],
    }


def _code(decision: Decision) -> str:
    return "asks" if decision.visible and decision.asks else decision.code


def _print(options: Options, answer: JSON, *, is_markdown: bool) -> None:
    profiles: list[str] = answer["profiles"]
    rows = [[tool["name"], *tool["codes"].values()] for tool in answer["tools"]]
    seen = [
        f"{profile} sees {sum(row[at] in ('visible', 'asks') for row in rows)}"
        for at, profile in enumerate(profiles, 1)
    ]
    sentence = f"{len(rows)} tool{'' if len(rows) == 1 else 's'}: {', '.join(seen)}."
    if is_markdown:
        lines = markdown_table(["Tool", *map(as_code, profiles)], [[as_code(cell) for cell in row] for row in rows])
        options.terminal.say("\n".join([*lines, *(f"* Left out: {as_code(text)}" for text in answer["problems"])]))
        return
    if rows:
        options.terminal.table(
            [Column(head="Tool", style="bold"), *(Column(head=heading) for heading in profiles)], rows
        )
        options.terminal.say("")
    options.terminal.say(sentence)


# ---------------------------------------------------------------- one tool


async def _reach(project: Project, tool: str, options: Options, profiles: tuple[str | None, ...]) -> JSON:
    identity = options.identity
    by_profile = [
        Reached("", profile, await project.catalog.view(project.context(identity), profile=profile).awhy(tool))
        for profile in profiles
    ]
    return {
        "tool": tool,
        "user": identity.user,
        "profiles": [_row(profile) for profile in by_profile],
        "callers": [
            {
                "caller": caller.name,
                "user": caller.user,
                "space": caller.space,
                "roles": list(caller.roles),
                "depends_on": list(caller.unknown),
                "profiles": [_row(profile) for profile in reached if profile.profile in profiles],
            }
            for caller, reached in await reached_by_callers(project, tool)
        ],
        "agents": [
            {"agent": profile.name, **_row(profile)}
            for profile in await reached_by_agents(project, tool, identity, profiles)
        ],
    }


def _row(reached: Reached) -> JSON:
    decision = reached.decision
    return {
        "profile": reached.profile,
        "code": _code(decision),
        "visible": decision.visible,
        "reason": "" if decision.visible else decision.reason,
    }


def _cells(answer: JSON) -> list[list[str]]:
    rows = [[answer["user"] or "any caller", *_shown(one)] for one in answer["profiles"]]
    for caller in answer["callers"]:
        note = f" (depends on {', '.join(caller['depends_on'])})" if caller["depends_on"] else ""
        rows += [[f"{caller['caller']}{note}", *_shown(one)] for one in caller["profiles"]]
    return rows + [[f"agent {one['agent']}", *_shown(one)] for one in answer["agents"]]


def _shown(row: JSON) -> list[str]:
    return [row["profile"] or ALL_GROUPS, row["code"], row["reason"]]


def _print_reach(options: Options, answer: JSON, *, is_markdown: bool) -> None:
    rows = _cells(answer)
    if is_markdown:
        heads = [column.head for column in _REACH]
        options.terminal.say("\n".join(markdown_table(heads, [[as_code(cell) for cell in row] for row in rows])))
        return
    options.terminal.table(_REACH, rows)
    options.terminal.say("")
    reaching = sum(row[2] in ("visible", "asks") for row in rows)
    options.terminal.say(f"{answer['tool']}: {reaching} of {len(rows)} reach it.")
