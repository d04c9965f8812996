"""What a catalog offers beside tools: declared in a line, reached by policy, forgotten and renewed with the tools."""

from pathlib import Path

import pytest

from pegboard import Catalog, DefinitionError, Message, Policy, Profile, TextContent, ToolContext
from pegboard.config import load_catalog
from pegboard.config.reload import Reloader
from pegboard.core.unmatched_globs import BESIDE_TOOLS
from pegboard.resources import NAMESPACES, Resources


def names(offers: Resources, profile: str | None = None) -> list[str]:
    return [entry.qualified_id for entry in offers.view(ToolContext(), profile=profile).tools()]


def library() -> Catalog:
    """Return a catalog with one of each."""
    catalog = Catalog()

    @catalog.resource("notes://{day}", name="notes")
    def notes(day: str) -> str:
        return f"notes of {day}"

    @catalog.prompt
    def review(style: str) -> str:
        """Review something."""
        return f"Review it in a {style} way."

    @catalog.completion("style", prompt="review")
    def styles(value: str) -> list[str]:
        return [style for style in ("kind", "harsh") if style.startswith(value)]

    return catalog


async def test_resources_prompts_and_completions_are_declared_in_a_line() -> None:
    catalog = library()
    assert names(catalog.resources) == ["completion.review_style", "prompt.review", "resource.notes"]
    view = catalog.resources.view(ToolContext())
    assert (await view.call("resource.notes", {"day": "monday"})).text == "notes of monday"
    assert (await view.call("prompt.review", {"style": "kind"})).text == "Review it in a kind way."
    assert (await view.call("completion.review_style", {"value": "k"})).structured == ["kind"]


@pytest.mark.parametrize("uri", ["notes", "/notes/today", "my notes://today", "9p://notes", "notes:", ""])
def test_a_resource_has_a_uri_with_a_scheme(uri: str) -> None:
    with pytest.raises(DefinitionError, match=r"is not a URI: write one such as 'notes://\{day\}'"):
        Catalog().resource(uri)(lambda: "x")


def test_a_policy_names_them_by_their_namespace_and_others_stay_unknown() -> None:
    catalog = library()
    catalog.profile(Profile(name="p", include=("core",), policy=Policy(deny=("resource.*", "prompt"))))
    assert names(catalog.resources, "p") == ["completion.review_style", "prompt.review"]
    assert catalog.view(ToolContext(), profile="p").names() == []
    assert catalog.policy_faults(Policy(deny=("resource.*", "prompt.none", "prompt.mail__none", "completion__x"))) == (
        [],
        [],
    )
    with pytest.raises(DefinitionError, match=r"'resources\.\*' names no declared namespace"):
        catalog.view(ToolContext(policy=Policy(deny=("resources.*",))))
    assert NAMESPACES == BESIDE_TOOLS


def test_reset_forgets_them_and_tells() -> None:
    catalog, told = library(), list[str]()
    catalog.resources.subscribe(lambda: told.append("changed"))
    catalog.reset()
    assert names(catalog.resources) == []
    assert told


async def test_a_reload_takes_the_new_ones_for_the_old(tmp_path: Path) -> None:
    config, module = tmp_path / "pegboard.yaml", tmp_path / "offers_of_a_reload.py"
    config.write_text("tools: []\npython: [offers_of_a_reload]\n")
    declared = (
        'from pegboard import default_catalog as catalog\n\n\n@catalog.prompt\ndef {name}() -> str:\n    return "x"\n'
    )
    module.write_text(declared.format(name="first"))
    catalog, loaded = load_catalog(config, env={})
    offers = catalog.resources
    reloader = Reloader(config, {}, catalog, config=loaded)
    assert names(offers) == ["prompt.first"]
    module.write_text(declared.format(name="second"))
    assert await reloader.reload()
    assert catalog.resources is offers
    assert names(offers) == ["prompt.second"]


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ([Message("robot", "x")], "is of 'user' or 'assistant', not of 'robot'"),  # type: ignore[arg-type]
        (5, "returns text, Message(role, content), or a list of them, not 5"),
        ([{"role": "user"}], "or a list of them, not {'role': 'user'}"),
    ],
    ids=["role", "number", "dict"],
)
async def test_a_prompt_of_something_else_fails_before_a_client_reads_it(
    given: object, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = Catalog()
    catalog.prompt(name="review")(lambda: given)
    result = await catalog.resources.view(ToolContext()).call("prompt.review")
    assert (result.error and result.error.kind, fault in caplog.text) == ("tool_error", True)


async def test_one_block_is_a_prompt_of_one_message() -> None:
    catalog = Catalog()
    catalog.prompt(name="review")(lambda: TextContent("Look at it."))
    assert (await catalog.resources.view(ToolContext()).call("prompt.review")).content == (TextContent("Look at it."),)
