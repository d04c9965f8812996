"""Granting: stores grants of spaces, and computes scopes from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pegboard.model.call_intent import narrowed_to
from pegboard.model.context import ToolContext
from pegboard.model.document import Access, DocumentScope
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.model.record import replace
from pegboard.workspace.shown_names import can_be_shown
from pegboard.workspace.store.connection import Connection
from pegboard.workspace.store.writing import space_number

SPACE_CHARS = 128  # characters of a space's name
PRINCIPAL_CHARS = 300  # characters of `user:…` or `role:…`


def scope_of(db: Connection, ctx: ToolContext) -> DocumentScope:
    """Return the scope of a request.

    It is the space set by host code or a credential, or else every space granted to the user or one of the roles,
    narrowed to the space that the model names, if any. A caller with a set space may also write it, until that space is
    granted to somebody by name: from then on only write grants allow that.
    """
    return narrowed(_whole_scope(db, ctx), ctx)


def narrowed(scope: DocumentScope, ctx: ToolContext) -> DocumentScope:
    """Return a scope narrowed by the call's intent. An unknown name leaves nothing, rather than everything."""
    space = narrowed_to(ctx)
    if space is None:
        return scope
    spaces_left = {space} & set(scope.spaces)
    return replace(scope, spaces=tuple(spaces_left), writable=scope.writable & spaces_left)


def _whole_scope(db: Connection, ctx: ToolContext) -> DocumentScope:
    granted: dict[str, str] = {}
    principals = principals_of(ctx)
    asked = ",".join("?" * len(principals))
    rows = db.execute(
        f"""
        select spaces.name, max(grants.access) from grants join spaces on spaces.n = grants.space_n
        where grants.principal in ({asked or "null"}) group by spaces.n
        """,  # noqa: S608 - question marks
        principals,
    )
    for name, access in rows:
        granted[str(name)] = str(access)
    writable = {name for name, access in granted.items() if access == "write"}
    if ctx.space_id is None:
        return DocumentScope(user=ctx.user_id, spaces=tuple(sorted(granted)), writable=frozenset(writable))
    own = ctx.space_id
    row = db.execute("select is_granted from spaces where name = ?", (own,)).fetchone()
    may_write = own in writable or row is None or not row[0]
    return DocumentScope(user=ctx.user_id, spaces=(own,), writable=frozenset({own} if may_write else ()))


def principals_of(ctx: ToolContext) -> list[str]:
    """Return the principals whose grants a caller has."""
    users = [] if ctx.user_id is None else [f"user:{ctx.user_id}"]
    return [*users, *(f"role:{role}" for role in sorted(ctx.roles))]


def grant(db: Connection, principal: str, space: str, access: Access) -> None:
    """Grant a space to a user or a role.

    Raises:
        CallError: invalid_arguments, for another principal or an invalid space name.
    """
    checked_principal(principal)
    space_n = space_number(db, checked_space(space))
    db.execute(
        "insert into grants (principal, space_n, access) values (?, ?, ?) "
        "on conflict (principal, space_n) do update set access = excluded.access",
        (principal, space_n, access),
    )
    db.execute("update spaces set is_granted = 1 where n = ?", (space_n,))


def revoke(db: Connection, principal: str, space: str) -> bool:
    """Revoke a grant; tell whether there was one. The space still requires grants by name."""
    deleted = db.execute(
        "delete from grants where principal = ? and space_n = (select n from spaces where name = ?) returning 1",
        (principal, space),
    )
    return bool(deleted.fetchall())


def grants(db: Connection, space: str | None = None) -> list[JSON]:
    """Return all grants, or those of one space, by space and principal."""
    rows: Sequence[Any] = db.execute(
        "select spaces.name, grants.principal, grants.access from grants join spaces on spaces.n = grants.space_n "
        "where cast(?1 as text) is null or spaces.name = ?1 order by spaces.name, grants.principal",
        (space,),
    ).fetchall()
    return [{"space": name, "principal": principal, "access": access} for name, principal, access in rows]


def checked_principal(principal: str) -> str:
    """Return the principal, if it is `user:…` or `role:…`.

    Raises:
        CallError: invalid_arguments.
    """
    kind, _, name = principal.partition(":")
    if kind not in ("user", "role") or not name or len(principal) > PRINCIPAL_CHARS:
        raise CallError("invalid_arguments", f"{principal[:100]!r} is nobody: write user:NAME or role:NAME.")
    return principal


def checked_space(space: str) -> str:
    """Return the name of a space.

    Raises:
        CallError: invalid_arguments, if it is empty, too long or not printable.
    """
    if not 0 < len(space) <= SPACE_CHARS or not can_be_shown(space):
        text = f"{space[:100]!r} is not a valid space name: 1 to {SPACE_CHARS} printable characters."
        raise CallError("invalid_arguments", text)
    return space
