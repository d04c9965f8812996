"""ConsentInbox: the questions that one person may read and decide, for every door that people use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from pegboard.catalog import Catalog
from pegboard.connections.connection_records import AwaitedConnection, Person
from pegboard.consent.decision_record import Decision, decision_record
from pegboard.consent.sql_records import ConsentStateError, SqlConsents
from pegboard.core.call.arguments import read_arguments
from pegboard.core.digests import digest
from pegboard.core.validated_entry import judges
from pegboard.model.consent import Consent, Grant
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.json_types import JSON, JSONValue
from pegboard.platforms import platform
from pegboard.server.principal import ANONYMOUS, Identity

APPROVER = "approver"
"""The role of credentials that may decide."""
AT_TERMINAL = "console:terminal"
"""The credential of the person who opened the console with the link in the terminal."""
T = TypeVar("T")


class ConsentInbox:
    """The inbox of one person.

    A verified credential with the role `approver` decides the questions of other credentials, in its own space if it
    has one. For all other callers there is no question. Decisions are recorded in the audit with the person's name.

    Methods raise `CallError`: `not_found` for a record that does not exist or is not for this person,
    `consent_mismatch` for one that was decided or edited meanwhile, or that needs other people too,
    `invalid_arguments` for a decision that is not possible, and `storage_unavailable`.
    """

    def __init__(self, catalog: Catalog, person: Identity) -> None:
        self._catalog, self._person = catalog, person

    @property
    def store(self) -> SqlConsents | None:
        """The inbox for a person who may decide; `None` for all others, and if there is no inbox."""
        person, store = self._person, store_of(self._catalog)
        is_person = APPROVER in person.roles and person.credential not in ("", ANONYMOUS)
        return store if is_person else None

    @property
    def approver(self) -> str:
        """The user as whom this person is one of two approvers; empty for a credential that names none."""
        if self._person.credential == AT_TERMINAL:
            # The same person as at `pegboard consent`, who must not count twice.
            return platform.current_user()
        return self._person.user or ""

    def may_decide(self, consent: Consent) -> bool:
        """Tell whether the person may decide a record: in their space, and never one asked by their own credential.

        Where two people must approve, a user does not decide what their other credentials asked either.
        """
        person = self._person
        is_own = consent.credential == person.credential
        if consent.approvals_needed > 1 and self.approver and self.approver == consent.user_id:
            is_own = True
        return not is_own and person.space in (None, consent.space_id)

    async def listed(self, *, is_open: bool) -> list[Consent]:
        """Return the open questions for this person; otherwise answers and grants too."""
        store = self.store
        if store is None:
            return []
        listed = await answered(store.listed(is_open=is_open, space_id=self._person.space))
        return [consent for consent in listed if self.may_decide(consent)]

    async def record(self, consent_id: str) -> Consent:
        """Return one record."""
        return (await self._stored(consent_id))[1]

    async def approve(
        self, consent_id: str, *, good_s: float, edited: JSON | None = None, read: str | None = None
    ) -> Consent:
        """Approve an open question, which passes once enough people have.

        Args:
            consent_id: the question.
            good_s: how long the approval is valid, in seconds.
            edited: the new arguments of the call; checked against the schema of the tool.
            read: the digest of the arguments that the person has seen; others are refused. `None` accepts any.
        """
        by = self._person.credential

        async def decide(store: SqlConsents, asked: Consent) -> Consent:
            if read is not None and read != shown_digest(asked):
                text = "Somebody has edited the arguments since you read them. Read them again, then decide."
                raise CallError("consent_mismatch", text)
            new = None if edited is None else completed_arguments(self._catalog, asked, edited)
            if read is not None and new is None and asked.edited is not None:
                new = dict(asked.edited)  # the digest says that the person has read these
            return await store.decide(
                asked.id, is_yes=True, decided_by=by, good_s=good_s, approver=self.approver, edited=new
            )

        return await self._decided(consent_id, decide, "approved")

    async def decline(self, consent_id: str, *, reason: str = "") -> Consent:
        """Decline an open question, which holds for the caller's session. One person is enough.

        The caller reads the reason; it is empty if the person gives none.
        """
        by = self._person.credential
        return await self._decided(
            consent_id,
            lambda store, asked: store.decide(asked.id, is_yes=False, decided_by=by, reason=reason),
            "denied",
        )

    async def grant(self, consent_id: str, grant_of: Callable[[Consent], Grant]) -> Consent:
        """Answer an open question with a grant for several calls; `grant_of` makes it from the question."""
        by = self._person.credential
        return await self._decided(
            consent_id,
            lambda store, asked: store.grant(grant_of(asked), decided_by=by, question_id=asked.id),
            "granted",
        )

    async def forget(self, consent_id: str) -> Consent:
        """Revoke an answer or a grant."""
        return await self._decided(consent_id, lambda store, asked: store.forget(asked.id), "forgotten")

    async def _decided(
        self, consent_id: str, decide: Callable[[SqlConsents, Consent], Awaitable[Consent]], decision: Decision
    ) -> Consent:
        store, asked = await self._stored(consent_id)
        try:
            decided = await answered(decide(store, asked))
        except ConsentStateError as error:
            raise CallError("consent_mismatch", str(error)) from None
        except (ValueError, DefinitionError) as error:
            raise CallError("invalid_arguments", str(error)) from None
        audit, person = self._catalog.executor.ports.audit, self._person
        if audit is not None:
            event, detail = decision_record(decided, decision)
            audit.note(event, detail, by=person.user or person.key or person.credential)
        return decided

    async def _stored(self, consent_id: str) -> tuple[SqlConsents, Consent]:
        store = self.store
        consent = None if store is None else await answered(store.shown(consent_id))
        if store is None or consent is None or not self.may_decide(consent):
            raise CallError("not_found", f"There is no consent {consent_id[:100]!r}.")
        return store, consent


async def to_connect(catalog: Catalog, person: Person | None) -> list[AwaitedConnection]:
    """Return the accounts that this person's calls wait for: nobody else decides on those.

    Raises:
        CallError: the store of connections does not answer.
    """
    connections = catalog.connections
    return [] if person is None or connections is None else await connections.awaited(person)


def shown_arguments_of(consent: Consent) -> Mapping[str, JSONValue] | None:
    """Return the arguments that the call would run with, edited or not; `None` if they are too long to be stored."""
    return consent.arguments if consent.edited is None else consent.edited


def shown_digest(consent: Consent) -> str:
    """Return the digest of the arguments that a person reads before a decision."""
    shown = shown_arguments_of(consent)
    return "" if shown is None else digest(dict(shown))


def may_edit(consent: Consent) -> bool:
    """Tell whether the stored arguments are those of the call: neither redacted nor too long."""
    return consent.arguments is not None and digest(dict(consent.arguments)) == consent.args_digest


def completed_arguments(catalog: Catalog, asked: Consent, edited: JSON) -> JSON:
    """Return edited arguments with the defaults of the tool, as a call with them would have them.

    Raises:
        CallError: `invalid_arguments`; `consent_mismatch` if the tool has changed, or is built for each caller.
    """
    if not may_edit(asked):
        text = "The arguments cannot be edited: they hold values that are not shown, or are too long to be stored."
        raise CallError("invalid_arguments", text)
    entry = catalog.snapshot().find(asked.tool)
    if entry is None or entry.fingerprint != asked.definition_hash:
        text = f"The arguments cannot be edited: {asked.tool!r} has changed since, or depends on its caller."
        raise CallError("consent_mismatch", text)
    bounds = catalog.registry.bounds
    compiled, arguments = judges(entry, bounds)[0], read_arguments(edited, bounds)[0]
    if not compiled.is_valid(arguments):
        problems = "; ".join(f"{problem.path}: {problem.message}" for problem in compiled.problems(arguments)[:10])
        raise CallError("invalid_arguments", f"{asked.tool!r} does not take these arguments: {problems}.")
    return compiled.with_defaults(arguments) if compiled.defaults else arguments


def store_of(catalog: Catalog) -> SqlConsents | None:
    """Return the store that takes questions for people; `None` if the config has none."""
    store = catalog.executor.ports.consents
    return store if isinstance(store, SqlConsents) and store.takes_questions else None


async def answered(asked: Awaitable[T]) -> T:
    """Return the answer of the store.

    Raises:
        CallError: `storage_unavailable`.
    """
    try:
        return await asked
    except OSError:
        text = "The store of consents does not answer. Nothing was decided; try again in a moment."
        raise CallError("storage_unavailable", text, retryable=True) from None
