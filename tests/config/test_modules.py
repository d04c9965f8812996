"""Python modules of a project: collected, kept apart, and seen again when they are edited."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from pegboard import DefinitionError, default_catalog
from pegboard.config import build, context_for, load
from tests.config.project import Project


def tool(name: str, value: str = "x") -> str:
    return f"""
from pegboard import default_catalog

@default_catalog.tool
def {name}() -> str:
    return {value!r}
"""


def names(project: Project) -> list[str]:
    return project.view().names()


def test_what_modules_register_is_collected_and_nothing_stays_behind(project: Project) -> None:
    before = list(default_catalog.registry.build().entries)
    project.write(
        "python: [mine]",
        mine="""
        from pegboard import Profile, Tool, default_catalog

        @default_catalog.tool
        def one() -> str: return "1"

        class Two(Tool):
            def perform(self) -> str: return "2"

        @default_catalog.builder("three")
        def build(ctx):
            return one

        @default_catalog.builder(lambda: ["four"], full_names=[])
        def bundle(ctx):
            return []

        @default_catalog.predicate
        def asked(ctx) -> bool: return True

        @default_catalog.before("one")
        def look(call): return None

        default_catalog.group("g", "a group")
        default_catalog.mirror("five")
        default_catalog.profile(Profile(name="p", include=("g",)))
        """,
    )
    registry = project.catalog().registry
    assert [entry.spec.name for entry in registry.build().entries] == ["one", "two", "three", "four"]
    assert set(registry.predicates) == {"asked"}
    assert [hook.match for hook in registry.hooks] == ["one"]
    assert (set(registry.groups), set(registry.mirrors), set(registry.profiles)) == ({"g"}, {"five"}, {"p"})
    assert list(default_catalog.registry.build().entries) == before
    assert default_catalog.registry is not registry


def test_packages_and_folders_without_init_are_importable(project: Project) -> None:
    project.write("python: [acme.tools, plain.sub.more]")
    project.file("acme/__init__.py", "from acme.helpers import shared\n")
    project.file("acme/helpers.py", "shared = 'from a sibling'\n")
    project.file("acme/tools.py", "from acme import shared\n" + tool("a", "x"))
    project.file("plain/sub/more.py", "from plain.sub import beside\n" + tool("b"))
    project.file("plain/sub/beside.py", "")
    assert names(project) == ["a", "b"]


def test_the_folder_is_importable_only_while_a_config_is_wired(project: Project) -> None:
    before = (list(sys.path), list(sys.meta_path))
    names(project.write("python: [mine]", mine=tool("a")))
    assert (list(sys.path), list(sys.meta_path)) == before
    assert not (project.folder / "__pycache__").exists()


def test_two_projects_with_modules_of_one_name_do_not_mix(tmp_path: Path) -> None:
    for name in ("left", "right"):
        (tmp_path / name).mkdir()
    left = Project(tmp_path / "left").write("python: [mine]", mine="import helper\n" + tool("a"), helper="")
    right = Project(tmp_path / "right").write("python: [mine]", mine=tool("b"))
    first = left.view()
    assert names(right) == ["b"]
    assert first.names() == ["a"]
    right.write("python: [mine]", mine="import helper\n")
    assert "No module named 'helper'" in right.said()[0]


async def test_an_edited_module_is_seen_by_the_next_load_and_the_old_catalog_keeps_its_own(project: Project) -> None:
    project.write("python: [acme.tools]").file("acme/tools.py", "from acme.value import VALUE\n" + tool("a", "?"))
    source = "from pegboard import default_catalog\nfrom acme.value import VALUE\n\n@default_catalog.tool\n"
    project.file("acme/tools.py", source + "def a() -> str:\n    return VALUE\n")
    results = []
    views = []
    for value in "123":  # the same size within the same second: no cache may answer
        project.file("acme/value.py", f"VALUE = '{value}'\n")
        views.append(project.view())
        results.append((await views[-1].call("a", {})).text)
    assert results == ["1", "2", "3"]
    assert [(await view.call("a", {})).text for view in views] == ["1", "2", "3"]


def test_a_load_that_fails_puts_the_modules_back(project: Project) -> None:
    project.write("python: [mine]", mine=tool("a"))
    names(project)
    kept = sys.modules["mine"]
    project.write("python: [mine, other]", mine=tool("b"), other="raise SystemExit(3)\n")
    assert project.said() == [
        "pegboard.yaml:1:16: python[1]: the module 'other' cannot be imported: SystemExit: 3 (other.py:1)"
    ]
    assert sys.modules["mine"] is kept
    assert "other" not in sys.modules


def test_the_standard_library_cannot_be_shadowed(project: Project) -> None:
    project.write(
        "python: [mine]", mine="import calendar\nassert calendar.monthrange\n" + tool("a"), calendar="1 / 0\n"
    )
    assert names(project) == ["a"]


def test_a_folder_of_files_does_not_hide_an_installed_package(project: Project) -> None:
    project.write("python: [mine]", mine="import orjson\norjson.dumps\n" + tool("a"))
    project.file("orjson/notes.txt", "")
    sys.modules.pop("orjson.notes", None)
    assert names(project) == ["a"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import nowhere\n", "ModuleNotFoundError: No module named 'nowhere' (mine.py:1)"),
        ("def f(:\n", "SyntaxError: invalid syntax (mine.py:1)"),
        ("x = 1\n\nraise KeyError('k')\n", "KeyError: 'k' (mine.py:3)"),
        ("import sys\nsys.exit(2)\n", "SystemExit: 2 (mine.py:2)"),
        ("from pegboard import default_catalog\n\n@default_catalog.tool(colour=1)\ndef f(): pass\n",
         "DefinitionError: "),
    ],
)  # fmt: skip
def test_a_module_that_cannot_be_imported_is_a_problem_with_its_line(project: Project, source: str, said: str) -> None:
    (problem,) = project.write("python: [mine]", mine=source).problems()
    assert problem.where == "pegboard.yaml:1:10"
    assert problem.message.startswith(f"the module 'mine' cannot be imported: {said}")


@pytest.mark.parametrize(
    ("source", "meant"),
    [
        ("from pegboard import default_catlog\n", "'default_catalog'"),
        ("from pegboard import default_catalog\n\n@default_catalog.toll\ndef f(): pass\n", "'tool'"),
    ],
)
def test_a_name_of_ours_that_is_misspelt_is_told_with_the_one_that_was_meant(
    project: Project, source: str, meant: str
) -> None:
    (problem,) = project.write("python: [mine]", mine=source).problems()
    assert f". Did you mean {meant}? (mine.py:" in problem.message


def test_tools_of_a_failed_module_are_not_reported_a_second_time(project: Project) -> None:
    project.write("python: [mine]\ntools: [{name: a, type: internal}]\n", mine="1 / 0\n")
    assert [problem.path for problem in project.problems()] == ["python[0]"]


def test_a_module_that_is_only_the_home_of_a_handler_declares_nothing(project: Project) -> None:
    project.write('tools: [{name: b, type: internal, handler: "python:mine:a"}]', mine=tool("a"))
    assert names(project) == ["b"]
    assert default_catalog.registry.build().find("a") is None


def test_a_secret_in_the_fault_of_a_module_is_not_shown(project: Project) -> None:
    project.env = {"DB_PASS": "canary-value"}
    project.write("settings: {db: '${DB_PASS}'}\npython: [mine]\n", mine="raise ValueError('pw=canary-value')\n")
    (said,) = project.said()
    assert "canary" not in said
    assert "pw=[redacted]" in said


def test_build_may_be_repeated_and_reads_the_modules_anew(project: Project) -> None:
    project.write("python: [mine]", mine=tool("a"))
    config = load(project.path, env={})
    first = build(config)
    project.file("mine.py", tool("b"))
    second = build(config)
    assert [catalog.view(context_for(config)).names() for catalog in (first, second)] == [["a"], ["b"]]


def test_a_failed_build_leaves_default_catalog_as_it_was(project: Project) -> None:
    runtime = default_catalog.runtime
    project.write("python: [mine]", mine="1 / 0\n")
    with pytest.raises(DefinitionError):
        project.load()
    assert default_catalog.runtime is runtime


def test_what_the_host_imported_is_taken_as_it_is_and_not_run_twice(tmp_path: Path) -> None:
    (tmp_path / "acme.py").write_text(
        "print('ran')\nfrom pegboard import default_catalog\n\nVALUE = 'old'\n\n"
        "@default_catalog.predicate\ndef asked(ctx) -> bool:\n    return True\n\n"
        "@default_catalog.before('a')\ndef look(call):\n    return None\n\n"
        "@default_catalog.tool(available='asked')\ndef a() -> str:\n    return VALUE\n"
    )
    (tmp_path / "pegboard.yaml").write_text(
        'python: [acme]\ntools: [{name: b, type: internal, handler: "python:acme:a"}]\n'
    )
    (tmp_path / "host.py").write_text(
        textwrap.dedent(
            """
            import asyncio
            from pathlib import Path

            import acme
            from pegboard import default_catalog
            from pegboard.config import context_for, load_catalog

            acme.VALUE = "set by the host"
            for _ in range(2):
                catalog, config = load_catalog(Path("pegboard.yaml"), env={})
                view = catalog.view(context_for(config))
                print(view.names(), len(catalog.registry.hooks), asyncio.run(view.call("b", {})).text)
            print(default_catalog.registry.build().find("a") is not None)
            """
        )
    )
    done = subprocess.run([sys.executable, "host.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "ran", "['a', 'b'] 1 set by the host", "['a', 'b'] 1 set by the host", "True",
    ], done.stderr  # fmt: skip


@pytest.mark.parametrize("package", ["installed_one", "installed_two.tools"])
def test_an_installed_module_is_collected_by_every_load_also_after_one_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    place = tmp_path / "site"
    installed = Project(place)
    installed.file(f"{package.replace('.', '/')}.py", tool("a"))
    monkeypatch.syspath_prepend(str(place))
    (tmp_path / "app").mkdir()
    project = Project(tmp_path / "app").write(f"python: [{package}]\nnmae: x\n")
    assert project.problems()
    project.write(f"python: [{package}]\n")
    assert [names(project), names(project)] == [["a"], ["a"]]


def test_an_installed_module_that_was_the_home_of_a_handler_is_collected_once_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Project(tmp_path / "site").file("installed_home.py", tool("a"))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    (tmp_path / "app").mkdir()
    project = Project(tmp_path / "app")
    project.write('tools: [{name: b, type: internal, handler: "python:installed_home:a"}]')
    kept = []
    for _ in range(2):
        assert names(project) == ["b"]
        kept.append(sys.modules["installed_home"])
    assert kept[0] is kept[1]  # a library is not run twice
    assert names(project.write("python: [installed_home]")) == ["a"]


def test_tools_of_a_library_that_a_module_imports_are_collected_by_every_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Project(tmp_path / "site").file("installed_library/__init__.py", "").file("installed_library/t.py", tool("a"))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    (tmp_path / "app").mkdir()
    project = Project(tmp_path / "app").write("python: [mine]", mine="import installed_library.t\n" + tool("b"))
    assert [names(project), names(project)] == [["a", "b"], ["a", "b"]]


def test_a_slip_in_a_module_is_told_with_the_line_of_the_module(project: Project) -> None:
    project.write(
        "python: [mine]",
        mine="""
        from pegboard import default_catalog

        @default_catalog.tool(readonly=True)
        def one() -> str: return "1"
        """,
    )
    assert project.said()[0].endswith("unknown tool option 'readonly'. Did you mean 'read_only'? (mine.py:4)")
    project.write("python: [mime]")
    assert project.said()[0].endswith("next to this file or among the installed packages. Did you mean 'mine'?")
