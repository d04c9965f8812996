"""Config warnings: find oddities in a config that are allowed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pegboard.catalog import Catalog
from pegboard.config.config import Config, Declared
from pegboard.config.forms.profile_form import ProfileForm
from pegboard.config.profiles import globs_of, place_of, unmatched_globs
from pegboard.config.python_modules import hidden_module, hidden_modules
from pegboard.core.call.budget_stage import names_of_agent
from pegboard.core.judge import applies
from pegboard.core.names import matches_folded, nearest
from pegboard.lazy import LazyModule
from pegboard.model.error import Problem
from pegboard.model.record import replace
from pegboard.model.tool import ToolEntry

if TYPE_CHECKING:
    from pegboard.agents import budgets as agent_budgets
    from pegboard.config.forms import source_auth_form
else:
    agent_budgets = LazyModule("pegboard.agents.budgets")
    source_auth_form = LazyModule("pegboard.config.forms.source_auth_form")

DOCUMENT_TOOLS = "pegboard.workspace.tools"  # the beginning of the origin of every document tool
LEFT_OUT_SHOWN = 20  # rejected operations of one API that are listed one by one


def warnings(config: Config, catalog: Catalog) -> list[Problem]:
    """Return the warnings for a config, such as globs that match no file or tool now, and tools in no profile."""
    problems = [*config.open_files, *config.warnings]
    for name, declared in config.profiles.items():
        idle = set(unmatched_globs(catalog, name)[1])
        problems += [
            at.problem(f"{glob!r} matches no tool at present") for glob, at in globs_of(declared) if glob in idle
        ]
        problems += _idle_pins(declared, catalog)
    problems += _idle_budgets(config, catalog)
    problems += _exchanges_without_tokens(config)
    for tool in config.tools:
        source = catalog.registry.sources.get(tool.value.name)
        if unmet := getattr(source, "unmet", ""):
            text = f"its document requires credentials, and none are configured: {unmet}. Add `auth:`"
            problems.append(tool.at.problem(text))
        left_out: Sequence[tuple[str, str]] = getattr(source, "rejected", ())
        problems += [tool.at.problem(f"{name!r} was left out: {reason}") for name, reason in left_out[:LEFT_OUT_SHOWN]]
        if len(left_out) > LEFT_OUT_SHOWN:
            problems.append(tool.at.problem(f"{len(left_out) - LEFT_OUT_SHOWN} more were left out"))
    problems += _stale_requests(config, catalog)
    problems += [
        Problem(where=str(config.path), message=hidden_module(name, place))
        for name, place in hidden_modules(config.path.absolute().parent).items()
    ]
    return [*problems, *_idle_permissions(config, catalog), *_unreachable_tools(catalog)]


def _exchanges_without_tokens(config: Config) -> Iterator[Problem]:
    """Yield a warning for each source that exchanges the tokens of its callers, if the server accepts none."""
    accepts_tokens = config.identity is not None and config.identity.value.jwt is not None
    if accepts_tokens or "identity" in config.refused.sections:
        return
    for tool in config.tools:
        auth: object = getattr(tool.value, "auth", None)
        if isinstance(auth, source_auth_form.SourceAuthForm) and auth.exchanges_tokens:
            text = (
                f"`{auth.mode}` needs the caller's token, but this server accepts no tokens: every "
                "call over HTTP will be refused. Add `identity: {jwt: …}`"
            )
            yield (tool.at / "auth" / "mode").problem(text)


def _idle_budgets(config: Config, catalog: Catalog) -> Iterator[Problem]:
    """Yield the globs of budgets that match no tool and no agent, and budgets of money that cannot see some agents."""
    if config.budgets is None:
        return
    declared = catalog.registry.declarations
    tools = [entry.folded_names for entry in catalog.registry.build().entries]
    agents = {agent: names_of_agent(agent) for agent in declared.agents}
    for name, form in config.budgets.value.rules.items():
        at = config.budgets.at / "rules" / name
        for index, glob in enumerate(form.tools):
            if not any(matches_folded(glob, names) for names in (*agents.values(), *tools)):
                yield place_of(at / "tools", index).problem(f"{glob!r} matches no tool at present")
        if form.cost is not None and form.unit == "usd":
            for agent, names in agents.items():
                model = declared.agents[agent].spec.model
                is_covered = not form.tools or any(matches_folded(glob, names) for glob in form.tools)
                if is_covered and agent_budgets.price_of(model) is None:
                    text = (
                        f"there is no price of {model.provider}:{model.name}, so runs of the agent {agent!r} cost "
                        "nothing here; budget `tokens`"
                    )
                    yield (at / "cost").problem(text)


def _idle_pins(declared: Declared[ProfileForm], catalog: Catalog) -> list[Problem]:
    entries = catalog.registry.build().entries
    return [
        place_of(declared.at / "pinned", index).problem(f"{glob!r} matches no tool at present")
        for index, glob in enumerate(declared.value.pinned)
        if not any(applies(glob, entry) for entry in entries)
    ]


def _stale_requests(config: Config, catalog: Catalog) -> Iterator[Problem]:
    """Yield one warning for all tools that have changed since their example requests were written."""
    if config.examples is None:
        return
    stale = catalog.discovery.finder.stale_requests(catalog.registry.build().entries)
    if stale:
        more = f" and {len(stale) - LEFT_OUT_SHOWN} more" if len(stale) > LEFT_OUT_SHOWN else ""
        text = f"the requests of {', '.join(map(repr, stale[:LEFT_OUT_SHOWN]))}{more} are stale: the tools have changed"
        yield config.examples.at.problem(f"{text}. Run `pegboard search --write-examples`, and review what it writes")


def _idle_permissions(config: Config, catalog: Catalog) -> Iterator[Problem]:
    """Yield a warning for each permission of an agent that matches no tool of the catalog or of any agent.

    Permissions may name tools of sub-agents, and tools that a source has not listed yet.
    """
    registry = catalog.registry
    own = [tool for agent in registry.declarations.agents.values() for tool in registry.own_tools(agent)]
    entries = [*registry.build().entries, *(replace(tool, wire_name=tool.wire_name or tool.spec.name) for tool in own)]
    names = {name.rpartition(".")[2] for name in registry.sources}
    for agent in config.agents:
        permissions, at = agent.file.value.spec.permissions, agent.file.at / "spec" / "permissions"
        if permissions is None:
            continue
        for side in ("allowed_actions", "denied_actions"):
            globs: tuple[str, ...] = getattr(permissions, side) or ()
            for index, glob in enumerate(globs):
                is_of_source = glob.replace("__", ".").partition(".")[0] in names
                if not is_of_source and not any(applies(glob, entry) for entry in entries):
                    yield (at / side / index).problem(f"{glob!r} matches no tool at present")


def _unreachable_tools(catalog: Catalog) -> Iterator[Problem]:
    """Yield warnings for tools that no profile shows, because it includes none of their groups.

    Tools of one source or module with the same groups share one warning, as do all document tools.
    """
    profiles = catalog.registry.profiles.values()
    if not profiles or any(profile.include is None for profile in profiles):
        return
    included = {group for profile in profiles for group in profile.include or ()}
    agents = [agent.spec for agent in catalog.registry.declarations.agents.values()]
    included.update(group for spec in agents for group in spec.groups)
    shared = {name for spec in agents for name in spec.shared}
    unreachable: dict[tuple[str, tuple[str, ...]], list[ToolEntry]] = {}
    for entry in catalog.registry.build().entries:
        spec = entry.spec
        if spec.internal_only or entry.qualified_id in shared or not included.isdisjoint(spec.groups):
            continue
        is_of_documents = spec.origin.startswith(DOCUMENT_TOOLS)
        key = (DOCUMENT_TOOLS, ()) if is_of_documents else (spec.origin.partition(":")[0], spec.groups)
        unreachable.setdefault(key, []).append(entry)
    for (place, _), entries in unreachable.items():
        yield _unreachable(entries, place=place, included=included)


def _unreachable(entries: Sequence[ToolEntry], *, place: str, included: Iterable[str]) -> Problem:
    groups = list(dict.fromkeys(group for entry in entries for group in entry.spec.groups))
    named = f"{groups[0]!r}" if len(groups) == 1 else f"any of {groups}"
    near = nearest(groups[0], included, label="Included")
    names = [entry.wire_name or entry.spec.name for entry in entries]
    if len(names) == 1:
        return Problem(where=entries[0].spec.origin, path=names[0], message=f"no profile includes {named}.{near}")
    more = f" and {len(names) - LEFT_OUT_SHOWN} more" if len(names) > LEFT_OUT_SHOWN else ""
    listed = f"{', '.join(names[:LEFT_OUT_SHOWN])}{more}"
    where = place if place == DOCUMENT_TOOLS else entries[0].spec.origin
    text = f"no profile includes {named}, so no caller sees these {len(names)} tools: {listed}.{near}"
    return Problem(where=where, message=text)
