"""Names: one tool has several spellings, and each of them is taken wherever a name is."""

from pathlib import Path
from typing import Any

import pytest

from pegboard import Catalog, Policy, Profile, ToolContext, ToolSpec
from pegboard.core.view import View
from tests.core.parts import FakeSource, foreign

LONG = "x" * 60


def shop() -> Catalog:
    catalog = Catalog()
    for namespace, name in (("main", "read"), ("admin", "purge"), ("admin_", "_odd"), ("builtin", "read")):
        spec = ToolSpec(
            name=name, namespace=namespace, description=f"{name.strip('_').title()} the {namespace} archive."
        )
        catalog.register(spec, lambda ctx, args: "ran")
    catalog.add_source(FakeSource(name="git", listed=[foreign("git", "log"), foreign("git", LONG)]))
    catalog.register(ToolSpec(name="fresh", namespace="admin", renamed_from=("stale",)), lambda ctx, args: "ran")
    catalog.profile(Profile(name="all", exposure="search"))
    return catalog


SPELLED = [
    ("main__read", "main.read"), ("main.read", "main.read"), ("read", "main.read"), ("builtin__read", "builtin.read"),
    ("admin__purge", "admin.purge"), ("admin.purge", "admin.purge"), ("admin____odd", "admin_._odd"),
    ("admin___odd", None), ("git__log", "git.log"), ("git.log", "git.log"), (f"git__{LONG}", f"git.{LONG}"),
    ("admin__fresh", "admin.fresh"), ("admin__stale", "admin.fresh"), ("admin.stale", "admin.fresh"),
    ("stale", "admin.fresh"),
    ("main__purge", None), ("admin__log", None), ("main__stale", None), ("__read", None), ("read__", None),
    ("_" * 5_000, None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "meant"), SPELLED, ids=[name[:20] for name, _ in SPELLED])
async def test_every_spelling_is_taken_by_find_why_call_and_both_meta_tools(name: str, meant: str | None) -> None:
    catalog = shop()
    view = catalog.view(ToolContext(budget=None), profile="all")
    entry = view.find(name)
    assert (entry.qualified_id if entry else None) == meant
    assert view.why(name).visible is (name in view) is (meant is not None)
    result = await view.call(name, {})
    assert (result.error.kind if result.error else "") == ("" if meant else "not_found")
    item = (await use(catalog, {"tool": name, "params": {}}))["results"][0]
    assert item["success"] is (meant is not None)
    if entry is not None:
        agent = entry.spec.namespace
        assert (await use(catalog, {"agent": agent, "tool": name, "params": {}}))["results"][0]["success"]
        shown = await ask(catalog, "getTools", request=[{"agent": agent, "tools": [name]}])
        assert shown["data"]["tools"][0]["tool"] == entry.spec.name


async def ask(catalog: Catalog, tool: str, **arguments: Any) -> dict[str, Any]:
    view = catalog.exposed(catalog.view(ToolContext(budget=None), profile="all"))
    return (await view.call(tool, arguments)).structured


async def use(catalog: Catalog, *calls: dict[str, Any]) -> Any:
    return (await ask(catalog, "useTools", calls=list(calls)))["data"]


def test_an_exact_wire_name_goes_before_a_spelling() -> None:
    catalog = shop()
    catalog.register(ToolSpec(name="admin__purge"), lambda ctx, args: "another")
    view = catalog.view(ToolContext())
    assert view["admin__purge"].qualified_id == "main.admin__purge"
    assert view["admin.purge"].qualified_id == "admin.purge"


GLOBS = ["admin__purge", "admin__*", "ADMIN__PURGE", "admin.purge", "admin.*", "purge", "*purge"]


@pytest.mark.parametrize("glob", GLOBS)
def test_a_policy_means_a_tool_by_each_of_its_spellings(glob: str) -> None:
    catalog = shop()

    def sees(view: View) -> bool:
        return any("purge" in view for _ in "x") and "admin__purge" in view and "admin.purge" in view

    assert not sees(catalog.view(ToolContext(policy=Policy(deny=(glob,)))))
    assert sees(catalog.view(ToolContext(policy=Policy(allow=(glob,)))))
    catalog.profile(Profile(name="strict", policy=Policy(deny=(glob,))))
    assert not sees(catalog.view(ToolContext(), profile="strict"))


async def test_hooks_mean_a_tool_by_each_of_its_spellings() -> None:
    for glob in GLOBS:
        catalog = shop()
        seen: list[str] = []
        catalog.before(glob)(lambda call, seen=seen: seen.append(call.name))  # pyright: ignore[reportUnknownLambdaType] - a hook
        await catalog.view(ToolContext()).call("purge", {})
        assert seen == ["purge"], glob


async def test_search_gives_names_that_a_call_takes() -> None:
    catalog = shop()
    catalog.register(ToolSpec(name="getTools", description="Read the notary archive."), lambda ctx, args: "ours")
    found = await ask(catalog, "searchTools", queries=["read archive", "purge archive", "notary"])
    hits = [hit for result in found["data"]["results"] for hit in result["hits"]]
    assert {"read", "builtin__read", "purge", "main.getTools"} <= {hit["call"] for hit in hits}
    for hit in hits:
        assert not (await catalog.view(ToolContext(budget=None), profile="all").call(hit["call"], {})).is_error
        assert (await use(catalog, {"tool": hit["call"], "params": {}}))["results"][0]["data"] != ""


@pytest.mark.parametrize(
    "asked", ["read", "main__read", "admin.purge", "admin__purge", "git__log", "READ", "admin__purgee"]
)
async def test_no_hint_suggests_the_name_that_was_asked(asked: str) -> None:
    catalog = shop()
    # Its builder fails: it stands in lists of names, and is not there for a call.
    catalog.builder("broken")(lambda ctx: 1 / 0)  # pyright: ignore[reportUnknownLambdaType] - it fails
    for name in (asked, "broken", "main__broken"):
        view = catalog.exposed(catalog.view(ToolContext(budget=None), profile="all"))
        for text in (
            view.hint(name),
            (await view.call(name, {})).text,
            str(await use(catalog, {"tool": name, "params": {}})),
            str(await ask(catalog, "getTools", request=[{"agent": "main", "tools": [name]}])),
        ):
            assert f"Did you mean {name!r}" not in text
            assert f'did you mean "{name}"' not in text


async def test_internal_tools_are_opened_by_each_spelling() -> None:
    catalog = Catalog()
    catalog.register(ToolSpec(name="x", namespace="admin", internal_only=True), lambda ctx, args: "ran")
    for name in ("x", "admin.x", "admin__x"):
        assert (await catalog.view(ToolContext(), internal=[name]).call(name, {})).text == "ran"
    assert "admin__x" not in catalog.view(ToolContext())


def test_a_tool_is_taken_back_by_each_spelling() -> None:
    for name in ("admin.purge", "admin__purge", "ADMIN__purge"):
        catalog = shop()
        catalog.unregister(name)
        assert "purge" not in catalog.view(ToolContext())


TOOLS = """\
name: acme
tools:
  - {name: datetime_now, type: builtin, namespace: admin, description: Tell the time of the admins.}
  - {name: datetime_now, type: builtin}
  - name: hook
    type: webhook
    namespace: admin
    description: Tell a service.
    webhook: {url: "https://example.com/hook"}
  - {name: ping, type: client, namespace: admin, description: Ping the host., parameters: {}}
profiles:
  plain: {include: [core], deny: ["admin__hook"], exposure: direct}
"""


def test_every_kind_of_yaml_tool_takes_a_namespace(tmp_path: Path) -> None:
    from pegboard.config import load_catalog

    (tmp_path / "pegboard.yaml").write_text(TOOLS, encoding="utf-8")
    catalog, _ = load_catalog(tmp_path / "pegboard.yaml", env={})
    ids = [entry.qualified_id for entry in catalog.snapshot().entries]
    assert ids == ["admin.datetime_now", "admin.hook", "admin.ping", "builtin.datetime_now"]
    view = catalog.view(ToolContext(), profile="plain")
    assert view.names() == ["admin__datetime_now", "ping", "datetime_now"]
    assert view["admin__ping"].qualified_id == "admin.ping"
