"""`budgets:` of a config: what it declares, and what is refused or warned about."""

import json
from pathlib import Path

import pytest

from pegboard import Budget, DefinitionError, ToolContext
from pegboard.config.config_warnings import warnings
from pegboard.config.reload import Reloader
from pegboard.limits.memory_budgets import MemoryBudgetStore
from pegboard.limits.redis_store import RedisBudgetStore
from pegboard.limits.sql_budgets import SqlBudgetStore
from pegboard.model.budget import Cost
from pegboard.server.worker_checks import budgets_in_memory
from pegboard.sources.mcp.lock_file import LockFile
from tests.config.project import Project
from tests.core.parts import kind_of

TOOLS = "tools: [{name: pay, type: internal, handler: 'python:mine:pay'}]\nprofiles: {support: {}}\n"
PAY = "def pay() -> str:\n    return 'paid'\n"


def project(tmp_path: Path, budgets: str) -> Project:
    return Project(tmp_path).write(f"{TOOLS}budgets: {budgets}\n", mine=PAY)


def test_a_budget_is_declared_with_its_place(tmp_path: Path) -> None:
    rule = "{tools: pay, profiles: support, users: [a*], each: user, per: 900, calls: 5, cost: 1.5, unit: credits}"
    catalog = project(tmp_path, f"{{rules: {{b: {rule}}}}}").catalog()
    origin = catalog.registry.declarations.budgets["b"].origin
    assert catalog.registry.declarations.budgets == {
        "b": Budget(
            name="b", per=900.0, calls=5, cost=1.5, unit="credits", tools=("pay",), profiles=("support",),
            users=("a*",), each=("user",), origin=origin,
        )
    }  # fmt: skip
    assert origin.endswith("pegboard.yaml:3")
    assert budgets_in_memory(catalog)


@pytest.mark.parametrize(
    ("budgets", "problem"),
    [
        ("{rules: {b: {per: day}}}", "it limits nothing; write `calls`, `cost` or both"),
        ("{rules: {b: {per: year, calls: 1}}}", "is not one of hour, day, week, month"),
        ("{rules: {b: {per: 0.5, calls: 1}}}", "must be at least 1, not 0.5"),
        ("{rules: {b: {per: day, calls: 1, unit: usd}}}", "`unit` belongs to `cost`, which is missing"),
        ("{rules: {b: {per: day, cost: 1, unit: calls}}}", "to limit the number of calls, use `calls`"),
        ("{rules: {b: {per: day, calls: 1, each: team}}}", "is not one of user, space, agent, key, profile, tool"),
        ("{rules: {b: {per: day, calls: 1, profiles: suport}}}", "unknown profile 'suport'. Did you mean 'support'?"),
        ("{store: 'mysql://x', rules: {b: {per: day, calls: 1}}}", "a store of the kind 'mysql' is unknown"),
        ("{store: 'redis://:x', rules: {b: {per: day, calls: 1}}}", "cannot be read"),
        ("{store: 'sqlite:no/b.db', rules: {b: {per: day, calls: 1}}}", "there is no folder"),
    ],
)  # fmt: skip
def test_a_budget_that_cannot_be_kept_is_refused_at_its_line(tmp_path: Path, budgets: str, problem: str) -> None:
    [found] = project(tmp_path, budgets).problems()
    assert problem in found.message
    assert found.where.startswith("pegboard.yaml:3")


def test_a_store_is_made_for_each_kind_of_uri(tmp_path: Path) -> None:
    stores = {
        "sqlite:./b.db": SqlBudgetStore, "postgresql://h/n": SqlBudgetStore, "redis://127.0.0.1:1": RedisBudgetStore,
        "valkey://127.0.0.1:1": RedisBudgetStore,
    }  # fmt: skip
    for uri, kind in stores.items():
        catalog = project(tmp_path, f"{{store: '{uri}', rules: {{b: {{per: day, calls: 1}}}}}}").catalog()
        assert type(catalog.executor.ports.budgets) is kind
        assert not budgets_in_memory(catalog)
    assert type(project(tmp_path, "{rules: {}}").catalog().executor.ports.budgets) is MemoryBudgetStore


def test_check_warns_of_globs_without_a_tool_and_of_agents_without_a_price(tmp_path: Path) -> None:
    first = "a: {tools: [pay, pya, agent.helper], per: day, calls: 1}"
    rules = f"{{{first}, b: {{per: day, cost: 1}}, c: {{tools: pay, per: day, cost: 1}}}}"
    files = project(tmp_path, f"{{rules: {rules}}}\nfiles: [helper.yaml]")
    model = "{provider: openai_compatible, name: own, base_url: 'http://127.0.0.1:1'}"
    files.file(
        "helper.yaml",
        "apiVersion: pegboard/v1\nkind: Agent\nmetadata: {name: helper}\n"
        f"spec: {{model: {model}, prompts: {{system: Help.}}}}\n",
    )
    catalog, config = files.load()
    told = [problem.message for problem in warnings(config, catalog)]
    assert "'pya' matches no tool at present" in told
    assert [text for text in told if "price" in text] == [
        "there is no price of openai_compatible:own, so runs of the agent 'helper' cost nothing here; budget `tokens`"
    ]
    assert not any("'agent.helper'" in text for text in told)


async def test_a_reload_takes_other_limits_and_stores_and_keeps_what_was_counted(tmp_path: Path) -> None:
    files = project(tmp_path, "{rules: {b: {per: day, calls: 1}}}")
    catalog, config = files.load()
    reloader = Reloader(files.path, {}, catalog, config=config)

    async def ends(times: int) -> list[str]:
        return [kind_of(await catalog.view(ToolContext()).call("pay")) for _ in range(times)]

    assert await ends(2) == ["ok", "budget_exceeded"]
    project(tmp_path, "{rules: {b: {per: day, calls: 2}}}")
    assert await reloader.reload()
    assert await ends(2) == ["ok", "budget_exceeded"]
    project(tmp_path, "{store: 'sqlite:./b.db', rules: {b: {per: day, calls: 2}}}")
    assert await reloader.reload()
    assert await ends(3) == ["ok", "ok", "budget_exceeded"]
    project(tmp_path, "{rules: {b: {per: day, calls: 2}}}")
    assert await reloader.reload()
    assert await ends(1) == ["budget_exceeded"], "this process still knows"


COSTS = """\
tools:
  - {name: ask, type: internal, handler: "python:tests.cli.workshop:echo", cost: {amount: 0.25, unit: credits}}
  - {name: ping, type: webhook, description: Ping., webhook: {url: "https://hooks.example.com/ping"}, cost: {amount: 2}}
  - {name: shop, type: openapi, openapi: {spec: shop.json, base_url: "https://shop.example.com"}, cost: {amount: 3}}
  - {name: files, type: mcp, mcp: {transport: stdio, command: "true"}, cost: {amount: 4}}
"""


def test_tools_of_each_kind_have_a_cost(tmp_path: Path) -> None:
    operation = {"operationId": "getItem", "summary": "Get.", "responses": {"200": {"description": "done"}}}
    document = {"openapi": "3.1.0", "info": {"title": "Shop", "version": "1"}, "paths": {"/i": {"get": operation}}}
    (tmp_path / "shop.json").write_text(json.dumps(document))
    pin = {"name": "list", "description": "List.", "inputSchema": {"type": "object"}}
    LockFile(tmp_path / "pegboard.lock").accept("files", {"list": pin})
    catalog = Project(tmp_path).write(COSTS).catalog()
    costs = {entry.spec.name: entry.spec.cost for entry in catalog.snapshot().entries}
    assert costs == {
        "ask": Cost(amount=0.25, unit="credits"), "ping": Cost(amount=2), "getItem": Cost(amount=3),
        "list": Cost(amount=4),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("cost", "problem"),
    [
        ("{amount: -1}", ":2:"),
        ("{unit: usd}", "amount"),
        ("{amount: 1, per: call}", "per"),
        ("1", "cost"),
        ("{amount: 1, unit: calls}", "unit 'calls'"),
        ("{amount: 0.0000001}", "counts as nothing"),
    ],
)
def test_a_cost_that_cannot_be_counted_is_refused_at_its_line(tmp_path: Path, cost: str, problem: str) -> None:
    text = COSTS.splitlines()[1].replace("{amount: 0.25, unit: credits}", cost)
    with pytest.raises(DefinitionError, match=problem):
        Project(tmp_path).write(f"tools:\n{text}\n").load()
