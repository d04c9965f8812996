"""A configured folder, and the command line run in it."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from pegboard.cli import main
from pegboard.sources.mcp import supervised_source
from tests.timing import PATIENCE_S

CONFIG = """\
name: acme
settings: {web: false}
predicates:
  web_enabled: {setting: web}
groups: {core: for everybody, admin: for operators}
tools:
  - name: count_words
    type: internal
    description: "Count the words of a text.\\nMore about it."
    handler: python:tests.cli.workshop:count_words
    parameters: {text: {type: string, required: true}, unique: {type: boolean, default: false}}
    annotations: {readOnlyHint: true}
    rate_limit: {max_calls: 10, window_seconds: 60}
  - name: echo
    type: internal
    description: Give back the arguments.
    handler: python:tests.cli.workshop:echo
    parameters:
      type: object
      additionalProperties: true
      properties:
        whole: {type: integer}
        real: {type: number}
        flag: {type: boolean}
        text: {type: string}
        either: {type: [string, integer]}
        numbers: {type: array, items: {type: integer}}
        tags: {$ref: "#/$defs/tags"}
        nested: {type: object}
        nothing: {anyOf: [{type: "null"}, {type: integer}]}
        level: {enum: [1, 2, 3]}
      $defs: {tags: {type: array, items: {type: string}}}
  - name: delete_page
    type: internal
    description: Delete a page.
    handler: python:tests.cli.workshop:delete_page
    parameters: {page: {type: string, required: true}}
    groups: [admin]
    consent: always
    annotations: {destructiveHint: true}
  - name: search_web
    type: internal
    description: Search the web.
    handler: python:tests.cli.workshop:echo
    available: web_enabled
    parameters: {type: object, additionalProperties: true, properties: {}}
  - name: explode
    type: internal
    description: Fail.
    handler: python:tests.cli.workshop:explode
    parameters: {type: object, properties: {}}
    groups: [admin]
  - name: shout
    type: internal
    description: "\\e[31m[bold red]Hear me[/]\\u009B2J\\u202E :boom: \\e]0;pwned\\a"
    handler: python:tests.cli.workshop:shout
    parameters: {type: object, properties: {}}
    groups: [admin]
  - name: chatter
    type: internal
    description: Print something.
    handler: python:tests.cli.workshop:chatter
    parameters: {type: object, properties: {}}
    groups: [admin]
profiles:
  chat: {include: [core], deny: ["search_*"]}
  operator: {include: [core, admin]}
"""


class Ran(NamedTuple):
    """How a command ended and what it wrote."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture(autouse=True)
def plain_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PEGBOARD_CONFIG", "PEGBOARD_AS", "PEGBOARD_DEBUG", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The working folder, with a config in it."""
    (tmp_path / "pegboard.yaml").write_text(CONFIG, encoding="utf-8")
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command line in this process."""
    # On a busy machine, programs start slowly.
    monkeypatch.setattr(supervised_source, "MCP_PROGRAM_START_S", PATIENCE_S)

    def ran(*words: str) -> Ran:
        code = main(words)
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return ran
