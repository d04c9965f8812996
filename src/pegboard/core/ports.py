"""Ports: the protocols that other packages fill, so that core need not know them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from pegboard.model.consent import ConsentAnswer, ConsentRequest
from pegboard.model.context import ToolContext
from pegboard.model.json_types import JSON, JSONValue
from pegboard.model.rate_limit import RateLimit
from pegboard.model.secret import Secret
from pegboard.model.source_state import SourceState
from pegboard.model.tool import ToolEntry

if TYPE_CHECKING:
    from pegboard.model.document import Access, DocumentFilters, DocumentScope, NewDocument, SearchMode, SourceType


class Source(Protocol):
    """Where tools come from. It owns its connections and supervises them itself."""

    @property
    def name(self) -> str: ...

    def entries(self) -> Sequence[ToolEntry]:
        """Return the last good listing. Must be quick: a snapshot is made from it."""
        ...

    def groups(self) -> frozenset[str]:
        """Return the groups that its tools may have, also while it is down."""
        ...

    def state(self) -> SourceState: ...

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` after each change of `entries`."""
        ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


@runtime_checkable
class OffersResources(Protocol):
    """A source that has resources, prompts or completions beside its tools."""

    def resource_entries(self) -> Sequence[ToolEntry]:
        """Return the last good lists, each entry with its `offer`. Must be quick, as `entries`."""
        ...


@runtime_checkable
class HoldsSecrets(Protocol):
    """A source that is given credentials, which its server may say wherever it says something."""

    def secrets(self) -> Iterable[Secret]:
        """Return what it authenticates with."""
        ...


@runtime_checkable
class LeadsElsewhere(Protocol):
    """A source whose tools are another server's, which may have them from further servers, and at last from us."""

    def serve_as(self, server_id: Callable[[], str], link_key: Callable[[], bytes]) -> None:
        """Take what tells the id of the server that the source is part of, and its secret for addresses."""
        ...

    def way_of(self, entry: ToolEntry) -> tuple[str, ...]:
        """Return the ids of the servers behind an entry, the nearest first; empty where none are known."""
        ...


@runtime_checkable
class StatefulHandler(Protocol):
    """A handler that holds something between calls, which outlives a change of the config."""

    def carry_on(self, before: object) -> None:
        """Go on with what the handler of the same name held until now."""
        ...


class LimitStore(Protocol):
    """Counts accepted calls in moving windows, exactly."""

    def wait_s(
        self, hits: Sequence[tuple[tuple[str | None, ...], RateLimit]], *, charge: bool
    ) -> float | Awaitable[float | None] | None:
        """Return seconds until one more call fits all windows, 0.0 if it fits now, `None` if it never will.

        With `charge`, a call that fits is recorded in all windows, in one atomic step.

        Raises:
            OSError: the store does not answer.
        """
        ...


class LocalLimitStore(Protocol):
    """A `LimitStore` in this process, which answers at once; `max_keys` bounds what it remembers."""

    max_keys: int

    def wait_s(self, hits: Sequence[tuple[tuple[str | None, ...], RateLimit]], *, charge: bool) -> float | None: ...


@runtime_checkable
class ConsentRecords(Protocol):
    """What people answered, one record an answer, which binds principal, definition and arguments.

    Every method raises `OSError` where the store does not answer: then nobody knows, and nothing is run.
    """

    @property
    def takes_questions(self) -> bool:
        """Whether a question can be filed, for a person to decide later."""
        ...

    async def recall(self, request: ConsentRequest) -> ConsentAnswer | None:
        """Return the answer that holds for a call: a no of its session, or a yes, of which one use is used up.

        In one atomic step, so that no use serves two calls. `None` where nobody has answered.
        """
        ...

    async def record(self, request: ConsentRequest, *, is_yes: bool, decided_by: str) -> ConsentAnswer:
        """Write down an answer that a person gave elsewhere. A yes is used up by the call that it was given to."""
        ...

    async def stands(self, consent_id: str) -> bool:
        """Tell whether a yes, of which a call has a use already, is there still: nobody has taken it back."""
        ...

    async def give_back(self, consent_id: str) -> None:
        """Put back the use of a yes that served no call."""
        ...

    async def file(self, request: ConsentRequest, text: str) -> str:
        """Write down a question, as it is to be read; return its id, the same where it is open already.

        Raises:
            CallError: `consent_required`; too many questions of this principal are open.
        """
        ...

    def link(self, consent_id: str) -> str | None:
        """Return where a person can decide on a question; `None` where no page does."""
        ...


class UsedAnswers(Protocol):
    """Remembers which answers of people were used, for all workers that share it; each is good once."""

    async def use_up(self, mark: str, *, keep_s: float) -> bool:
        """Use up an answer by its mark, in one atomic step; `False` when it was used before, within `keep_s`.

        Raises:
            OSError: the store does not answer; then nobody knows, and the answer is not taken.
        """
        ...


class AuditLog(Protocol):
    """Whether calls can be recorded now; the audit itself observes calls as `core.call.finished.CallObserver`."""

    @property
    def is_up(self) -> bool: ...


class Model(Protocol):
    """A language model that completes text; fills `text_summarize` and its like."""

    async def complete(self, prompt: str, *, max_words: int) -> str: ...


class Embedder(Protocol):
    """Turns texts into vectors of one dimension, whose cosine says how alike the meanings are."""

    @property
    def model_id(self) -> str:
        """Tells its vectors from those of every other model: what is kept of them is kept under this name."""
        ...

    @property
    def dimension(self) -> int | None:
        """How long its vectors are; `None` as long as no answer has shown it."""
        ...

    def embed(self, texts: Sequence[str], /) -> Awaitable[Iterable[Iterable[float]]]:
        """Return one row a text, in order; an `async def`.

        It must not block the event loop, and may be cancelled at any time.

        Raises:
            Exception: whatever it likes; who asks goes on without vectors.
        """
        ...


class DocumentStore(Protocol):
    """The documents of all spaces, each method within a scope, as if nothing else existed; fills the kind `rag`.

    What is outside of the scope and what does not exist are one `not_found`, in the same words. Answers are JSON, as
    the tools of `pegboard.workspace.tools` give them.
    """

    async def scope(self, ctx: ToolContext) -> DocumentScope:
        """Return whose documents a request may use: what is granted to it, in the space that it is in."""
        ...

    async def list_sources(
        self, scope: DocumentScope, *, type_: str | None = None, limit: int, cursor: str | None = None
    ) -> JSON: ...

    async def root_folders(self, scope: DocumentScope, *, limit: int) -> list[str]:
        """Return the first folders at the roots of the sources, as `source/folder`, and `...` where there are more."""
        ...

    async def list_documents(self, scope: DocumentScope, *, limit: int) -> list[JSON]:
        """Return the first documents by space, source and path: these three, `source_id`, title, mime and size."""
        ...

    async def document_named(self, scope: DocumentScope, space: str, source: str, path: str) -> str:
        """Return the id of the document at a path of a source, which is named or given by its id.

        Raises:
            CallError: not_found.
        """
        ...

    async def list_folder(
        self, scope: DocumentScope, source_id: str, path: str, *, limit: int, cursor: str | None = None
    ) -> JSON: ...

    async def folder_tree(
        self, scope: DocumentScope, source_id: str, path: str, *, max_depth: int, documents: bool, max_nodes: int
    ) -> JSON: ...

    async def search(
        self,
        scope: DocumentScope,
        query: str,
        *,
        mode: SearchMode = "hybrid",
        limit: int,
        filters: DocumentFilters = ...,
        min_score: float = 0.0,
    ) -> JSON: ...

    async def grep(
        self,
        scope: DocumentScope,
        pattern: str,
        *,
        is_regex: bool,
        ignore_case: bool,
        filters: DocumentFilters,
        context_lines: int,
        limit: int,
    ) -> JSON: ...

    async def find_by_name(
        self, scope: DocumentScope, pattern: str, *, ignore_case: bool, filters: DocumentFilters, limit: int
    ) -> JSON: ...

    async def document_info(
        self, scope: DocumentScope, *, document_id: str = "", source_id: str = "", path: str = ""
    ) -> JSON: ...

    async def query(
        self,
        scope: DocumentScope,
        sql: str,
        *,
        document_ids: Sequence[str] = (),
        tables: Sequence[str] = (),
        limit: int,
        timeout_s: float,
    ) -> JSON:
        """Run one SELECT over the tables in documents.

        Raises:
            CallError: read_only, for anything else than reading; invalid_arguments; timeout; not_found.
        """
        ...

    async def tables(
        self, scope: DocumentScope, *, document_ids: Sequence[str] = (), tables: Sequence[str] = (), rows: int
    ) -> list[JSON]:
        """Return the tables that `query` can be about: their names, columns and row counts, and their first rows.

        Raises:
            CallError: not_found, for a document or a table that is not in the scope.
        """
        ...

    async def read_document(self, scope: DocumentScope, document_id: str, *, start: int, end: int) -> JSON: ...

    async def ingest(
        self,
        scope: DocumentScope,
        document: NewDocument,
        *,
        space: str,
        source: str,
        type_: SourceType = "upload",
        replaces: bool = False,
    ) -> JSON:
        """Take one document into a source of a space; `{document_id, chunks, path, status}`.

        It stands beside what has its path, under a path of its own, or with `replaces` in its place.

        Raises:
            CallError: read_only, where the scope may only read; not_found, where it does not have the space.
        """
        ...


@runtime_checkable
class DocumentGrants(Protocol):
    """Who may use which space of documents; a store that keeps it."""

    async def grant(self, principal: str, space: str, access: Access) -> None:
        """Grant a space to `user:NAME` or `role:NAME`.

        Raises:
            CallError: invalid_arguments, for anybody else, and for what is no name of a space.
        """
        ...

    async def revoke(self, principal: str, space: str) -> bool:
        """Take a grant back; tell whether there was one."""
        ...

    async def grants(self, space: str | None = None) -> list[JSON]:
        """Return all grants, or those of a space: `{space, principal, access}`."""
        ...


class TemplateRenderer(Protocol):
    """Renders the templates of operators in a sandbox that can be killed; what values say is text in it."""

    async def text(self, template: str, values: Mapping[str, JSONValue]) -> str:
        """Return the text of a template that sees these names.

        Raises:
            CallError: `template_error`.
        """
        ...

    async def json_object(self, template: str, data: Mapping[str, JSONValue]) -> JSON:
        """Return the JSON object that a template makes of `data`, whose texts cannot change its structure.

        Raises:
            CallError: `template_error`.
        """
        ...
