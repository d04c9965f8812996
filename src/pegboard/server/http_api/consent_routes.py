"""ConsentRoutes: the approvers' inbox: list open questions, show one, and answer it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from pegboard.consent.grant_scope import grant_for, grant_text
from pegboard.consent.json_form import consent_json
from pegboard.consent.limits import CONSENT_GOOD_S
from pegboard.consent.sql_records import ConsentStateError, SqlConsents
from pegboard.model.consent import Consent
from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSON, is_list, is_object
from pegboard.server.http_api.api_app import Api, ApiRequest
from pegboard.server.http_api.problem_details import ProblemError, not_found
from pegboard.server.http_api.responses import Reply, json_reply
from pegboard.server.principal import ANONYMOUS, Identity

APPROVER = "approver"
"""The role of credentials that may decide."""
T = TypeVar("T")


class ConsentRoutes:
    """GET /v1/consents and the paths below it.

    A verified credential with the role `approver` decides the questions of other credentials, in its own space if it
    has one. All other callers get the answer for a question that does not exist.
    """

    def __init__(self, api: Api) -> None:
        self._api = api

    async def list(self, request: ApiRequest) -> Reply:
        """List the open questions; with `state=all` answers and grants too."""
        person, state = request.principal.identity, request.query.get("state", "asked")
        if state not in ("asked", "all"):
            raise ProblemError(400, "bad_request", f"state={state[:20]!r}: one of asked, all is needed.")
        store = self._store(person)
        found: list[Consent] = []
        if store is not None:
            found = await _of_store(store.listed(is_open=state == "asked", space_id=person.space))
        return json_reply({"consents": [consent_json(one) for one in found if _may_decide(person, one)]})

    async def show(self, request: ApiRequest) -> Reply:
        """Answer with one record."""
        return json_reply(consent_json((await self._found(request))[1]))

    async def approve(self, request: ApiRequest) -> Reply:
        """Approve an open question: the same call passes once, within a number of seconds."""
        body = await self._body(request, "seconds")
        store, consent = await self._found(request)
        good_s = _number(body, "seconds", CONSENT_GOOD_S)
        decided_by = request.principal.identity.credential
        return _reply(await _decided(store.decide(consent.id, is_yes=True, decided_by=decided_by, good_s=good_s)))

    async def deny(self, request: ApiRequest) -> Reply:
        """Deny an open question, which holds for the caller's session."""
        await self._body(request)
        store, consent = await self._found(request)
        decided_by = request.principal.identity.credential
        return _reply(await _decided(store.decide(consent.id, is_yes=False, decided_by=decided_by)))

    async def grant(self, request: ApiRequest) -> Reply:
        """Answer an open question by allowing its caller several calls; with `preview` only show the scope.

        Arguments not in `where`, `same` or `any` must be absent or have their default, unless `anyOther` is true.
        """
        body = await self._body(request, "calls", "seconds", "where", "same", "any", "anyOther", "preview")
        store, asked = await self._found(request)
        where = body.get("where", {})
        if not is_object(where):
            raise ProblemError(422, "invalid_arguments", "where: an object of arguments and their values is needed.")
        calls = _number(body, "calls", None)
        if not calls.is_integer():
            raise ProblemError(422, "invalid_arguments", "calls: a whole number is needed.")
        seconds, names = _number(body, "seconds", None), {name: _names(body, name) for name in ("same", "any")}
        any_other, is_preview = _flag(body, "anyOther"), _flag(body, "preview")
        try:
            grant = grant_for(asked, calls=int(calls), lasts_s=seconds, where=where, any_other=any_other, **names)
            text = grant_text(grant)
        except ValueError as error:
            raise ProblemError(422, "invalid_arguments", str(error)) from None
        if is_preview:
            return json_reply({**consent_json(asked), "scope": text})
        decided_by = request.principal.identity.credential
        return _reply(await _decided(store.grant(grant, decided_by=decided_by, question_id=asked.id)))

    async def forget(self, request: ApiRequest) -> Reply:
        """Revoke an answer or a grant."""
        await self._body(request)
        store, consent = await self._found(request)
        return _reply(await _decided(store.forget(consent.id)))

    # -- checks

    def _store(self, person: Identity) -> SqlConsents | None:
        """Return the inbox for a caller who may decide; `None` for all others, and if there is no inbox."""
        store = self._api.gateway.catalog.executor.ports.consents
        is_person = APPROVER in person.roles and person.credential not in ("", ANONYMOUS)
        return store if is_person and isinstance(store, SqlConsents) and store.takes_questions else None

    async def _found(self, request: ApiRequest) -> tuple[SqlConsents, Consent]:
        person, consent_id = request.principal.identity, request.path["id"]
        store = self._store(person)
        consent = None if store is None else await _of_store(store.shown(consent_id))
        if store is None or consent is None or not _may_decide(person, consent):
            raise not_found(f"There is no consent {consent_id[:100]!r}.")
        return store, consent

    async def _body(self, request: ApiRequest, *known: str) -> JSON:
        body = await self._api.body(request)
        unknown = sorted(body.keys() - set(known))
        if unknown:
            raise ProblemError(422, "invalid_arguments", f"Unknown key {unknown[0][:100]!r}. Possible: {list(known)}.")
        return body


def _may_decide(person: Identity, consent: Consent) -> bool:
    """Tell whether a person may decide a record: in their space, and never one asked by their own credential."""
    return consent.credential != person.credential and person.space in (None, consent.space_id)


def _number(body: JSON, name: str, usual: float | None) -> float:
    value = body.get(name, usual)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ProblemError(422, "invalid_arguments", f"{name}: a number is needed.")
    return float(value) if abs(value) < 2**53 else float("inf")


def _names(body: JSON, name: str) -> list[str]:
    value = body.get(name, [])
    if not (is_list(value) and all(isinstance(one, str) for one in value)):
        raise ProblemError(422, "invalid_arguments", f"{name}: a list of names of arguments is needed.")
    return value


def _flag(body: JSON, name: str) -> bool:
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise ProblemError(422, "invalid_arguments", f"{name}: true or false is needed.")
    return value


async def _decided(deciding: Awaitable[Consent]) -> Consent:
    try:
        return await _of_store(deciding)
    except ConsentStateError as error:
        raise ProblemError(409, "consent_mismatch", str(error)) from None
    except (ValueError, DefinitionError) as error:
        raise ProblemError(422, "invalid_arguments", str(error)) from None


async def _of_store(asked: Awaitable[T]) -> T:
    try:
        return await asked
    except OSError:
        text = "The store of consents does not answer. Nothing was decided; try again in a moment."
        raise ProblemError(503, "storage_unavailable", text, headers={"retry-after": "1"}) from None


def _reply(consent: Consent) -> Reply:
    return json_reply(consent_json(consent))
