"""The example of the design is accepted by pyright in strict mode, and gives what its comments say."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pegboard import Catalog, DefinitionError, Secret, ToolContext, default_catalog
from tests.core.parts import ANN, kind_of
from tests.typing import design_example as example

ROOT = Path(__file__).parents[2]
PYRIGHT = ROOT / "tools/node/node_modules/.bin/pyright"


@pytest.fixture(autouse=True, scope="module")
def _tidy() -> Iterator[None]:
    yield
    default_catalog.unregister("send_email")


def test_pyright_accepts_it_in_strict_mode() -> None:
    command = [str(PYRIGHT), "--pythonpath", sys.executable, str(Path(example.__file__))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, "0 errors" in done.stdout) == (0, True), done.stdout


def test_it_lists_the_names_that_it_says() -> None:
    assert example.names == ["word_count", "list_issues", "send_email"]
    assert example.allowed == ["mcp__acme__word_count", "mcp__acme__list_issues", "mcp__acme__send_email"]


def test_it_exports_function_schemas() -> None:
    assert [schema["function"]["name"] for schema in example.schemas] == example.names
    assert example.schemas[0] == {
        "type": "function",
        "function": {
            "name": "word_count",
            "description": "Count the words of a text.",
            "parameters": {
                "type": "object",
                "properties": {
                    "text": {"type": "string", "description": "Any text."},
                    "unique": {"default": False, "type": "boolean", "description": "Count each distinct word once."},
                },
                "required": ["text"],
            },
        },
    }
    assert "recipient" not in example.schemas[2]["function"]["parameters"]["properties"]


def test_it_tells_why_the_builder_is_hidden() -> None:
    decision = example.hidden
    assert (decision.visible, decision.code, decision.next) == (False, "group", "factory")
    assert decision.reason.startswith("not in include=['core', 'chat_only']")
    assert decision.fix is not None
    assert (decision.fix.subject, decision.fix.text) == ("triggers", "include 'triggers'")
    assert decision.next_reason == "no factory 'trigger_pr_review' in the context"


async def test_its_call_counts_two_words() -> None:
    assert await example.count() == 2


async def test_its_mail_tool_takes_the_alias_and_asks_for_a_yes() -> None:
    mail = {"recipient": "ann@example.org", "subject": "Hi"}
    assert kind_of(await example.view.call("send_email", mail)) == "consent_required"
    agreed = example.catalog.view(ToolContext(approve=lambda request: True))
    assert (await agreed.call("send_email", mail)).text == "sent to ann@example.org"
    assert kind_of(await agreed.call("send_email", mail | {"recipient": "nobody"})) == "invalid_arguments"
    assert kind_of(await agreed.call("send_email", mail | {"subject": ""})) == "invalid_arguments"


def test_without_the_secret_a_tool_is_missing() -> None:
    assert example.catalog.view(ToolContext(), include=["core"]).names() == ["word_count", "send_email"]
    with pytest.raises(DefinitionError, match="wrap it"):
        ToolContext(secrets={"SENTRY_TOKEN": "plain"})  # type: ignore[dict-item]


def test_the_class_stands_on_the_default_catalog_besides() -> None:
    assert "send_email" in default_catalog.view(ToolContext(secrets={"SENTRY_TOKEN": Secret("…")})).names()


async def test_the_one_line_forms_of_known_registries_do_the_same() -> None:
    catalog, ctx = example.catalog, ANN
    assert [tool.wire_name for tool in catalog.build_tools(ctx, include=["core"])] == ["word_count", "send_email"]
    assert catalog.tool_names(ctx, include="core", server="x") == ["mcp__x__word_count", "mcp__x__send_email"]
    assert [tool.wire_name for tool in catalog.available_tools(ctx)] == ["word_count", "send_email"]
    assert (await catalog.execute("word_count", {"text": "a b"}, ctx)).structured == 2
    assert isinstance(catalog, Catalog)
