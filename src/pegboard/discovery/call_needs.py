"""Call needs: what a visible tool needs before a call, a person's yes or a connected account, in wire form."""

from __future__ import annotations

from collections.abc import Iterable

from pegboard.core.view import View
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.model.tool import Account, ToolEntry

CONNECT_LINKS = 3  # links in one answer; each is one of the person's open links


def needs_of(entry: ToolEntry, view: View) -> JSON:
    """Return `{asks?, connect?}`: whether a person must agree to each call, and the account to connect first."""
    account = view.connects_first(entry)
    asks: JSON = {} if entry.asks_because is None else {"asks": True}
    return asks if account is None else {**asks, "connect": account}


async def ways_to_connect(view: View, shown: Iterable[JSON]) -> JSON:
    """Return `{"connections": [{source, message, url?}]}` for the shown tools with `connect`; empty without any.

    `message` says who must connect to what, and how. Without a page there is no `url`.
    """
    wanted = {tool["connect"] for tool in shown if "connect" in tool}
    accounts: dict[str, Account] = {}
    for entry in view.snapshot.with_accounts if wanted else ():
        if entry.account is not None and entry.connects_to in wanted:
            accounts.setdefault(entry.connects_to, entry.account)
    ways: list[JSON] = []
    for source in sorted(accounts)[:CONNECT_LINKS]:
        try:
            error = (await accounts[source].required(view.ctx.caller)).error
        except CallError as refused:
            error = refused.error
        url = error.details.get("url")
        ways.append({"source": source, "message": error.message, **({"url": url} if url else {})})
    return {"connections": ways} if ways else {}
