"""ConsentInbox: the questions that one person may read and decide, for every door that people use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from pegboard.catalog import Catalog
from pegboard.connections.connection_records import AwaitedConnection, Person
from pegboard.consent.sql_records import ConsentStateError, SqlConsents
from pegboard.model.consent import Consent, Grant
from pegboard.model.error import CallError, DefinitionError
from pegboard.server.principal import ANONYMOUS, Identity

APPROVER = "approver"
"""The role of credentials that may decide."""
T = TypeVar("T")


class ConsentInbox:
    """The inbox of one person.

    A verified credential with the role `approver` decides the questions of other credentials, in its own space if it
    has one. For all other callers there is no question. Decisions are noted in the audit with the person's credential.

    Methods raise `CallError`: `not_found` for a record that does not exist or is not for this person,
    `consent_mismatch` for one that was decided meanwhile, `invalid_arguments` for a decision that is not possible, and
    `storage_unavailable`.
    """

    def __init__(self, catalog: Catalog, person: Identity) -> None:
        self._catalog, self._person = catalog, person

    @property
    def store(self) -> SqlConsents | None:
        """The inbox for a person who may decide; `None` for all others, and if there is no inbox."""
        person, store = self._person, store_of(self._catalog)
        is_person = APPROVER in person.roles and person.credential not in ("", ANONYMOUS)
        return store if is_person else None

    def may_decide(self, consent: Consent) -> bool:
        """Tell whether the person may decide a record: in their space, and never one asked by their own credential."""
        person = self._person
        return consent.credential != person.credential and person.space in (None, consent.space_id)

    async def listed(self, *, is_open: bool) -> list[Consent]:
        """Return the open questions for this person; otherwise answers and grants too."""
        store = self.store
        if store is None:
            return []
        listed = await answered(store.listed(is_open=is_open, space_id=self._person.space))
        return [consent for consent in listed if self.may_decide(consent)]

    async def found(self, consent_id: str) -> Consent:
        """Return one record."""
        return (await self._found(consent_id))[1]

    async def decide(self, consent_id: str, *, is_yes: bool, good_s: float) -> Consent:
        """Answer an open question."""
        by = self._person.credential
        return await self._decided(
            consent_id, lambda store, asked: store.decide(asked.id, is_yes=is_yes, decided_by=by, good_s=good_s)
        )

    async def grant(self, consent_id: str, grant_of: Callable[[Consent], Grant]) -> Consent:
        """Answer an open question with a grant for several calls; `grant_of` makes it from the question."""
        by = self._person.credential
        return await self._decided(
            consent_id, lambda store, asked: store.grant(grant_of(asked), decided_by=by, question_id=asked.id)
        )

    async def forget(self, consent_id: str) -> Consent:
        """Revoke an answer or a grant."""
        return await self._decided(consent_id, lambda store, asked: store.forget(asked.id))

    async def _decided(self, consent_id: str, decide: Callable[[SqlConsents, Consent], Awaitable[Consent]]) -> Consent:
        store, asked = await self._found(consent_id)
        try:
            decided = await answered(decide(store, asked))
        except ConsentStateError as error:
            raise CallError("consent_mismatch", str(error)) from None
        except (ValueError, DefinitionError) as error:
            raise CallError("invalid_arguments", str(error)) from None
        self._note(decided, was=asked.id)
        return decided

    def _note(self, decided: Consent, *, was: str) -> None:
        audit = self._catalog.executor.ports.audit
        if audit is not None:
            detail = {"consent_id": decided.id, "question_id": was, "tool": decided.tool, "state": decided.state}
            event = "grant_given" if decided.is_grant and decided.id != was else "consent_decided"
            audit.note(event, {**detail, "user": self._person.user or ""}, by=self._person.credential)

    async def _found(self, consent_id: str) -> tuple[SqlConsents, Consent]:
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
