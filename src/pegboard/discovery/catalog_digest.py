"""Digest: which tools there are, in as few words as a budget allows; the same for the same tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pegboard.discovery.catalog_listing import CatalogListing
from pegboard.discovery.token_budget import estimated_tokens

_SHARES = (1_000, 60, 30, 20, 12, 8, 5, 3, 2, 1)


def digest_of(listing: CatalogListing, *, budget_tokens: int) -> str:
    """Return one line a namespace, `name: [tool,tool]`; over the budget fewer tools each, then fewer namespaces.

    It depends on the names alone, so that prompt caches hold.
    """
    agents = {agent: list(tools) for agent, tools in listing.agents.items()}
    for text in _shorter_and_shorter(agents):
        if estimated_tokens(len(text.encode())) <= budget_tokens:
            return text
    return f"Agents: {len(agents)}"


def _shorter_and_shorter(agents: Mapping[str, list[str]]) -> Iterator[str]:
    for share in _SHARES:
        yield "\n".join(["Agents:", *(f"{agent}: {_tools(tools, share)}" for agent, tools in agents.items())])
    # Without room for tools: the namespaces alone, with how many tools each has.
    counted = [f"{agent}({len(tools)})" for agent, tools in agents.items()]
    yield f"Agents: {','.join(counted)}"
    for kept in range(len(counted) - 1, 0, -1):
        yield f"Agents: {','.join(counted[:kept])}, +{len(counted) - kept} more"


def _tools(tools: list[str], share: int) -> str:
    if len(tools) <= share:
        return f"[{','.join(tools)}]"
    return f"[{','.join(tools[:share])}, +{len(tools) - share} more]"
