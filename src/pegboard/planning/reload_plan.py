"""Reload plan: logs the changes of access by a new config, in the words of `pegboard plan`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from msgspec import Struct

from pegboard.catalog import Catalog
from pegboard.config import Config, context_for
from pegboard.core.declarations import MirroredSource, PrivateSource
from pegboard.core.first_listing import wait_for_listing
from pegboard.core.ports import Source, StartsSlowly
from pegboard.core.redaction import Redactor
from pegboard.discovery.token_count import Tokenizer, estimated_tokens
from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSON
from pegboard.model.record import replace
from pegboard.model.source_state import SourceState
from pegboard.model.tool import ToolEntry
from pegboard.planning.comparison import Side, compare
from pegboard.planning.plan_record import plan_record, plan_sentence

RELOAD_LISTING_S = 10.0  # how long new sources have to list their tools to be compared, in seconds
RELOAD_CHANGES = 10  # changes in the text of the record; its fields have all
_GRAVE = ("lost", "breaking", "unclear", "weaker", "changed")
# Exact tokens would take longer than the reload itself.
_BY_BYTES = Tokenizer(name="bytes / 4.3", count=lambda text: estimated_tokens(len(text.encode())))

log = logging.getLogger("pegboard")


class RememberedSource(Struct, frozen=True, kw_only=True):
    """The tools that a source listed at one moment. It never connects, and never changes."""

    name: str
    listed: tuple[ToolEntry, ...]
    known_groups: frozenset[str]
    then: SourceState

    def entries(self) -> Sequence[ToolEntry]:
        """Return the listed tools."""
        return self.listed

    def groups(self) -> frozenset[str]:
        """Return the groups that its tools could have."""
        return self.known_groups

    def state(self) -> SourceState:
        """Return the state at that moment."""
        return self.then

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Do nothing: it never changes."""

    async def start(self) -> None:
        """Do nothing."""

    async def stop(self) -> None:
        """Do nothing."""


def remember(catalog: Catalog, config: Config) -> Side:
    """Return the current declarations of a running catalog and the lists of its sources, for a later `log_reload`."""
    declared = catalog.registry.declarations
    copy = Catalog(declared.name, bounds=declared.bounds)
    sources = {name: _remembered(source) for name, source in declared.sources.items()}
    copy.registry.has_tasks = catalog.registry.has_tasks
    copy.registry.swap(replace(declared, sources=sources))
    return Side(catalog=copy, config=config, ctx=context_for(config, session="reload"))


def with_known_listings(before: Side, loaded: Catalog, config: Config) -> Side:
    """Return a config that was loaded and not started; sources declared as before list what they list now."""
    known = before.catalog.registry.sources
    declared = [{form.value.name: form.value for form in one.tools} for one in (before.config, config)]

    def listed(name: str, source: Source) -> Source:
        is_same = name in known and all(name in forms for forms in declared) and declared[0][name] == declared[1][name]
        return known[name] if is_same and not source.entries() else source

    sources = {name: listed(name, source) for name, source in loaded.registry.sources.items()}
    loaded.registry.swap(replace(loaded.registry.declarations, sources=sources))
    return Side(catalog=loaded, config=config, ctx=context_for(config, session="reload"))


async def log_reload(before: Side, catalog: Catalog, config: Config, *, say: Callable[..., None]) -> None:
    """Log what a reload changed: as a warning if callers may lose something, otherwise by `say`.

    New sources have ten seconds to list their tools. `say` takes a line, and the fields of its record.
    """
    new = [source for source in catalog.registry.sources.values() if isinstance(source, StartsSlowly)]
    await wait_for_listing(new, RELOAD_LISTING_S)
    after = Side(catalog=catalog, config=config, ctx=context_for(config, session="reload"))
    _log(await plan_of_reload(before, after), say)


async def log_replacement(
    before: Side, load: Callable[[], Awaitable[tuple[Catalog, Config]]], *, say: Callable[..., None]
) -> None:
    """Log what the config of another process changes that replaces this one, as `log_reload` does.

    No source is started: the other process has those of the new config.
    """
    try:
        loaded, config = await load()
    except DefinitionError as error:
        log.warning("config_reload_plan: what has changed cannot be compared: %s", error.problems[0])
        return
    try:
        _log(await plan_of_reload(before, with_known_listings(before, loaded, config)), say)
    finally:
        await loaded.close(grace_s=0.0)


async def plan_of_reload(before: Side, after: Side) -> JSON:
    """Return the record of the plan of a reload, without secrets; tokens are estimated from bytes."""
    plan = await compare(before, after, against="the config before", counting=_BY_BYTES)
    record: JSON = plan_record(plan, counted_by=_BY_BYTES.name)
    # Definitions may repeat a secret.
    return Redactor((*before.catalog.secrets, *after.catalog.secrets)).value(record)


def _log(record: JSON, say: Callable[..., None]) -> None:
    text = "; ".join([plan_sentence(record).removesuffix("."), *_shown(record)])
    fields: JSON = {"event": "config_reload_plan", "plan": record}
    if any(record["summary"][kind] for kind in _GRAVE):
        log.warning("config_reload_plan: %s", text, extra={"fields": fields})
    else:
        say(f"config_reload_plan: {text}\n", **fields)


def _shown(record: JSON) -> Iterable[str]:
    """Return the first changes in words, each with the profiles that it concerns."""
    profiles: dict[tuple[str, ...], list[str]] = {}
    groups: list[JSON] = [*record["profiles"], {"profile": "", "changes": record["all_profiles"]}]
    for one in groups:
        for change in one["changes"]:
            key = (change["kind"], change["tool"] or "", change["what"], change["detail"])
            profiles.setdefault(key, []).append(one["profile"] or "")
    for (kind, tool, what, detail), names in [*profiles.items()][:RELOAD_CHANGES]:
        of = ", ".join(filter(None, names))
        rule = f" ({what})" if what else ""
        yield f"{kind} {tool or 'rule'}{rule}{f' in {of}' if of else ''}{f': {detail}' if detail else ''}"
    if len(profiles) > RELOAD_CHANGES:
        yield f"{len(profiles) - RELOAD_CHANGES} more changes"


def _remembered(source: Source) -> Source:
    match source:
        case MirroredSource() | PrivateSource():
            return replace(source, source=_remembered(source.source))
        case _:
            return RememberedSource(
                name=source.name, listed=tuple(source.entries()), known_groups=source.groups(), then=source.state()
            )
