"""Declarations: everything declared is one value, so that nothing of it can be forgotten by a reload or a reset."""

from dataclasses import fields, make_dataclass, replace
from typing import Any

import pytest

from pegboard import Bounds, Catalog, Policy, Profile, RateLimit, Secret, ToolSpec
from pegboard.core.declarations import Declarations
from tests.core.parts import ANN, FakeSource, echo, foreign


def full() -> Catalog:
    """Return a catalog that declares something of every kind."""
    catalog = Catalog("shop", bounds=Bounds(hook_s=0.5))
    catalog.register(ToolSpec(name="read"), echo)
    catalog.builder(lambda: ["later"])(lambda ctx: [ToolSpec(name="later").bind(echo)])
    catalog.add_source(FakeSource(name="git", listed=[foreign("git", "log")]))
    catalog.mirror("Bash")
    catalog.predicate(name="open")(lambda ctx: True)
    catalog.group("chat")
    catalog.profile(Profile(name="visitor", policy=Policy(deny=("read",))))
    catalog.before()(lambda call: None)
    catalog.resource("x://y", name="y")(lambda: "y")
    catalog.add_secrets(Secret("a-secret-value"))
    catalog.registry.change(default_limit=RateLimit(max_calls=9, window_s=60.0), identity=object())
    return catalog


def test_a_reload_takes_over_every_kind_of_declared_thing_there_is_or_will_be() -> None:
    made, running = full(), Catalog()
    untouched = [
        item.name for item in fields(Declarations) if getattr(made.registry.declarations, item.name) == _default(item)
    ]
    assert untouched == [], "a kind that `full` forgets is not held by this test"
    running.registry.swap(made.registry.declarations)
    assert running.registry.declarations is made.registry.declarations
    assert running.view(ANN).names() == made.view(ANN).names()


def test_a_kind_that_is_added_in_one_place_survives_a_reload_and_ends_with_a_reset() -> None:
    Wider = make_dataclass("Wider", [("badges", tuple, ())], bases=(Declarations,), frozen=True, kw_only=True)
    catalog, other = Catalog(), Catalog()
    other.registry.swap(Wider(badges=("new kind",)))
    catalog.registry.swap(other.registry.declarations)
    catalog.tool(name="t")(lambda: None)
    catalog.group("g")
    declared: Any = catalog.registry.declarations
    assert declared.badges == ("new kind",), "it survives the reload, and every change of another kind"
    assert replace(declared, badges=()) != declared
    catalog.reset()
    assert not getattr(catalog.registry.declarations, "badges", ())


def test_a_reset_forgets_what_is_offered_and_opens_no_door() -> None:
    catalog = full()
    before = catalog.registry.declarations
    catalog.reset()
    after = catalog.registry.declarations
    stays = {"name", "bounds", "default_limit", "identity", "secrets"}
    assert {name: getattr(after, name) for name in stays} == {name: getattr(before, name) for name in stays}
    fresh = Declarations()
    forgotten = {item.name for item in fields(fresh)} - stays
    assert {name: getattr(after, name) for name in forgotten} == {name: getattr(fresh, name) for name in forgotten}
    assert list(catalog.resources.specs) == []


def test_declarations_cannot_be_changed_in_place() -> None:
    declared = full().registry.declarations
    with pytest.raises(AttributeError):
        declared.name = "other"  # type: ignore[misc]


def _default(item: Any) -> object:
    return getattr(Declarations(), item.name)
