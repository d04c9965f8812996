"""pegboard schema --editor: the schema of a config of its own, beside it and named in its files."""

import json
from pathlib import Path

import jsonschema_rs
import pytest

from tests.cli.conftest import Run

LINE = "# yaml-language-server: $schema="
AGENT = """\
apiVersion: pegboard/v1
kind: Agent
metadata: {name: a}
spec: {model: {provider: openai_compatible, name: m, base_url: 'http://127.0.0.1:1'}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pegboard.yaml").write_bytes(b"\xef\xbb\xbffiles: ['agents/*.yaml', more.yaml]\r\nname: a\r\n")
    (tmp_path / "more.yaml").write_text(f"{LINE}https://example.com/mine.json\ntools: []\n")
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "a.yaml").write_text(AGENT)
    return tmp_path


def test_written_it_stands_beside_the_config_and_in_the_first_line_of_each_file_once(run: Run, folder: Path) -> None:
    first = json.loads(run("schema", "--editor", "--write", "--json").out)
    assert [Path(path).name for path in first["written"]] == ["pegboard.schema.json", "pegboard.yaml", "a.yaml"]
    before = b"\xef\xbb\xbf" + LINE.encode() + b"./pegboard.schema.json\r\nfiles: ['agents/*.yaml', more.yaml]\r\n"
    assert (folder / "pegboard.yaml").read_bytes() == before + b"name: a\r\n"
    assert (folder / "agents" / "a.yaml").read_text() == f"{LINE}../pegboard.schema.json\n{AGENT}"
    assert (folder / "more.yaml").read_text().count(LINE) == 1
    assert run("schema", "--editor", "--write").out == "Nothing to change.\n"
    assert run("check").code == 0
    judge = jsonschema_rs.Draft7Validator(json.loads((folder / "pegboard.schema.json").read_text()))
    assert judge.is_valid({"name": "a"})
    assert not judge.is_valid({"nmae": "a"})


def test_without_a_config_it_is_printed_and_wrong_options_say_what_is_right(run: Run) -> None:
    assert json.loads(run("schema", "--editor").out)["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert "pegboard init" in run("schema", "--editor", "--write").err
    assert run("schema", "--write").err == "pegboard: --write goes with --editor.\n"
    assert "has the files of agents in it" in run("schema", "--editor", "--agent").err
