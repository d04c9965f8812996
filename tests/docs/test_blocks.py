"""Every block of the documentation runs, and shows what the page says it shows."""

import ast
import importlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pegboard
from tests.docs.blocks import Runner, blocks_of

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
CODE = sorted((ROOT / "src" / "pegboard").rglob("*.py"))
RUN = ("python", "console")
# The examples of these modules' methods follow one another, and run as blocks of docs/reference/python.md.
CONTINUED = (ROOT / "src/pegboard/catalog.py", ROOT / "src/pegboard/core/view.py")
SIGNS = ("```python", ">>>")  # Of a docstring that has a block or an example.


def docstrings(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of the docstrings of a module that have blocks or examples."""
    source = path.read_text(encoding="utf-8")
    # Every worker reads all modules, and few have any.
    if not any(sign in source for sign in SIGNS):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node) or ""
            if any(sign in text for sign in SIGNS):
                yield getattr(node, "name", path.stem), text


def public_names() -> dict[str, Any]:
    return {name: getattr(pegboard, name) for name in pegboard.__all__}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_blocks_of_a_page_run_in_order(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    if any(block.language in RUN for block in blocks_of(text)):
        # Generated pages quote docstrings, which know the names of the package.
        (tmp_path / "examples").symlink_to(ROOT / "examples")
        if page.parent.parent.name == "examples":
            # As its reader stands in its folder.
            shutil.copytree(page.parent, tmp_path, dirs_exist_ok=True)
        names = public_names() if page.parent.name == "reference" else {}
        Runner(folder=tmp_path, name=str(page.relative_to(ROOT)), namespace={**names, "__name__": "__page__"}).run(text)


def test_the_tour_of_python_gives_what_its_comments_say(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "tutorial" / "python-tour.md").read_text(encoding="utf-8")
    runner = Runner(folder=tmp_path, name="python-tour.md")

    runner.run("".join(f"```python\n{block.text}```\n" for block in blocks_of(text) if block.language == "python"))

    view, result = runner.namespace["view"], runner.namespace["result"]
    assert view.names() == ["word_count", "list_issues", "send_email"]
    assert view.names(server="acme") == ["mcp__acme__word_count", "mcp__acme__list_issues", "mcp__acme__send_email"]
    assert [tool["function"]["name"] for tool in view.export("openai")] == view.names()
    decision = view.why("trigger_pr_review")
    assert (decision.visible, decision.code) == (False, "group")
    assert decision.reason.startswith("not in include=['core', 'chat_only']")
    assert decision.fix.text == "include 'triggers'"
    assert (decision.next, decision.next_reason) == ("factory", "no factory 'trigger_pr_review' in the context")
    assert (result.structured, result.is_error) == (2, False)


@pytest.mark.parametrize(
    ("path", "name", "text"),
    [
        pytest.param(path, name, text, id=f"{path.relative_to(ROOT / 'src')}:{name}")
        for path in CODE
        if path not in CONTINUED
        for name, text in docstrings(path)
    ],
)
def test_blocks_of_a_docstring_run(path: Path, name: str, text: str, tmp_path: Path) -> None:
    module = importlib.import_module(".".join(path.relative_to(ROOT / "src").with_suffix("").parts))
    names = {**public_names(), **vars(module), "__name__": "__page__"}
    page = text if "```python" in text else f"```python\n{text}\n```\n"

    Runner(folder=tmp_path, name=f"{path.name}:{name}", namespace=names).run(page)


def test_every_example_has_a_page_whose_commands_run() -> None:
    folders = [config.parent for config in (ROOT / "examples").rglob("pegboard.yaml")]

    assert len(folders) >= 3
    for folder in folders:
        text = (folder / "README.md").read_text(encoding="utf-8")
        assert any(block.language == "console" for block in blocks_of(text)), folder
        assert f"({folder.relative_to(ROOT / 'examples')}/)" in (ROOT / "examples" / "README.md").read_text("utf-8")


def test_a_block_that_shows_something_else_fails(tmp_path: Path) -> None:
    runner = Runner(folder=tmp_path, name="page.md")

    with pytest.raises(pytest.fail.Exception, match="expected"):
        runner.run("```console\n$ echo one\ntwo\n```\n")
    with pytest.raises(pytest.fail.Exception, match="Expected"):
        runner.run("```python\n>>> 1 + 1\n3\n```\n")
    runner.run("```console\n$ echo one two three\none ... three\n```\n")
