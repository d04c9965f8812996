"""Declared again: a notebook cell that is run twice, or a module that is reloaded, replaces what it declared."""

import importlib
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from pegboard import Catalog, DefinitionError, DuplicateToolError, Tool, ToolContext, ToolSpec, default_catalog
from pegboard.model.resource import ResourceSpec
from pegboard.testing import isolated_catalog
from tests.core.parts import FakeSource, foreign

ANN = ToolContext(user_id="ann")
DECLARATIONS = '''
@catalog.predicate
def is_open(ctx):
    return {number} > 0

@catalog.before("greet")
def watch(call):
    seen.append({number})

@catalog.tool(available="is_open")
def greet(name: str) -> str:
    """Greet {number}."""
    return f"{number} {{name}}"

@catalog.builder("build")
def building(ctx):
    def build() -> str:
        """Build."""
        return "{number}"
    return build

@catalog.resource("note://today")
def today() -> str:
    return "{number}"

@catalog.prompt
def review(text: str) -> str:
    return "{number}"
'''
TWICE = '''
@catalog.{decorator}
def same({parameters}) -> str:
    """Do it."""
    return "1"

@catalog.{decorator}
def same({parameters}) -> str:
    """Do it."""
    return "2"
'''


def run_cell(source: str, names: dict[str, Any], number: int = 1) -> None:
    exec(compile(source, f"<cell {number}>", "exec"), names)  # as a notebook does


def notebook(catalog: Catalog) -> dict[str, Any]:
    return {"__name__": "notebook", "catalog": catalog, "seen": []}


async def test_a_cell_that_is_run_again_replaces_all_that_it_declared() -> None:
    catalog = Catalog()
    names = notebook(catalog)
    for number in (1, 2, 3):
        run_cell(DECLARATIONS.format(number=number), names, number)
        view = catalog.view(ANN)
        assert (await view.call("greet", {"name": "ann"})).text == f"{number} ann"
        assert (await view.call("build", {})).text == f"{number}"
        assert view.names() == ["greet", "build"]
    assert names["seen"] == [1, 2, 3], "each call ran one hook"
    assert [spec.uri for spec in catalog.resources.specs if isinstance(spec, ResourceSpec)] == ["note://today"]


async def test_a_module_that_is_reloaded_replaces_its_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = tmp_path / "reloaded_tools.py"
    head = "from pegboard import Catalog\ncatalog, seen = globals().get('catalog') or Catalog(), []\n"
    file.write_text(head + DECLARATIONS.format(number=1))
    module: Any = importlib.import_module("reloaded_tools")
    try:
        file.write_text(head + "\n\n" + DECLARATIONS.format(number=22))
        importlib.reload(module)
        assert (await module.catalog.view(ANN).call("greet", {"name": "ann"})).text == "22 ann"
        # Functions that another module declares are replaced in the same way.
        elsewhere = Catalog()
        elsewhere.tool(module.greet)
        file.write_text(head + DECLARATIONS.format(number=333))
        importlib.reload(module)
        elsewhere.tool(module.greet)
        assert (await elsewhere.view(ANN).call("greet", {"name": "ann"})).text == "333 ann"
    finally:
        del sys.modules["reloaded_tools"]


@pytest.mark.parametrize(
    ("decorator", "parameters"), [("tool", ""), ("builder('same')", "ctx"), ("prompt", ""), ("predicate", "ctx")]
)
def test_two_functions_of_one_name_in_one_run_are_refused_also_when_it_is_run_again(
    decorator: str, parameters: str
) -> None:
    names = notebook(Catalog())
    for number in (1, 2):
        with pytest.raises(DefinitionError, match=r"twice|already"):
            run_cell(TWICE.format(decorator=decorator, parameters=parameters), names, number)


def test_functions_made_by_a_function_and_of_other_modules_never_replace_each_other() -> None:
    catalog = Catalog()

    def made() -> Any:
        def act() -> str:
            return "a"

        return act

    catalog.tool(made())
    with pytest.raises(DuplicateToolError):
        catalog.tool(made())
    other: dict[str, Any] = {**notebook(catalog), "__name__": "other"}
    run_cell("@catalog.tool(name='act2')\ndef act() -> str:\n    'A.'\n    return 'b'\n", notebook(catalog))
    with pytest.raises(DuplicateToolError):
        run_cell("@catalog.tool(name='act2')\ndef act() -> str:\n    'A.'\n    return 'b'\n", other)
    same = made()
    catalog.tool(name="once")(same)
    with pytest.raises(DuplicateToolError):
        catalog.tool(name="once")(same)


@pytest.fixture
def isolated() -> Generator[None]:
    with isolated_catalog():
        yield


@pytest.mark.usefixtures("isolated")
async def test_a_class_takes_the_place_of_a_tool_with_replace() -> None:
    @default_catalog.tool
    def greet() -> str:
        """Greet."""
        return "function"

    with pytest.raises(DuplicateToolError):

        class Greet(Tool):
            """Greet."""

            def perform(self) -> str:
                return "class"

    class GreetAgain(Tool, name="greet", replace=True):
        """Greet."""

        def perform(self) -> str:
            return "class"

    class Below(GreetAgain, name="greet_below"):
        """Greet."""

    assert (GreetAgain.is_replacing, Below.is_replacing) == (True, False)
    assert (await default_catalog.view(ANN).call("greet", {})).text == "class"
    other = Catalog()
    other.register(ToolSpec(name="greet", description="x"), lambda ctx, args: "spec")
    other.register(GreetAgain)
    assert (await other.view(ANN).call("greet", {})).text == "class"


async def test_default_loaders_run_as_often_as_one_likes() -> None:
    catalog, runs = Catalog(), list[int]()

    @catalog.default_loader
    def load(into: Catalog) -> None:
        runs.append(len(runs))

        @into.tool(groups="own")
        def counted() -> int:
            """Count."""
            return len(runs)

        @into.predicate
        def is_there(ctx: ToolContext) -> bool:
            return True

        @into.before("counted")
        def watch(call: Any) -> None:
            seen.append(len(runs))

        @into.resource("note://today")
        def today() -> str:
            return "water"

        into.add_source(FakeSource(name="git", listed=[foreign("git", "log")]))
        into.mirror(source=FakeSource(name="sdk", listed=[foreign("sdk", "find")]))
        into.group("own", "Ours.")
        if len(runs) == 3:
            raise RuntimeError("no")

    seen = list[int]()
    catalog.register(ToolSpec(name="kept", description="x"), lambda ctx, args: "kept")
    for _ in range(2):
        catalog.load_defaults()
    assert (await catalog.view(ANN).call("counted", {})).structured == 2
    assert (seen, sorted(catalog.view(ANN).names())) == ([2], ["counted", "git__log", "kept", "mcp__sdk__find"])
    before = catalog.snapshot()
    with pytest.raises(RuntimeError):
        catalog.load_defaults()
    assert catalog.snapshot() == before, "a loader that fails changes nothing"
    catalog.load_defaults()
    catalog.reset()
    catalog.load_defaults()
    assert (await catalog.view(ANN).call("counted", {})).structured == 5
    assert "git__log" in catalog.view(ANN).names()
