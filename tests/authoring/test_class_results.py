"""Class results: what `perform` returns, renders and reports, and what `output` promises."""

import logging
from typing import Any

import pydantic
import pytest

from pegboard import (
    AudioContent,
    Catalog,
    DefinitionError,
    ImageContent,
    ResourceContent,
    ResourceLink,
    TextContent,
    Tool,
)
from tests.authoring.parts import call, make_class

# ---------------------------------------------------------------- results


class Box(pydantic.BaseModel):
    size: int = pydantic.Field(serialization_alias="howBig")


PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(
    ("returned", "content", "structured"),
    [
        ("text", (TextContent("text"),), None),
        ({"a": 1}, (TextContent('{"a":1}'),), {"a": 1}),
        ([1, 2], (TextContent("[1,2]"),), [1, 2]),
        (ImageContent(b"x", "image/webp"), (ImageContent(b"x", "image/webp"),), None),
        ([TextContent("a"), TextContent("b")], (TextContent("a"), TextContent("b")), None),
        (PNG, (ImageContent(PNG, "image/png"),), None),
    ],
)
async def test_perform_returns_text_json_media_or_blocks(returned: Any, content: Any, structured: Any):
    class A(Tool, register=False):
        def perform(self):
            return returned

    result = await call(A)
    assert (result.content, result.structured) == (content, structured)


async def test_perform_renders_blocks_of_every_kind():
    class A(Tool, register=False):
        def perform(self):
            self.render(text="a")
            self.render(image=b"i", mime_type="image/webp")
            self.render(audio=b"s")
            self.render(resource="words", uri="x://1", mime_type="text/plain")
            self.render(resource=b"raw")
            self.render_resource_link("x://2", name="two", title="Two")

    result = await call(A)
    assert result.content == (
        TextContent("a"),
        ImageContent(b"i", "image/webp"),
        AudioContent(b"s", "audio/wav"),
        ResourceContent("x://1", text="words", mime_type="text/plain"),
        ResourceContent("pegboard://result", blob=b"raw"),
        ResourceLink("x://2", "two", title="Two"),
    )
    assert not result.has_structured


async def test_render_returns_the_text_of_a_structure_and_a_result_has_it_once():
    returned = list[Any]()

    class A(Tool, register=False):
        def perform(self):
            returned.append(self.render(text="a", structured={"n": 1}))
            return (*returned[0], *self.render(structured={"n": 2}))

    result = await call(A)
    assert returned == [(TextContent("a"), TextContent('{"n":1}'))]
    assert (result.content, result.structured) == ((TextContent("a"), TextContent('{"n":2}')), {"n": 2})


async def test_a_resource_link_has_annotations_and_a_size():
    marks = {"audience": ["user"], "priority": 0.5}

    class A(Tool, register=False):
        def perform(self):
            return self.render_resource_link("x://1", name="one", annotations=marks, size=5)

    assert (await call(A)).content == (ResourceLink("x://1", "one", annotations=marks, size=5),)


async def test_a_rendered_structure_is_mirrored_as_json_text_after_the_blocks():
    class A(Tool, register=False, output={"type": "object"}):
        def perform(self):
            self.render(text="two of them", structured={"n": 2})

    result = await call(A)
    assert (result.structured, result.has_structured) == ({"n": 2}, True)
    assert result.content == (TextContent("two of them"), TextContent('{"n":2}'))


async def test_what_is_rendered_comes_before_what_is_returned():
    class A(Tool, register=False):
        def perform(self):
            self.render(text="first")
            return {"n": 1}

    result = await call(A)
    assert result.content == (TextContent("first"), TextContent('{"n":1}'))
    assert result.structured == {"n": 1}


async def test_rendering_nothing_is_a_mistake_of_the_tool():
    with pytest.raises(TypeError, match=r"render\(\) needs text="):
        make_class(body={"perform": lambda self: None})().render()


async def test_a_reported_error_ends_the_call_whatever_is_returned():
    class A(Tool, register=False):
        def perform(self):
            self.render(text="half done")
            self.report_error("upstream says no", kind="upstream_error", hint="ask later")
            return "ignored"

    result = await call(A)
    assert result.error is not None
    assert (result.error.kind, result.error.message, result.error.hint) == (
        "upstream_error",
        "upstream says no",
        "ask later",
    )
    assert result.content == (TextContent("upstream says no"),)


async def test_an_exception_tells_the_model_nothing_and_the_log_everything(caplog: pytest.LogCaptureFixture):
    class A(Tool, register=False):
        def perform(self):
            raise ValueError("the database is at 10.0.0.1")

    with caplog.at_level(logging.ERROR, logger="pegboard"):
        result = await call(A)
    assert result.error is not None
    assert result.error.message.startswith("An unexpected error occurred (call ")
    assert "10.0.0.1" not in str(result)
    assert "10.0.0.1" in caplog.text


# ---------------------------------------------------------------- output


async def test_output_may_be_a_model_or_a_schema_and_is_checked():
    class A(Tool, register=False, output=Box):
        wrong: bool = False

        async def perform(self):
            return {"howBig": "x"} if self.wrong else Box(size=3)

    spec = A.tool_entry.spec
    assert spec.output_schema == {
        "type": "object",
        "properties": {"howBig": {"type": "integer"}},
        "required": ["howBig"],
    }
    assert (await call(A)).structured == {"howBig": 3}
    result = await call(A, {"wrong": True})
    assert result.error is not None
    assert result.error.kind == "output_invalid"


async def test_success_without_the_promised_structure_is_output_invalid():
    class A(Tool, register=False, output={"type": "object"}):
        def perform(self):
            return "text"

    result = await call(A)
    assert result.error is not None
    assert result.error.kind == "output_invalid"


def test_an_output_without_a_schema_is_refused():
    with pytest.raises(DefinitionError, match="the result: the annotation has no JSON Schema"):

        class A(Tool, register=False, output=Catalog):
            def perform(self): ...
