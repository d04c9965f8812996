"""Host mistakes: what a program gets that calls a catalog with a fault, or repeats the name of a step."""

from typing import Any

import pytest

from pegboard import CallContext, Catalog, DefinitionError, Tasks, ToolContext
from pegboard.workspace.document_workspace import Workspace

ANN = ToolContext(user_id="ann")


async def test_a_call_of_a_catalog_with_a_fault_says_which(caplog: pytest.LogCaptureFixture) -> None:
    catalog = Catalog()

    @catalog.tool(task="required")
    async def export() -> str:
        """Export."""
        return "done"

    for result in (await catalog.execute("export", {}, ANN), await catalog.view(ANN).call("export", {})):
        assert result.error is not None
        assert result.error.kind == "config_invalid"
        assert "main.export: task='required' needs a place for tasks" in result.text
    assert "No tool can be called" in caplog.text


@pytest.mark.parametrize("as_task", [False, True])
async def test_a_step_name_used_twice_fails_alike_inline_and_as_a_task(as_task: bool) -> None:
    catalog = Catalog(tasks=Tasks())

    @catalog.tool(task="optional")
    async def twice(ctx: CallContext) -> int:
        """Do two steps."""
        return await ctx.step("one", lambda: 1) + await ctx.step("one", lambda: 2)

    @catalog.tool
    async def often(ctx: CallContext) -> int:
        """Never run as a task."""
        return await ctx.step("one", lambda: 1) + await ctx.step("one", lambda: 2)

    view = catalog.view(ANN)
    result = await view.call("twice", {}, as_task=as_task)
    if result.task_id is not None:
        result = await catalog.tasks.result(result.task_id, ANN, timeout_s=30)
    assert result.error is not None
    assert (result.error.kind, result.text) == (
        "tool_error", "Two steps are called 'one': each needs a name of its own.",
    )  # fmt: skip
    assert (await view.call("often", {})).structured == 3
    await catalog.close()


def test_tools_for_documents_include_pages_of_the_web_where_the_host_wants_it() -> None:
    def names(**options: Any) -> list[str]:
        catalog = Catalog()
        catalog.use_documents(Workspace("sqlite:documents.db").store, **options)
        return catalog.view(ToolContext(space_id="s1")).names()

    assert "fetch_web_page" not in names()
    assert "fetch_web_page" in names(web_fetch=True)
    assert "fetch_web_page" in names(web_fetch=["*.example.com"])
    for hosts, text in (([], "names no host"), (["a b"], "web_fetch: ")):
        with pytest.raises(DefinitionError, match=text):
            names(web_fetch=hosts)
