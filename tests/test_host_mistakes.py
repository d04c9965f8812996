"""Host mistakes: what a program gets that calls a catalog with a fault, or repeats the name of a step."""

from collections.abc import Callable
from typing import Annotated, Any

import fastapi
import pytest
from mcp.server.mcpserver import Context

from pegboard import CallContext, Catalog, DefinitionError, Tasks, ToolContext, ToolSpec
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
        "tool_error", "Two steps are called 'one': each needs its own name.",
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


def takes_a_context(customer: str, ctx: Context[Any] | None = None) -> str:
    """Take the context of the MCP SDK."""
    return customer


def takes_a_dependency(customer: str, user: str = fastapi.Depends(lambda: "ann")) -> str:
    """Take a dependency as a default."""
    return customer


def takes_an_annotated_dependency(customer: str, user: Annotated[str, fastapi.Depends(lambda: "ann")]) -> str:
    """Take a dependency in the annotation."""
    return customer


def takes_an_optional_dependency(
    customer: str, user: Annotated[str, fastapi.Depends(lambda: "ann")] | None = None
) -> str:
    """Take a dependency in one alternative of the annotation."""
    return customer


def takes_a_header(customer: str, limit: Annotated[int, fastapi.Query(ge=1)] = 10) -> str:
    """Take a parameter that FastAPI describes, and that a model can send."""
    return customer


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (takes_a_context, "parameter 'ctx': Context is filled in by the MCP SDK, not by Pegboard: write `ctx: CallC"),
        (takes_a_dependency, "parameter 'user': Depends is filled in by FastAPI, not by Pegboard, so the model would"),
        (takes_an_annotated_dependency, "parameter 'user': Depends is filled in by FastAPI, not by Pegboard"),
        (takes_an_optional_dependency, "parameter 'user': Depends is filled in by FastAPI, not by Pegboard"),
    ],
)
def test_what_another_framework_fills_in_never_becomes_an_argument_of_the_model(
    function: Callable[..., str], says: str
) -> None:
    catalog = Catalog()

    with pytest.raises(DefinitionError) as caught:
        catalog.tool(function)

    assert says in str(caught.value)
    assert catalog.view(ANN).names() == []


def test_a_parameter_that_another_framework_only_describes_is_taken() -> None:
    catalog = Catalog()
    catalog.tool(takes_a_header)

    [tool] = catalog.view(ANN).export("mcp")

    assert tool["inputSchema"]["properties"]["limit"] == {"type": "integer", "minimum": 1, "default": 10}


class Desk(ToolContext):
    def bugs_configured(self) -> bool:
        return False


def test_the_mistakes_of_the_first_day_come_with_what_to_write_instead() -> None:
    desk = Catalog(context_type=Desk)
    find = ToolSpec(name="find", input_schema={"type": "object", "properties": {"limit": {"type": "integer"}}})
    desk.register(ToolSpec(name="bugs", available="bugs_configured"), lambda ctx, args: [])
    desk.register(ToolSpec(name="off", available=False), lambda ctx, args: [])

    def misspelled() -> object:
        other = Catalog(context_type=Desk)
        other.register(ToolSpec(name="bugs", available="bugs_configured?"), lambda ctx, args: [])
        return other.view(Desk()).names()

    for ask, says in (
        (lambda: desk.tool(tags=["read"]), "unknown tool option 'tags'. Here it is called 'groups'."),  # type: ignore[call-overload] - the mistake
        (lambda: desk.register(find, lambda args, context: args), "takes (args, context); swap them: (ctx, args)."),
        (lambda: desk.view(Desk(), include=["chat_only"]), "is declared with catalog.group('chat_only'), or under"),
        (misspelled, "Unknown predicate 'bugs_configured?'. Did you mean 'bugs_configured'?"),
    ):
        with pytest.raises(DefinitionError) as caught:
            ask()
        assert says in str(caught.value)

    fixes = [desk.view(Desk()).why(name).fix for name in ("bugs", "off")]
    assert [fix and fix.text for fix in fixes] == ["make this true: bugs_configured", "make this true: available: true"]
