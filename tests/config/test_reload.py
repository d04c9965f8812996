"""Reload: a good change is swapped in as a whole, a bad one changes nothing; the callers notice neither."""

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from mcp import Client

from pegboard import Catalog, DefinitionError, ToolContext, http_app
from pegboard.config.reload import Reloader
from pegboard.limits.memory import MemoryLimitStore
from pegboard.model.error import Problem
from tests.config.project import Project
from tests.core.parts import ANN, FakeSource, kind_of
from tests.server.doors import served
from tests.sizes import examples

RELOADS = examples(300, few=30)
MODULE = """
import asyncio
GATE = asyncio.Event()

async def stable() -> int:
    await asyncio.sleep(0)
    return {n}

async def held() -> int:
    await GATE.wait()
    return {n}
"""


def text_of(n: int) -> str:
    names = ["stable", "held", *(f"t{i}_{n}" for i in range(5))]
    tools = [
        f'  - {{name: {name}, type: internal, handler: "python:mine:{name if "_" not in name else "stable"}"}}'
        for name in names
    ]
    return "\n".join([f"settings: {{generation: {n}}}", "tools:", *tools, ""])


def write(project: Project, n: int) -> None:
    project.write(text_of(n), mine=MODULE.format(n=n))


class Ticks:
    """A sleep that ends when the test says so."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self, _: float) -> None:
        self.asked.set()
        await self.go.wait()
        self.go.clear()

    async def tick(self) -> None:
        self.asked.clear()
        self.go.set()
        await asyncio.wait_for(self.asked.wait(), 60)


def reloader_of(project: Project, **options: Any) -> tuple[Catalog, Reloader]:
    catalog, config = project.load()
    return catalog, Reloader(project.path, project.env, catalog, config=config, **options)


def numbered(catalog: Catalog) -> set[str]:
    return {name.rpartition("_")[2] for name in catalog.view(ANN).names() if "_" in name}


@pytest.mark.slow
async def test_reloads_under_50_clients_lose_no_call_and_mix_no_list(project: Project) -> None:
    write(project, 0)
    catalog, reloader = reloader_of(project)
    done, kinds, generations = asyncio.Event(), set[str](), set[str]()
    calls = 0

    async def client() -> None:
        nonlocal calls
        while not done.is_set():
            view = catalog.view(ANN)
            names = [name for name in view.names() if "_" in name]
            assert len(names) == 5
            assert len({name.rpartition("_")[2] for name in names}) == 1, names
            results = [await view.call(names[0]), await catalog.view(ANN).call("stable")]
            kinds.update(map(kind_of, results))
            generations.update(name.rpartition("_")[2] for name in names)
            calls += 2
            await asyncio.sleep(0.02)

    clients = [asyncio.create_task(client()) for _ in range(50)]
    for n in range(1, RELOADS + 1):
        write(project, n)
        assert await reloader.reload()
        async with asyncio.timeout(60):
            while str(n) not in generations:
                await asyncio.sleep(0.002)
    done.set()
    await asyncio.gather(*clients)
    assert kinds == {"ok"}
    assert generations >= {str(n) for n in range(1, RELOADS + 1)}
    assert calls > 10 * RELOADS


async def test_a_call_in_flight_ends_on_the_handler_it_began_with(project: Project) -> None:
    write(project, 1)
    catalog, reloader = reloader_of(project)
    old = catalog.snapshot().find("held")
    assert old is not None
    running = asyncio.create_task(catalog.view(ANN).call("held"))
    await asyncio.sleep(0)
    write(project, 2)
    assert await reloader.reload()
    assert (await catalog.view(ANN).call("stable")).structured == 2
    await asyncio.sleep(0)
    assert not running.done()
    gate(old).set()
    assert (await running).structured == 1


def gate(entry: Any) -> asyncio.Event:
    """Return the event of the module that a handler came from, which is no longer in sys.modules."""
    seen, stack = set[int](), [entry.handler]
    while stack:
        item = stack.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if "GATE" in getattr(item, "__globals__", {}):
            return item.__globals__["GATE"]
        stack += [cell.cell_contents for cell in getattr(item, "__closure__", None) or ()]
        stack += [getattr(item, name) for name in ("__func__", "__wrapped__", "func") if hasattr(item, name)]
        stack += list(vars(item).values()) if hasattr(item, "__dict__") else []
    raise LookupError("GATE")


# From Python 3.14 on, a path that is too long does not exist, which the section says that names it.
UNSEEN = "pegboard.yaml: it names '/" if sys.version_info < (3, 14) else "pegboard.yaml:1:"
BAD = {
    "truncated": ("tools:\n  - {name: stable, type: inter", "pegboard.yaml:2:"),
    "unknown type": ("tools:\n  - {name: a, type: nonsense}\n", 'pegboard.yaml:2:21: tools[0].type: "nonsense" is not'),
    "duplicate": (
        'tools:\n  - {name: a, type: internal, handler: "python:mine:stable"}\n'
        '  - {name: a, type: internal, handler: "python:mine:stable"}\n',
        "pegboard.yaml:3:12: tools[1].name: the tool 'a' is declared twice",
    ),
    "deleted": (None, "pegboard.yaml: does not exist"),
    "empty": ("", "pegboard.yaml:1:1: the file is empty"),
    # A name that is too long stands for all that the system does not let be looked at, such as somebody's folder.
    "unseen file": (
        f"identity: {{api_keys: {{store: 'sqlite:{'x' * 300}'}}, map: [{{when: {{key: a}}, profiles: [b]}}]}}\n",
        UNSEEN,
    ),
    "unseen folder": (
        f"tools: [{{name: read_file, type: builtin, config: {{roots: ['{'x' * 300}']}}}}]\n",
        UNSEEN,
    ),
}


@pytest.mark.parametrize("how", BAD)
async def test_a_bad_file_keeps_the_old_config_and_says_where_the_fault_is(project: Project, how: str) -> None:
    text, said = BAD[how]
    write(project, 1)
    ticks, refused, taken = Ticks(), list[Sequence[Problem]](), list[Any]()
    catalog, reloader = reloader_of(project, sleep=ticks, on_refused=refused.append, on_reload=taken.append)
    before, told = catalog.snapshot(), list[int]()
    catalog.subscribe(lambda: told.append(1))
    watching = asyncio.create_task(reloader.run())
    await ticks.tick()
    if text is None:
        project.path.unlink()
    else:
        project.path.write_text(text)
    for _ in range(4):
        await ticks.tick()
    assert len(refused) == 1, "it is said once, not at every look"
    assert str(reloader.problems[0]).removeprefix(f"{project.folder}/").startswith(said)
    assert catalog.snapshot() is before
    assert kind_of(await catalog.view(ANN).call("stable")) == "ok"
    assert (told, taken) == ([], [])
    write(project, 2)
    for _ in range(3):
        await ticks.tick()
    assert numbered(catalog) == {"2"}
    assert reloader.problems == ()
    assert (len(told), len(taken), reloader.config.settings) == (1, 1, {"generation": 2})
    watching.cancel()


async def test_what_is_still_being_written_is_not_loaded(project: Project) -> None:
    write(project, 1)
    ticks, refused = Ticks(), list[Any]()
    catalog, reloader = reloader_of(project, sleep=ticks, on_refused=refused.append)
    watching = asyncio.create_task(reloader.run())
    text = text_of(2)
    for part in range(4):
        project.path.write_text(text[: part * 10])
        await ticks.tick()
    project.path.write_text(text)
    for _ in range(3):
        await ticks.tick()
    assert (refused, numbered(catalog)) == ([], {"2"})
    watching.cancel()


@pytest.mark.parametrize("change", ["module", "fragment", "new fragment", "missing module"])
async def test_every_file_that_matters_is_watched(project: Project, change: str) -> None:
    project.file("more/a.yaml", "settings: {a: 1}\n").file("mine.py", "from pegboard import tool\n")
    project.write("files: ['more/*.yaml']\npython: [mine]\n", mine=registering("one"))
    ticks = Ticks()
    catalog, reloader = reloader_of(project, sleep=ticks)
    watching = asyncio.create_task(reloader.run())
    await ticks.tick()
    match change:
        case "module":
            project.file("mine.py", registering("two"))
        case "fragment":
            project.file("more/a.yaml", "settings: {a: 2}\n")
        case "new fragment":
            project.file("more/b.yaml", "settings: {b: 2}\n")
        case _:
            project.write("python: [mine, other]\n")
            for _ in range(3):
                await ticks.tick()
            assert "other" in str(reloader.problems)
            project.file("other.py", registering("two"))
    for _ in range(3):
        await ticks.tick()
    names = ["one", "two"] if change == "missing module" else ["two"] if change == "module" else ["one"]
    settings = {"fragment": {"a": 2}, "new fragment": {"a": 1, "b": 2}, "missing module": {}}.get(change, {"a": 1})
    assert (catalog.view(ANN).names(), reloader.config.settings) == (names, settings)
    watching.cancel()


def registering(name: str) -> str:
    return f"from pegboard import default_catalog\n\n@default_catalog.tool\ndef {name}() -> str:\n    return ''\n"


async def test_clients_hear_of_a_reload_and_of_no_refusal(project: Project) -> None:
    write(project, 1)
    catalog, reloader = reloader_of(project)
    async with served(http_app(catalog)) as url, Client(f"{url}/mcp", mode="2026-07-28") as client:
        async with client.listen(tools_list_changed=True) as events:
            project.path.write_text("")
            assert not await reloader.reload()
            write(project, 2)
            assert await reloader.reload()
            event = await asyncio.wait_for(anext(aiter(events)), 60)
            listed = {tool.name for tool in (await client.list_tools()).tools}
    assert type(event).__name__ == "ToolsListChanged"
    assert "t0_2" in listed
    assert "t0_1" not in listed


async def test_limits_bounds_profiles_and_secrets_are_of_the_new_config(project: Project) -> None:
    project.env = {"KEY": "first-key-value", "NEW": "other-key-value"}
    project.write("settings: {k: '${KEY}'}\n", mine=MODULE.format(n=1))
    catalog, reloader = reloader_of(project)
    counted = catalog.executor.ports.limits
    project.write(
        "name: shop\nsettings: {k: '${NEW}'}\nlimits: {hook_s: 0.5}\nrate_limits: {default: 3/60s}\n"
        "profiles: {chat: {include: core}}\n"
    )
    assert await reloader.reload()
    assert catalog.name == "shop"
    assert catalog.registry.bounds.hook_s == 0.5
    assert catalog.registry.declarations.default_limit is not None
    assert catalog.executor.ports.limits is counted, "what has been counted stays"
    assert "chat" in catalog.registry.profiles
    assert {secret.reveal() for secret in catalog.secrets} == {"first-key-value", "other-key-value"}


async def test_what_holds_floods_back_is_of_the_new_config_and_forgets_no_flooder(project: Project) -> None:
    write(project, 1)
    catalog, reloader = reloader_of(project)

    async def kinds(times: int) -> list[str]:
        return [kind_of(await catalog.view(ANN).call("stable", {"no": 1})) for _ in range(times)]

    assert await kinds(3) == ["invalid_arguments"] * 3
    project.write(text_of(2) + "limits: {invalid_calls_per_minute: 4, ratelimit_keys: 7}\n", mine=MODULE.format(n=2))
    assert await reloader.reload()
    assert await kinds(3) == ["invalid_arguments", "rate_limited", "rate_limited"], "three of the four were made before"
    assert isinstance(catalog.executor.ports.limits, MemoryLimitStore)
    assert catalog.executor.ports.limits.max_keys == catalog.executor.ports.local_limits.max_keys == 7


async def test_a_store_elsewhere_is_kept_and_only_its_stand_in_bounded_anew(project: Project) -> None:
    store = "rate_limits: {store: 'redis://127.0.0.1:1/0'}\n"
    project.write(text_of(1) + store, mine=MODULE.format(n=1))
    catalog, reloader = reloader_of(project)
    counted = catalog.executor.ports.limits
    project.write(text_of(2) + store + "limits: {ratelimit_keys: 7}\n", mine=MODULE.format(n=2))
    assert await reloader.reload()
    assert catalog.executor.ports.limits is counted
    assert catalog.executor.ports.local_limits.max_keys == 7


async def test_another_bus_takes_effect_at_the_next_start_and_that_is_logged(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    bus = "server: {keys: [a-key-of-thirty-two-characters-00], bus: 'redis://127.0.0.1:1/0'}\n"
    project.write(text_of(1) + bus, mine=MODULE.format(n=1))
    _, reloader = reloader_of(project)
    served = reloader.config.server
    project.write(text_of(2) + bus.replace("127.0.0.1:1", "127.0.0.1:2"), mine=MODULE.format(n=2))
    assert await reloader.reload()
    assert "server has changed; it takes effect at the next start." in caplog.text
    assert reloader.config.server is served


async def test_a_change_that_the_host_refuses_is_refused(project: Project) -> None:
    def no_profile(made: Catalog) -> None:
        raise DefinitionError("Unknown profile 'chat'.")

    write(project, 1)
    catalog, reloader = reloader_of(project, check=no_profile)
    write(project, 2)
    assert not await reloader.reload()
    assert numbered(catalog) == {"1"}
    assert str(reloader.problems[0]) == "Unknown profile 'chat'."


async def test_sources_of_before_are_stopped_when_their_calls_have_ended(project: Project) -> None:
    write(project, 1)
    catalog, reloader = reloader_of(project, interval_s=0.01)
    source = FakeSource(name="far")
    catalog.add_source(source)
    await catalog.start()
    running = asyncio.create_task(catalog.view(ToolContext(user_id="ann")).call("held"))
    await asyncio.sleep(0)
    held = catalog.snapshot().find("held")
    write(project, 2)
    assert await reloader.reload()
    await asyncio.sleep(0.05)
    assert source.started == 1
    gate(held).set()
    await running
    async with asyncio.timeout(60):
        while source.started:
            await asyncio.sleep(0.01)
    await catalog.close()


async def test_a_load_that_fails_as_no_load_should_is_refused_too(project: Project) -> None:
    write(project, 1)
    catalog, reloader = reloader_of(project, check=lambda made: 1 / 0)
    os.utime(project.path)
    assert not await reloader.reload()
    assert "ZeroDivisionError" in str(reloader.problems[0])
    assert numbered(catalog) == {"1"}


def cache_config(scope: str = "space", *, entries: int = 9, more: str = "") -> str:
    config = f"{{scope: {scope}, max_entries: {entries}}}"
    return f"tools:\n  - {{name: cache_store, type: builtin, as: notes, config: {config}}}\n{more}"


async def test_values_of_a_cache_outlive_a_reload_but_not_another_scope(project: Project) -> None:
    catalog, reloader = reloader_of(project.write(cache_config()))

    async def call(**args: object) -> Any:
        return (await catalog.view(ANN).call("notes", args)).unwrap()

    for key in ("a", "b", "c"):
        await call(action="set", key=key, value=key)
    project.write("tools: nothing")
    assert not await reloader.reload()
    assert (await call(action="get", key="a"))["value"] == "a"
    project.write(cache_config(entries=2, more="  - {name: datetime_now, type: builtin}\n"))
    assert await reloader.reload()
    assert (await call(action="get", key="b"))["value"] == "b"
    # The new limit holds from the next value on: the two that were used last are left.
    await call(action="set", key="d", value="d")
    assert [key for key in "abcd" if (await call(action="get", key=key))["found"]] == ["b", "d"]
    # With people apart, nobody gets what the space had shared.
    project.write(cache_config("user"))
    assert await reloader.reload()
    assert (await call(action="get", key="b"))["found"] is False
