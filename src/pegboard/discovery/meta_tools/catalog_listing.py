"""Catalog listing: the tools visible to one caller, by namespace, and suggestions for wrong names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from msgspec import Struct

from pegboard.core.names import fold, nearest_one
from pegboard.core.view import View
from pegboard.discovery.token_count import estimated_tokens
from pegboard.model.agent import AgentEntry
from pegboard.model.tool import ToolEntry
from pegboard.models.limits import LISTED_LINE_CHARS
from pegboard.sources.agent_tool import invocation

DIGEST_NAMES_TOKENS = 1_500  # tokens of a digest that names only namespaces

T = TypeVar("T")

_SHARES = (1_000, 60, 30, 20, 12, 8, 5, 3, 2, 1)  # tools shown of each namespace, tried until the digest fits


class CatalogListing(Struct, frozen=True, kw_only=True):
    """The visible tools of a caller: namespace → own name → tool, both in alphabetical order."""

    agents: Mapping[str, Mapping[str, ToolEntry]]

    @classmethod
    def of(cls, entries: Iterable[ToolEntry]) -> CatalogListing:
        """Sort tools that are already known to be visible."""
        agents: dict[str, dict[str, ToolEntry]] = {}
        for entry in sorted(entries, key=lambda entry: (entry.spec.namespace, entry.spec.name)):
            agents.setdefault(entry.spec.namespace, {})[entry.spec.name] = entry
        return cls(agents=agents)

    def digest(self, *, budget_tokens: int) -> str:
        """Return one line per namespace, `name: [tool,tool]`; over the budget fewer tools each, then `name(count)`.

        It may use up to 1,500 tokens to name every namespace, since a model does not search for what it never sees.
        Beyond that only the largest are named. It depends only on names, so that prompt caches stay valid.
        """
        for text in self._with_tools():
            if estimated_tokens(len(text.encode())) <= budget_tokens:
                return text
        for text in self._namespaces_alone():
            if estimated_tokens(len(text.encode())) <= max(budget_tokens, DIGEST_NAMES_TOKENS):
                return text
        return f"Agents: {len(self.agents)}"

    def _with_tools(self) -> Iterator[str]:
        names = {agent: list(tools) for agent, tools in self.agents.items()}
        for share in _SHARES:
            yield "\n".join(["Agents:", *(f"{agent}: {_tools(tools, share)}" for agent, tools in names.items())])

    def _namespaces_alone(self) -> Iterator[str]:
        sizes = {agent: len(tools) for agent, tools in self.agents.items()}
        yield f"Agents: {_counted(sizes)}"
        largest = sorted(sizes, key=lambda agent: (-sizes[agent], agent))
        shown = len(largest) - 1
        while shown > 0:
            named = {agent: sizes[agent] for agent in sorted(largest[:shown])}
            yield f"Agents: {_counted(named)}, +{len(sizes) - shown} more"
            # Five per cent fewer each time: steps of one would be slow with thousands of namespaces.
            shown -= max(shown // 20, 1)

    def no_agent(self, agent: str) -> str:
        """Return the message for a namespace where this caller sees no tools."""
        return f'Agent "{echoed(agent)}" not found{did_you_mean(agent, self.agents)}'

    def no_tool(self, tool: str, agent: str) -> str:
        """Return the message for an unknown name in a visible namespace."""
        return f'Tool "{echoed(tool)}" not found in agent "{agent}"{did_you_mean(tool, self.agents[agent])}'

    def no_name(self, name: str) -> str:
        """Return the message for an unknown name without a namespace."""
        owners = [agent for agent, tools in self.agents.items() if name in tools]
        if owners:
            return f'Tool "{echoed(name)}" needs its agent: "{owners[0]}"'
        return f'Tool "{echoed(name)}" not found{did_you_mean(name, self._by_any_name())}'

    def nearest(self, tool: str, agent: str | None) -> ToolEntry | None:
        """Return the tool that an unknown name and namespace probably mean; `None` if no name is similar."""
        if agent is None:
            by_name = self._by_any_name()
            own = {name: entry for tools in self.agents.values() for name, entry in tools.items()}
            return _nearest_of(tool, own | by_name)
        tools = _nearest_of(agent, self.agents)
        if tools is not None and (near := _nearest_of(tool, tools)) is not None:
            return near
        owners = [tools[tool] for tools in self.agents.values() if tool in tools]
        # If several tools have the name, the intended one is unknown.
        return owners[0] if len(owners) == 1 else None

    def _by_any_name(self) -> dict[str, ToolEntry]:
        """Return every tool by its wire name, and by `namespace__name`."""
        whole = {f"{agent}__{name}": entry for agent, tools in self.agents.items() for name, entry in tools.items()}
        return whole | {entry.wire_name: entry for tools in self.agents.values() for entry in tools.values()}


def custom_agents(entries: Iterable[ToolEntry], agents: Mapping[str, AgentEntry]) -> str:
    """Return the end of a digest: the agents that these tools run, one line each; empty without agents.

    It depends only on names and descriptions, so that prompt caches stay valid; long descriptions are left out.
    """
    described: dict[str, str] = {}
    for entry in entries:
        if entry.agent is not None:
            declared = agents.get(entry.agent)
            own = "" if declared is None else one_line(declared.spec.description)
            # For an agent without a description, use that of its first tool with one.
            described[entry.agent] = described.get(entry.agent) or own or _agent_description(entry)
    if not described:
        return ""
    for described_too in (True, False):
        lines = [
            f'- "{name}": {described[name] or "No description"}' if described_too else f'- "{name}"'
            for name in sorted(described)
        ]
        text = "\n".join(["\n\nCustom Agents:", *lines])
        if estimated_tokens(len(text.encode())) <= DIGEST_NAMES_TOKENS:
            return text
    return f"\n\nCustom Agents: {len(described)}"


def _agent_description(entry: ToolEntry) -> str:
    """Return the tool's description of its agent; empty if it is generated."""
    said = one_line(entry.spec.description)
    return "" if said == invocation(entry.agent or "") else said


def _counted(sizes: Mapping[str, int]) -> str:
    return ",".join(f"{agent}({size})" for agent, size in sizes.items())


def _tools(tools: list[str], share: int) -> str:
    if len(tools) <= share:
        return f"[{','.join(tools)}]"
    return f"[{','.join(tools[:share])}, +{len(tools) - share} more]"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint at the known name that was probably meant, ignoring case, or nothing."""
    near = _nearest_name(name, known)
    return f' (did you mean "{near}"?)' if near and near != name else ""


def _nearest_name(name: str, known: Iterable[str]) -> str | None:
    by_form = {fold(item): item for item in known}
    return by_form.get(nearest_one(fold(name), by_form) or "")


def _nearest_of(name: str, known: Mapping[str, T]) -> T | None:
    near = _nearest_name(name, known)
    return None if near is None else known[near]


async def find(view: View, tool: str, agent: str | None = None) -> tuple[str, ToolEntry] | None:
    """Return the visible tool that a model names, and the name that matched.

    A tool is identified by namespace and own name, or by wire name, qualified id or former name. The view decides on
    visibility.
    """
    for name in (tool,) if agent is None else (f"{agent}.{tool}", f"{agent}.{tool.removeprefix(agent + '__')}", tool):
        entry = await view.afind(name)
        if entry is not None and not entry.is_for_apps_alone and agent in (None, entry.spec.namespace):
            return name, entry
    return None


def one_line(text: str) -> str:
    """Return the first line of a description, at most 200 characters of it."""
    lines = text.strip().splitlines()
    line = lines[0].strip() if lines else ""
    return line if len(line) <= LISTED_LINE_CHARS else line[: LISTED_LINE_CHARS - 1] + "…"


def echoed(value: object, *, chars: int = LISTED_LINE_CHARS) -> str:
    """Return a model's text for repetition in an answer: shortened, with `?` for lone surrogates."""
    text = str(value)
    cut = text if len(text) <= chars else text[: chars - 1] + "…"
    return cut.encode(errors="replace").decode()
