"""ConsentRoutes: the approvers' inbox: list open questions, show one, and answer it."""

from __future__ import annotations

from pegboard.connections.connection_json import awaited_json
from pegboard.connections.connection_records import person_of
from pegboard.consent.grant_scope import grant_for, grant_text
from pegboard.consent.json_form import consent_json
from pegboard.consent.limits import CONSENT_GOOD_S
from pegboard.model.consent import Consent, Grant
from pegboard.model.json_types import JSON, is_list, is_object
from pegboard.server.consent_inbox import ConsentInbox, to_connect
from pegboard.server.http_api.api_app import Api, ApiRequest
from pegboard.server.http_api.problem_details import ProblemError, answered
from pegboard.server.http_api.responses import Reply, json_reply


class ConsentRoutes:
    """GET /v1/consents and the paths below it.

    A verified credential with the role `approver` decides the questions of other credentials, in its own space if it
    has one. All other callers get the answer for a question that does not exist.
    """

    def __init__(self, api: Api) -> None:
        self._api = api

    async def list(self, request: ApiRequest) -> Reply:
        """List the open questions, and the accounts to connect; with `state=all` answers and grants too."""
        state = request.query.get("state", "asked")
        if state not in ("asked", "all"):
            raise ProblemError(400, "bad_request", f"state={state[:20]!r}: one of asked, all is needed.")
        records = await answered(self._inbox(request).listed(is_open=state == "asked"))
        waiting = await answered(to_connect(self._api.gateway.catalog, person_of(self._api.context(request).caller)))
        connections = [{**awaited_json(each), "url": each.url} for each in waiting]
        return json_reply({"consents": [consent_json(record) for record in records], "connections": connections})

    async def show(self, request: ApiRequest) -> Reply:
        """Answer with one record."""
        return _reply(await answered(self._inbox(request).record(request.path["id"])))

    async def approve(self, request: ApiRequest) -> Reply:
        """Approve an open question: the same call passes once, within a number of seconds.

        With `arguments` the call runs with these. Where two people must approve, the question stays open after the
        first of them.
        """
        body = await self._body(request, "seconds", "arguments")
        inbox = await self._inbox_with_record(request)
        good_s, edited = _number(body, "seconds", CONSENT_GOOD_S), body.get("arguments")
        if edited is not None and not is_object(edited):
            raise ProblemError(422, "invalid_arguments", "arguments: an object of arguments is needed.")
        return _reply(await answered(inbox.approve(request.path["id"], good_s=good_s, edited=edited)))

    async def deny(self, request: ApiRequest) -> Reply:
        """Deny an open question, which holds for the caller's session; the caller reads the `reason`."""
        body = await self._body(request, "reason")
        inbox, reason = await self._inbox_with_record(request), body.get("reason", "")
        if not isinstance(reason, str):
            raise ProblemError(422, "invalid_arguments", "reason: a text is needed.")
        return _reply(await answered(inbox.decline(request.path["id"], reason=reason)))

    async def grant(self, request: ApiRequest) -> Reply:
        """Answer an open question by allowing its caller several calls; with `preview` only show the scope.

        Arguments not in `where`, `same` or `any` must be absent or have their default, unless `anyOther` is true.
        """
        body = await self._body(request, "calls", "seconds", "where", "same", "any", "anyOther", "preview")
        inbox = await self._inbox_with_record(request)
        where = body.get("where", {})
        if not is_object(where):
            raise ProblemError(422, "invalid_arguments", "where: an object of arguments and their values is needed.")
        calls = _number(body, "calls", None)
        if not calls.is_integer():
            raise ProblemError(422, "invalid_arguments", "calls: a whole number is needed.")
        seconds, names = _number(body, "seconds", None), {name: _names(body, name) for name in ("same", "any")}
        any_other, is_preview = _flag(body, "anyOther"), _flag(body, "preview")

        def grant_of(asked: Consent) -> Grant:
            return grant_for(asked, calls=int(calls), lasts_s=seconds, where=where, any_other=any_other, **names)

        asked = await answered(inbox.record(request.path["id"]))
        try:
            text = grant_text(grant_of(asked))
        except ValueError as error:
            raise ProblemError(422, "invalid_arguments", str(error)) from None
        if is_preview:
            return json_reply({**consent_json(asked), "scope": text})
        return _reply(await answered(inbox.grant(asked.id, grant_of)))

    async def forget(self, request: ApiRequest) -> Reply:
        """Revoke an answer or a grant."""
        await self._body(request)
        return _reply(await answered(self._inbox(request).forget(request.path["id"])))

    # -- checks

    def _inbox(self, request: ApiRequest) -> ConsentInbox:
        return ConsentInbox(self._api.gateway.catalog, request.principal.identity)

    async def _inbox_with_record(self, request: ApiRequest) -> ConsentInbox:
        """Return the inbox if it has the record: faults of a body must not show that a record exists."""
        inbox = self._inbox(request)
        await answered(inbox.record(request.path["id"]))
        return inbox

    async def _body(self, request: ApiRequest, *known: str) -> JSON:
        body = await self._api.body(request)
        unknown = sorted(body.keys() - set(known))
        if unknown:
            raise ProblemError(422, "invalid_arguments", f"Unknown key {unknown[0][:100]!r}. Possible: {list(known)}.")
        return body


def _number(body: JSON, name: str, usual: float | None) -> float:
    value = body.get(name, usual)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ProblemError(422, "invalid_arguments", f"{name}: a number is needed.")
    return float(value) if abs(value) < 2**53 else float("inf")


def _names(body: JSON, name: str) -> list[str]:
    value = body.get(name, [])
    if not (is_list(value) and all(isinstance(item, str) for item in value)):
        raise ProblemError(422, "invalid_arguments", f"{name}: a list of names of arguments is needed.")
    return value


def _flag(body: JSON, name: str) -> bool:
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise ProblemError(422, "invalid_arguments", f"{name}: true or false is needed.")
    return value


def _reply(consent: Consent) -> Reply:
    return json_reply(consent_json(consent))
