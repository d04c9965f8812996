"""Fitting: find the valid parts of a proposal, and leave out the rest with the reason."""

from __future__ import annotations

import os
import re
from pathlib import Path

from pegboard.cli.command_error import CommandError
from pegboard.cli.config_entry import ConfigFile, trial
from pegboard.cli.declarations.proposal import Export, Proposal
from pegboard.cli.declarations.yaml_draft import YamlDraft, reasons_in
from pegboard.cli.operator_file import read_operator_file
from pegboard.cli.options import Options
from pegboard.model.error import DefinitionError, Problem
from pegboard.model.record import replace

# Placeholders for unset variables, tried in this order: a text, an address, a number.
_PLACEHOLDERS = ("not-set-yet", "https://not-set-yet.invalid", "1")
_TOOL = re.compile(r"tools\[(\d+)\]")
_REFERENCE = re.compile(r"\$\{(\w+)")


async def fitted(file: ConfigFile, proposal: Proposal, options: Options) -> tuple[Proposal, str]:
    """Return the valid parts of a proposal, and the config with them. Nothing is connected to, nothing written.

    Variables need not be set.

    Raises:
        CommandError: no part of it is valid.
        DefinitionError: the config was invalid before.
    """
    fitting = _Fitting(file, proposal)
    first: Exception | None = None
    while not fitting.is_empty:
        try:
            await _try(file, fitting.proposal(with_reasons=False), options, fitting.placeholders)
        except (CommandError, DefinitionError) as error:
            first = first or error
            if not fitting.leave_out(error.problems):
                raise
        else:
            break
    if not fitting.is_empty or fitting.is_unchanged:
        final = fitting.proposal()
        return final, file.with_proposal(final)
    raise CommandError(
        f"Nothing of this can be carried over: {'; '.join(fitting.left_out)}. Nothing was written.",
        kind="config_invalid",
    ) from first


class _Fitting:
    """A proposal that is being reduced: its remaining parts, the omitted ones, and values for unset variables."""

    def __init__(self, file: ConfigFile, proposal: Proposal) -> None:
        self._file, self._whole = file, proposal
        self._tools = list(proposal.tools)
        self._drafts: dict[str, YamlDraft] = {}
        self._others: dict[str, str] = {}
        self._wanted: dict[str, Export] = {}
        self.left_out: list[str] = []
        self._notes: list[str] = []
        self.placeholders: dict[str, str] = {}
        self.is_unchanged = False
        for path, text in proposal.files.items():
            self._put(path, text)

    def _put(self, path: str, text: str) -> None:
        if not path.endswith((".yaml", ".yml")):
            self._others[path] = text
            return
        draft, place = YamlDraft(text), self._file.folder / path
        if not place.exists():
            self._drafts[path] = draft
        elif draft.is_written_as(present := read_operator_file(place)):
            self.is_unchanged = True
            self._notes.append(f"{path} is there already.")
            self.left_out += [f"{path}: {reason}" for reason in reasons_in(present)]
        else:
            text = f"{path}: the file exists with other content and was left as it is; move it away to import it again"
            self.left_out.append(text)

    @property
    def is_empty(self) -> bool:
        return not (self._tools or self._drafts or self._others)

    def proposal(self, *, with_reasons: bool = True) -> Proposal:
        """Return the current proposal; files have a reason before each comment, or each item on its own line."""
        drafts = {path: draft.text(with_reasons=with_reasons) for path, draft in self._drafts.items()}
        files = {**self._others, **drafts}
        named = set(_REFERENCE.findall(str((self._tools, files))))
        exports = [each for each in self._whole.exports if each.variable in named]
        known = {each.variable for each in exports}
        return replace(
            self._whole,
            tools=tuple(self._tools),
            files=files,
            python=tuple(dict.fromkeys(self._whole.python)),
            globs=tuple(dict.fromkeys(self._whole.globs)) if files else (),
            exports=(*exports, *(each for name, each in self._wanted.items() if name not in known)),
            left_out=(*self._whole.left_out, *sorted(self.left_out, key=lambda text: text.partition(":")[0])),
            notes=(*self._whole.notes, *self._notes),
        )

    def leave_out(self, problems: tuple[Problem, ...]) -> bool:
        """Set placeholders for unset variables, or leave out invalid parts; return False if nothing changed."""
        if unset := [problem for problem in problems if self._is_new(problem.variable)]:
            for problem in unset:
                self.placeholders[problem.variable] = _PLACEHOLDERS[0]
                if (path := self._draft_of(problem)) is not None:
                    found_at = f"{problem.path} in {path}"
                    self._wanted[problem.variable] = Export(variable=problem.variable, found_at=found_at)
            return True
        places = [(problem, self._draft_of(problem), self._tool_of(problem)) for problem in problems]
        if sum(self._next_placeholder(problem, path, index) for problem, path, index in places):
            return True
        tools = {index: problem for problem, _, index in reversed(places) if index is not None}
        for index, problem in sorted(tools.items(), reverse=True):
            name = self._tools.pop(index)["name"]
            self.left_out.append(f"{name}: {': '.join(filter(None, (_below_tool(problem), problem.message)))}")
        removed = [self._leave_out_of(path, problem) for problem, path, _ in places if path in self._drafts]
        return bool(tools or removed)

    def _is_new(self, variable: str) -> bool:
        return bool(variable) and variable not in self.placeholders and not os.environ.get(variable)

    def _next_placeholder(self, problem: Problem, path: str | None, index: int | None) -> bool:
        """Give the unset variables at a problem their next placeholder; return False if all were tried."""
        text = str(self._tools[index]) if index is not None else ""
        if path is not None:
            text = self._drafts[path].text_at(_line(problem)[0])
        changed = False
        for variable in set(_REFERENCE.findall(text)):
            if not os.environ.get(variable):
                current = self.placeholders.get(variable, _PLACEHOLDERS[0])
                position = _PLACEHOLDERS.index(current) + 1
                if position < len(_PLACEHOLDERS):
                    self.placeholders[variable] = _PLACEHOLDERS[position]
                    changed = True
        return changed

    def _draft_of(self, problem: Problem) -> str | None:
        file = Path(problem.where.rsplit(":", 2)[0]).absolute()
        return next((path for path in self._drafts if (self._file.folder / path) == file), None)

    def _tool_of(self, problem: Problem) -> int | None:
        """Return the index of the proposed tool with a problem; proposed tools come after those of the config."""
        match = _TOOL.match(problem.path)
        if match is None or not problem.where.rsplit(":", 2)[0].endswith(".trial"):
            return None
        index = int(match[1]) - self._file.tool_count
        return index if 0 <= index < len(self._tools) else None

    def _leave_out_of(self, path: str | None, problem: Problem) -> None:
        if path is None or path not in self._drafts:
            return
        draft = self._drafts[path]
        item = draft.leave_out(*_line(problem), problem)
        if item is None:
            del self._drafts[path]
            self.left_out.append(f"{path}: {': '.join(filter(None, (problem.path, problem.message)))}")
        else:
            self.left_out.append(f"{path}: {item} (it is a comment in the file)")


def _below_tool(problem: Problem) -> str:
    return _TOOL.sub("", problem.path).removeprefix(".")


def _line(problem: Problem) -> tuple[int, int]:
    _, line, column = problem.where.rsplit(":", 2)
    return int(line), int(column)


async def _try(file: ConfigFile, proposal: Proposal, options: Options, placeholders: dict[str, str]) -> None:
    text = file.with_proposal(proposal)
    with trial(
        file, text, exports=proposal.exports, options=options, is_offline=True, files=proposal.files,
        placeholders=placeholders,
    ) as (catalog, _):  # fmt: skip
        await catalog.close(grace_s=0.0)
