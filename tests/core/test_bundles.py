"""Bundles: a builder with `full_names=[]` gives whatever tools it wants; they are guarded like all others."""

from typing import Any

import pytest

from pegboard import Catalog, Policy, Profile, ToolContext, ToolSpec
from tests.core.parts import echo, kind_of


def catalog_with_bundle(*names: str, **said: Any) -> Catalog:
    catalog = Catalog()
    catalog.builder("crm", full_names=[], **said)(lambda ctx: [ToolSpec(name=name).bind(echo) for name in names])
    return catalog


async def test_the_tools_of_a_bundle_are_usable_and_in_no_list_of_names() -> None:
    view = catalog_with_bundle("find_lead", "add_lead").view(ToolContext())
    assert view.names() == []
    assert [tool.wire_name for tool in view.tools()] == ["find_lead", "add_lead"]
    assert view.why("add_lead").visible
    assert view.schema("add_lead")["type"] == "object"
    assert (await view.call("add_lead", {})).structured == {}


async def test_the_law_holds_for_the_name_of_the_bundle_itself() -> None:
    view = catalog_with_bundle("find_lead").view(ToolContext())
    visible = view.why("crm").visible
    listed = "crm" in [tool.wire_name for tool in view.tools()]
    called = kind_of(await view.call("crm", {})) != "not_found"
    assert {visible, listed, view.find("crm") is not None, called} == {False}


async def test_policy_reaches_into_a_bundle() -> None:
    ctx = ToolContext(policy=Policy(deny=("add_*",)))
    view = catalog_with_bundle("find_lead", "add_lead").view(ctx)
    assert [tool.wire_name for tool in view.tools()] == ["find_lead"]
    assert view.find("add_lead") is None
    assert not view.why("add_lead").visible
    assert kind_of(await view.call("add_lead", {})) == "not_found"


async def test_an_allow_list_reaches_into_a_bundle() -> None:
    catalog = catalog_with_bundle("find_lead", "add_lead")
    catalog.profile(Profile(name="chat", policy=Policy(allow=("crm", "find_lead"))))
    view = catalog.view(ToolContext(), profile="chat")
    assert [tool.wire_name for tool in view.tools()] == ["find_lead"]
    assert kind_of(await view.call("add_lead", {})) == "not_found"


@pytest.mark.parametrize(
    "hidden", [{"groups": "sales"}, {"available": False}, {"factory": "crm"}, {"internal_only": True}]
)
async def test_a_hidden_bundle_hides_its_tools(hidden: dict[str, Any]) -> None:
    view = catalog_with_bundle("find_lead", **hidden).view(
        ToolContext(), include=["core"] if "groups" in hidden else None
    )
    assert view.tools() == ()
    assert view.find("find_lead") is None
    assert not view.why("find_lead").visible
    assert kind_of(await view.call("find_lead", {})) == "not_found"


async def test_a_bundle_never_takes_the_name_of_a_declared_tool() -> None:
    catalog = catalog_with_bundle("find_lead", "other")
    catalog.register(ToolSpec(name="find_lead", description="The declared one."), echo)
    view = catalog.view(ToolContext())
    names = [tool.wire_name for tool in view.tools()]
    assert len(names) == len(set(names)), names
    found = view.find("find_lead")
    assert found is not None
    assert found.spec.description == "The declared one."
