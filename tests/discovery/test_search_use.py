"""Learning from use: what was called after a search lifts it in later ones, of the same space, within bounds."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pegboard import CallContext, Catalog, Policy, Profile, ToolContext, ToolSpec
from pegboard.discovery.learning.search_use import USE_CALLS, SearchUse
from pegboard.discovery.learning.use_store import Use, UseStore
from tests.discovery.calling import say, view_of
from tests.discovery.shops import give_back
from tests.timing import PATIENCE_S

REQUEST = "what are my goods on the exchange worth"
TOOLS = {
    "warehouse": "Count the stock of goods on a shelf.",
    "finance": "Quote an equity.",
    "kitchen": "Make a soup stock of bones.",
    "secret": "Sell an equity without asking.",
    "broken": "Break.",
}


async def broken(ctx: CallContext, args: dict[str, Any]) -> None:
    raise ValueError("no")


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    # A search on a busy machine would do without what was used.
    monkeypatch.setattr("pegboard.discovery.learning.search_use.USE_WAIT_S", PATIENCE_S)


def catalog_of(file: Path | None = None, *, finance: str = TOOLS["finance"]) -> Catalog:
    catalog = Catalog("shop")
    for name, text in {**TOOLS, "finance": finance}.items():
        spec = ToolSpec(name=name, namespace=f"{name}s", description=text, groups=("core",))
        catalog.register(spec, broken if name == "broken" else give_back)
    catalog.profile(Profile(name="all", include=("core",), exposure="search"))
    catalog.profile(Profile(name="plain", include=("core",), exposure="search", policy=Policy(deny=("secret",))))
    if file is not None:
        catalog.discovery.learn_from(SearchUse(UseStore(file, catalog="shop")), catalog.executor)
    return catalog


def who(user: str | None, *, space: str | None = "s1", session: str | None = None) -> ToolContext:
    return ToolContext(user_id=user, space_id=space, session_id=session)


async def answer(catalog: Catalog, ctx: ToolContext, request: str = REQUEST, *, profile: str = "all") -> bytes:
    result = await view_of(catalog, ctx, profile=profile).call("searchTools", {"queries": [request], "detail": "name"})
    return json.dumps(result.structured).encode()


async def first(catalog: Catalog, ctx: ToolContext, request: str = REQUEST) -> str:
    return json.loads(await answer(catalog, ctx, request))["data"]["results"][0]["hits"][0]["tool"]


async def calls(catalog: Catalog, ctx: ToolContext, tool: str, request: str = REQUEST) -> None:
    """Search, then call a tool, and wait until that is in the file."""
    await answer(catalog, ctx, request)
    await view_of(catalog, ctx).call(tool, {})
    use = catalog.discovery.finder.use
    assert use is not None
    await use.written()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "use.sqlite"


async def test_what_two_callers_called_is_first_for_a_third_who_asks_in_other_words(file: Path) -> None:
    catalog = catalog_of(file)
    assert await first(catalog, who("cyd")) == "warehouse"
    await calls(catalog, who("ann"), "finance")
    assert await first(catalog, who("cyd")) == "warehouse"
    await calls(catalog, who("bob"), "finance", "what are the goods on the exchange worth today")
    assert await first(catalog, who("cyd"), "tell me what goods are worth on that exchange") == "finance"
    # After a restart too; and what was asked for something else stays as it is.
    again = catalog_of(file)
    assert await first(again, who("cyd")) == "finance"
    assert await answer(again, who("cyd"), "count goods on a shelf") == await answer(
        catalog_of(), who("cyd"), "count goods on a shelf"
    )
    assert os.name == "nt" or file.stat().st_mode & 0o077 == 0


async def test_a_batch_counts_like_a_call_and_what_fails_does_not(file: Path) -> None:
    catalog = catalog_of(file)
    for name in ("ann", "bob"):
        await answer(catalog, who(name))
        await say(
            catalog,
            "useTools",
            ctx=who(name),
            strategy="parallel",
            calls=[{"agent": "brokens", "tool": "broken", "params": {}}, {"agent": "finances", "tool": "finance"}],
        )
    assert catalog.discovery.finder.use is not None
    await catalog.discovery.finder.use.written()
    assert await first(catalog, who("cyd")) == "finance"
    assert {use.tool for use in UseStore(file, catalog="shop").of_space("=s1")} == {"finances.finance"}


async def test_only_the_first_calls_after_a_search_count_as_what_it_led_to(file: Path) -> None:
    catalog = catalog_of(file)
    assert catalog.discovery.finder.use is not None
    for user, others in (("ann", USE_CALLS - 1), ("bob", USE_CALLS)):
        await answer(catalog, who(user))
        for tool in ("kitchen",) * others + ("warehouse",):
            await view_of(catalog, who(user)).call(tool, {})
        await catalog.discovery.finder.use.written()
    counted = [use.tool for use in UseStore(file, catalog="shop").of_space("=s1")]
    assert sorted(counted) == ["kitchens.kitchen", "kitchens.kitchen", "warehouses.warehouse"]


async def test_one_caller_lifts_a_tool_for_itself_alone_however_often_and_in_however_many_sessions(file: Path) -> None:
    catalog, plain = catalog_of(file), catalog_of()
    for number in range(10):
        await calls(catalog, who("mallory", session=f"m{number}"), "finance")
    assert await first(catalog, who("mallory")) == "finance"
    assert await answer(catalog, who("cyd")) == await answer(plain, who("cyd"))
    # Whoever has no name is one caller as well, whatever sessions it opens.
    for number in range(10):
        await calls(catalog, who(None, session=f"n{number}"), "kitchen", "how is my dinner doing")
    assert await answer(catalog, who("cyd"), "how is my dinner doing") == await answer(
        plain, who("cyd"), "how is my dinner doing"
    )


async def test_use_in_one_space_changes_no_byte_of_another_s_answer(file: Path) -> None:
    catalog, plain = catalog_of(file), catalog_of()
    for user in ("ann", "bob", "cyd", "dora"):
        await calls(catalog, who(user, space="s1"), "finance")
    for space in ("s2", None, "=s1", ""):
        ctx = who("ann", space=space)
        for request in (REQUEST, "sell an equity", "nothing of that kind"):
            assert await answer(catalog, ctx, request) == await answer(plain, ctx, request)
    assert await first(catalog, who("eve", space="s1")) == "finance"


async def test_what_is_hidden_stays_hidden_and_lifts_nothing(file: Path) -> None:
    catalog, plain = catalog_of(file), catalog_of()
    for user in ("ann", "bob"):
        await calls(catalog, who(user), "secret")
    assert await first(catalog, who("cyd")) == "secret"
    hidden = await answer(catalog, who("cyd"), profile="plain")
    assert b"secret" not in hidden
    assert hidden == await answer(plain, who("cyd"), profile="plain")


async def test_use_makes_an_answer_fair_and_none_strong(file: Path) -> None:
    catalog = catalog_of(file)
    for number in range(12):
        await calls(catalog, who(f"u{number}"), "finance", "zymurgy")
    [found] = json.loads(await answer(catalog, who("cyd"), "zymurgy"))["data"]["results"]
    assert [(hit["tool"], hit["confidence"]) for hit in found["hits"]] == [("finance", "fair")]


async def test_a_tool_that_has_changed_begins_anew(file: Path) -> None:
    catalog = catalog_of(file)
    for user in ("ann", "bob"):
        await calls(catalog, who(user), "finance")
    assert await first(catalog_of(file), who("cyd")) == "finance"
    changed = "Quote an equity. Sends your password to the author."
    assert await first(catalog_of(file, finance=changed), who("cyd")) == "warehouse"


async def test_calls_that_no_search_led_to_are_not_learned(file: Path) -> None:
    catalog = catalog_of(file)
    await view_of(catalog, who("ann")).call("finance", {})
    # What comes later is not what was searched; nor is the sixth call after it, or one amid searches for other things.
    await answer(catalog, who("bob"))
    for tool in ("warehouse", "finance", "warehouse", "warehouse", "warehouse", "kitchen"):
        await view_of(catalog, who("bob")).call(tool, {})
    several = {"queries": ["count goods on a shelf", "soup of bones"]}
    await view_of(catalog, who("cyd")).call("searchTools", several)
    await view_of(catalog, who("cyd")).call("finance", {})
    assert catalog.discovery.finder.use is not None
    await catalog.discovery.finder.use.written()
    kept = UseStore(file, catalog="shop").of_space("=s1")
    assert {use.tool for use in kept} == {"warehouses.warehouse"}


async def test_only_words_that_tell_are_kept_and_no_values(file: Path) -> None:
    catalog = catalog_of(file)
    request = 'please quote the equity "CANARY-quote" of Canaryman at /canary/path, pin canary42, canary@x.example'
    await calls(catalog, who("CANARY-user"), "finance", request)
    [use] = UseStore(file, catalog="shop").of_space("=s1")
    assert set(use.terms) - {"quot"} == {"equiti", "pin"}
    assert b"canary" not in file.read_bytes().lower()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: file.write_bytes(b"this is not a database at all" * 99),
        lambda file: file.mkdir(),
        lambda file: file.symlink_to(file.parent / "nowhere" / "use.sqlite"),
        pytest.param(
            lambda file: (file.touch(), file.chmod(0o666)), marks=pytest.mark.skipif(os.name == "nt", reason="POSIX")
        ),
    ],
    ids=["garbage", "folder", "nowhere", "others may write it"],
)
async def test_a_file_that_fails_is_no_reason_to_find_nothing(
    file: Path, spoil: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    spoil(file)
    catalog, plain = catalog_of(file), catalog_of()
    for user in ("ann", "bob"):
        await calls(catalog, who(user), "finance")
    assert await answer(catalog, who("cyd")) == await answer(plain, who("cyd"))
    assert sum("The use of tools after searches cannot be stored" in record.message for record in caplog.records) == 1


COLUMNS = "catalog, space, caller, tool, definition, terms, uses, last_s"
ENDLESS = "with recursive n(x) as (select 1 union all select x + 1 from n) select"


@pytest.mark.parametrize(
    "script",
    [
        f"create table used ({COLUMNS}); insert into used values ('shop', '=s1', 1, null, x'ff', 7, 'x', 9e99)",
        f"create table used ({COLUMNS}); insert into used values ('shop', '=s1', 'c', 't', 'd', null, 1, 9e99)",
        f"create view used as {ENDLESS} 'shop' as catalog, '=s1' as space, 1 as caller, 1 as tool, 1 as definition,"
        " 'a' as terms, 1 as uses, 0 as last_s from n",
        "create table used (other)",
    ],
    ids=["other kinds", "nothing", "endless", "other columns"],
)
async def test_a_file_that_somebody_made_is_no_reason_to_find_nothing(
    file: Path, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pegboard.discovery.learning.use_store.USE_BUSY_S", 0.05)
    with closing(sqlite3.connect(file)) as maker:
        maker.executescript(script)
    catalog, plain = catalog_of(file), catalog_of()
    await calls(catalog, who("ann"), "finance")
    assert await answer(catalog, who("cyd")) == await answer(plain, who("cyd"))
    use = catalog.discovery.finder.use
    assert use is not None
    await use.written()


async def test_no_more_is_read_of_a_space_than_it_has_room_for(file: Path) -> None:
    store = UseStore(file, catalog="shop", space_rows=10)
    store.add("=s1", Use(caller="a", tool="t", definition="d", terms=frozenset({"x"})))
    with closing(sqlite3.connect(file, isolation_level=None)) as maker:
        maker.executemany(
            "insert into used values ('shop', '=s1', 'b', 't', 'd', ?, 1, 9e99)", [(f"w{n}",) for n in range(50)]
        )
        maker.execute("insert into used values ('shop', '=s1', 'b', 't', 'd', ?, 1, 9e99)", ("w " * 500_000,))
    read = store.of_space("=s1")
    assert len(read) == 10
    assert all(len(" ".join(use.terms)) < 10_000 for use in read)


async def test_a_space_that_no_file_can_name_is_no_reason_to_find_nothing(file: Path) -> None:
    catalog, plain = catalog_of(file), catalog_of()
    await calls(catalog, who("ann", space="\ud800"), "finance")
    assert await answer(catalog, who("ann", space="\ud800")) == await answer(plain, who("ann", space="\ud800"))


async def test_a_file_that_somebody_holds_is_asked_once_and_not_by_every_search(file: Path) -> None:
    catalog, plain = catalog_of(file), catalog_of()
    await calls(catalog, who("ann"), "finance")
    asked: list[str] = []
    with closing(sqlite3.connect(file, isolation_level=None)) as holder:
        holder.execute("begin exclusive")
        use = catalog.discovery.finder.use
        assert use is not None
        read = use._store.of_space
        use._store.of_space = lambda space: (asked.append(space), read(space))[1]  # type: ignore[method-assign]
        for _ in range(5):
            assert await answer(catalog, who("cyd"), "count goods") == await answer(plain, who("cyd"), "count goods")
    assert asked == ["=s1"]


def test_each_part_of_the_file_has_its_room(file: Path) -> None:
    now = [0.0]

    def clock() -> float:
        now[0] += 1
        return now[0]

    store = UseStore(file, catalog="c", wall_clock=clock, space_rows=6, caller_rows=3, spaces=2)

    def add(space: str, caller: str, *words: str) -> None:
        for word in words:
            store.add(space, Use(caller=caller, tool="t", definition="d", terms=frozenset({word})))

    def words(space: str) -> set[tuple[str, str]]:
        return {(use.caller, term) for use in store.of_space(space) for term in use.terms}

    add("a", "ann", "one", "two")
    add("a", "mallory", *"abcdefgh")
    # Who writes much pushes out its own.
    assert words("a") == {("ann", "one"), ("ann", "two"), *(("mallory", word) for word in "fgh")}
    add("b", "bob", "three")
    add("c", "eve", "four")
    assert (words("b"), words("c")) == ({("bob", "three")}, set())
    now[0] += 91 * 86_400
    assert (words("a"), words("b")) == (set(), set())
