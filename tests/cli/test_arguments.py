"""Words become the arguments that the schema describes, and nothing that it does not."""

from pathlib import Path

import pytest

from pegboard.cli.arguments import read_arguments
from pegboard.cli.command_error import CommandError
from pegboard.model.tool import ToolSpec

SPEC = ToolSpec(
    name="t",
    aliases={"n": "whole"},
    input_schema={
        "type": "object",
        "properties": {
            "whole": {"type": "integer"},
            "real": {"type": "number"},
            "flag": {"type": "boolean"},
            "text": {"type": "string"},
            "either": {"type": ["string", "integer"]},
            "numbers": {"type": "array", "items": {"type": "integer"}},
            "tags": {"$ref": "#/$defs/tags"},
            "nested": {"type": "object"},
            "maybe": {"anyOf": [{"type": "null"}, {"type": "integer"}]},
            "level": {"enum": [1, 2]},
            "loop": {"$ref": "#/properties/loop"},
            "lost": {"$ref": "#/nowhere"},
            "deep": {"anyOf": [{"$ref": "#/properties/deep"}]},
            "any": True,
        },
        "$defs": {"tags": {"type": "array", "items": {"type": "string"}}},
    },
)


@pytest.mark.parametrize(
    ("pairs", "arguments"),
    [
        (["whole=3"], {"whole": 3}),
        (["whole=-3"], {"whole": -3}),
        (["n=3"], {"n": 3}),
        (["real=0.5"], {"real": 0.5}),
        (["real=2"], {"real": 2}),
        (["flag=true"], {"flag": True}),
        (["flag=yes"], {"flag": "yes"}),
        (["whole=x"], {"whole": "x"}),
        (["whole=1.5"], {"whole": "1.5"}),
        (["whole=true"], {"whole": "true"}),
        (["real=nan"], {"real": "nan"}),
        (["whole=" + "9" * 5000], {"whole": "9" * 5000}),
        (["text=5"], {"text": "5"}),
        (["text={}"], {"text": "{}"}),
        (["text=a=b"], {"text": "a=b"}),
        (["text="], {"text": ""}),
        (["either=5"], {"either": "5"}),
        (["numbers=1", "numbers=2"], {"numbers": [1, 2]}),
        (["numbers=[1,2]"], {"numbers": [1, 2]}),
        (["tags=a,b", "tags=5"], {"tags": ["a,b", "5"]}),
        (['nested={"a": 1}'], {"nested": {"a": 1}}),
        (["nested={a}"], {"nested": "{a}"}),
        (["maybe=null"], {"maybe": None}),
        (["maybe=7"], {"maybe": 7}),
        (["level=2"], {"level": 2}),
        (["unknown=5"], {"unknown": "5"}),
        (["loop=5", "lost=5", "deep=5", "any=5"], {"loop": "5", "lost": "5", "deep": "5", "any": "5"}),
        (["text:=5"], {"text": 5}),
        (['nested:={"a": [null]}'], {"nested": {"a": [None]}}),
    ],
)
def test_a_pair_is_read_by_the_type_of_its_schema(pairs: list[str], arguments: dict[str, object]) -> None:
    assert read_arguments(pairs, None, spec=SPEC) == arguments


def test_pairs_win_over_args_and_args_alone_go_to_the_door_as_they_are() -> None:
    assert read_arguments(["whole=2"], '{"whole": 1, "text": "a"}', spec=SPEC) == {"whole": 2, "text": "a"}
    assert read_arguments([], '{"whole": 1, "whole": 2}', spec=SPEC) == b'{"whole": 1, "whole": 2}'
    assert read_arguments([], None, spec=None) == b"{}"


def test_args_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "args.json"
    path.write_text('{"text": "ü"}', encoding="utf-8")
    assert read_arguments([], f"@{path}", spec=SPEC) == '{"text": "ü"}'.encode()


@pytest.mark.parametrize(
    ("pairs", "text", "said"),
    [
        (["hello"], None, "'hello' is not an argument. Write key=value, key:=JSON, or --args JSON."),
        (["=x"], None, "'=x' is not an argument"),
        ([":=1"], None, "':=1' is not an argument"),
        (["whole=1", "whole=2"], None, "'whole' is given twice, and is not a list."),
        (["whole:=oops"], None, "'whole:=oops': what follows := cannot be read"),
        ([], "{", "--args cannot be read"),
        ([], '{"a": NaN}', "--args cannot be read"),
        ([], "[1]", "--args needs a JSON object"),
        ([], "@/nowhere/at/all", "cannot be read"),
        ([], "[" * 10_000, "--args cannot be read"),
    ],
)
def test_other_words_are_refused_with_what_to_write(pairs: list[str], text: str | None, said: str) -> None:
    with pytest.raises(CommandError) as refused:
        read_arguments(pairs, text, spec=SPEC)
    assert said in str(refused.value)
