"""Profiles, groups, hooks and files: who sees what, and which line says so."""

from pegboard.config import warnings
from pegboard.model.rate_limit import RateLimit
from tests.config.project import Project

MINE = """
from pegboard import default_catalog

@default_catalog.tool(groups="core")
def read() -> str:
    return "read"

@default_catalog.tool(groups="files")
def delete_all() -> str:
    return "deleted"

def f() -> str:
    return "f"
"""
CONFIG = """\
python: [mine]
groups: {core: for all, spare: }
tools:
  - {name: f, type: internal, handler: "python:mine:f", groups: [core, files]}
profiles:
  chat: {include: [core]}
  files:
    include: files
    allow:
      - read
      - f
    deny: [delete_*,
      f]
  none: {allow: []}
  all: {rate_limit: 5/60s, exposure: direct}
  spare: {include: [spare]}
"""


def test_each_profile_sees_its_slice(project: Project) -> None:
    project.write(CONFIG, mine=MINE)
    seen = {name: project.view(profile=name).names() for name in ("chat", "files", "none", "all", "spare")}
    assert seen == {
        "chat": ["read", "f"], "files": [], "none": [], "all": ["read", "delete_all", "f"], "spare": [],
    }  # fmt: skip


def test_why_names_the_line_of_the_rule(project: Project) -> None:
    project.write(CONFIG, mine=MINE)
    view = project.view(profile="files")
    assert view.why("delete_all").reason == (
        f"denied by ['delete_*'] ({project.path}:12); not in allow=['read', 'f'] ({project.path}:10)"
    )
    assert f"include=['files'] of profile 'files' ({project.path}:8)" in view.why("read").reason


def test_the_fix_of_a_rule_leads_where_next_says(project: Project) -> None:
    project.write(CONFIG, mine=MINE)
    decision = project.view(profile="files").why("delete_all")
    assert (decision.code, decision.next) == ("policy", "visible")


def test_a_profile_has_its_own_limit_and_exposure(project: Project) -> None:
    profiles = project.write(CONFIG, mine=MINE).catalog().registry.profiles
    assert profiles["all"].rate_limit == RateLimit(max_calls=5, window_s=60)
    assert (profiles["all"].exposure, profiles["chat"].exposure) == ("direct", "auto")


def test_an_entry_of_a_policy_that_matches_nothing_is_a_warning_at_its_place(project: Project) -> None:
    project.write("python: [mine]\nfiles: ['tools/*.yaml']\nprofiles: {a: {deny: [x_*, read], allow: y}}\n", mine=MINE)
    catalog, config = project.load()
    assert [str(problem).replace(f"{project.folder}/", "") for problem in warnings(config, catalog)] == [
        "pegboard.yaml:2:9: files[0]: 'tools/*.yaml' matches no file at present",
        "pegboard.yaml:3:42: profiles.a.allow: 'y' matches no tool at present",
        "pegboard.yaml:3:23: profiles.a.deny[0]: 'x_*' matches no tool at present",
    ]


async def test_hooks_stand_around_the_tools_that_they_match(project: Project) -> None:
    project.write(
        """\
        python: [mine]
        hooks:
          - {on: before, match: "delete_*", use: "python:guards:deny", required: false}
          - {on: after, use: "python:guards:shout"}
          - {on: after, match: read, use: "python:guards:broken"}
          - {on: after, match: f, use: "python:guards:broken", required: true}
        tools: [{name: f, type: internal, handler: "python:mine:f"}]
        """,
        mine=MINE,
        guards="""
        from pegboard import Verdict

        def deny(call):
            return Verdict.deny("not today")

        def shout(call, result):
            return result.text.upper()

        def broken(call, result):
            raise RuntimeError("down")
        """,
    )
    view = project.view()
    results = [await view.call(name, {}) for name in ("delete_all", "read", "f")]
    assert results[0].error is not None
    assert results[0].error.kind == "hook_refused"
    assert results[1].text == "READ"
    assert results[2].is_error


def test_files_are_read_once_each_in_order_with_their_own_places(project: Project) -> None:
    project.write("files: [b.yaml, '*.yaml', 'tools/**/*.yaml']\ngroups: {main: x}\n", mine=MINE)
    project.file("b.yaml", "groups: {b: x}\n").file("a.yaml", "groups: {a: x}\n")
    project.file("tools/deep/t.yaml", 'tools:\n  - {name: t, type: internal, handler: "python:mine:f"}\n')
    catalog, config = project.load()
    read = [str(path.relative_to(project.folder)) for path in config.files]
    assert read == ["pegboard.yaml", "b.yaml", "a.yaml", "tools/deep/t.yaml"]
    assert list(config.groups) == ["main", "b", "a"]
    entry = catalog.snapshot().find("t")
    assert entry is not None
    assert entry.spec.origin == f"{project.folder}/tools/deep/t.yaml:2"


def test_modules_that_a_file_in_a_folder_names_lie_beside_the_main_file(project: Project) -> None:
    project.write("files: ['tools/*.yaml']", mine=MINE)
    project.file("tools/t.yaml", "python: [mine]\n")
    assert project.view().names() == ["read", "delete_all"]


def test_the_name_is_the_server_of_allow_lists(project: Project) -> None:
    project.write("name: acme\npython: [mine]\n", mine=MINE)
    catalog, config = project.load()
    assert (catalog.name, config.name) == ("acme", "acme")
    assert project.view().names(server=catalog.name)[0] == "mcp__acme__read"


def test_the_context_has_the_settings_and_what_the_host_adds(project: Project) -> None:
    from pegboard.config import context_for

    _, config = project.write("settings: {a: 1, b: {c: [true, null]}}").load()
    ctx = context_for(config, user="ann", space="s", roles=["operator"], session="x", agent="g", settings={"a": 2})
    assert ctx.settings == {"a": 2, "b": {"c": [True, None]}}
    assert (ctx.user_id, ctx.space_id, ctx.session_id, ctx.agent) == ("ann", "s", "x", "g")
    assert ctx.roles == frozenset({"operator"})


def test_a_profile_says_how_its_tools_are_shown(project: Project) -> None:
    project.write(
        """\
        python: [mine]
        profiles:
          chat: {exposure: search, pinned: read, rename: {getTools: get_tools}, require_context: true}
          small: {token_budget: 20}
        """,
        mine=MINE,
    )
    catalog, config = project.load()
    shown = {name: catalog.exposed(project.view(profile=name)).names() for name in ("chat", "small")}
    assert shown == {
        "chat": ["searchTools", "get_tools", "useTools", "read"],
        "small": ["searchTools", "getTools", "useTools"],
    }
    assert warnings(config, catalog) == []


def test_a_pin_that_matches_nothing_is_a_warning_at_its_place(project: Project) -> None:
    project.write("python: [mine]\nprofiles: {a: {exposure: search, pinned: [read, rad]}}\n", mine=MINE)
    catalog, config = project.load()
    assert [str(problem).replace(f"{project.folder}/", "") for problem in warnings(config, catalog)] == [
        "pegboard.yaml:2:49: profiles.a.pinned[1]: 'rad' matches no tool at present",
    ]


def test_a_tool_with_the_name_of_a_meta_tool_is_refused(project: Project) -> None:
    project.write("python: [mine]\nprofiles: {a: {exposure: search, rename: {useTools: Read}}}\n", mine=MINE)
    assert project.said() == [
        "pegboard.yaml:2:26: profiles.a.exposure: 'read' (mine:4) has the name of a meta tool; "
        "rename one, or set `direct`"
    ]


def test_a_tool_that_no_profile_sees_is_a_warning_with_the_near_group(project: Project) -> None:
    mine = """
    from pegboard import default_catalog

    @default_catalog.tool(groups="cor")
    def one() -> str: return "1"

    @default_catalog.tool(groups=("cor", "core"))
    def two() -> str: return "2"

    @default_catalog.tool(groups="inner", internal_only=True)
    def three() -> str: return "3"
    """
    project.write("python: [mine]\nprofiles: {a: {include: [core]}}\n", mine=mine)
    catalog, config = project.load()
    assert [str(problem) for problem in warnings(config, catalog)] == [
        "mine:4: one: no profile includes 'cor'. Did you mean 'core'?"
    ]
    project.write("python: [mine]\nprofiles: {a: {include: [core]}, b: {}}\n", mine=mine)
    catalog, config = project.load()
    assert warnings(config, catalog) == []


def test_tools_that_no_profile_includes_share_a_warning(project: Project) -> None:
    mine = """
    from pegboard import default_catalog

    for name in ("one", "two", "three"):
        default_catalog.tool(groups="cor", name=name)(lambda: "1")

    @default_catalog.tool(groups="core")
    def four() -> str: return "4"
    """
    store = "workspace: {store: 'sqlite:./w.db'}\n"
    project.write(f"python: [mine]\n{store}profiles: {{a: {{include: [core]}}}}\n", mine=mine)
    catalog, config = project.load()
    ours, documents = sorted(map(str, warnings(config, catalog)))
    assert ours == (
        "mine:5: no profile includes 'cor', so no caller sees these 3 tools: one, two, three. Did you mean 'core'?"
    )
    assert documents.startswith(
        "pegboard.workspace.tools: no profile includes any of ['navigation', 'search', 'document'], "
        "so no caller sees these 10 tools: list_sources, "
    )


def test_a_tool_says_its_former_names_its_end_and_its_successor(project: Project) -> None:
    project.write(
        """\
        tools:
          - {name: f, type: internal, handler: "python:mine:f", renamed_from: g, deprecated: 2027-01-01, replaced_by: h}
        """,
        mine=MINE,
    )
    entry = project.view().snapshot.find("g")
    assert entry is not None
    assert (entry.spec.name, entry.spec.deprecated, entry.spec.replaced_by) == ("f", "2027-01-01", "h")
    assert entry.spec.description.endswith("Deprecated: it ends on 2027-01-01; use 'h' instead.")
    project.write("tools: [{name: f, type: internal, handler: 'python:mine:f', deprecated: soon}]", mine=MINE)
    assert project.said() == ['pegboard.yaml:1:73: tools[0].deprecated: expected a day, such as 2027-01-01, not "soon"']
    project.write("tools: [{name: f, type: internal, handler: 'python:mine:f', replaced_by: f}]", mine=MINE)
    assert project.said() == [
        "pegboard.yaml:1:74: tools[0].replaced_by: replaced_by leads back to itself: main.f → main.f; end it somewhere"
    ]
