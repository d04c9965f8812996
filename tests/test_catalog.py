"""Catalog: one registration a tool, immutable snapshots, selection by groups, profiles and policy."""

import hashlib
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard import (
    Catalog,
    DefinitionError,
    DuplicateToolError,
    Policy,
    Profile,
    RateLimit,
    Tool,
    ToolContext,
    ToolSpec,
)
from pegboard.core.wire_names import Named, WireNames
from pegboard.model.record import replace
from pegboard.model.source_state import SourceState
from pegboard.model.tool import ToolEntry
from tests.core.parts import ANN, FakeSource, echo, foreign, kind_of


def names(catalog: Catalog, **selection: Any) -> list[str]:
    return [tool.wire_name for tool in catalog.view(ANN, **selection).tools()]


# ---------------------------------------------------------------- declare


def test_a_decorated_function_stays_a_function() -> None:
    catalog = Catalog()

    @catalog.tool
    def twice(n: int) -> int:
        """Double a number."""
        return n * 2

    assert twice(4) == 8
    [tool] = catalog.view(ANN).tools()
    assert (tool.wire_name, tool.qualified_id, tool.spec.groups) == ("twice", "main.twice", ("core",))
    assert tool.spec.description == "Double a number."


def test_an_openai_definition_and_its_handler_are_registered_apart() -> None:
    catalog = Catalog()
    parameters = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    wrapped = {"type": "function", "function": {"name": "search", "description": "Search.", "parameters": parameters}}
    for name, definition in (("search", wrapped), ("find", wrapped["function"] | {"name": "find"})):  # type: ignore[operator]
        catalog.register(ToolSpec.from_openai(definition, groups=("web",)), echo)
        assert catalog.view(ANN, include=["web"]).schema(name) == parameters
    with pytest.raises(DefinitionError, match="this one has no name"):
        ToolSpec.from_openai({"type": "function", "function": {}})


def test_a_misused_openai_definition_is_refused_with_what_to_write_instead() -> None:
    definition = {"type": "function", "function": {"name": "search"}}
    with pytest.raises(DefinitionError, match=r"no field 'handler'.*handler=function"):
        ToolSpec.from_openai(definition, handler=echo)
    with pytest.raises(DefinitionError, match="one definition at a time; this is a list"):
        ToolSpec.from_openai([definition])  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match=r"register\(ToolSpec.from_openai\(definition\), handler=function\)"):
        Catalog().register(definition, echo)  # type: ignore[call-overload]


@pytest.mark.parametrize("key", ["input_schema", "inputSchema"])
def test_a_definition_in_the_form_of_anthropic_or_mcp_keeps_its_arguments(key: str) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    assert ToolSpec.from_openai({"name": "weather", key: schema}).input_schema == schema


def test_a_second_tool_of_one_name_is_refused_and_both_origins_are_named() -> None:
    catalog = Catalog()
    catalog.register(ToolSpec(name="read", origin="a.py:3"), echo)
    for other in ("read", "READ", "Read"):
        with pytest.raises(DuplicateToolError, match=r"declared twice: at a\.py:3 and at b\.py:9"):
            catalog.register(ToolSpec(name=other, origin="b.py:9"), echo)

    @catalog.tool
    def first() -> None: ...

    with pytest.raises(DuplicateToolError) as caught:

        @catalog.tool(name="first")
        def second() -> None: ...

    assert str(caught.value).count("tests.test_catalog:") == 2
    catalog.register(ToolSpec(name="read", namespace="other"), echo)


def test_replace_takes_a_name_over_and_unregister_gives_it_back() -> None:
    catalog = Catalog()
    catalog.register(ToolSpec(name="read", description="old"), echo)
    catalog.register(ToolSpec(name="read", description="new"), echo, replace=True)
    assert [tool.spec.description for tool in catalog.view(ANN).tools()] == ["new"]
    catalog.register(ToolSpec(name="list", namespace="fs"), echo)
    catalog.unregister("read")
    catalog.unregister("fs.list")
    assert names(catalog) == []
    with pytest.raises(KeyError, match="No tool 'read' is registered here"):
        catalog.unregister("read")


def test_a_foreign_tool_never_replaces_our_own(caplog: pytest.LogCaptureFixture) -> None:
    catalog = Catalog()
    catalog.register(ToolSpec(name="log", namespace="git", description="ours"), echo)
    catalog.add_source(FakeSource(name="git", listed=[foreign("git", "LOG", description="theirs")]))
    assert [tool.spec.description for tool in catalog.view(ANN).tools()] == ["ours"]
    assert "left out" in caplog.text


def test_a_source_may_be_added_once_and_its_changes_are_seen() -> None:
    catalog = Catalog()
    source = FakeSource(name="git")
    catalog.add_source(source)
    assert names(catalog) == []
    source.relist([foreign("git", "log"), foreign("git", "show")])
    assert names(catalog) == ["git__log", "git__show"]
    with pytest.raises(DefinitionError, match="a source 'git' already"):
        catalog.add_source(FakeSource(name="git"))


async def test_sources_are_started_and_stopped_with_the_catalog() -> None:
    catalog = Catalog()
    sources = [FakeSource(name="a"), FakeSource(name="b")]
    for source in sources:
        catalog.add_source(source)
    await catalog.start()
    assert [source.started for source in sources] == [1, 1]
    await catalog.close(grace_s=0.0)
    assert [source.started for source in sources] == [0, 0]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda catalog: catalog.register(ToolSpec(name="no_handler")),
        lambda catalog: catalog.register(Tool),
        lambda catalog: catalog.register("text"),
        lambda catalog: catalog.register(ToolSpec(name=""), echo),
        lambda catalog: catalog.register(ToolSpec(name="a b"), echo),
        lambda catalog: catalog.register(ToolSpec(name="a.b"), echo),
        lambda catalog: catalog.register(ToolSpec(name="a" * 65), echo),
        lambda catalog: catalog.register(ToolSpec(name="é"), echo),
        lambda catalog: catalog.register(ToolSpec(name="a\n"), echo),
        lambda catalog: catalog.register(ToolSpec(name="a", namespace="a__b"), echo),
        lambda catalog: catalog.register(ToolSpec(name="a", namespace="a" * 33), echo),
        lambda catalog: catalog.register(ToolSpec(name="a", namespace=""), echo),
        lambda catalog: catalog.tool(timeout_s=0)(print),
        lambda catalog: catalog.tool(consent="sometimes")(lambda: None),
        lambda catalog: catalog.tool(task="maybe")(lambda: None),
        lambda catalog: catalog.tool(rate_limit="often")(lambda: None),
        lambda catalog: catalog.tool(groups="core", gruops="x"),
        lambda catalog: RateLimit(max_calls=-1, window_s=1.0),
        lambda catalog: catalog.view(ANN, include=["nope"]),
        lambda catalog: catalog.view(ANN, profile="nope"),
        lambda catalog: catalog.view(ANN, profile="nope", include=["core"]),
        lambda catalog: catalog.profile(Profile(name="p", include=("nope",))),
        lambda catalog: catalog.view(ANN).export("nope"),
        lambda catalog: catalog.mirror("x", full_names=3) or catalog.view(ANN).names(),
    ],
)
def test_what_cannot_be_honoured_is_refused(wrong: Callable[[Catalog], object]) -> None:
    catalog = Catalog()
    catalog.register(ToolSpec(name="known"), echo)
    with pytest.raises(DefinitionError):
        wrong(catalog)
    assert names(catalog) == ["known"]


def test_an_unknown_word_comes_with_the_known_ones() -> None:
    catalog = Catalog()
    catalog.register(ToolSpec(name="a", groups=("chat", "admin")), echo)
    catalog.profile(Profile(name="visitor", include=("chat",)))
    for ask, words in (
        (lambda: catalog.view(ANN, include=["chad"]), "Unknown group 'chad'. Did you mean 'chat'?"),
        (lambda: catalog.view(ANN, include=["zzz"]), "Unknown group 'zzz'. Groups: admin, chat, core."),
        (lambda: catalog.view(ANN, profile="vistor"), "Unknown profile 'vistor'. Did you mean 'visitor'?"),
        (lambda: catalog.view(ANN).export("opnai"), "Did you mean 'openai'?"),
        (lambda: catalog.tool(timout_s=3), "'timout_s'. Did you mean 'timeout_s'?"),  # type: ignore[call-overload]
    ):
        with pytest.raises(DefinitionError) as caught:
            ask()
        assert words.lower() in str(caught.value).lower()


# ---------------------------------------------------------------- select


def test_composition_is_by_groups_and_a_tool_without_one_is_in_core() -> None:
    catalog = Catalog()
    catalog.register(ToolSpec(name="plain", groups=()), echo)
    catalog.register(ToolSpec(name="both", groups=("core", "chat")), echo)
    catalog.register(ToolSpec(name="chat", groups=("chat",)), echo)
    catalog.group("empty", "Nothing yet.")
    assert names(catalog, include=["core"]) == ["plain", "both"]
    assert names(catalog, include="chat") == ["both", "chat"], "one group may be given as a string"
    assert names(catalog, include=["core", "chat"]) == names(catalog) == ["plain", "both", "chat"]
    assert names(catalog, include=[]) == names(catalog, include=["empty"]) == []


def test_the_groups_of_a_source_that_is_down_are_known() -> None:
    catalog = Catalog()
    down = FakeSource(name="git", now=SourceState(status="unreachable", is_up=False), declared=frozenset({"code"}))
    catalog.add_source(down)
    catalog.mirror("Bash", groups="shell")
    assert names(catalog, include=["code", "shell"]) == []


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        (Policy(deny=("git",)), ["read"]),
        (Policy(allow=("git",)), ["git__log", "git__show"]),
        (Policy(allow=("git",), deny=("git.log",)), ["git__show"]),
        (Policy(allow=("GIT__L*", "main.read")), ["git__log", "read"]),
        (Policy(allow=("*",)), ["git__log", "git__show", "read"]),
        (Policy(deny=("*",)), []),
        (Policy(allow=("git",), within=Policy(deny=("git__show",))), ["git__log"]),
        (Policy(allow=("nothing*",)), []),
    ],
)
def test_a_policy_speaks_of_ids_wire_names_and_whole_toolsets(policy: Policy, left: list[str]) -> None:
    catalog = Catalog()
    catalog.register(ToolSpec(name="read"), echo)
    catalog.add_source(FakeSource(name="git", listed=[foreign("git", "log"), foreign("git", "show")]))
    assert names_under(catalog, policy) == left


def names_under(catalog: Catalog, policy: Policy) -> list[str]:
    return [tool.wire_name for tool in catalog.view(replace(ANN, policy=policy)).tools()]


def test_a_policy_tells_which_of_its_entries_match_nothing() -> None:
    catalog = Catalog()
    catalog.register(ToolSpec(name="read", namespace="fs"), echo)
    errors, warnings = catalog.policy_faults(Policy(allow=("fs.read", "fs.wirte", "x*"), deny=("gti__log",)))
    assert ([fault.split()[0] for fault in errors], list(warnings)) == (["'gti__log'"], ["fs.wirte", "x*"])


async def test_one_off_tools_are_exempt_from_groups_but_not_from_policy_nor_from_being_unique() -> None:
    catalog = Catalog()
    catalog.register(ToolSpec(name="read"), echo)
    extra = ToolSpec(name="one_off", groups=("nobody",)).bind(echo)
    view = catalog.view(ANN, include=["core"], extra_tools=[extra])
    assert view.names() == ["read", "one_off"]
    assert kind_of(await view.call("one_off", {})) == "ok"
    denied = catalog.view(replace(ANN, policy=Policy(deny=("one_off",))), extra_tools=[extra])
    assert (denied.names(), kind_of(await denied.call("one_off", {}))) == (["read"], "not_found")
    assert names(catalog) == ["read"], "it is of that view alone"
    with pytest.raises(DuplicateToolError):
        catalog.view(ANN, extra_tools=[ToolSpec(name="READ").bind(echo)])
    catalog.register(ToolSpec(name="later"), echo)
    assert view.names() == ["read", "later", "one_off"], "the view follows the catalog"


def test_one_off_tools_given_twice_are_refused() -> None:
    extra = ToolSpec(name="one_off").bind(echo)
    with pytest.raises(DuplicateToolError):
        Catalog().view(ANN, extra_tools=[extra, extra])


def test_mirrored_names_are_listed_and_are_no_tools() -> None:
    catalog = Catalog()
    catalog.register(ToolSpec(name="read"), echo)
    catalog.mirror("Bash", groups=["shell"])
    catalog.mirror("WebSearch", full_names=["WebSearch", "WebFetch"])
    view = catalog.view(ANN)
    assert view.names() == ["read", "Bash", "WebSearch", "WebFetch"]
    assert view.names(server="acme") == ["mcp__acme__read", "Bash", "WebSearch", "WebFetch"]
    assert catalog.view(ANN, include=["core"]).names() == ["read", "WebSearch", "WebFetch"]
    assert (view.find("Bash"), view.why("Bash").code, "Bash" in view) == (None, "unknown", False)
    assert view.why("Bash").reason == "'Bash' is mirrored: a name for allow-lists, which names() has, and no tool here."


def test_why_tells_what_keeps_a_mirrored_name_from_a_caller() -> None:
    catalog = Catalog()
    for name, available in (("Bash", None), ("Edit", None), ("Off", False)):
        catalog.mirror(name, groups="shell", available=available)
    view = catalog.view(ToolContext(policy=Policy(deny=("Edit",))), include=["shell"])
    assert view.names() == ["Bash"]
    assert [view.why(name).code for name in ("Bash", "Edit", "Off")] == ["unknown", "policy", "available"]
    assert catalog.view(ANN, include=["core"]).why("Bash").code == "group"
    fix = view.why("Edit").fix
    assert fix is not None
    assert fix.subject == "Edit"


@pytest.mark.parametrize(
    ("full_names", "listed"),
    [
        (None, ["read"]),
        ("Read", ["Read"]),
        (["Read", "Write"], ["Read", "Write"]),
        ([], []),
        (lambda ctx: [f"{ctx.user_id}_read"], ["ann_read"]),
        (lambda ctx: "Read", ["Read"]),
    ],
)
async def test_full_names_change_the_names_and_nothing_else(full_names: Any, listed: list[str]) -> None:
    catalog = Catalog()
    catalog.register(ToolSpec(name="read", full_names=full_names), echo)
    view = catalog.view(ANN)
    assert view.names() == listed
    assert [tool.wire_name for tool in view.tools()] == ["read"]
    assert view.why("read").visible
    assert kind_of(await view.call("read", {})) == "ok"


# ---------------------------------------------------------------- snapshots


def fill(catalog: Catalog, specs: list[ToolSpec]) -> Catalog:
    for item in specs:
        catalog.register(item, echo)
    return catalog


SPECS = [ToolSpec(name=name, namespace=space) for space in ("main", "fs") for name in ("a", "b", "c")]


@given(st.permutations(SPECS))
def test_the_same_content_has_the_same_hash_whatever_the_order(order: list[ToolSpec]) -> None:
    one, other = fill(Catalog(), SPECS).snapshot(), fill(Catalog(), order).snapshot()
    assert (one == other, hash(one) == hash(other)) == (True, True)
    assert {entry.qualified_id: entry.wire_name for entry in one.entries} == {
        entry.qualified_id: entry.wire_name for entry in other.entries
    }


def test_every_kind_of_change_changes_the_hash() -> None:
    plain: dict[str, Any] = {"name": "a", "description": "x"}
    changes: list[dict[str, Any]] = [
        {}, {"name": "b"}, {"description": "y"}, {"title": "T"}, {"groups": ("chat",)}, {"internal_only": True},
        {"input_schema": {"type": "object", "properties": {"n": {}}}}, {"output_schema": {"type": "object"}},
        {"namespace": "fs"}, {"factory": "f"}, {"available": False}, {"meta": {"a": 1}},
    ]  # fmt: skip
    hashes = [hash(fill(Catalog(), [ToolSpec(**plain | change)]).snapshot()) for change in changes]
    assert len(set(hashes)) == len(changes)


def test_a_snapshot_never_changes_and_each_change_makes_a_new_one() -> None:
    catalog = fill(Catalog(), SPECS[:1])
    told: list[int] = []
    stop = catalog.subscribe(lambda: told.append(catalog.snapshot().generation))
    before = catalog.snapshot()
    assert catalog.snapshot() is before, "nothing changed"
    catalog.register(SPECS[1], echo)
    catalog.predicate(name="p")(lambda ctx: True)
    catalog.before()(lambda call: None)
    catalog.mirror("M")
    catalog.unregister("b")
    after = catalog.snapshot()
    assert (len(before.entries), len(after.entries)) == (1, 1)
    assert (before == after, told) == (True, sorted(set(told)))
    assert len(told) == 5
    stop()
    catalog.register(SPECS[2], echo)
    assert len(told) == 5
    with pytest.raises(AttributeError):
        before.entries[0].spec.name = "z"  # type: ignore[misc]


def test_snapshots_are_whole_while_many_threads_register() -> None:
    catalog = Catalog()
    sizes: list[int] = []

    def register(start: int) -> None:
        for number in range(50):
            catalog.register(ToolSpec(name=f"t_{start}_{number}"), echo)
            sizes.append(len(catalog.snapshot().entries))

    threads = [threading.Thread(target=register, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(catalog.snapshot().entries) == 200
    assert max(sizes) == 200


def test_lists_are_by_namespace_then_declaration_and_byte_identical() -> None:
    catalog = fill(
        Catalog(), [ToolSpec(name=n, namespace=s) for n, s in (("z", "fs"), ("y", "main"), ("b", "fs"), ("x", "main"))]
    )
    assert names(catalog) == ["z", "b", "y", "x"]
    for target in ("mcp", "openai", "anthropic", "gemini"):
        exported = [catalog.view(ToolContext()).export_bytes(target) for _ in range(3)]
        assert len({hashlib.sha256(one).digest() for one in exported}) == 1


def test_on_tool_defined_hears_of_every_later_tool() -> None:
    catalog, heard = fill(Catalog(), SPECS[:1]), list[ToolEntry]()
    catalog.on_tool_defined(heard.append)
    fill(catalog, SPECS[1:3])
    assert [entry.spec.name for entry in heard] == ["b", "c"]


def test_reset_forgets_everything_and_default_loaders_bring_it_back() -> None:
    catalog = Catalog()

    @catalog.default_loader
    def _(target: Catalog) -> None:
        target.register(ToolSpec(name="standard"), echo)

    catalog.load_defaults()
    catalog.register(ToolSpec(name="other", groups=("x",)), echo)
    catalog.predicate(name="p")(lambda ctx: True)
    catalog.profile(Profile(name="visitor"))
    catalog.mirror("M")
    catalog.reset()
    assert catalog.view(ANN).names() == []
    with pytest.raises(DefinitionError):
        catalog.view(ANN, include=["x"])
    with pytest.raises(DefinitionError):
        catalog.view(ANN, profile="visitor")
    catalog.load_defaults()
    assert names(catalog) == ["standard"]


# ---------------------------------------------------------------- names on the wire

parts = st.text("abAB_", min_size=1, max_size=4)
spaces = st.sampled_from(["main", "builtin", "docs", "fs", "a"])


@given(st.lists(st.tuples(spaces, parts, st.booleans()), max_size=12, unique_by=lambda t: f"{t[0]}.{t[1]}".casefold()))
def test_wire_names_are_legal_injective_and_independent_of_order(tools: list[tuple[str, str, bool]]) -> None:
    wire = WireNames.of(named := [Named(*tool) for tool in tools]).by_tool
    assert len({name.casefold() for name in wire.values()}) == len(tools)
    assert all(name.isascii() and 0 < len(name) <= 64 for name in wire.values())
    assert WireNames.of(named[::-1]).by_tool == wire


def test_where_two_bare_names_meet_main_keeps_it_then_builtin_then_docs() -> None:
    def wire(*spaces: str) -> dict[str, str]:
        catalog = fill(Catalog(), [ToolSpec(name="read", namespace=space) for space in spaces])
        return {entry.spec.namespace: entry.wire_name for entry in catalog.snapshot().entries}

    assert wire("docs", "builtin", "main") == {"main": "read", "builtin": "builtin__read", "docs": "docs__read"}
    assert wire("docs", "builtin") == {"builtin": "read", "docs": "docs__read"}
    assert wire("zoo", "docs") == {"docs": "read", "zoo": "zoo__read"}
    assert wire("zoo") == {"zoo": "read"}


def test_a_name_too_long_for_the_wire_gets_a_tail_of_its_own_id() -> None:
    catalog = Catalog()
    long = ["x" * 62 + end for end in ("a", "b")]
    catalog.add_source(FakeSource(name="git", listed=[foreign("git", name) for name in long]))
    wire = [entry.wire_name for entry in catalog.snapshot().entries]
    tails = [hashlib.sha256(f"git.{name}".encode()).hexdigest()[:8] for name in long]
    assert [name[-9:] for name in wire] == [f"_{tail}" for tail in tails]
    assert {len(name) for name in wire} == {64}
    assert [catalog.view(ANN).find(name) is not None for name in wire] == [True, True]


def test_a_foreign_name_that_looks_like_another_wire_name_never_takes_it() -> None:
    catalog = fill(Catalog(), [ToolSpec(name="git__log"), ToolSpec(name="b", namespace="a")])
    catalog.add_source(FakeSource(name="git", listed=[foreign("git", "log")]))
    wire = {entry.qualified_id: entry.wire_name for entry in catalog.snapshot().entries}
    assert len(set(wire.values())) == 3
    found = catalog.view(ANN).find("git__log")
    assert found is None or found.qualified_id in ("main.git__log", "git.log")
    assert all(catalog.view(ANN).find(wire_name).qualified_id == own for own, wire_name in wire.items())  # type: ignore[union-attr]


def test_a_subscriber_that_raises_is_logged_and_the_others_hear(caplog: pytest.LogCaptureFixture) -> None:
    catalog, heard = Catalog(), list[object]()
    for subscribe in (catalog.subscribe, catalog.on_tool_defined):
        subscribe(lambda *_: 1 / 0)
        subscribe(lambda *told: heard.append(len(told)))
    catalog.register(ToolSpec(name="read"), echo)
    assert heard == [0, 1]
    assert caplog.messages == ["A subscriber of the catalog failed."] * 2


class Faulty(FakeSource):
    """A source that fails in all that it is asked."""

    def state(self) -> SourceState:
        raise OSError("state")

    async def start(self) -> None:
        raise OSError("start")

    async def stop(self) -> None:
        raise OSError("stop")


async def test_a_source_that_cannot_say_how_it_is_counts_as_down() -> None:
    catalog = Catalog()
    catalog.register(ToolSpec(name="read"), echo)
    catalog.add_source(Faulty(name="git", listed=[foreign("git", "log")]))
    view = catalog.view(ANN)
    assert view.names() == ["read"]
    assert [kind_of(await view.call(name, {})) for name in ("read", "git__log")] == ["ok", "not_found"]
    assert view.why("git__log").code == "source"


async def test_a_source_that_cannot_start_or_stop_does_not_keep_the_others_from_it() -> None:
    catalog = Catalog()
    good = FakeSource(name="zoo")
    for source in (Faulty(name="git"), good):
        catalog.add_source(source)
    await catalog.start()
    assert good.started == 1
    await catalog.close(grace_s=0.0)
    assert good.started == 0
