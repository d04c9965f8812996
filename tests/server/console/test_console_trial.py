"""Trying a tool: a form for any schema, a call through the one door, and what came of it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegboard import CallContext, Catalog, Profile, ToolSpec
from pegboard.model.result import ImageContent, ResourceLink, TextContent, ToolResult
from pegboard.server.console.schema_form import Field, FormError, arguments_of, fields_of
from tests.server.console.browsing import Browser, console, text_of
from tests.server.console.test_console_login import Office
from tests.sizes import examples

SCHEMA: dict[str, Any] = {
    "type": "object",
    "$defs": {"Address": {"type": "object", "properties": {"street": {"type": "string"}, "no": {"type": "integer"}},
                          "required": ["street"]}},
    "properties": {
        "name": {"type": "string", "description": "Who"}, "note": {"type": "string"},
        "count": {"type": "integer", "default": 3}, "price": {"type": "number"}, "fast": {"type": "boolean"},
        "state": {"enum": ["open", "paid", 7, None]}, "tags": {"type": "array", "items": {"type": "string"}},
        "to": {"$ref": "#/$defs/Address"}, "from": {"anyOf": [{"$ref": "#/$defs/Address"}, {"type": "null"}]},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "rows": {"type": "array", "items": {"type": "object"}},
    },
    "required": ["name", "to"],
}  # fmt: skip


class Form(HTMLParser):
    """The fields of a form as a browser would send them unchanged."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.sent: dict[str, str] = {}
        self._in, self._is_text = "", False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {key: value or "" for key, value in attrs}
        if tag in ("input", "select", "textarea") and "name" in named:
            self._in, self._is_text = named["name"], tag == "textarea"
            self.sent[self._in] = named.get("value", "")
        elif tag == "option" and "selected" in named:
            self.sent[self._in] = named["value"]

    def handle_data(self, data: str) -> None:
        if self._is_text:
            self.sent[self._in] += data

    def handle_endtag(self, tag: str) -> None:
        self._is_text = False


def kinds(fields: list[Field]) -> dict[str, str]:
    return {field.label: field.kind for field in fields}


def test_each_part_of_a_schema_gets_the_field_that_fits_it() -> None:
    assert kinds(fields_of(SCHEMA, {})) == {
        "name": "text", "note": "text", "count": "integer", "price": "number", "fast": "boolean", "state": "choice",
        "tags": "lines", "to": "group", "from": "group", "either": "json", "rows": "json",
    }  # fmt: skip


def test_definitions_that_lead_nowhere_and_deep_objects_are_json() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(5):
        deep = {"type": "object", "properties": {"in": deep}}
    schema = {"properties": {"loop": {"$ref": "#/properties/loop"}, "gone": {"$ref": "#/$defs/none"}, "deep": deep,
                             "far": {"$ref": "https://x.example/a"}, "odd": True}}  # fmt: skip
    fields = fields_of(schema, {"deep": {"in": {"in": {"in": {"in": {"in": "x"}}}}}})
    assert kinds(fields) == {"loop": "json", "gone": "json", "deep": "group", "far": "json", "odd": "json"}
    deepest = fields[2].fields[0].fields[0].fields[0]
    assert (deepest.kind, json.loads(deepest.value)) == ("json", {"in": {"in": "x"}})


def test_a_sent_form_means_the_arguments_that_a_person_wrote() -> None:
    sent = {
        "/name": "", "/note": "", "/count": "12345678901234567890", "/price": "abc", "/fast": "false", "/state": "null",
        "/tags": "a\n\nb", "/to/street": "Main\nstreet", "/to/no": "", "/from/street": "", "/either": '"x"',
        "/rows": "[{}]", "/unknown": "x", "form_token": "x",
    }  # fmt: skip
    assert arguments_of(SCHEMA, sent) == {
        "name": "", "count": 12345678901234567890, "price": "abc", "fast": False, "state": None, "tags": ["a", "b"],
        "to": {"street": "Main\nstreet"}, "either": "x", "rows": [{}],
    }  # fmt: skip
    with pytest.raises(FormError, match="'rows' is not JSON"):
        arguments_of(SCHEMA, {"/rows": "[{"})


JSON_TEXT = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\r\0"), min_size=1)
ADDRESS = st.fixed_dictionaries({"street": JSON_TEXT}, optional={"no": st.integers()})
ARGUMENTS = st.fixed_dictionaries(
    {"name": JSON_TEXT, "to": ADDRESS},
    optional={
        "note": JSON_TEXT, "count": st.integers(), "price": st.floats(allow_nan=False, allow_infinity=False),
        "fast": st.booleans(), "state": st.sampled_from(["open", "paid", 7]), "from": ADDRESS, "either": JSON_TEXT,
        "rows": st.lists(st.dictionaries(JSON_TEXT, JSON_TEXT, max_size=2), min_size=1, max_size=2),
    },
)  # fmt: skip


@given(arguments=ARGUMENTS)
@settings(max_examples=examples(100), deadline=None)
def test_arguments_that_fill_a_form_come_back_unchanged(arguments: dict[str, Any]) -> None:
    def sent(fields: list[Field] | Any) -> dict[str, str]:
        found: dict[str, str] = {}
        for field in fields:
            found |= sent(field.fields) if field.kind == "group" else {field.name: field.value}
        return found

    schema = {**SCHEMA, "properties": {**SCHEMA["properties"], "count": {"type": "integer"}}}
    assert arguments_of(schema, sent(fields_of(schema, arguments))) == arguments


@pytest.fixture
async def browser() -> AsyncGenerator[Browser]:
    catalog = Catalog("shop")
    catalog.register(ToolSpec(name="echo", input_schema=SCHEMA, examples=({"name": "ann", "to": {"street": "x"}},)),
                     lambda ctx, args: args)  # fmt: skip

    @catalog.tool
    def rows(count: int) -> list[dict[str, int]]:
        return [{"number": number, "square": number * number} for number in range(count)]

    @catalog.tool
    def blocks() -> ToolResult:
        link = ResourceLink(uri="javascript:alert(1)", name="link")
        return ToolResult((TextContent("seen"), ImageContent(b"abc"), link))

    @catalog.tool
    async def outer(ctx: CallContext) -> str:
        return (await catalog.view(ctx.child(), profile="few").call("rows", {"count": 1})).text

    @catalog.tool(groups="more")
    def broken() -> str:
        raise RuntimeError("password=hunter2")

    catalog.profile(Profile(name="all", include=("core", "more")))
    catalog.profile(Profile(name="few", include=("core",)))
    async with console(catalog) as browser:
        await browser.log_in()
        yield browser


async def test_the_form_of_a_page_calls_the_tool_with_its_example(browser: Browser) -> None:
    page = await browser.get("/tools/echo?profile=all")
    sent = {name: value for name, value in Form(page.text).sent.items() if name.startswith("/")}
    assert (sent["/name"], sent["/to/street"], sent["/count"]) == ("ann", "x", "3")
    answer = await browser.post("/tools/echo?profile=all", **{**sent, "/tags": "a\r\nb"})
    assert answer.status_code == 200
    shown = text_of(answer.text)
    assert "Result" in shown
    assert '"tags": [ "a", "b" ]' in shown
    for stage in ("resolve", "arguments", "run", "output"):
        assert f"{stage} " in shown
    # The same call for a shell is the one that was made.
    assert json.dumps(["a", "b"]) in shown


async def test_arguments_can_be_written_as_json(browser: Browser) -> None:
    await browser.get("/tools/rows?profile=all")
    answer = await browser.post("/tools/rows?profile=all", json='{"count": 3}')
    assert "<td>2</td><td>4</td>" in answer.text.replace("\n", "")
    for text, said in (("[1]", "must be a JSON object"), ("{", "The arguments are not JSON")):
        await browser.get("/tools/rows?profile=all")
        refused = await browser.post("/tools/rows?profile=all", json=text)
        assert (refused.status_code, said in text_of(refused.text)) == (422, True)


async def test_a_refused_call_has_its_kind_and_the_problems(browser: Browser) -> None:
    await browser.get("/tools/rows?profile=all")
    answer = await browser.post("/tools/rows?profile=all", **{"/count": "many"})
    assert "Wrong arguments" in text_of(answer.text)
    assert 'value="many"' in answer.text
    await browser.get("/tools/broken?profile=all")
    failed = await browser.post("/tools/broken?profile=all")
    assert "tool_error" in failed.text
    assert "hunter2" not in failed.text


async def test_blocks_that_are_not_text_are_described_and_links_are_text(browser: Browser) -> None:
    await browser.get("/tools/blocks?profile=all")
    answer = await browser.post("/tools/blocks?profile=all")
    assert "image/png, 3 bytes" in answer.text
    assert "link: javascript:alert(1)" in text_of(answer.text)
    assert 'href="javascript' not in answer.text


async def test_calls_inside_of_a_call_are_shown(browser: Browser) -> None:
    await browser.get("/tools/outer?profile=all")
    assert "Calls inside rows ok" in text_of((await browser.post("/tools/outer?profile=all")).text)


async def test_a_hidden_tool_and_another_callers_eyes_have_no_form_and_no_call(browser: Browser) -> None:
    hidden = await browser.get("/tools/broken?profile=few")
    assert "Hidden tools cannot be called" in hidden.text
    assert "not_found" in (await browser.post("/tools/broken?profile=few")).text
    other = await browser.get("/tools/rows?profile=all&user=ann")
    assert "You look through the eyes of another caller" in other.text
    assert 'name="/count"' not in other.text
    await browser.get("")
    assert (await browser.post("/tools/rows?profile=all&user=ann", **{"/count": "1"})).status_code == 404


async def test_an_operator_calls_nothing_through_a_profile_that_is_not_theirs(tmp_path: Path) -> None:
    office, ran = Office(tmp_path), list[str]()
    office.catalog.tool(name="burn_vault", groups="secret")(lambda: ran.append("burnt"))
    async with console(office.catalog) as browser:
        await browser.log_in(office.key["olga"])
        assert "Look as yourself" in (await browser.get("/tools/burn_vault?profile=vault")).text
        assert (await browser.post("/tools/burn_vault?profile=vault")).status_code == 404
        assert ran == []


async def test_the_call_has_the_person_and_the_console_in_its_record(browser: Browser, tmp_path: Path) -> None:
    office, seen = Office(tmp_path), list[Any]()

    class Watch:
        times_stages = False

        def started(self, call: Any) -> None:
            seen.append((call.name, call.caller.user_id, call.door, call.profile))

        def finished(self, call: Any) -> None:
            pass

    office.catalog.executor.record(Watch())
    async with console(office.catalog) as browser:
        await browser.log_in(office.key["paul"])
        await browser.get("/tools/greet")
        assert "hello" in (await browser.post("/tools/greet")).text
    assert seen == [("greet", "paul", "console", "desk")]
