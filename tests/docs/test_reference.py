"""The reference is current, and everything that a user can name stands in the documentation."""

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

import pegboard
from pegboard.cli.actions import ACTIONS
from pegboard.cli.app import COMMANDS, build_app
from pegboard.cli.terminal import Terminal
from pegboard.config import json_schema
from pegboard.model.decision import Code
from pegboard.model.error import ERROR_KINDS
from pegboard.model.event import EventType
from pegboard.model.hook import HookKind

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"


def test_the_reference_is_current() -> None:
    done = subprocess.run(
        [sys.executable, DOCS / "generate.py", "--check"], capture_output=True, text=True, timeout=120
    )

    assert (done.returncode, done.stdout.strip()) == (0, "Every page is up to date."), done.stdout + done.stderr


@pytest.mark.parametrize("name", pegboard.__all__)
def test_every_public_name_is_documented(name: str) -> None:
    assert f"\n## {name}\n" in (REFERENCE / "python.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("cls", [pegboard.Catalog, pegboard.View])
def test_every_public_method_of_catalog_and_view_has_an_example_that_the_page_runs(cls: type) -> None:
    page = (REFERENCE / "python.md").read_text(encoding="utf-8")
    methods = [
        (name, inspect.getdoc(value) or "")
        for name, value in vars(cls).items()
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
    ]

    assert [name for name, doc in methods if ">>> " not in doc] == []
    # Blocks of the page run in tests/docs/test_blocks.py.
    firsts = [next(line for line in doc.splitlines() if line.startswith(">>> ")) for _, doc in methods]
    assert [first for first in firsts if f"```python\n{first}" not in page] == []


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("errors.md", ERROR_KINDS),
        ("errors.md", get_args(Code)),
        ("python.md", get_args(HookKind)),
        ("python.md", get_args(EventType)),
        ("limits.md", pegboard.Bounds.__struct_fields__),
    ],
    ids=["error kinds", "codes", "hooks", "events", "limits"],
)
def test_every_word_is_documented(page: str, words: Any) -> None:
    text = (REFERENCE / page).read_text(encoding="utf-8")

    assert [word for word in words if f"| `{word}` |" not in text] == []


def test_every_command_and_option_is_documented() -> None:
    text = (REFERENCE / "cli.md").read_text(encoding="utf-8")
    app = build_app(Terminal())
    apps = [
        app.meta,
        *(app[name] for name in COMMANDS if name not in ACTIONS),
        *(app[name][one] for name in ACTIONS for one in ACTIONS[name]),
    ]
    options = {word for one in apps for word in _options(one)}

    assert [name for name in COMMANDS if f"## pegboard {name}\n" not in text] == []
    assert len(options) > 10
    assert [word for word in sorted(options) if word not in text] == []


def _options(app: Any) -> Iterator[str]:
    for argument in app.assemble_argument_collection():
        if argument.show:
            yield from (name for name in argument.names if re.match("-(?!-no-)", name))


def test_every_config_key_is_documented() -> None:
    text = (REFERENCE / "config.md").read_text(encoding="utf-8") + (REFERENCE / "limits.md").read_text(encoding="utf-8")
    keys = set(_keys(json_schema()))

    assert {"tools", "handler", "deny", "match", "tool_timeout_s"} <= keys
    assert [key for key in sorted(keys) if f"| `{key}` " not in text] == []


def _keys(schema: dict[str, Any]) -> Iterator[str]:
    for part in (schema, *schema["$defs"].values()):
        yield from part.get("properties", {})


def test_no_page_shows_a_command_that_does_not_exist() -> None:
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        shown = set(re.findall(r"^\$ pegboard (\w+)", page.read_text(encoding="utf-8"), re.MULTILINE))
        assert shown <= set(COMMANDS), page
