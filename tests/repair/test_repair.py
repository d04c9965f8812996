"""Repair: arguments that are slightly wrong are mended for the tools that say so; right ones are never touched."""

import time
from collections import Counter
from typing import Any

import jsonschema_rs
import pytest

from pegboard import Catalog, Field, Tool, ToolContext, ToolResult, ToolSpec, Verdict
from pegboard.core.view import View
from tests.providers.instances import Writer
from tests.providers.shapes import SHAPES
from tests.repair.mangling import BASES, SCHEMA, TEXT, mangled
from tests.timing import CPU, is_within

ALIASES = {"account": "user_id"}


class Seen:
    """A handler that keeps what it was given."""

    def __init__(self) -> None:
        self.args: list[Any] = []

    def __call__(self, ctx: object, args: Any) -> str:
        self.args.append(args)
        return "done"


def catalog_of(schema: Any = SCHEMA, *, repair: bool = True, **options: Any) -> tuple[Catalog, Seen]:
    seen, catalog = Seen(), Catalog()
    catalog.register(ToolSpec(name="t", input_schema=schema, repair=repair, **options), handler=seen, runs="inline")
    return catalog, seen


def tool(schema: Any = SCHEMA, **options: Any) -> tuple[View, Seen]:
    catalog, seen = catalog_of(schema, **options)
    return catalog.view(ToolContext()), seen


def kind_of(result: ToolResult) -> str | None:
    return None if result.error is None else result.error.kind


def repairs(result: ToolResult) -> list[tuple[str, str]]:
    told: Any = result.meta.get("repaired", [])
    return [(item["path"], item["repair"]) for item in told]


# ---------------------------------------------------------------- what is mended


async def test_more_than_300_mangled_arguments_are_mended_to_what_was_meant():
    catalog, seen = catalog_of(aliases=ALIASES)
    wrong, cases = [], mangled()
    for case in cases:
        result = await catalog.view(ToolContext()).call("t", case.args)
        if result.is_error or seen.args[-1] != case.meant or not result.meta.get("repaired"):
            wrong.append((case.how, case.args, result.text))
    assert (wrong[:3], len(cases) > 300) == ([], True)
    assert min(Counter(case.how for case in cases).values()) >= 3


async def test_without_repair_every_one_of_them_is_refused():
    catalog, seen = catalog_of(repair=False, aliases=ALIASES)
    # Each for a user of their own: who makes too many invalid calls is not listened to.
    users = ((ToolContext(user_id=str(number)), case.args) for number, case in enumerate(mangled()))
    kinds = {kind_of(await catalog.view(user).call("t", args)) for user, args in users}
    assert (kinds, seen.args) == ({"invalid_arguments"}, [])


async def test_what_was_done_stands_in_the_meta():
    view, seen = tool(aliases=ALIASES)
    args = {
        "userId": "7",
        "tags": "a",
        "place": '{"city": "Ulm", "zip_code": "89073"}',
        "status": "OPEN",
        "ratio": None,
    }
    result = await view.call("t", args)
    assert seen.args == [{"user_id": 7, "tags": ["a"], "place": {"city": "Ulm", "zip_code": 89073}, "status": "open"}]
    assert sorted(repairs(result)) == [
        ("$.place", "json_in_text"),
        ("$.place.zip_code", "number_in_text"),
        ("$.ratio", "null_for_absent"),
        ("$.status", "letter_case"),
        ("$.tags", "single_value"),
        ("$.user_id", "key_name"),
        ("$.user_id", "number_in_text"),
    ]


async def test_a_class_and_a_function_may_ask_for_it_and_defaults_are_still_filled_in():
    catalog = Catalog()

    @catalog.tool(repair=True)
    def add(one: int, two: int = 2) -> int:
        return one + two

    class Send(Tool, register=False, repair=True):
        """Send."""

        to: list[str] = Field(aliases=("recipients",))

        def perform(self) -> str:
            return ",".join(self.to)

    catalog.register(Send)
    view = catalog.view(ToolContext())
    assert (await view.call("add", {"one": "1"})).text == "3"
    assert (await view.call("send", {"recipients": "ann"})).text == "ann"


async def test_hooks_and_consent_see_what_will_run():
    shown: list[Any] = []
    catalog = Catalog()
    catalog.register(ToolSpec(name="t", input_schema=SCHEMA, repair=True, consent="always"), handler=Seen())

    @catalog.before("t")
    def look(call: Any) -> Verdict | None:
        shown.append(call.args)
        return None

    view = catalog.view(ToolContext(approve=lambda request: bool(shown.append(request.arguments)) or True))
    assert not (await view.call("t", {"user_id": "7", "tags": "a"})).is_error
    # The hook, the person, and the hook once more: after a yes the call is judged anew.
    assert shown == [{"user_id": 7, "tags": ["a"]}] * 3


# ---------------------------------------------------------------- what is not


@pytest.mark.parametrize(
    "args",
    [
        {"user_id": True, "tags": ["a"]},
        {"user_id": 1.5, "tags": ["a"]},
        {"user_id": "seven", "tags": ["a"]},
        {"user_id": "007", "tags": ["a"]},
        {"user_id": "1,000", "tags": ["a"]},
        {"user_id": [7], "tags": ["a"]},
        {"user_id": 7, "tags": [5]},
        {"user_id": 7, "tags": '["a"'},
        {"user_id": 7, "tags": None},
        {"user_id": None, "tags": ["a"]},
        {"user_id": 7},
        {"user_id": 7, "tags": ["a"], "is_open": 1},
        {"user_id": 7, "tags": ["a"], "is_open": "yes"},
        {"user_id": 7, "tags": ["a"], "status": "done"},
        {"user_id": 7, "tags": ["a"], "level": "4"},
        {"user_id": 7, "tags": ["a"], "ration": 1, "ratio": 2},
        {"user_id": 7, "tags": ["a"], "unknown": None},
        {"user_id": 7, "userId": 8, "tags": ["a"]},
        {"user_id": 7, "account": 8, "tags": ["a"]},
        {"user_id": 7, "tags": ["a"], "place": {"zip_code": "1"}},
        "not JSON",
        b"[1, 2]",
        [{"user_id": 7, "tags": ["a"]}],
        7,
    ],
)  # fmt: skip
async def test_what_could_mean_several_things_or_nothing_is_refused(args: Any) -> None:
    view, seen = tool(aliases=ALIASES)
    plain, _ = tool(aliases=ALIASES, repair=False)
    result, refused = await view.call("t", args), await plain.call("t", args)
    assert (kind_of(result), result.text, seen.args) == ("invalid_arguments", refused.text, [])


async def test_words_that_are_only_alike_are_not_taken_for_each_other():
    schema = {"type": "object", "properties": dict.fromkeys(("altitude", "encrypt_it", "user_1", "tag"), TEXT)}
    view, seen = tool(schema)
    for key in ("latitude", "decrypt_it", "user_2", "tax", "ta", "altitudess"):
        assert kind_of(await view.call("t", {key: "x"})) == "invalid_arguments"
    assert repairs(await view.call("t", {"Altitude": "x"})) == [("$.altitude", "key_name")]
    assert repairs(await view.call("t", {"altitdue": "x"})) == [("$.altitude", "key_name")]
    assert len(seen.args) == 2


async def test_text_stays_text_where_text_is_wanted():
    schema = {
        "type": "object",
        "properties": {"a": TEXT, "b": {"type": ["string", "integer"]}, "n": {"type": "integer"}},
    }
    view, seen = tool(schema)
    for args in ({"a": "5", "b": "5"}, {"a": '{"x": 1}', "b": "true"}, {"a": "```json\n[]\n```"}):
        assert repairs(await view.call("t", args)) == []
        assert seen.args[-1] == args
    await view.call("t", {"a": "5", "b": "6", "n": "7"})
    assert seen.args[-1] == {"a": "5", "b": "6", "n": 7}


@pytest.mark.parametrize("blank", [" ", "\n", "\t", " \n", "`", "`` "])
async def test_a_fence_that_is_never_closed_holds_nobody(blank: str) -> None:
    view, seen = tool({"type": "object", "properties": {"n": {"type": "integer"}}})
    began = CPU()
    result = await view.call("t", {"n": "```" + blank * 2_000 + "x"})
    assert is_within(CPU() - began, 0.05, CPU)
    assert (kind_of(result), seen.args) == ("invalid_arguments", [])


@pytest.mark.parametrize("shape", [name for name in SHAPES if name != "anything"])
async def test_right_arguments_are_never_changed(shape: str) -> None:
    own = SHAPES[shape]
    mending, seen = tool(own)
    strict, same = tool(own, repair=False)
    for seed in range(40):
        args = Writer(own, seed).value(own)
        if not jsonschema_rs.is_valid(own, args):
            continue
        one, other = await mending.call("t", args), await strict.call("t", args)
        if not other.is_error:
            assert (one.meta, seen.args[-1]) == (other.meta, same.args[-1])


async def test_what_is_mended_is_right_and_all_else_is_refused_as_before():
    """Values that fit one shape are given to another: whatever runs fits the schema."""
    ran = 0
    shapes = [name for name in SHAPES if "$ref" not in SHAPES[name]]
    for number, name in enumerate(shapes):
        own, other = SHAPES[name], SHAPES[shapes[number - 7]]
        view, seen = tool(own)
        for seed in range(12):
            await view.call("t", Writer(other, seed).value(other))
        ran += len(seen.args)
        assert all(jsonschema_rs.is_valid(own, args) for args in seen.args)
    assert ran > 50


# ---------------------------------------------------------------- bounds


async def test_large_or_hopeless_arguments_cost_little():
    view, seen = tool()
    many = {"user_id": 7, "tags": ["a"], "numbers": [str(number) for number in range(90)]}
    large = {"user_id": "7", "tags": ["x" * 70_000]}
    deep: Any = "x"
    for _ in range(200):
        deep = [deep]
    hopeless = {"user_id": 7, "tags": ["a"], "numbers": [f"x{number}" for number in range(5_000)]}
    started = time.process_time()
    kinds = [kind_of(await view.call("t", args)) for args in (large, {"user_id": deep}, hopeless)]
    assert kinds == ["invalid_arguments"] * 3
    assert is_within(time.process_time() - started, 1.0, CPU)
    assert not (await view.call("t", many)).is_error
    assert seen.args == [{**many, "numbers": list(range(90))}]


async def test_a_mended_call_is_no_invalid_call_for_the_guard_against_floods():
    catalog, seen = catalog_of()

    async def call(args: Any) -> str | None:
        return kind_of(await catalog.view(ToolContext(user_id="ann")).call("t", args))

    for _ in range(320):
        await call({"user_id": "7", "tags": ["a"]})
    assert len(seen.args) == 320
    for _ in range(300):
        await call({"user_id": "seven", "tags": ["a"]})
    assert await call(BASES[0]) == "rate_limited"
