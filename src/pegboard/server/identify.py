"""Identify: calls the host's function that identifies the sender of each request and its rights."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, cast

from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request

from pegboard.core.digests import digest
from pegboard.core.names import nearest
from pegboard.model.error import DefinitionError
from pegboard.model.json_types import is_awaitable
from pegboard.model.secret import Secret
from pegboard.server.host_guard import Refusal

IDENTIFY_S = 10.0  # seconds that a host may take to identify a caller

log = logging.getLogger("pegboard.serve")
_NOBODY = Refusal(
    status=401,
    text="The sender is unknown. Log in first.",
    headers=((b"www-authenticate", b"Bearer"),),
)
_NOT_NOW = Refusal(
    status=503, text="The sender cannot be identified now. Try again later.", headers=((b"retry-after", b"5"),)
)
_REFUSING = frozenset((401, 403, 429, 503))
_CREDENTIALS = frozenset((b"authorization", b"cookie", b"proxy-authorization"))


class Identified(Struct, frozen=True, kw_only=True):
    """The sender of a request, from the host's own login: a user and its rights here.

    `profiles` are the profiles the caller may use, the first one for requests that do not name one; a catalog without
    profiles shows everything. `roles=("operator",)` lets a caller ask why a tool is hidden. `subject_token` is the
    caller's own token, `Secret(…)`, for sources that exchange it (`auth: {mode: exchange}` and `id_jag`).
    """

    user: str
    space: str | None = None
    roles: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    subject_token: Secret | None = None

    @classmethod
    def of(cls, source: object) -> Identified:
        """Return an instance from the host's value: an `Identified`, or a mapping with its fields.

        Raises:
            DefinitionError: it is neither, or has an unknown field or a field of the wrong type.
        """
        if isinstance(source, Identified):
            fields: Mapping[str, Any] = {name: getattr(source, name) for name in cls.__struct_fields__}
        elif isinstance(source, Mapping):
            fields = cast("Mapping[str, Any]", source)
        else:
            raise DefinitionError(f"identify gave a {type(source).__name__}; give Identified(…), a mapping, or None.")
        for word in fields:
            if word not in cls.__struct_fields__:
                raise DefinitionError(
                    f"Unknown field {word!r}.{nearest(str(word), cls.__struct_fields__, label='Fields')}"
                )
        user, space = fields.get("user"), fields.get("space")
        if not isinstance(user, str) or not user:
            raise DefinitionError(f"user={user!r}: identify must say who it is, or give None.")
        if not isinstance(space, str | None):
            raise DefinitionError(f"space={space!r} must be text or None.")
        token = fields.get("subject_token")
        if not isinstance(token, Secret | None):
            raise DefinitionError("subject_token must be wrapped, Secret(…), or None.")
        roles, profiles = _names("roles", fields.get("roles")), _names("profiles", fields.get("profiles"))
        return cls(user=user, space=space, roles=roles, profiles=profiles, subject_token=token)

    @property
    def owner(self) -> str:
        """The owner of the caller's sessions, cursors and sealed states: the same for the same user and space."""
        return f"host:{digest([self.user, self.space])}"


Answer = Identified | Mapping[str, Any] | None
Identify = Callable[[Request], Answer | Awaitable[Answer]]
"""Identifies the sender of a request from its headers, cookies, `scope` and `state`; its body cannot be read."""


async def identified(identify: Identify, scope: Any) -> Identified | Refusal:
    """Return the caller that the host identified, and remove the credentials from the request.

    `None` refuses the request, and so does an exception of the host: an error never admits an anonymous caller.
    """
    try:
        async with asyncio.timeout(IDENTIFY_S):
            answer = identify(Request(scope))
            identified_as = await answer if is_awaitable(answer) else answer
        caller = None if identified_as is None else Identified.of(identified_as)
    except HTTPException as error:
        # Like the refusal of a framework's login; its other responses would not be readable for our clients.
        if error.status_code not in _REFUSING:
            log.warning("identify refused a request with status %s; it is answered 403.", error.status_code)
        status = error.status_code if error.status_code in _REFUSING else 403
        headers = tuple((name.lower().encode(), value.encode()) for name, value in (error.headers or {}).items())
        return Refusal(status=status, text=str(error.detail), headers=headers)
    except Exception:
        # Boundary: foreign code. A login that fails admits nobody.
        log.exception("identify failed; the request is refused.")
        return _NOT_NOW
    # Code after this point never sees a credential, so it cannot forward or log one.
    scope["headers"] = [header for header in scope["headers"] if header[0] not in _CREDENTIALS]
    return _NOBODY if caller is None else caller


def _names(field: str, value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    names = (value,) if isinstance(value, str) else tuple(cast("Iterable[object]", value))
    if not all(isinstance(name, str) and name for name in names):
        raise DefinitionError(f"{field}={value!r} must be names.")
    return cast("tuple[str, ...]", names)
