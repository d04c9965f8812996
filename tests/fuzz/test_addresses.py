"""Addresses: what a client names, a resource by its URI or a page by its cursor, means that alone, for it alone."""

import random
import re
from base64 import b64encode
from typing import Any
from urllib.parse import quote, unquote

import httpx2
import pytest

from pegboard import Catalog, Identified, http_app
from pegboard.server.mcp.handlers import lists
from tests.fuzz.seeds import inputs
from tests.server.doors import inside, post

IN_CI = {"uris": 6, "cursors": 25}
LETTERS = ["a", "b", "/", "//", ".", "..", "%2e", "%2F", "%5c", "%00", "%0a", "%", "%zz", "%ff", "é", "😀", "?", "#",
           "{", "}", "-", "a-b", "x" * 300, "%25", "%c3%a9", "\\", " ", "+", "&", ":", "@",
           "\u202e", "\u2028"]  # fmt: skip
LITERALS = ["/", "-", "", ".", "//", "a", "/a/", "%2F", "?q=", "#"]


def random_template(rng: random.Random) -> str:
    """Return a template of one to three variables, with texts between them of which some look like values."""
    names = ["one", "two", "three"][: rng.randrange(1, 4)]
    parts = [
        f"{{{rng.choice(['', '', '+'])}{name}}}{rng.choice(LITERALS[:5] if name != names[-1] else LITERALS)}"
        for name in names
    ]
    return "note://" + rng.choice(["", "x/"]) + "".join(parts)


def random_uri(template: str, rng: random.Random) -> str:
    """Return a URI that may be one of the template's: its variables filled with anything, and perhaps cut."""
    uri = re.sub(r"\{\+?\w+\}", lambda _: "".join(rng.choices(LETTERS, k=rng.randrange(4))), template)
    if rng.random() < 0.2:
        place = rng.randrange(len(uri) + 1)
        uri = uri[:place] + rng.choice(LETTERS) + uri[place + rng.randrange(3) :]
    return uri


def expected(template: str, uri: str) -> dict[str, str] | None:
    """Read a URI by a regular expression, which tries every way: the first variables as long as can be."""
    words = re.split(r"\{(\+?)(\w+)\}", template)
    pattern = re.escape(words[0])
    for plus, name, text in zip(words[1::3], words[2::3], words[3::3], strict=True):
        pattern += f"(?P<{name}>[^\n]+)" if plus else f"(?P<{name}>[^/?#]+)"
        pattern += re.escape(text)
    found = re.fullmatch(pattern, uri)
    if found is None:
        return None
    values = {name: unquote(value) for name, value in found.groupdict().items()}
    segments = [values[name] for plus, name in zip(words[1::3], words[2::3], strict=True) if not plus]
    if any("\0" in value for value in values.values()):
        return None
    return None if any(one in (".", "..") or set(one) & set("/\\") for one in segments) else values


@pytest.mark.parametrize("fresh", [False, pytest.param(True, marks=pytest.mark.soak)])
async def test_a_uri_is_read_as_the_resource_that_it_means_and_as_no_other(fresh: bool) -> None:
    for _, rng in inputs(IN_CI["uris"], fresh=fresh):
        catalog, template, heard = Catalog(), random_template(rng), list[dict[str, str]]()
        catalog.resource(template, name="note")(reading(heard, template.count("{")))
        async with inside(http_app(catalog)) as client:
            for _ in range(15):
                uri = random_uri(template, rng)
                heard.clear()
                answer = await read(client, uri)
                meant = expected(template, uri)
                assert heard == ([] if meant is None else [meant]), (template, uri, answer)
                if meant is None:
                    assert answer["error"]["message"].startswith("No resource "), (template, uri, answer)
                    continue
                assert answer["result"]["contents"][0]["uri"] == uri
                # Filled in as a client fills it in, it is the same resource.
                filled = re.sub(r"\{\+?(\w+)\}", lambda found, meant=meant: quote(meant[found[1]], safe=""), template)
                if expected(template, filled) == meant:
                    heard.clear()
                    await read(client, filled)
                    assert heard == [meant], (template, uri, filled)


def reading(heard: list[dict[str, str]], variables: int) -> Any:
    """Return a resource of so many variables that tells what it was read with."""

    def of_one(one: str) -> str:
        heard.append({"one": one})
        return "ok"

    def of_two(one: str, two: str) -> str:
        heard.append({"one": one, "two": two})
        return "ok"

    def of_three(one: str, two: str, three: str) -> str:
        heard.append({"one": one, "two": two, "three": three})
        return "ok"

    return (of_one, of_two, of_three)[variables - 1]


async def read(client: httpx2.AsyncClient, uri: str) -> Any:
    named = {"mcp-name": f"=?base64?{b64encode(uri.encode()).decode()}?="}
    return (await post(client, "resources/read", {"uri": uri}, headers=named)).json()


LISTS = {"tools/list": "tools", "resources/list": "resources", "prompts/list": "prompts"}
USERS = ("ann", "bob")


def paged(count: int) -> Catalog:
    catalog = Catalog()
    for number in range(count):
        catalog.tool(name=f"tool_{number}")(lambda: None)
        catalog.resource(f"note://{number}", name=f"note_{number}")(lambda: "a note")
        catalog.prompt(name=f"ask_{number}")(lambda: "a question")
    return catalog


def damaged(cursor: str, rng: random.Random) -> str:
    place = rng.randrange(len(cursor))
    return rng.choice([
        cursor[:place] + rng.choice("Aa0-_=. \0é") + cursor[place + 1 :], cursor[:place], cursor[place:], cursor * 2,
        "", cursor + "=", cursor.swapcase(), "0", "-1", "1e9", cursor[::-1], "A" * 5_000,
    ])  # fmt: skip


@pytest.mark.parametrize("fresh", [False, pytest.param(True, marks=pytest.mark.soak)])
async def test_a_cursor_serves_the_list_and_the_caller_that_it_was_given_for(
    fresh: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bound in ("MCP_PAGE_TOOLS", "MCP_PAGE_RESOURCES"):
        monkeypatch.setattr(lists, bound, 2)
    catalogs = paged(5), paged(5)
    asking = {"identify": lambda request: Identified(user=request.headers["x-user"])}
    keys = (b"k" * 32,)
    apps = [http_app(one, keys=keys, **asking) for one in catalogs]  # type: ignore[arg-type] - as it says
    async with inside(apps[0]) as client, inside(apps[1]) as twin:
        cursors = dict[tuple[str, str], str]()
        for method in LISTS:
            for user in USERS:
                page = (await post(client, method, headers={"x-user": user})).json()["result"]
                cursors[method, user] = page["nextCursor"]
        for _, rng in inputs(IN_CI["cursors"], fresh=fresh):
            (method, user), cursor = rng.choice(list(cursors.items()))
            asked, by = rng.choice(list(LISTS)), rng.choice(USERS)
            sent = damaged(cursor, rng) if rng.random() < 0.5 else cursor
            at = rng.choice([client, twin])
            answer = (await post(at, asked, {"cursor": sent}, headers={"x-user": by})).json()
            if (asked, by, sent) == (method, user, cursor):
                # A worker with the same keys and the same list takes it, too.
                first = answer["result"][LISTS[asked]][0]["name"]
                assert first not in ("tool_0", "note_0", "ask_0")
            else:
                assert answer["error"]["code"] in (-32602, -32700), (asked, by, sent, answer)
