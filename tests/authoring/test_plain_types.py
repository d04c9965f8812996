"""Plain types are drawn as pydantic draws them; that they need none is in `test_function.py`."""

from __future__ import annotations

import datetime
import json
import re
import typing
from typing import Any, Literal, Optional, Union

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegboard import Catalog, DefinitionError, ToolContext
from tests.sizes import examples

SCALARS: tuple[Any, ...] = (str, int, float, bool, None, Any, object, list, dict)
LITERALS = st.lists(st.sampled_from(["a", "b", "ü", ""]), min_size=1, unique=True).map(
    lambda words: Literal[*sorted(words)]
)
ANNOTATIONS: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(SCALARS) | LITERALS | st.sampled_from([datetime.date, Literal[1, "a"], bytes]),
    lambda inner: st.one_of(
        inner.map(lambda one: list[one]),
        inner.map(lambda one: typing.List[one]),  # noqa: UP006 - both are written
        inner.map(lambda one: dict[str, one]),
        inner.map(lambda one: Optional[one]),  # noqa: UP045 - both are written
        st.tuples(inner, inner).map(lambda two: Union[two[0], two[1]]),  # noqa: UP007 - made at run time
    ),
    max_leaves=5,
)
REQUIRED = object()
DEFAULTS = st.one_of(
    st.just(REQUIRED), st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.just([1])
)


def tool_schema(annotation: Any, default: object, *, beside: type | None = None) -> dict[str, Any]:
    """Return what is published of a parameter, or, with a type `beside` it, of the first of two."""

    parameters = {"value": annotation} | ({} if beside is None else {"beside": beside})
    text = ", ".join(f"{name}=default" if name == "value" and default is not REQUIRED else name for name in parameters)
    names: dict[str, Any] = {"default": default}
    exec(f"def tool(*, {text}): ...", names)
    names["tool"].__annotations__ = parameters
    catalog = Catalog()
    catalog.tool(names["tool"])
    schema = catalog.view(ToolContext())["tool"].spec.input_schema
    return {"value": schema["properties"]["value"], "required": "value" in schema.get("required", ())}


@settings(max_examples=examples(250), deadline=None)
@given(annotation=ANNOTATIONS, default=DEFAULTS)
def test_a_plain_type_is_published_as_pydantic_has_it_published(annotation: Any, default: object) -> None:
    # A parameter that pydantic alone knows has it draw all of them.
    try:
        theirs = json.dumps(tool_schema(annotation, default, beside=datetime.time))
    except DefinitionError as refusal:
        with pytest.raises(DefinitionError, match=re.escape(str(refusal))):
            tool_schema(annotation, default)
    else:
        assert json.dumps(tool_schema(annotation, default)) == theirs


@settings(max_examples=examples(250), deadline=None)
@given(annotation=ANNOTATIONS)
def test_a_plain_result_is_published_as_pydantic_has_it_published(annotation: Any) -> None:
    def output(returns: Any) -> object:
        def tool() -> None: ...

        tool.__annotations__["return"] = returns
        catalog = Catalog()
        catalog.tool(tool)
        return catalog.view(ToolContext())["tool"].spec.output_schema

    ours = output(annotation)
    # A word beside the type has pydantic asked.
    theirs = output(typing.Annotated[annotation, pydantic.Field()])

    assert ours is None or json.dumps(ours) == json.dumps(theirs)
