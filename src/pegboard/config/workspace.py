"""Workspace: create the document store of a config, and declare its tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from pydantic import ValidationError

from pegboard.config.audits import audit_file_of
from pegboard.config.build_context import BuildContext
from pegboard.config.config import Config, Declared
from pegboard.config.embedders import passage_embedder_of
from pegboard.config.forms.workspace_form import (
    LiveSourceForm,
    ParserForm,
    RerankerForm,
    WebFetchForm,
    WorkspaceForm,
)
from pegboard.config.language_models import models_of
from pegboard.config.model_specs import model_spec
from pegboard.config.stores import stores_of
from pegboard.config.yaml.problems import Report
from pegboard.config.yaml.tree import At
from pegboard.core.names import nearest
from pegboard.core.ports import DocumentSync
from pegboard.egress.destinations import only, only_host_of
from pegboard.extras import needs_package
from pegboard.lazy import LazyModule
from pegboard.model.bounds import MIB
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.secret import Secret
from pegboard.sources.builtin import web_scrape
from pegboard.sources.builtin.kind import Services
from pegboard.sources.builtin.text_summarize import find_model
from pegboard.workspace import parsers, reranking
from pegboard.workspace.own_metadata import checked_metadata
from pegboard.workspace.sources.s3_signature import S3Keys

if TYPE_CHECKING:
    from pegboard.workspace import document_stores, document_workspace, ingest, source_sync
    from pegboard.workspace.sources import bucket_source, git_source, sitemap_source
    from pegboard.workspace.sources.document_source import DocumentSource
    from pegboard.workspace.store import document_store
    from pegboard.workspace.tools import fetch_web_page, toolset
else:
    document_workspace = LazyModule("pegboard.workspace.document_workspace")
    ingest = LazyModule("pegboard.workspace.ingest")
    source_sync = LazyModule("pegboard.workspace.source_sync")
    bucket_source = LazyModule("pegboard.workspace.sources.bucket_source")
    git_source = LazyModule("pegboard.workspace.sources.git_source")
    sitemap_source = LazyModule("pegboard.workspace.sources.sitemap_source")
    document_stores = LazyModule("pegboard.workspace.document_stores")
    fetch_web_page = LazyModule("pegboard.workspace.tools.fetch_web_page")
    toolset = LazyModule("pegboard.workspace.tools.toolset")

_PACKAGE = "re2"


def store_of(config: Config, report: Report) -> document_store.SqlDocumentStore | None:
    """Return the document store of a config; `None` if there is none, or after reporting a problem."""
    declared = config.workspace
    if declared is None:
        return None
    store = declared.value.store
    uri = store.reveal() if isinstance(store, Secret) else store
    at = declared.at / "store" if (declared.at / "store").exists else declared.at
    if declared.value.space is not None and config.identity is not None:
        message = "is for callers whom nobody asks who they are; under identity: each rule gives its callers a space"
        report.add((declared.at / "space").problem(message))
    if find_spec(_PACKAGE) is None:
        report.add(declared.at.problem(needs_package("google-re2", "docs")))
        return None
    if uri.startswith("postgres") and find_spec("psycopg") is None:
        report.add(at.problem(needs_package("psycopg", "docs,postgres")))
        return None
    try:
        folder = config.path.absolute().parent
        return document_stores.open_store(
            uri,
            folder=folder,
            embedder=passage_embedder_of(config, report),
            document_chars=config.bounds.document_chars,
            parsers=_parsers_of(config, declared, report),
        )
    except DefinitionError as error:
        report.add(at.problem(str(error)))
    return None


def _parsers_of(config: Config, declared: Declared[WorkspaceForm], report: Report) -> parsers.Parsers:
    """Return the parsers of a config. They are imported by the processes that run them."""
    form, at = declared.value, declared.at
    named: list[tuple[ParserForm | str, At]] = [(each, at / "parsers" / key) for key, each in form.parsers.items()]
    if form.ocr is not None:
        named.append((form.ocr, at / "ocr"))
    for each, place in named:
        _, module, _ = _handler(each).split(":")
        fault = config.imports.module_fault(module)
        if fault is not None:
            report.add(place.problem(fault))
    try:
        own = {key: _parser(each) for key, each in form.parsers.items()}
        folder = str(config.path.absolute().parent)
        return parsers.Parsers.of(own, None if form.ocr is None else _parser(form.ocr), folders=(folder,))
    except DefinitionError as error:
        report.add((at / "parsers").problem(str(error)))
    return parsers.NO_PARSERS


def _parser(form: ParserForm | str) -> parsers.DocumentParser:
    if isinstance(form, str):
        return parsers.DocumentParser(form)
    return parsers.DocumentParser(form.handler, form.timeout_seconds, form.memory_mib * MIB)


def _handler(form: ParserForm | RerankerForm | str) -> str:
    return form if isinstance(form, str) else form.handler


def _resolve_functions(build: BuildContext, declared: Declared[WorkspaceForm]) -> reranking.Reranker | None:
    """Check that the functions of a config exist; return its reranker."""
    form, at = declared.value, declared.at
    for key, parser in form.parsers.items():
        build.resolve(_handler(parser), at / "parsers" / key)
    if form.ocr is not None:
        build.resolve(_handler(form.ocr), at / "ocr")
    if form.reranker is None:
        return None
    function = build.resolve(_handler(form.reranker), at / "reranker")
    if function is None:
        return None
    if isinstance(form.reranker, str):
        return reranking.Reranker(function)
    return reranking.Reranker(function, passages=form.reranker.passages, timeout_s=form.reranker.timeout_seconds)


def workspace_of(
    config: Config, store: document_store.SqlDocumentStore, *, env: Mapping[str, str] | None = None
) -> document_workspace.Workspace:
    """Return the ingester of a config; `web_fetch` limits the addresses that it may fetch, by default to public ones.

    Files that Pegboard writes are never ingested. `env` may have credentials of Git hosts and S3 services.
    """
    form = None if config.workspace is None else config.workspace.value.web_fetch
    reach = form if isinstance(form, WebFetchForm) else WebFetchForm.model_validate({})
    own_files = [audit_file_of(config), *(each.uri.path for each in stores_of(config))]
    return document_workspace.Workspace(
        store,
        max_file_bytes=config.bounds.upload_bytes,
        own_files=[each for each in own_files if each is not None],
        allow_hosts=reach.allow_hosts,
        allow_private=reach.allow_private,
        env=env,
    )


def declare_workspace(
    build: BuildContext, declared: Declared[WorkspaceForm], store: document_store.SqlDocumentStore
) -> None:
    """Add the tools for documents to a catalog, and what keeps its sources in step.

    Raises:
        DefinitionError: a host of `web_fetch` is invalid, or a package is missing.
    """
    catalog, config, form = build.catalog, build.config, declared.value
    if form.model is not None and form.model not in config.models:
        text = f"there is no model {form.model!r}.{nearest(form.model, config.models, label='Models')}"
        build.report.add((declared.at / "model").problem(text))
    store.reranker = _resolve_functions(build, declared)
    model = config.models.get(form.model or "default")
    services = Services(folder=config.path.absolute().parent, bounds=config.bounds, models=models_of(build))
    catalog.use_documents(
        store,
        model_of=lambda ctx: find_model(ctx, form.model, services),
        analyst_model=None if model is None else model_spec(model.value, config),
    )
    catalog.registry.change(document_sync=sync_of(config, store, build.report))
    searches = any(tool.value.type == "builtin" and groups_with_both(config, tool.value.name) for tool in config.tools)
    web_fetch = searches if form.web_fetch is None else form.web_fetch
    if searches or web_fetch:
        catalog.group("web", "Pages of the web.")
    if web_fetch:
        catalog.registry.add(fetch_web_page.fetch_tool(_web(web_fetch), services))


def sync_of(config: Config, store: document_store.SqlDocumentStore, report: Report) -> DocumentSync | None:
    """Return the service that syncs the sources of a config; `None` if it has none."""
    declared = config.workspace
    if declared is None or not declared.value.sources:
        return None
    workspace, folder = workspace_of(config, store), config.path.absolute().parent
    sources: list[source_sync.LiveSource] = []
    for number, form in enumerate(declared.value.sources):
        at = declared.at / "sources" / number
        try:
            ingest.checked_encoding(form.encoding)
            checked_metadata(form.metadata)
            store.operator_scope(form.space)
            each = next(
                live(form, workspace, folder) for name, live in _LIVE.items() if getattr(form, name) is not None
            )
        except (CallError, DefinitionError) as error:
            report.add(at.problem(error.error.message if isinstance(error, CallError) else str(error)))
            continue
        if any((each.space, each.name) == (other.space, other.name) for other in sources):
            report.add(
                at.problem(f"there are two sources {each.name!r} of the space {each.space!r}. Give one a `name`")
            )
        sources.append(each)
    return source_sync.SourceSync(store, sources)


def _live_folder(form: LiveSourceForm, workspace: document_workspace.Workspace, folder: Path) -> source_sync.LiveSource:
    return workspace.live_folder(
        folder / (form.path or ""),
        space=form.space,
        source=form.name,
        encoding=form.encoding,
        metadata=form.metadata,
        every_s=form.every_seconds,
        watches=form.watch,
    )


def _live_repository(
    form: LiveSourceForm, workspace: document_workspace.Workspace, folder: Path
) -> source_sync.LiveSource:
    git = form.git
    assert git is not None
    place = git_source.GitPlace(url=git.url, branch=git.branch or "", folder=(git.folder or "").strip("/")).checked()
    host, port = ("", 0) if place.is_local else place.server()
    access = git_source.GitAccess(destinations=only(host, port), token=_secret(git.token))
    return _live_place(form, workspace, lambda: git_source.GitSource(place, access, beside=folder), name=place.name())


def _live_bucket(form: LiveSourceForm, workspace: document_workspace.Workspace, _: Path) -> source_sync.LiveSource:
    bucket = form.bucket
    assert bucket is not None
    place = bucket_source.BucketPlace(bucket=bucket.name, prefix=bucket.prefix or "", endpoint=bucket.endpoint or "")
    access_key, secret_key = _secret(bucket.access_key), _secret(bucket.secret_key)
    keys = None
    if access_key is not None and secret_key is not None:
        keys = S3Keys(access_key=access_key.reveal(), secret_key=secret_key, region=bucket.region)
    destinations = only_host_of(place.url(bucket.region))
    return _live_place(form, workspace, lambda: bucket_source.BucketSource(place, keys, destinations), name=bucket.name)


def _live_site(form: LiveSourceForm, workspace: document_workspace.Workspace, _: Path) -> source_sync.LiveSource:
    url = form.sitemap or ""
    destinations = only_host_of(url)
    return _live_place(
        form,
        workspace,
        lambda: sitemap_source.SitemapSource(url, destinations),
        name=urlsplit(url).hostname or "site",
    )


def _live_place(
    form: LiveSourceForm, workspace: document_workspace.Workspace, make: Callable[[], DocumentSource], *, name: str
) -> source_sync.LiveSource:
    return workspace.live_place(
        make,
        space=form.space,
        source=form.name or name,
        encoding=form.encoding,
        metadata=form.metadata,
        every_s=form.every_seconds,
    )


def _secret(text: Secret | str | None) -> Secret | None:
    return Secret(text) if isinstance(text, str) else text


_LIVE: Final[Mapping[str, Callable[[LiveSourceForm, document_workspace.Workspace, Path], source_sync.LiveSource]]] = {
    "path": _live_folder,
    "git": _live_repository,
    "bucket": _live_bucket,
    "sitemap": _live_site,
}


def group_names() -> set[str]:
    """Return the groups that document tools may have."""
    return {*toolset.GROUPS, "web"}


def groups_with_both(config: Config, builtin: str) -> tuple[str, ...]:
    """Return the groups that contain both document tools and built-in tools with the same name: one tool, in both."""
    return ("web",) if config.workspace is not None and builtin == "web_search" else ()


def _web(form: WebFetchForm | bool) -> web_scrape.ScrapeConfig:
    settings = {} if isinstance(form, bool) else form.model_dump()
    try:
        return web_scrape.ScrapeConfig.model_validate(settings)
    except ValidationError as error:
        faults = "; ".join(each["msg"].removeprefix("Value error, ") for each in error.errors())
        raise DefinitionError(f"web_fetch: {faults}") from None
