"""Near names: the name that was meant, among very many, for as good as nothing."""

import difflib
import random
import string

import pytest

from pegboard import Catalog, Policy, Profile, ToolContext, ToolSpec
from pegboard.core.names import nearest_one
from pegboard.core.view import NAMES_COMPARED_EACH
from tests.core.parts import echo
from tests.sizes import IS_SOAK
from tests.timing import steps

COUNT = 10_000 if IS_SOAK else 3_000
SERVICES = ("github", "slack", "jira", "mail", "drive", "calendar", "crm", "billing", "search", "wiki")
VERBS = ("create", "list", "delete", "update", "get", "search", "archive", "move", "share", "export")
LETTERS = "abcdefghijkl"
NOUNS = ("issue", "channel", "message", "ticket", "folder", "event", "contact", "invoice", "page", "comment")


def names(count: int) -> list[str]:
    every = [f"{a}__{b}_{c}_{d}" for a in SERVICES for b in VERBS for c in NOUNS for d in NOUNS]
    return every[:count]


def catalog_of(tools: list[str], *, hidden: tuple[str, ...] = ()) -> Catalog:
    catalog = Catalog("many")

    async def run(_ctx: object, _args: object) -> str:
        return "done"

    for name in tools:
        catalog.register(ToolSpec(name=name, groups=("core",)), run)
    catalog.profile(Profile(name="all", include=("core",), policy=Policy(deny=hidden)))
    return catalog


def slipped(rng: random.Random, name: str) -> str:
    place = rng.randrange(len(name))
    cut = {
        "drop": name[place + 1 :],
        "double": name[place] + name[place:],
        "other": rng.choice(string.ascii_lowercase) + name[place + 1 :],
    }
    return name[:place] + cut[rng.choice(sorted(cut))]


def test_a_slip_finds_the_name_that_was_meant_among_thousands_as_comparing_all_of_them_does() -> None:
    tools, rng = names(COUNT), random.Random(7)
    view = catalog_of(tools).view(ToolContext(), profile="all")
    wrong = [(slipped(rng, name), name) for name in rng.sample(tools, 100)]
    wrong = [(said, meant) for said, meant in wrong if said not in tools]
    hits = sum(f"Did you mean {meant!r}?" in view.hint(said) for said, meant in wrong)
    assert hits > 0.95 * len(wrong)
    for said in ("zzzzzzzz", "", "é" * 300, "\x00", "__"):
        assert view.hint(said) == " List the tools to see what is available.", said


def test_what_a_caller_may_not_use_is_no_hint_however_near_it_is() -> None:
    tools = names(1_000)
    view = catalog_of(tools, hidden=("github__create_*",)).view(ToolContext(), profile="all")
    assert "github__create" not in view.hint("github__create_isue_issue")
    assert "Did you mean 'github__list_issue_issue'?" in view.hint("github__list_isue_issue")


def test_what_is_hidden_from_this_caller_alone_is_no_hint_either() -> None:
    catalog = catalog_of(names(1_000))
    catalog.tool(name="pay_bill", groups="core", available=lambda ctx: False)(lambda: "paid")
    catalog.profile(Profile(name="more", include=("core",)))
    view = catalog.view(ToolContext(), profile="more")
    assert "pay_bill" not in view.hint("pay_bil")


def test_where_nothing_can_be_used_now_no_name_is_a_hint() -> None:
    catalog = Catalog("closed")
    for number in range(NAMES_COMPARED_EACH + 1):
        catalog.tool(name=f"pay_bill_{number:03}", groups="core", available=lambda ctx: False)(lambda: "paid")
    catalog.profile(Profile(name="all", include=("core",)))
    assert "pay_bill" not in catalog.view(ToolContext(), profile="all").hint("pay_bil_007")


def test_hints_after_changes_are_those_of_a_catalog_made_anew() -> None:
    tools, rng = names(300), random.Random(3)
    catalog = catalog_of(tools)
    said = [slipped(rng, name) for name in rng.sample(names(400), 40)] + ["SLACK__list_page_page", "", "zzzzzzzz"]
    for gone, come in ((0, 3), (4, 0), (2, 2), (0, 0), (290, 0), (0, 60)):
        for name in rng.sample(tools, gone):
            catalog.unregister(f"main.{name}")
            tools.remove(name)
        for name in rng.sample([each for each in names(400) if each not in tools], come):
            catalog.register(ToolSpec(name=name, groups=("core",)), echo)
            tools.append(name)
        catalog.register(ToolSpec(name=tools[0], description="Anew.", groups=("core",)), echo, replace=True)
        views = [each.view(ToolContext(), profile="all") for each in (catalog, catalog_of(tools))]
        for name in said:
            changed, anew = ((view.hint(name), view.why(name).reason) for view in views)
            assert changed == anew, name


def test_a_slip_between_a_beginning_and_an_end_that_very_many_names_have_is_found() -> None:
    tools = [f"tool_{a}{b}_of_{c}{d}_page" for a in LETTERS for b in "xyz" for c in LETTERS for d in "xyz"]
    view = catalog_of(tools).view(ToolContext(), profile="all")
    for said in ("tool_ax.of_hx_page", "tool_axof_hx_page", "tool_axx_of_hx_page", "tool_axo_f_hx_page"):
        assert view.hint(said) == " Did you mean 'tool_ax_of_hx_page'?"


def test_few_names_are_compared_each() -> None:
    tools = ["web_search", "read_file", "send_mail"]
    view = catalog_of(tools).view(ToolContext(), profile="all")
    for said in ("search_web", "web_serch", "mail_send", "readfile"):
        assert (nearest_one(said, tools) or "List the tools") in view.hint(said)


def test_why_tells_of_thousands_what_was_meant_or_the_first_of_them_as_of_few() -> None:
    tools = names(1_000)
    view = catalog_of(tools).view(ToolContext(), profile="all")
    first = ", ".join(sorted(tools)[:20])
    assert view.why("github__list_isue_issue").reason.endswith("Did you mean 'github__list_issue_issue'?")
    for said in ("zzzzzzzz", "", "é" * 300):
        assert view.why(said).reason.endswith(f"Declared: {first}, +{len(tools) - 20} more.")
    few = catalog_of(["web_search", "read_file"]).view(ToolContext(), profile="all")
    assert few.why("web_serch").reason.endswith("Did you mean 'web_search'?")
    assert few.why("zzzzzzzz").reason.endswith("Declared: read_file, web_search.")


@pytest.mark.slow
def test_a_hint_among_thousands_costs_little_beside_comparing_a_tenth_of_them() -> None:
    tools = names(COUNT)
    view = catalog_of(tools).view(ToolContext(), profile="all")
    view.hint("to have it ordered")
    view.why("to have it ordered")

    for said in ("github__creat_issue_page", "github__creat_issue_pages", "zzzzzzzzzzzzzzzz"):
        compared = steps(lambda said=said: difflib.get_close_matches(said, tools[:1_000], n=1))
        assert steps(lambda said=said: view.hint(said)) * 50 < compared
        assert steps(lambda said=said: view.why(said)) * 50 < compared


@pytest.mark.parametrize("count", [5, NAMES_COMPARED_EACH + 10])
@pytest.mark.parametrize("said", ["SEND_EMAIL", "Send_Email", "send_EMAIL"])
def test_a_name_in_letters_of_the_other_case_is_the_one_that_was_meant(count: int, said: str) -> None:
    view = catalog_of([*names(count), "send_email", "y"]).view(ToolContext(), profile="all")
    assert view.hint(said) == " Did you mean 'send_email'?"
    assert view.hint("Y") == " Did you mean 'y'?"
    assert f"Did you mean {'send_email'!r}?" in view.why(said).reason
