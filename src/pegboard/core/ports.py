"""Ports: the protocols that other packages implement for core."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from pegboard.model.budget import Charge, Counter, Spending
from pegboard.model.call_context import AccountUse
from pegboard.model.caller import Caller
from pegboard.model.consent import ConsentAnswer, ConsentRequest
from pegboard.model.context import ToolContext
from pegboard.model.error import ErrorKind
from pegboard.model.json_types import JSON, JSONValue
from pegboard.model.rate_limit import RateLimit
from pegboard.model.secret import Secret
from pegboard.model.source_state import HeldDefinition, SourceState
from pegboard.model.tool import ToolEntry

if TYPE_CHECKING:
    from pegboard.model.document import (
        Access,
        DocumentFilters,
        DocumentScope,
        LiveState,
        NewDocument,
        SearchMode,
        SourceType,
    )


class Source(Protocol):
    """A source of tools. It owns its connections and supervises them itself."""

    @property
    def name(self) -> str: ...

    def entries(self) -> Sequence[ToolEntry]:
        """Return the last good listing. Must be quick: each snapshot reads it."""
        ...

    def groups(self) -> frozenset[str]:
        """Return the groups that its tools may have, even while it is down."""
        ...

    def state(self) -> SourceState: ...

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` after each change of `entries`."""
        ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


@runtime_checkable
class StartsSlowly(Protocol):
    """A source whose `start` returns before its tools are known."""

    async def first_listed(self) -> None:
        """Wait until the first attempt to list its tools has succeeded or failed.

        Returns at once for a source that connects only when it is first used.
        """
        ...


@runtime_checkable
class Reviewable(Protocol):
    """A source whose tools are pinned, so that a person accepts each change of a definition."""

    def held(self) -> Sequence[HeldDefinition]:
        """Return the tools that differ from the lock."""
        ...

    def accept_held(self, definition: HeldDefinition) -> None:
        """Pin a tool as it is offered now, or forget one that is gone; at once for this process.

        Raises:
            CallError: `needs_review`: its definition or the lock file has changed since.
            OSError: the lock cannot be written.
        """
        ...


@runtime_checkable
class Probed(Protocol):
    """A store, a bus or a source that can be asked whether it works, without changing anything."""

    async def probe(self) -> None:
        """Connect and ask the least that shows that it works.

        Raises:
            OSError, CallError: it does not work; the message says why, without secrets.
        """
        ...


@runtime_checkable
class OffersResources(Protocol):
    """A source with resources, prompts or completions in addition to its tools."""

    def resource_entries(self) -> Sequence[ToolEntry]:
        """Return the last good lists, each entry with its `offer`. Must be quick, like `entries`."""
        ...


@runtime_checkable
class HoldsSecrets(Protocol):
    """A source with credentials, which its server may repeat in any text."""

    def secrets(self) -> Iterable[Secret]:
        """Return its credentials."""
        ...


@runtime_checkable
class SendsForAccount(Protocol):
    """The authorization of a client, which sends the token of an account."""

    def last_use(self) -> AccountUse | None:
        """Return the account whose token was sent last; `None` before the first request."""
        ...


@runtime_checkable
class ListsForPersons(Protocol):
    """A source that lists its tools and resources over the account of each person, once they have connected it."""

    def is_starting_for(self, caller: Caller) -> bool:
        """Tell whether the tools of this caller's account are still unknown here."""
        ...

    async def list_first(self, caller: Caller) -> bool:
        """List the tools of this caller's account if it is connected and they are unknown; tell whether it did."""
        ...

    async def list_resources_first(self, caller: Caller) -> bool:
        """List the resources and prompts of this caller's account, like `list_first`."""
        ...

    async def list_for(self, caller: Caller) -> None:
        """List the tools of this caller's account.

        Raises:
            CallError: the server refuses, or cannot be reached.
        """
        ...


@runtime_checkable
class LeadsElsewhere(Protocol):
    """A source whose tools belong to another server, which may get them from further servers, or even from us."""

    def serve_as(self, server_id: Callable[[], str], link_key: Callable[[], bytes]) -> None:
        """Take functions that return this server's id and its secret for addresses."""
        ...

    def way_of(self, entry: ToolEntry) -> tuple[str, ...]:
        """Return the ids of the servers behind an entry, the nearest first; empty if none are known."""
        ...


@runtime_checkable
class StatefulHandler(Protocol):
    """A handler with state between calls that survives a change of the config."""

    def carry_on(self, before: object) -> None:
        """Take over the state of the previous handler with the same name."""
        ...


class LimitStore(Protocol):
    """Counts accepted calls in moving windows, exactly."""

    def wait_s(
        self, hits: Sequence[tuple[tuple[str | None, ...], RateLimit]], *, charge: bool
    ) -> float | Awaitable[float | None] | None:
        """Return seconds until one more call fits all windows, 0.0 if it fits now, `None` if it never will.

        With `charge`, a call that fits is recorded in all windows, in one atomic step.

        Raises:
            OSError: the store does not respond.
        """
        ...


@runtime_checkable
class CanBeAway(Protocol):
    """A store that can tell whether it answered when it was last asked."""

    @property
    def is_up(self) -> bool: ...


class BudgetStore(Protocol):
    """Counts calls and costs of budgets in fixed periods, in millionths."""

    def charge(self, charges: Sequence[Charge]) -> Sequence[int] | Awaitable[Sequence[int]]:
        """Return the amount of each counter before its charge, and charge all in one atomic step.

        Charges without a limit are always added. Those with a limit are added if no counter has reached its limit, else
        none of them.

        Raises:
            OSError: the store does not respond.
        """
        ...

    def counters(self, periods: Sequence[Counter]) -> Sequence[Charge] | Awaitable[Sequence[Charge]]:
        """Return the amounts of all counters of the same budgets, units and periods as these, whatever their `who`.

        Raises:
            OSError: the store does not respond.
        """
        ...


class LocalBudgetStore(Protocol):
    """A `BudgetStore` in this process, which answers at once."""

    def charge(self, charges: Sequence[Charge]) -> Sequence[int]: ...

    def counters(self, periods: Sequence[Counter]) -> Sequence[Charge]: ...


class CostAccount(Protocol):
    """The budgets of cost of one run of an agent."""

    @property
    def spending(self) -> Spending:
        """The budgets that its calls also count towards."""
        ...

    async def check(self) -> None:
        """Refuse a request to the model if a budget is used up; raises `CallError`."""
        ...

    def wants(self, unit: str) -> bool:
        """Tell whether a budget counts this unit."""
        ...

    def report_cost(self, amount: float, unit: str) -> None:
        """Count a cost of the run."""
        ...

    async def settle(self) -> None:
        """Send the costs to the store."""
        ...


class LocalLimitStore(Protocol):
    """A `LimitStore` in this process, which answers at once; `max_keys` limits its memory."""

    max_keys: int

    def wait_s(self, hits: Sequence[tuple[tuple[str | None, ...], RateLimit]], *, charge: bool) -> float | None: ...


@runtime_checkable
class ConsentRecords(Protocol):
    """People's answers, one record per answer, bound to principal, definition and arguments.

    Every method raises `OSError` if the store does not respond; then nothing runs.
    """

    @property
    def takes_questions(self) -> bool:
        """Whether a question can be filed for a later decision."""
        ...

    async def recall(self, request: ConsentRequest) -> ConsentAnswer | None:
        """Return the answer for a call: a no in its session, or a yes, one use of which is consumed.

        The step is atomic, so that no use serves two calls. `None` if nobody has answered.
        """
        ...

    async def record(self, request: ConsentRequest, *, is_yes: bool, decided_by: str) -> ConsentAnswer:
        """Record an answer that a person gave elsewhere. A yes is consumed by its call."""
        ...

    async def has_yes(self, request: ConsentRequest) -> bool:
        """Tell whether an approval of some call of this tool by this caller is unused. Arguments are ignored."""
        ...

    async def progress(self, request: ConsentRequest) -> str:
        """Return how many of the needed people have approved an open question of this caller about the tool.

        `1 of 2`, of the question with the most approvals; empty if there is none, or if one person decides.
        """
        ...

    async def declined(self, request: ConsentRequest) -> str:
        """Return the reason of the newest no to a call of this tool in this session; empty if nobody gave one."""
        ...

    async def edited(self, consent_id: str) -> Mapping[str, JSONValue] | None:
        """Return the arguments that an approver set instead of those of a call; `None` if nobody did."""
        ...

    async def stands(self, consent_id: str) -> bool:
        """Tell whether an approval that a call has already used is still valid, i.e. has not been revoked."""
        ...

    async def give_back(self, consent_id: str) -> None:
        """Return the use of an approval that no call needed."""
        ...

    async def file(self, request: ConsentRequest, text: str) -> str:
        """Store a question in its readable form; return its id, the same if it is already open.

        Raises:
            CallError: `consent_required`; too many questions of this principal are open.
        """
        ...

    def link(self, consent_id: str) -> str | None:
        """Return the address where a person can decide a question; `None` without such a page."""
        ...


class UsedAnswers(Protocol):
    """Remembers used answers for all workers that share it; each answer is valid once."""

    async def use_up(self, mark: str, *, keep_s: float) -> bool:
        """Mark an answer as used, in one atomic step; `False` if it was used before, within `keep_s`.

        Raises:
            OSError: the store does not respond; then the answer is refused.
        """
        ...


class AuditLog(Protocol):
    """Whether calls can be audited now; the audit itself is a `core.call.finished_call.CallObserver`."""

    @property
    def is_up(self) -> bool: ...

    def fault(self) -> str:
        """Return why calls are not recorded now, or how many were lost lately; empty if all are. May block."""
        ...

    def note(self, event: AuditEvent, detail: Mapping[str, JSONValue], *, by: str = "") -> None:
        """Record a change of what may be called, and the name of the credential that made it."""
        ...

    async def close(self) -> None:
        """Write the remaining rows."""
        ...


class Backpressure(Protocol):
    """Makes calls wait while their records come faster than they can be stored."""

    is_on: bool
    """Whether a call must `wait` before it begins. Read on the path of every call."""

    @property
    def waiting(self) -> int:
        """The number of calls that wait now."""
        ...

    async def wait(self, owner: Hashable) -> None:
        """Wait for the turn of one call of this caller; callers take turns. Returns after a bounded time in any case.

        Raises:
            asyncio.CancelledError: the wait was cancelled.
        """
        ...


class RunRecorder(Protocol):
    """Records the end of an agent's run that no call of a tool surrounds."""

    def end(
        self, kind: ErrorKind | Literal["ok"], *, arguments: JSONValue, costs: Mapping[str, int], output: JSONValue
    ) -> None:
        """Record it. `costs` are in millionths of each unit."""
        ...


AuditEvent = Literal[
    "gap",
    "pruned",
    "config_taken",
    "config_refused",
    "lock_accepted",
    "key_added",
    "key_rotated",
    "key_revoked",
    "consent_decided",
    "consent_forgotten",
    "grant_given",
    "task_cancelled",
    "task_resumed",
    "access_given",
    "access_revoked",
    "user_forgotten",
    "account_connected",
    "account_disconnected",
]
"""The audited events that are not calls."""


class Model(Protocol):
    """A language model that completes text, for `text_summarize` and similar tools."""

    async def complete(self, prompt: str, *, max_words: int) -> str: ...


class Embedder(Protocol):
    """Converts texts to vectors of one dimension; their cosine measures similarity of meaning."""

    @property
    def model_id(self) -> str:
        """The name of the model; stored vectors are kept under it."""
        ...

    @property
    def dimension(self) -> int | None:
        """The length of its vectors; `None` until a first answer."""
        ...

    def embed(self, texts: Sequence[str], /) -> Awaitable[Iterable[Iterable[float]]]:
        """Return one row per text, in order; an `async def`.

        It must not block the event loop, and may be cancelled at any time.

        Raises:
            Exception: any; the caller continues without vectors.
        """
        ...


class DocumentStore(Protocol):
    """The documents of all spaces; every method is limited to a scope. Backs the kind `rag`.

    A document outside the scope and one that does not exist get the same `not_found` error. Results are JSON in the
    form of the tools of `pegboard.workspace.tools`. `document_chars` is the length of the longest text that it takes.
    """

    document_chars: int

    async def scope(self, ctx: ToolContext) -> DocumentScope:
        """Return the documents that a request may use, from its grants and its current space."""
        ...

    async def list_sources(
        self, scope: DocumentScope, *, type_: str | None = None, limit: int, cursor: str | None = None
    ) -> JSON: ...

    async def root_folders(self, scope: DocumentScope, *, limit: int) -> list[str]:
        """Return the first root folders of the sources, as `source/folder`, and `...` if there are more."""
        ...

    async def list_documents(self, scope: DocumentScope, *, limit: int) -> list[JSON]:
        """Return the first documents by space, source and path: these three, `source_id`, title, mime and size."""
        ...

    async def document_named(self, scope: DocumentScope, space: str, source: str, path: str) -> str:
        """Return the id of the document at a path of a source, which is given by name or id.

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
        neighbours: int = 0,
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
            CallError: read_only, for other statements; invalid_arguments; timeout; not_found.
        """
        ...

    async def tables(
        self, scope: DocumentScope, *, document_ids: Sequence[str] = (), tables: Sequence[str] = (), rows: int
    ) -> list[JSON]:
        """Return the tables that `query` can read: their names, columns, row counts and first rows.

        Raises:
            CallError: not_found, for a document or a table outside the scope.
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
        keeps_metadata: bool = False,
    ) -> JSON:
        """Ingest one document into a source of a space; `{document_id, chunks, path, status}`.

        If the path is taken, the document gets another path, or with `replaces` takes the place of the old one. With
        `keeps_metadata` it also keeps the keys that people gave to the old one, unless it has other values for them.

        Raises:
            CallError: read_only, if the scope may only read; not_found, if it does not include the space.
        """
        ...


@runtime_checkable
class DocumentKeeper(Protocol):
    """Lists and removes single documents, in a store that supports it; every method is limited to a scope."""

    async def documents(
        self,
        scope: DocumentScope,
        *,
        space: str | None = None,
        source: str | None = None,
        folder: str = "",
        limit: int,
        cursor: str | None = None,
    ) -> JSON:
        """Return documents by space, source and path, also those that could not be read: `{items, next_cursor, …}`.

        `source` is a name or an id. An unknown space or source has no documents.

        Raises:
            CallError: invalid_arguments, for an invalid cursor or folder.
        """
        ...

    async def place_of_document(self, scope: DocumentScope, document_id: str) -> JSON:
        """Return the place of a document: `{document_id, space, source, source_type, path}`.

        Raises:
            CallError: not_found.
        """
        ...

    async def remove_document(self, scope: DocumentScope, document_id: str) -> JSON:
        """Remove a document; return where it was, as `place_of_document`.

        Raises:
            CallError: not_found; read_only, if the scope may only read its space.
        """
        ...


@runtime_checkable
class DocumentGrants(Protocol):
    """The rights on document spaces, in a store that supports grants."""

    async def grant(self, principal: str, space: str, access: Access) -> None:
        """Grant a space to `user:NAME` or `role:NAME`.

        Raises:
            CallError: invalid_arguments, for another principal or an invalid space name.
        """
        ...

    async def revoke(self, principal: str, space: str) -> bool:
        """Revoke a grant; tell whether there was one."""
        ...

    async def grants(self, space: str | None = None) -> list[JSON]:
        """Return all grants, or those of one space: `{space, principal, access}`."""
        ...


class DocumentSync(Protocol):
    """Keeps document sources in step with their places while a server runs."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Keep them in step within the block."""
        ...

    def names(self) -> Sequence[str]:
        """Return the name of each source, with its space, for people."""
        ...

    async def states(self) -> Sequence[LiveState]:
        """Return the state of each source, in the same order.

        Raises:
            CallError: the store cannot be used.
        """
        ...


class TemplateRenderer(Protocol):
    """Renders operators' templates in a sandbox that can be killed; values are inserted as plain text."""

    async def text(self, template: str, values: Mapping[str, JSONValue]) -> str:
        """Return the text of a template rendered with these names.

        Raises:
            CallError: `template_error`.
        """
        ...

    async def json_object(self, template: str, data: Mapping[str, JSONValue]) -> JSON:
        """Return the JSON object that a template makes from `data`; strings in it cannot change the structure.

        Raises:
            CallError: `template_error`.
        """
        ...
