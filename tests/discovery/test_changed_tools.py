"""Changed tools are read anew: a search finds what a tool says now, and not what it said before."""

from pegboard import Catalog
from tests.core.parts import ANN, FakeSource, echo, foreign, spec


async def found(catalog: Catalog, query: str) -> list[str]:
    """Return the name of the best answer to a query; none where no tool has a word of it."""
    answer = await catalog.search(catalog.view(ANN), query)
    return [] if answer.near_namespaces else [tool.entry.wire_name for tool in answer.tools][:1]


async def test_a_tool_of_our_own_that_changed_is_found_by_its_new_words_alone() -> None:
    catalog = Catalog()
    catalog.register(spec("thing", description="Water the tulips in the greenhouse."), echo)
    catalog.register(spec("other", description="Translate a poem into Latin."), echo)
    assert (await found(catalog, "water the tulips"), await found(catalog, "send an invoice")) == (["thing"], [])
    catalog.register(spec("thing", description="Send an invoice to a customer."), echo, replace=True)
    assert (await found(catalog, "send an invoice"), await found(catalog, "water the tulips")) == (["thing"], [])
    assert await found(catalog, "translate a poem") == ["other"]


async def test_a_foreign_tool_that_changed_in_its_parameters_alone_is_read_anew_too() -> None:
    catalog = Catalog()

    def listed(parameter: str) -> list:
        schema = {"type": "object", "properties": {parameter: {"type": "string", "description": f"The {parameter}."}}}
        return [foreign("git", "push", description="Do it.", input_schema=schema)]

    source = FakeSource(name="git", listed=listed("thermometer"))
    catalog.add_source(source)
    assert await found(catalog, "thermometer") == ["git__push"]
    source.relist(listed("saxophone"))
    assert (await found(catalog, "saxophone"), await found(catalog, "thermometer")) == (["git__push"], [])
