"""Probes: every store, bus and address that a config depends on, and whether each works now."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pegboard.catalog import Catalog
from pegboard.config.alerts import secret_of
from pegboard.config.audits import audit_store_of
from pegboard.config.config import Config, Declared
from pegboard.config.embedders import OPENAI_URL
from pegboard.config.forms.alert_form import AlertCommandForm
from pegboard.config.forms.embedder_form import EmbedderForm
from pegboard.config.forms.value_types import is_url
from pegboard.config.model_specs import model_spec
from pegboard.config.stores import DeclaredStore, store_database, stores_of
from pegboard.core.declarations import PrivateSource
from pegboard.core.ports import DocumentSync, Probed
from pegboard.egress.destinations import only_host_of
from pegboard.egress.limits import PROBE_S
from pegboard.egress.process import check_program
from pegboard.lazy import LazyModule
from pegboard.model.agent import ModelSpec
from pegboard.model.error import CallError
from pegboard.model.probe import Part, PartKind
from pegboard.models.language_models import base_url_of, has_endpoint

if TYPE_CHECKING:
    from pegboard.egress import reachability, urls
else:
    reachability = LazyModule("pegboard.egress.reachability")
    urls = LazyModule("pegboard.egress.urls")


def parts_of(config: Config, catalog: Catalog, *, bus: Probed | None = None) -> Iterator[Part]:
    """Yield every part of a config, with the catalog made of it.

    Sources that connect report their state themselves; of the others, those with a fixed server are parts.
    """
    yield from _stores(config, catalog)
    if bus is not None and config.server is not None:
        yield Part(kind="bus", name="server.bus", where=(config.server.at / "bus").origin, check=bus.probe)
    yield from _servers(config, catalog)
    yield from _models(config, catalog)
    yield from _receivers(config)
    yield from _live_sources(config, catalog)


def _stores(config: Config, catalog: Catalog) -> Iterator[Part]:
    ports = catalog.executor.ports
    if config.limit_store is not None and isinstance(ports.limits, Probed):
        where, is_required = config.limit_store.at.origin, _needs_limits(catalog)
        yield Part(kind="store", name="limits", where=where, check=ports.limits.probe, is_required=is_required)
    if config.budgets is not None and isinstance(ports.budgets, Probed):
        # On Redis, as for consents.
        where, is_required = (config.budgets.at / "store").origin, _needs_budgets(catalog)
        yield Part(kind="store", name="budgets", where=where, check=ports.budgets.probe, is_required=is_required)
    if config.consent_store is not None and isinstance(ports.used_answers, Probed):
        # On Redis; those on SQLite and PostgreSQL are among the declared stores.
        yield Part(kind="store", name="consents", where=config.consent_store.at.origin, check=ports.used_answers.probe)
    places = _places(config)
    declared = {store.name for store in stores_of(config)}
    if config.audit is not None and "audit" not in declared:
        # `jsonl:`; in a database it is among the declared stores.
        yield Part(
            kind="store",
            name="audit",
            where=places["audit"],
            check=partial(_check_audit, config),
            is_required=config.audit.value.required,
        )
    for store in stores_of(config):
        yield Part(
            kind="store",
            name=store.name,
            where=places.get(store.name, ""),
            # Other stores are created when they are first needed.
            check=partial(_check_keys if store.name == "api_keys" else _check_store, store),
            is_required=(store.name == "api_keys" and _needs_keys(config, store))
            or (store.name == "audit" and _requires_audit(config))
            or (store.name == "budgets" and _needs_budgets(catalog)),
        )


def _needs_keys(config: Config, store: DeclaredStore) -> bool:
    """Tell whether the server is not ready without the store of keys.

    A store that does not exist yet has no keys, so callers with tokens and anonymous ones are served without it.
    """
    identity = None if config.identity is None else config.identity.value
    has_other_callers = identity is not None and not (identity.jwt is None and identity.anonymous is None)
    return not has_other_callers or store.uri.path is None or store.uri.path.exists()


def _needs_budgets(catalog: Catalog) -> bool:
    """Tell whether calls are refused while the store of budgets is away."""
    declared = catalog.registry.declarations
    has_writes = any(not entry.spec.is_read_only for entry in declared.tools.values())
    rules = {budget.when_store_is_down for budget in declared.budgets.values()}
    return "closed" in rules or (None in rules and (has_writes or bool(declared.agents)))


def _needs_limits(catalog: Catalog) -> bool:
    """Tell whether calls are refused while the store of rate limits is away."""
    declared = catalog.registry.declarations
    specs = [entry.spec for entry in declared.tools.values()]
    return any(
        limit is not None and (limit.when_store_is_down or ("local" if spec.is_read_only else "closed")) == "closed"
        for spec in specs
        for limit in (spec.rate_limit or declared.default_limit,)
    )


def _places(config: Config) -> Mapping[str, str]:
    declared: Mapping[str, Declared[object] | None] = {
        "api_keys": config.identity,
        "audit": config.audit,
        "budgets": config.budgets,
        "consents": config.consent_store,
        "connections": config.connections,
        "conversations": config.agent_store,
        "tasks": config.tasks,
        "documents": config.workspace,
        "learned_use": config.learn,
        "embedding_cache": config.embedder,
    }
    return {name: each.at.origin for name, each in declared.items() if each is not None}


def _requires_audit(config: Config) -> bool:
    return config.audit is not None and config.audit.value.required


async def _check_audit(config: Config) -> None:
    await asyncio.to_thread(audit_store_of(config).probe)


async def _check_store(store: DeclaredStore) -> None:
    await asyncio.to_thread(store_database(store).probe)


async def _check_keys(store: DeclaredStore) -> None:
    """Check the store of keys; without it, every key is refused.

    Raises:
        OSError, StoreError: it does not exist or cannot be used.
    """
    path = store.uri.path
    if path is not None and not path.exists():
        raise OSError(f"{str(path)!r} does not exist; add a key with `pegboard keys add NAME`, or correct the address")
    await _check_store(store)


def _servers(config: Config, catalog: Catalog) -> Iterator[Part]:
    for source in catalog.registry.sources.values():
        inner = source.source if isinstance(source, PrivateSource) else source
        if isinstance(inner, Probed):
            where = getattr(getattr(inner, "settings", None), "origin", "")
            yield Part(kind="server", name=f"of {source.name}", where=where, check=inner.probe, source=source.name)
    for tool in (*config.tools, *(tool for agent in config.agents for tool in agent.tools)):
        if tool.value.type == "webhook":
            url = tool.value.webhook.url
            url = urls.expand_path(url, dict.fromkeys(urls.placeholders_of(url), "x"))
            yield _at(url, kind="server", name=f"of {tool.value.name}", where=tool.at.origin)
    for hook in config.hooks:
        if is_url(hook.value.use):
            yield _at(hook.value.use, kind="server", name="of a hook", where=hook.at.origin)
    if config.identity is not None and config.identity.value.jwt is not None:
        url, where = config.identity.value.jwt.jwks_url, (config.identity.at / "jwt").origin
        yield _at(url, kind="server", name="identity.jwt", where=where)


def _models(config: Config, catalog: Catalog) -> Iterator[Part]:
    specs: dict[str, tuple[ModelSpec, str]] = {
        name: (model_spec(declared.value, config), declared.at.origin) for name, declared in config.models.items()
    }
    known = {base_url_of(spec) for spec, _ in specs.values()}
    for agent in catalog.registry.declarations.agents.values():
        if has_endpoint(agent.spec.model) and base_url_of(agent.spec.model) not in known:
            specs[f"of {agent.spec.name}"] = (agent.spec.model, agent.spec.origin)
    for name, (spec, where) in specs.items():
        yield _at(base_url_of(spec), kind="model", name=name, where=where)
    embedders: Mapping[str, Declared[EmbedderForm] | None] = {
        "embedder": config.embedder,
        "workspace.embedder": config.passage_embedder,
    }
    for name, declared in embedders.items():
        if declared is not None and declared.value.type not in ("hashing", "fastembed"):
            url = declared.value.base_url or OPENAI_URL
            yield _at(url, kind="model", name=name, where=declared.at.origin)


def _at(url: str, *, kind: PartKind, name: str, where: str) -> Part:
    parts = urlsplit(url)
    check = partial(reachability.check_reachable, url, only_host_of(url), timeout_s=PROBE_S)
    return Part(kind=kind, name=f"{name} ({parts.scheme}://{parts.netloc})", where=where, check=check)


def _receivers(config: Config) -> Iterator[Part]:
    """Yield the receivers of alerts. Their names contain no path, which often has a token."""
    for declared in config.alerts:
        to, where = declared.value.to, declared.at.origin
        if isinstance(to, AlertCommandForm):
            name = f"of an alert ({Path(to.command[0]).name})"
            check = partial(_check_command, to.command[0], config.path.absolute().parent)
            yield Part(kind="server", name=name, where=where, check=check)
        else:
            yield _at(secret_of(to).reveal(), kind="server", name="of an alert", where=where)


async def _check_command(command: str, folder: Path) -> None:
    await asyncio.to_thread(check_program, command, cwd=folder)


def _live_sources(config: Config, catalog: Catalog) -> Iterator[Part]:
    """Yield the sources of documents that a server keeps in step."""
    sync = catalog.registry.declarations.document_sync
    if sync is None or config.workspace is None:
        return
    for number, name in enumerate(sync.names()):
        where = (config.workspace.at / "sources" / number).origin
        check = partial(_check_live_source, sync, number)
        to_do = f"See that its place is right ({where}). The server tries again by itself; its documents are kept."
        yield Part(kind="documents", name=name, where=where, check=check, to_do=to_do)


async def _check_live_source(sync: DocumentSync, number: int) -> None:
    state = (await sync.states())[number]
    if state.trouble:
        raise CallError("upstream_unavailable", state.trouble)
