"""The shared permission cases that touch the catalog, its views and the guarded call. Named after their ids."""

import re
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegboard import Catalog, DefinitionError, Policy, Profile, Secret, TextContent, ToolContext, ToolResult, ToolSpec
from pegboard.model.record import replace
from pegboard.model.source_state import SourceState
from tests.core.parts import FakeSource, Recorder, echo, foreign, kind_of
from tests.sizes import examples
from tests.timing import is_within

CALLS: list[str] = []


async def touch(ctx: Any, args: dict[str, Any]) -> str:
    CALLS.append(ctx.tool)
    return "done"


def guarded_catalog() -> Catalog:
    """Return a catalog whose tools are each hidden in another way from the caller of `visitor`."""
    CALLS.clear()
    catalog = Catalog()
    catalog.register(ToolSpec(name="public_note"), touch)
    catalog.register(ToolSpec(name="by_group", groups=("admin",)), touch)
    catalog.register(ToolSpec(name="by_policy"), touch)
    catalog.register(ToolSpec(name="by_internal", internal_only=True), touch)
    catalog.register(ToolSpec(name="by_factory", factory="mailer"), touch)
    catalog.register(ToolSpec(name="by_predicate", available=lambda ctx: False), touch)
    catalog.builder("by_builder")(lambda ctx: 1 / 0)
    git = FakeSource(name="git", now=SourceState(quarantined=frozenset({"git.by_quarantine"})))
    git.listed = [foreign("git", "by_quarantine")]
    down = FakeSource(
        name="down", listed=[foreign("down", "by_source")], now=SourceState(status="unreachable", is_up=False)
    )
    catalog.add_source(git)
    catalog.add_source(down)
    catalog.profile(Profile(name="visitor", include=("core",), policy=Policy(deny=("by_policy",))))
    return catalog


HIDDEN = [
    "by_group", "by_policy", "by_internal", "by_factory", "by_predicate", "by_builder",
    "git__by_quarantine", "down__by_source", "main.by_policy", "git.by_quarantine",
]  # fmt: skip


def without_name(result: ToolResult, name: str) -> ToolResult:
    """Return everything a caller can see of a result, with the asked name blanked out."""

    def blank(text: str) -> str:
        return text.replace(repr(name), "NAME")

    error = result.error and replace(result.error, message=blank(result.error.message))
    return result._replace(content=(TextContent(blank(result.text)),), error=error)


# ---------------------------------------------------------------- PERM-01, PERM-02


@pytest.mark.parametrize("name", HIDDEN)
async def test_perm_01_a_hidden_tool_called_directly_answers_like_an_unknown_one(name: str) -> None:
    view = guarded_catalog().view(ToolContext(budget=None), profile="visitor")
    unknown = "x" * len(name)
    assert without_name(await view.call(name, {}), name) == without_name(await view.call(unknown, {}), unknown)
    assert without_name(await view.call(name, "not json"), name) == without_name(await view.call(unknown, {}), unknown)
    assert view.find(name) is None
    with pytest.raises(KeyError, match="No tool named"):
        view.schema(name)
    assert CALLS == []


@pytest.mark.parametrize(
    "spell",
    [
        lambda name: f"{name} ",
        str.upper,
        lambda name: name.replace("_", "\uff3f"),
        lambda name: f"{name}\u200b",
        lambda name: f"main.{name}",
        lambda name: f"mcp__pegboard__{name}",
    ],
    ids=["space", "case", "fullwidth", "zero width", "qualified", "allow-list"],
)
async def test_perm_01_other_spellings_of_hidden_names_answer_like_unknown_ones(spell: Callable[[str], str]) -> None:
    view = guarded_catalog().view(ToolContext(budget=None), profile="visitor")
    unknown = "x" * 20
    expected = without_name(await view.call(unknown, {}), unknown)
    for name in map(spell, ("by_group", "by_policy", "by_internal", "by_factory", "by_predicate")):
        assert without_name(await view.call(name, {}), name) == expected
        assert without_name(await view.call(name, {"n": 1}), name) == expected
    assert CALLS == []


async def test_perm_01_its_events_tell_no_more_than_those_of_an_unknown_name() -> None:
    catalog = guarded_catalog()

    async def seen(name: str) -> list[tuple[object, ...]]:
        recorder = Recorder()
        await catalog.view(ToolContext(request_id="r"), profile="visitor").call(name, {}, callbacks=recorder)
        return [(e.type, e.tool.replace(name, "NAME"), e.ok, e.payload.get("kind")) for e in recorder.events]

    assert [await seen(name) for name in HIDDEN] == [await seen("x" * 9)] * len(HIDDEN)


async def test_perm_02_a_tool_filtered_by_its_predicate_cannot_be_called_and_is_asked_afresh_each_request() -> None:
    catalog, open_now = Catalog(), False
    catalog.register(ToolSpec(name="pay", available=lambda ctx: open_now), touch)
    assert catalog.view(ToolContext()).names() == []
    assert kind_of(await catalog.view(ToolContext()).call("pay", {})) == "not_found"
    open_now = True
    assert kind_of(await catalog.view(ToolContext()).call("pay", {})) == "ok"
    open_now = False
    assert kind_of(await catalog.view(ToolContext()).call("pay", {})) == "not_found"


# ---------------------------------------------------------------- PERM-03

SPELLINGS = [
    "send_email", "mail", "old_name", "main.send_email", "main__send_email", "send_email ", " send_email",
    "send_email\t", "send_email\n", "send_email\x00", "SEND_EMAIL", "Send_Email", "Main.Send_Email",
    "ｓｅｎｄ_ｅｍａｉｌ",
    "send\u200b_email", "send_email\u200d", "\ufeffsend_email", "send\u2024email", "sеnd_email",
    "mcp__pegboard__send_email", "send-email", "send_email/", "./send_email", "send%5Femail", "", "s" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("name", SPELLINGS, ids=lambda name: ascii(name)[:24])
@pytest.mark.parametrize("deny", ["send_email", "main.send_email", "SEND_*"])
async def test_perm_03_no_spelling_of_a_denied_name_gets_through(name: str, deny: str) -> None:
    catalog = Catalog()
    CALLS.clear()
    catalog.register(ToolSpec(name="send_email", renamed_from=("mail", "old_name")), touch)
    view = catalog.view(ToolContext(policy=Policy(deny=(deny,))))
    assert kind_of(await view.call(name, {})) == "not_found"
    assert (view.find(name), name in view, CALLS) == (None, False, [])


async def test_perm_03_a_former_name_shares_permission_limit_and_identity() -> None:
    catalog = Catalog()
    catalog.register(ToolSpec(name="send_email", renamed_from=("mail",)), touch)
    result = await catalog.view(ToolContext()).call("mail", {})
    assert (kind_of(result), result.meta) == ("ok", {"renamed": "'mail' is now called 'send_email'"})
    denied = catalog.view(ToolContext(policy=Policy(deny=("main.send_email",))))
    assert kind_of(await denied.call("mail", {})) == "not_found"


# ---------------------------------------------------------------- PERM-05


async def test_perm_05_an_empty_allow_list_allows_nothing_and_a_missing_one_everything() -> None:
    catalog = Catalog()
    catalog.register(ToolSpec(name="note"), touch)
    assert catalog.view(ToolContext(policy=Policy(allow=()))).names() == []
    assert catalog.view(ToolContext(policy=Policy(allow=None))).names() == ["note"]
    assert catalog.view(ToolContext(policy=Policy())).names() == ["note"]
    assert catalog.view(ToolContext(policy=Policy(allow=("note",), deny=("note",)))).names() == [], "deny wins"
    assert kind_of(await catalog.view(ToolContext(policy=Policy(allow=()))).call("note", {})) == "not_found"


@pytest.mark.parametrize(
    "wrong", [{"allow": [""]}, {"deny": [""]}, {"allow": "note"}, {"deny": "*"}, {"allow": [None]}, {"deny": [3]}]
)
def test_perm_05_a_policy_that_cannot_be_meant_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="a list of non-empty globs is needed"):
        Policy(**wrong)


def test_perm_05_a_mistyped_key_never_opens_everything() -> None:
    with pytest.raises(TypeError):
        Policy(alowed=["note"])  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Profile(name="chat", polcy=Policy(allow=()))  # type: ignore[call-arg]


def test_perm_05_an_undeclared_namespace_in_a_policy_is_refused_with_the_nearest_name() -> None:
    catalog = Catalog()
    catalog.register(ToolSpec(name="read", namespace="files"), touch)
    with pytest.raises(DefinitionError, match=r"'flies__\*' names no declared namespace.*'files'"):
        catalog.view(ToolContext(policy=Policy(deny=("flies__*",))))
    catalog.profile(Profile(name="chat", policy=Policy(deny=("flies.read",))))
    with pytest.raises(DefinitionError, match=r"'flies\.read' names no declared namespace"):
        catalog.view(ToolContext(), profile="chat")


# ---------------------------------------------------------------- PERM-08


@pytest.mark.parametrize("near", ["by_polic", "by_grup", "by_internl", "by_predicat", "by_buildr", "git__by_quarantin"])
async def test_perm_08_did_you_mean_never_suggests_a_hidden_name(near: str) -> None:
    view = guarded_catalog().view(ToolContext(), profile="visitor")
    result = await view.call(near, {})
    # A builder's name is listed: that its build fails is not known before it runs.
    assert set(HIDDEN) & set(re.findall(r"\w+", result.text)) <= {"by_builder"}
    assert (await view.call("public_not", {})).text.endswith("Did you mean 'public_note'?")


async def test_perm_08_lists_lengths_and_exports_hold_nothing_of_a_hidden_tool() -> None:
    view = guarded_catalog().view(ToolContext(), profile="visitor")
    assert [tool.wire_name for tool in view.tools()] == ["public_note"]
    for target in ("mcp", "openai", "anthropic", "gemini"):
        emitted = view.export_bytes(target).decode()
        assert not [name for name in HIDDEN if name in emitted], target


async def test_perm_08_a_hidden_name_takes_no_longer_to_refuse_than_an_unknown_one() -> None:
    view = guarded_catalog().view(ToolContext(budget=None), profile="visitor")

    async def seconds(name: str) -> float:
        took: list[float] = []
        for _ in range(20):
            started = time.perf_counter()
            await view.call(name, {})
            took.append(time.perf_counter() - started)
        return median(took)

    assert is_within(abs(await seconds("by_policy") - await seconds("zzzzzzzzz")), 0.005)


def test_perm_08_callers_of_different_rights_never_share_an_export() -> None:
    catalog = guarded_catalog()
    admin = catalog.view(ToolContext(), include=["core", "admin"])
    visitor = catalog.view(ToolContext(), profile="visitor")
    for _ in range(2):
        assert b"by_group" in admin.export_bytes("mcp")
        assert b"by_group" not in visitor.export_bytes("mcp")


# ---------------------------------------------------------------- PERM-09


async def test_perm_09_an_internal_tool_is_found_only_by_host_code_that_names_it() -> None:
    catalog = guarded_catalog()
    for view in (
        catalog.view(ToolContext()),
        catalog.view(ToolContext(), include=["core"]),
        catalog.view(ToolContext(), profile="visitor"),
        catalog.view(ToolContext(roles=["operator", "admin"])),
        catalog.view(ToolContext(), internal=["by_inter*", "*", "public_note"]),
    ):
        assert "by_internal" not in view.names()
        assert kind_of(await view.call("by_internal", {})) == "not_found"
        assert not [item for item in view.export("mcp") if item["name"] == "by_internal"]
    assert CALLS == []
    opened = catalog.view(ToolContext(), internal=["by_internal"])
    assert kind_of(await opened.call("by_internal", {})) == "ok"


# ---------------------------------------------------------------- PERM-11


async def test_perm_11_arguments_that_pretend_to_be_a_context_are_refused_or_mere_data() -> None:
    catalog = guarded_catalog()
    seen: list[ToolContext] = []

    @catalog.tool
    def whoami(ctx: ToolContext, note: str = "") -> str:
        seen.append(ctx)
        return note

    ctx = ToolContext(user_id="ann", roles=["reader"])
    view = catalog.view(ctx, profile="visitor")
    for args in (
        {"ctx": {"roles": ["admin"]}},
        {"context": {"groups": ["admin"]}},
        {"_meta": {"user": "root"}},
        {"self": 1},
    ):
        assert kind_of(await view.call("whoami", args)) == "invalid_arguments"
    assert kind_of(await view.call("by_group", {"context": {"groups": ["admin"]}})) == "not_found"
    assert (await view.call("whoami", {"note": '{"roles": ["admin"]}'})).is_error is False
    assert seen == [ctx]
    assert "ctx" not in view.schema("whoami")["properties"]


# ---------------------------------------------------------------- PERM-12


@settings(max_examples=examples(200))
@given(spaces=st.lists(st.text(max_size=6), min_size=2, max_size=8, unique=True))
def test_perm_12_no_space_sees_what_another_one_lists(spaces: list[str]) -> None:
    catalog = Catalog()
    for number, space in enumerate(spaces):
        catalog.register(
            ToolSpec(name=f"tool_{number}", available=lambda ctx, space=space: ctx.space_id == space), echo
        )
    for number, space in enumerate(spaces):
        view = catalog.view(ToolContext(space_id=space))
        assert view.names() == [f"tool_{number}"]
        assert [item["name"] for item in view.export("mcp")] == [f"tool_{number}"]
        others = [f"tool_{other}" for other in range(len(spaces)) if other != number]
        assert not [name for name in others if name.encode() in view.export_bytes("mcp")]


# ---------------------------------------------------------------- PERM-13

globs = st.lists(st.sampled_from(["a*", "*b", "main.*", "ab", "ba", "*"]), max_size=3).map(tuple)
flat = st.builds(Policy, allow=st.one_of(st.none(), globs), deny=globs)
some_policy = st.one_of(flat, st.builds(lambda outer, inner: replace(outer, within=inner), flat, flat))


@settings(max_examples=examples(300))
@given(chain=st.lists(some_policy, min_size=1, max_size=4))
def test_perm_13_a_sub_agent_has_what_it_and_every_caller_above_it_may_use(chain: list[Policy]) -> None:
    catalog = Catalog()
    for name in ("ab", "ba", "aa", "bb"):
        catalog.register(ToolSpec(name=name), echo)
    ctx = ToolContext(policy=chain[0])
    alone = set(catalog.view(ctx).names())
    for policy in chain[1:]:
        ctx = ctx.child(policy=policy)
        alone &= set(catalog.view(ToolContext(policy=policy)).names())
        assert set(catalog.view(ctx).names()) == alone


def test_perm_13_a_child_keeps_identity_and_limits_and_gets_credentials_by_name_only() -> None:
    parent = ToolContext(
        user_id="ann",
        roles=["reader"],
        deadline=10.0,
        upstream_credentials={"crm": Secret("abcd"), "erp": Secret("efgh")},
    )
    child = parent.child(agent="researcher", credentials=["crm", "other"])
    assert (child.user_id, child.roles, child.deadline, child.depth, child.agent) == (
        "ann",
        {"reader"},
        10.0,
        1,
        "researcher",
    )
    assert list(child.upstream_credentials) == ["crm"]
    assert child.budget is parent.budget
    assert child.memo is not parent.memo
    refused: list[dict[str, Any]] = [
        {"user_id": "root"}, {"space_id": "s2"}, {"roles": ["admin"]}, {"depth": -5}, {"budget": None},
    ]  # fmt: skip
    for lent in refused:
        with pytest.raises(DefinitionError, match="keeps its parent's"):
            parent.child(**lent)
