"""Laws of a config that hold whatever stands in it."""

import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pegboard.config import load_catalog
from pegboard.config.parameters import read_parameters
from pegboard.config.yaml.environment import Environment, typed
from pegboard.config.yaml.parser import parse
from pegboard.config.yaml.tree import At
from pegboard.model.error import DefinitionError
from tests.sizes import examples

NAMES = st.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True)
PROPERTIES = st.fixed_dictionaries(
    {"type": st.sampled_from(["string", "integer", "number", "boolean", "array"])},
    optional={"description": st.text(max_size=20), "title": st.text(max_size=5), "examples": st.just([1])},
)


def read(text: str) -> At:
    root, problems = parse(text, file="f.yaml")
    assert problems == []
    assert root is not None
    return At(root)


def as_yaml(value: object) -> str:
    return json.dumps(value).replace("$", "$$")


@given(st.dictionaries(NAMES, st.tuples(PROPERTIES, st.sampled_from([None, True, False])), max_size=5))
def test_the_shorthand_equals_the_schema_written_out(parameters: dict[str, tuple[dict[str, Any], bool | None]]) -> None:
    shorthand = {
        name: inner if required is None else {**inner, "required": required}
        for name, (inner, required) in parameters.items()
    }
    required = [name for name, (_, required) in parameters.items() if required]
    whole: dict[str, Any] = {"type": "object", "properties": {name: inner for name, (inner, _) in parameters.items()}}
    if required:
        whole["required"] = required
    found = []
    for said in (shorthand, whole):
        at = read(as_yaml(said))
        found.append(read_parameters(Environment({}).plain(at), at))
    assert found[0] == found[1] == (whole, [])


@given(st.text(max_size=40), st.dictionaries(NAMES.map(str.upper), st.text(max_size=10), max_size=3))
def test_a_value_of_the_environment_is_never_read_for_more_variables(value: str, others: dict[str, str]) -> None:
    env = {**others, "VALUE": value}
    at = read("v: '${VALUE}'")
    plain = Environment(env).plain(at)
    assert typed(plain) == {"v": value}


SECTIONS = ["name", "files", "python", "settings", "predicates", "groups", "tools", "profiles", "hooks", "limits"]
WORDS = st.sampled_from(
    [*SECTIONS, "type", "internal", "handler", "python:mine:f", "include", "deny", "all", "not", "on", "before", "use"]
)
ANYTHING = st.recursive(
    WORDS | st.none() | st.booleans() | st.integers() | st.just("${X}") | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=examples(200))
@given(st.dictionaries(st.sampled_from(SECTIONS), ANYTHING, max_size=5))
def test_whatever_stands_in_a_file_gives_a_catalog_or_problems_with_places(
    tmp_path_factory: Any, content: dict[str, Any]
) -> None:
    folder: Path = tmp_path_factory.getbasetemp() / "anything"
    folder.mkdir(exist_ok=True)
    path = folder / "pegboard.yaml"
    path.write_text(json.dumps(content))
    (folder / "mine.py").write_text("def f(q: str = '') -> str:\n    return q\n")
    try:
        load_catalog(path, env={})
    except DefinitionError as error:
        assert error.problems
        for problem in error.problems:
            assert problem.where.startswith(f"{path}:1:")
            assert problem.message
