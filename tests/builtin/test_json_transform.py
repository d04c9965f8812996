"""json_transform: expressions. Templates are in tests/security/test_template.py."""

import asyncio
import time
from typing import Any

import pytest

from pegboard.sources.builtin.builtins import BUILTINS
from tests.builtin.parts import shelf
from tests.timing import is_within

PEOPLE = {"people": [{"name": "Ann", "age": 31}, {"name": "Bob", "age": 17}]}


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("people[?age > `30`].name", ["Ann"]),
        ("people[*].{n: name, a: age} | sort_by(@, &a)", [{"n": "Bob", "a": 17}, {"n": "Ann", "a": 31}]),
        ("length(people)", 2),
        ("sum(people[].age)", 48),
        ("nobody", None),
        ("join(', ', people[].name)", "Ann, Bob"),
    ],
)
async def test_an_expression_selects_and_reshapes(expression: str, found: Any) -> None:
    assert await shelf("json_transform").value("json_transform", {"data": PEOPLE, "expression": expression}) == {
        "result": found
    }


@pytest.mark.parametrize("expression", ["people[", "nosuch(@)", "length(`1`)", "[" * 5000, "sort(people)"])
async def test_a_faulty_expression_is_a_definite_error(expression: str) -> None:
    error = await shelf("json_transform").error("json_transform", {"data": PEOPLE, "expression": expression})
    assert error.kind == "invalid_arguments"
    assert len(error.message) < 700


def test_the_default_limit_is_the_documented_one_of_a_second() -> None:
    assert BUILTINS["json_transform"].configured({}).timeout_seconds == 1.0


DOUBLE = " | ".join(["[@, @]"] * 40)


@pytest.mark.parametrize(
    "expression",
    [
        DOUBLE,
        f"{DOUBLE} | to_string(@)",
        f"({DOUBLE}) == ({DOUBLE})",
        " | ".join(["join('', [@, @])"] * 40),
        f"[{'@,' * 3000}@] | [{'@,' * 100}@]",
        " | ".join(["{a: @, b: @}"] * 40),
    ],
)
async def test_an_expression_that_grows_without_end_is_stopped_soon(expression: str) -> None:
    tools = shelf("json_transform", {"timeout_seconds": 1})
    started = time.monotonic()
    error = await tools.error("json_transform", {"data": "text", "expression": expression})
    assert error.kind in ("result_too_large", "timeout")
    assert is_within(time.monotonic() - started, 2)


async def test_a_long_expression_ends_at_its_time_and_holds_up_nobody() -> None:
    tools = shelf("json_transform", {"timeout_seconds": 0.3, "max_output_bytes": 50_000_000})
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    args = {"data": list(range(3000)), "expression": "map(&length(to_string(@)), @[*].[@] | [?contains(@, `1`)][])"}
    nested = {
        "data": [[0] * 300] * 300,
        "expression": "[*].[?@ == `1` || contains(to_string(@), '1')] | [*].[?@ > `2`]",
    }
    slow = {"data": list(range(2000)), "expression": "[?length(map(&(@), @ && [@])) > `0`] | " * 200 + "@"}
    results = [await tools.call("json_transform", each) for each in (args, nested, slow)]
    # A machine that stops this process for the whole of a limit leaves no time for ticks.
    while ticks <= 3 and len(results) < 20:
        results.append(await tools.call("json_transform", slow))
    ticking.cancel()
    assert results[-1].error is not None
    assert results[-1].error.kind == "timeout"
    assert ticks > 3


async def test_long_expressions_leave_the_threads_in_which_keys_are_read_alone() -> None:
    tools = shelf("json_transform", {"timeout_seconds": 3, "max_output_bytes": 50_000_000})
    slow = {"data": list(range(2000)), "expression": "[?length(map(&(@), @ && [@])) > `0`] | " * 200 + "@"}
    running = [asyncio.create_task(tools.call("json_transform", slow)) for _ in range(40)]
    # The first turn of each ends where its thread begins.
    await asyncio.sleep(0)
    assert await asyncio.to_thread(lambda: "read") == "read"
    assert sum(task.done() for task in running) < 20
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_templates_are_off_unless_the_config_allows_them() -> None:
    tools = shelf("json_transform")
    error = await tools.error("json_transform", {"data": 1, "expression": "{{ data }}", "language": "template"})
    assert error.kind == "invalid_arguments"


@pytest.mark.parametrize(
    ("template", "result"),
    [
        ('{"n": {{ data|length }}}', {"n": 2}),
        ("\n [{{ data|join(', ') }}] ", [1, 2]),
        ("{{ data|tojson }}", [1, 2]),
        ("{{ data[0] }}", "1"),
        ('"quoted"', '"quoted"'),
        ("{not json}", "{not json}"),
        ("[1, NaN]", "[1, NaN]"),
        ("", ""),
    ],
)
async def test_an_object_or_list_that_a_template_writes_arrives_as_json(template: str, result: object) -> None:
    tools = shelf("json_transform", {"template": True, "timeout_seconds": 10})
    arguments = {"data": [1, 2], "expression": template or "{# nothing #}", "language": "template"}
    answer = await tools.call("json_transform", arguments)
    assert answer.structured == {"result": result}
