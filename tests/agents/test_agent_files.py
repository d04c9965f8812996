"""The file of an agent: what it declares, what is refused, and that its tools are its own."""

from __future__ import annotations

from pathlib import Path

from pegboard import ToolContext
from tests.agents.files import agent_file, faults, load
from tests.core.parts import kind_of


def ask(name: str, target: str, extra: str = "") -> str:
    return f"- {{name: {name}, type: agent, agent: {target}{extra}}}\n"


def asking(*targets: str) -> str:
    return "tools:\n" + "".join(f"  {ask(f'ask-{target}', target)}" for target in targets)


async def test_two_agents_have_a_tool_of_one_name_each_with_its_own_config(tmp_path: Path) -> None:
    (tmp_path / "acme.py").write_text("def one() -> str:\n    return 'one'\n\ndef two() -> str:\n    return 'two'\n")
    spec = "tools:\n  - {{name: lookup, type: internal, handler: 'python:acme:{0}'}}\n  - {{group: core}}\n"
    catalog = load(
        tmp_path,
        {
            "pegboard.yaml": "files: [agents/*.yaml]\n"
            "tools: [{name: lookup, type: internal, handler: 'python:acme:one', description: shared}]\n",
            "agents/a.yaml": agent_file("a", spec.format("one")),
            "agents/b.yaml": agent_file("b", spec.format("two")),
        },
    )
    assert catalog.agents.names() == ["a", "b"]
    for name, value in (("a", "one"), ("b", "two")):
        view = catalog.agents.view(name)
        assert view.names() == ["lookup", "main__lookup"]
        assert (await view.call("lookup")).unwrap() == value
        assert (await view.call("main.lookup")).unwrap() == "one"
    everything = catalog.view(ToolContext(), internal=["a.lookup", "a__lookup", "lookup"])
    assert everything.names() == ["lookup"]
    assert everything["lookup"].spec.description == "shared"
    assert kind_of(await everything.call("a__lookup")) == "not_found"
    await catalog.close()


def test_agents_that_run_each_other_in_a_circle_are_refused_with_the_shortest_way(tmp_path: Path) -> None:
    assert faults(tmp_path / "1", {"agents/a.yaml": agent_file("a", asking("a"))}) == [
        "agents/a.yaml:7: spec.tools[0].agent: agents run each other in a circle: a → a: a by 'ask-a' "
        f"({tmp_path}/1/agents/a.yaml:7). Take one of these tools away"
    ]
    told = faults(
        tmp_path / "2",
        {
            "agents/z.yaml": agent_file("z", asking("a")),
            "agents/a.yaml": agent_file("a", asking("b")),
            "agents/b.yaml": agent_file("b", asking("a")),
        },
    )
    assert len(told) == 1
    assert "a → b → a: a by 'ask-b'" in told[0]
    assert "agents/b.yaml:7" in told[0]


def test_a_diamond_loads(tmp_path: Path) -> None:
    files = {
        "agents/top.yaml": agent_file("top", asking("left", "right")),
        "agents/left.yaml": agent_file("left", asking("bottom")),
        "agents/right.yaml": agent_file("right", asking("bottom")),
        "agents/bottom.yaml": agent_file("bottom", ""),
    }
    assert faults(tmp_path, files) == []


def test_an_unknown_agent_is_refused_with_the_one_that_was_meant(tmp_path: Path) -> None:
    files = {"agents/a.yaml": agent_file("a", asking("reseacher")), "agents/b.yaml": agent_file("researcher", "")}
    assert faults(tmp_path, files) == [
        "agents/a.yaml:7: spec.tools[0].agent: there is no agent 'reseacher'. Did you mean 'researcher'?"
    ]
