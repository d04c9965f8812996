"""YAML text: what it means, where everything stands, and what is refused."""

import json
import time

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pegboard.config.yaml.environment import Environment
from pegboard.config.yaml.parser import MAX_DEPTH, YAML_NODES, parse
from pegboard.config.yaml.tree import At, Items, Node, Table
from tests.timing import CPU, is_within


def plain(text: str) -> object:
    root, problems = parse(text, file="f.yaml")
    assert problems == []
    assert root is not None
    return Environment({}).plain(At(root))


def unread(node: Node) -> object:
    """Return what a tree means before variables are put in."""
    if isinstance(node, Table):
        return {key: unread(inner) for key, inner in node.items.items()}
    return [unread(inner) for inner in node.items] if isinstance(node, Items) else node.value


def said(text: str) -> list[str]:
    return [str(problem) for problem in parse(text, file="f.yaml")[1]]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: yes", {"a": "yes"}),
        ("on: no", {"on": "no"}),
        ("a: true", {"a": True}),
        ("a: ~", {"a": None}),
        ("a:", {"a": None}),
        ("a: 010", {"a": 10}),
        ("a: 0o10", {"a": 8}),
        ("a: 0x1F", {"a": 31}),
        ("a: -1.5e3", {"a": -1500.0}),
        ("a: '5'", {"a": "5"}),
        ("a: !!str 5", {"a": "5"}),
        ("a: 2027-01-01", {"a": "2027-01-01"}),
        ("a: 1_000", {"a": "1_000"}),
        ("a: 12:30:45", {"a": "12:30:45"}),
        ("a: |\n  x\n  y\n", {"a": "x\ny\n"}),
        ("base: &b {x: 1, y: 2}\na: {<<: *b, y: 3}", {"base": {"x": 1, "y": 2}, "a": {"y": 3, "x": 1}}),
        ("a: &x [1]\nb: *x", {"a": [1], "b": [1]}),
    ],
)
def test_scalars_mean_what_yaml_1_2_says(text: str, value: object) -> None:
    assert plain(text) == value


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=50), inner, max_size=3),
        max_leaves=10,
    )
)
def test_json_is_read_as_json(value: object) -> None:
    text = json.dumps({"value": value})  # every control character and surrogate is escaped
    root, problems = parse(text, file="f.yaml")
    assert problems == []
    assert root is not None
    assert unread(root) == json.loads(text)


def test_every_value_knows_its_line_and_column() -> None:
    root, _ = parse("tools:\n  - name: x\n    'odd key': [1, 2]\n", file="f.yaml")
    assert root is not None
    at = At(root) / "tools" / 0
    assert str((at / "name").mark) == "f.yaml:2:11"
    assert str((at / "name").key_mark) == "f.yaml:2:5"
    assert str((at / "odd key" / 1).mark) == "f.yaml:3:20"
    assert (at / "odd key" / 1).path == 'tools[0]["odd key"][1]'
    assert str((at / "missing" / "more").mark) == "f.yaml:2:5"


def test_a_key_that_stands_twice_is_refused_with_both_lines() -> None:
    assert said("tools: []\nname: x\ntools: []\n") == [
        "f.yaml:3:1: the key 'tools' occurs twice: first at f.yaml:1:1. Remove one, or merge the two"
    ]
    assert said('{a: 1, "a": 2}') == [
        "f.yaml:1:8: the key 'a' occurs twice: first at f.yaml:1:2. Remove one, or merge the two"
    ]


@pytest.mark.parametrize(
    ("text", "line", "tag"),
    [
        ("a: !!python/object/apply:os.system ['true']", 1, "!!python/object/apply:os.system"),
        ("a: 1\nb: !!python/name:os.system", 2, "!!python/name:os.system"),
        ("!!python/object:builtins.dict {}", 1, "!!python/object:builtins.dict"),
        ("a: !custom 1", 1, "!custom"),
        ("a: !!set {x}", 1, "!!set"),
        ("a: !!binary aGVsbG8=", 1, "!!binary"),
        ("a: !!timestamp 2027-01-01", 1, "!!timestamp"),
        ("a: !<tag:yaml.org,2002:python/tuple> [1]", 1, "!!python/tuple"),
        ("%TAG ! tag:example.com,2000:\n---\na: !foo 1", 3, "tag:example.com,2000:foo"),
    ],
)
def test_a_tag_is_refused_by_name_and_line(text: str, line: int, tag: str) -> None:
    (problem,) = said(text)
    assert problem.startswith(f"f.yaml:{line}:")
    assert repr(tag) in problem


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("a:\n  b {c: [d]}\n  e: {f: [g]}", "f.yaml:2:12", "a colon is missing after a key"),
        ("a: [1", "f.yaml:1:6", "a bracket is not closed"),
        ("a: b: c", "f.yaml:1:5", "needs quotes"),
        ("\ta: 1", "f.yaml:1:1", "spaces, not with tabs"),
        ("a: 'x", "f.yaml:1:6", "a quote is not closed"),
        ("a: *q", "f.yaml:1:4", "*q refers to no anchor; a text that begins with * needs quotes"),
        ("a: &q [*q]", "f.yaml:1:8", "is inside its own anchor"),
        ("a: 1\n---\nb: 2", "f.yaml:2:1", "a second document"),
        ("%YAML 1.1\n---\na: 1", "f.yaml:1:1", "YAML 1.2"),
        ("%YAML 1.3\n---\na: 1", "f.yaml:1:1", "incompatible YAML document"),
        ("é: @x", "f.yaml:1:4", "no text begins with '@'"),
        ("a: \x07", "f.yaml:1:4", "U+0007"),
        ("a: .inf", "f.yaml:1:4", "is not a number here"),
        ("a: .NaN", "f.yaml:1:4", "is not a number here"),
        ("a: 1e999", "f.yaml:1:4", "too large a number"),
        ("a: " + "9" * 1001, "f.yaml:1:4", "at most 1000 digits"),
        ("1: x", "f.yaml:1:1", "a key must be a text; write '1' in quotes"),
        ("~: x", "f.yaml:1:1", "a key must be a text"),
        ("? [a]\n: x", "f.yaml:1:3", "a key must be a text"),
        ("a: {<<: 5}", "f.yaml:1:9", "`<<` needs a mapping"),
    ],
)
def test_what_cannot_be_read_is_refused_in_words(text: str, where: str, words: str) -> None:
    (problem,) = said(text)
    assert problem.startswith(f"{where}: ")
    assert words in problem


def test_an_alias_bomb_is_refused_before_it_goes_off() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 40)]
    started = time.process_time()
    (problem,) = said("\n".join(lines))
    assert f"more than {YAML_NODES:,} values" in problem
    assert is_within(time.process_time() - started, 1, CPU)


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_nesting_without_end_is_refused(opening: str) -> None:
    (problem,) = said(opening * 5_000)
    assert f"more than {MAX_DEPTH} levels" in problem


def test_nesting_through_aliases_is_counted_as_written_out() -> None:
    text = "a: &a " + "[" * 40 + "]" * 40 + "\nb: " + "[" * 40 + "*a" + "]" * 40
    (problem,) = said(text)
    assert "aliases written out" in problem


@given(st.text(alphabet="ab:-[]{}&*!|>'\"#%@`,? \n\t0.$", max_size=60))
def test_any_text_gives_a_tree_or_problems_and_never_raises(text: str) -> None:
    root, problems = parse(text, file="f.yaml")
    for problem in problems:
        assert problem.where.startswith("f.yaml:")
    if root is not None:
        Environment({}).plain(At(root))


@given(st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), st.integers() | st.booleans() | st.text("ab c")))
def test_what_another_writer_writes_is_read_back(value: dict[str, object]) -> None:
    assert plain(yaml.safe_dump(value)) == value
