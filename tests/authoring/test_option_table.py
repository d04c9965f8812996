"""The table of options: whatever knows options knows those of the table, so that a new one is one row."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from msgspec.structs import fields

import pegboard
from pegboard.authoring.option_table import OPTIONS
from pegboard.authoring.options import BuilderKeywords, ToolKeywords
from pegboard.config import json_schema
from pegboard.model.tool import Annotations, ToolSpec

ROOT = Path(__file__).resolve().parents[2]
# What a declaration has of the code itself: its parameters, and where it stands.
OF_THE_CODE = {"input_schema", "allow_unknown", "origin"}


def test_the_typed_keywords_are_the_rows_of_the_table():
    names = [option.name for option in OPTIONS]
    assert sorted(ToolKeywords.__annotations__) == sorted(names)
    assert list(BuilderKeywords.__annotations__) == [option.name for option in OPTIONS if option.of_builder]
    assert len(set(names)) == len(names)


def test_every_field_of_a_declaration_is_said_by_a_row():
    landing = {option.path[0] for option in OPTIONS if option.path}
    assert landing == {item.name for item in fields(ToolSpec)} - OF_THE_CODE
    hints = {option.path[1] for option in OPTIONS if option.path[:1] == ("annotations",)}
    assert hints == {item.name for item in fields(Annotations)}


def test_every_default_is_one_that_its_row_takes():
    assert [fault for option in OPTIONS if (fault := option.check(option.name, option.default))] == []


def test_the_keys_of_a_config_are_those_of_the_table():
    definitions = json_schema()["$defs"]
    keyed = [option for option in OPTIONS if option.yaml is not None]
    for form in ("InternalForm", "McpForm", "OpenApiForm", "BuiltinForm", "WebhookForm", "ClientForm"):
        listed = list(definitions[form]["properties"])
        keys = dict.fromkeys(option.yaml.within or option.yaml_key for option in keyed if option.yaml)
        assert listed[: 2 + len(keys)] == ["name", "type", *keys]
    hints = [option for option in keyed if option.yaml and option.yaml.within == "annotations"]
    wire = [option.yaml.wire_key for option in hints if option.yaml and option.yaml.wire_key]
    assert list(definitions["AnnotationsForm"]["properties"]) == [*(option.yaml_key for option in hints), *wire]


ROW = """    Option(
        name="fee",
        meaning="What one call costs.",
        default="none",
        check=_one_of("none", "low", "high"),
        lands=("meta", "fee"),
        yaml=YamlKey(form="text", key="price"),
    ),
"""
USE = """
from pathlib import Path
from pegboard import Catalog, DefinitionError, Tool, ToolContext, ToolSpec, load_catalog
from pegboard.config import json_schema

catalog = Catalog()

@catalog.tool(fee="low")
def cheap() -> None: ...

class Base(Tool, abstract=True, fee="high"):
    def perform(self) -> None: ...

class Dear(Base, register=False):
    pass

catalog.register(Dear)

@catalog.builder("built", fee="low")
def build(ctx):
    def built() -> None: ...
    return built

def meta(catalog, name):
    (listed,) = [tool for tool in catalog.view(ToolContext()).export("mcp") if tool["name"] == name]
    return listed["_meta"]

assert [meta(catalog, name) for name in ("cheap", "dear", "built")] == [
    {"fee": "low"}, {"fee": "high"}, {"fee": "low"}
], catalog.view(ToolContext()).export("mcp")
try:
    catalog.tool(name="odd", fee="much")(cheap)
    raise SystemExit("a value that the row refuses was taken")
except DefinitionError as error:
    assert "fee='much': say none, low or high." in str(error), error

Path("acme.py").write_text("def greet() -> str:\\n    return 'hello'\\n")
Path("pegboard.yaml").write_text(
    "tools:\\n  - {name: greet, type: internal, handler: 'python:acme:greet', price: high}\\n"
)
assert meta(load_catalog(Path("pegboard.yaml"), env={})[0], "greet") == {"fee": "high"}
assert json_schema()["$defs"]["InternalForm"]["properties"]["price"]["description"] == "What one call costs."

import generate
generate.ToolKeywords.__annotations__["fee"] = str
row, = [line for line in generate.python_page() if line.startswith("| `fee` |")]
assert row == "| `fee` | `str` | `'none'` | yes |  | `price` | What one call costs. |", row
"""


def test_a_new_row_is_a_keyword_a_class_keyword_a_yaml_key_and_a_line_of_the_reference(tmp_path: Path):
    package = tmp_path / "src" / "pegboard"
    shutil.copytree(Path(pegboard.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    table = package / "authoring" / "option_table.py"
    text = table.read_text(encoding="utf-8")
    before, end = text.split("\n)\nBY_NAME", 1)
    table.write_text(f"{before}\n{ROW})\nBY_NAME{end}", encoding="utf-8")
    # Beside the keyword for type checkers, this row is all: nothing else in the package names the option.
    where = os.pathsep.join([str(tmp_path / "src"), str(ROOT / "docs"), str(tmp_path)])
    ran = subprocess.run(
        [sys.executable, "-c", USE],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": where, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
