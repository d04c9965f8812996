"""What a config may name: Python, files, variables of the environment, and files that others may write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pegboard.cli import main
from tests.config.project import Project

# Nothing else in it: what a config names of Python itself must not run, whatever the way to it.
MINE = """
import builtins
import functools
import os
import subprocess
from os import system
from subprocess import run as launch
import acme_parts
from acme_parts import outside

class Runner:
    run = staticmethod(os.system)
    start = subprocess.Popen.__init__

    def go(self, command: str) -> str:
        return command

runner = Runner()
bound = functools.partial(os.system)
bound_twice = functools.partial(functools.partial(subprocess.call, shell=True))
cached = functools.lru_cache(os.system)
popen = subprocess.Popen
evaluate = builtins.eval
opened = open

def own(command: str = "") -> str:
    return command

@functools.cache
def remembered(command: str = "") -> str:
    return command

half = functools.partial(own, command="x")
"""
PARTS = """
def outside(command: str = "") -> str:
    return command
"""
TOOL = '{{tools: [{{name: run, type: internal, parameters: {{command: {{type: string}}}}, handler: "{0}"}}]}}'


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path).file("mine.py", MINE).file("acme_parts.py", PARTS)


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(project: Project, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command of `pegboard` on the project; gives its exit code, and all that it wrote."""

    def go(command: str, *words: str) -> tuple[int, str]:
        code = main([command, "--config", str(project.path), *words])
        return code, "".join(capfd.readouterr())

    return go


PYTHONS_OWN = [
    "python:os:system",
    "python:posix:system",
    "python:subprocess:getoutput",
    "python:builtins:eval",
    "python:importlib:import_module",
    "python:code:interact",
    "python:test.support.script_helper:run_python_until_end",
    "python:pegboard:Catalog",
    "python:pegboard.egress.sandbox_child:main",
    "python:mine:os.system",
    "python:mine:system",
    "python:mine:subprocess.run",
    "python:mine:launch",
    "python:mine:popen",
    "python:mine:bound",
    "python:mine:bound_twice",
    "python:mine:cached",
    "python:mine:evaluate",
    "python:mine:opened",
    "python:mine:Runner.run",
    "python:mine:runner.start",
    "python:mine:builtins.exec",
    "python:mine:own.__globals__.get",
    "python:mine:own.__class__.__base__.__subclasses__",
    "python:mine:__loader__.load_module",
    "python:acme_parts:outside.__call__",
    "python:__main__:main",
    "python:pegboard_command:main",
]


@pytest.mark.parametrize("reference", PYTHONS_OWN)
def test_a_function_of_python_or_pegboard_is_refused_however_it_is_reached(project: Project, reference: str) -> None:
    project.write(TOOL.format(reference))
    (problem,) = project.problems()
    assert problem.path == "tools[0].handler"
    assert "allow_imports" in problem.message or "internal to Python" in problem.message


@pytest.mark.parametrize("name", ["own", "remembered", "half", "outside", "Runner.go", "runner.go"])
def test_a_function_of_the_operator_needs_no_permission(project: Project, name: str) -> None:
    handler = f'{{tools: [{{name: run, type: internal, handler: "python:mine:{name}"}}]}}'
    assert [said for said in project.write(handler).said() if "allow_imports" in said or "itself" in said] == []


def test_a_function_of_an_installed_package_needs_no_permission(project: Project) -> None:
    handler = '{tools: [{name: run, type: internal, handler: "python:yaml:unsafe_load"}]}'
    assert [said for said in project.write(handler).said() if "allow_imports" in said] == []


def test_what_is_named_in_words_may_be_used_and_a_star_names_nothing_of_python(project: Project) -> None:
    text = "allow_imports: [{0}]\n" + 'tools: [{{name: cwd, type: internal, handler: "python:os:{1}"}}]'
    assert project.write(text.format("os", "getcwd")).said() == []
    assert project.write(text.format("os, mine", "path.join")).said() != []
    for glob in ("'*'", "'o*'", "'?s'", "'[o]s'", "os.path", "posix", "''"):
        assert project.write(text.format(glob, "getcwd")).said() != [], glob


PLACES = {
    "handler": 'tools: [{name: a, type: internal, handler: "python:REF"}]',
    "consent": 'tools: [{name: a, type: internal, handler: "python:mine:own", consent: "python:REF"}]',
    "predicate": 'predicates: {p: {python: "python:REF"}}',
    "inner predicate": 'predicates: {p: {all: [{not: {python: "python:REF"}}]}}',
    "hook": 'hooks: [{on: before, use: "python:REF"}]',
}


@pytest.mark.parametrize("place", [*PLACES, "python"])
def test_every_place_that_imports_asks_and_imports_nothing_else(project: Project, place: str) -> None:
    ran = project.folder / "ran"
    project.file("unnamed.py", f"open({str(ran)!r}, 'w').close()\ndef f(x=None):\n    return True\n")
    text = "python: [unnamed]" if place == "python" else PLACES[place].replace("REF", "unnamed:f")
    (said,) = project.write(f"allow_imports: [mine, 'acme.*']\n{text}").said()
    assert "'unnamed' is not under `allow_imports:`" in said
    assert not ran.exists()
    assert project.write(f"allow_imports: [mine, acme_parts, unnamed]\n{text}").said() == []
    assert ran.exists()
    if place != "python":
        for guarded in ("os:system", "mine:os.system", "mine:system"):
            (said,) = project.write(f"allow_imports: [mine]\n{PLACES[place].replace('REF', guarded)}").said()
            assert "allow_imports" in said


def test_a_function_that_a_module_has_of_another_is_asked_for_by_the_other(project: Project) -> None:
    (said,) = project.write(
        "allow_imports: [mine]\n" + 'tools: [{name: a, type: internal, handler: "python:mine:outside"}]'
    ).said()
    assert "'acme_parts' is not under `allow_imports:`" in said


def test_a_plugin_is_imported_only_where_its_module_may_be(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = project.folder / "ran"
    site = project.folder / "site"
    for name, module in (("acme", "acme_plugin"), ("shell", "os")):
        info = site / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[pegboard.sources]\n{name} = {module}:system\n")
    (site / "acme_plugin.py").write_text(f"open({str(ran)!r}, 'w').close()\ndef system(registrar):\n    pass\n")
    monkeypatch.syspath_prepend(str(site))
    (said,) = project.write("allow_imports: [mine]\nplugins: [acme]").said()
    assert "'acme_plugin' is not under `allow_imports:`" in said
    assert not ran.exists()
    (said,) = project.write("plugins: [shell]").said()
    assert "'os' is a module of Python itself" in said
    assert project.write("allow_imports: [acme_plugin]\nplugins: [acme]").said() == []
    assert ran.exists()


@pytest.mark.parametrize("broken", ["mine", "{a: 1}", "[1, {}]", "[]", "['a b']", "[null]"])
def test_a_list_that_cannot_be_read_allows_nothing(project: Project, broken: str) -> None:
    ran = project.folder / "ran"
    project.file("unnamed.py", f"open({str(ran)!r}, 'w').close()\n")
    project.env = {"TOKEN": "sesame-8731"}
    said = project.write(f"allow_imports: {broken}\nenv: {broken}\npython: [unnamed]\nname: '${{TOKEN}}'").said()
    assert any("unnamed" in line for line in said)
    assert any("'TOKEN' is not under `env:`" in line for line in said)
    assert not ran.exists()


# ---- files


SHADOW = "root:x:0:0:canary-4711:/root:/bin/bash\ncanary-4711\n"


@pytest.fixture
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("outside") / "shadow.yaml"
    path.write_text(SHADOW)
    return path


@pytest.mark.parametrize(
    "way",
    [
        "../{folder}/shadow.yaml",
        "../*/shadow.yaml",
        "a/../../{folder}/*.yaml",
        "link.yaml",
        "*.yaml",
        "in/*.yaml",
        "in/shadow.yaml",
    ],
)
def test_files_stay_below_the_folder_of_the_config(project: Project, outside: Path, way: str) -> None:
    (project.folder / "link.yaml").symlink_to(outside)
    (project.folder / "in").symlink_to(outside.parent)
    (said,) = project.write(f"files: ['{way.format(folder=outside.parent.name)}']").said()
    assert "leads out of the folder" in said
    assert "canary" not in said


@pytest.mark.parametrize(
    "content",
    [
        SHADOW,
        "canary-4711",
        "- canary-4711\n",
        "{canary-4711: canary-4711}",
        "canary_4711: canary-4711\n",
        "canary_4711: [canary-4711\n",
        "a: *canary-4711\n",
        "a: !canary-4711 b\n",
        "a: 1\ncanary_4711: 1\ncanary_4711: 2\n",
        "-----BEGIN PRIVATE KEY-----\ncanary-4711\n-----END PRIVATE KEY-----\n",
        "TOKEN=canary-4711\nOTHER='canary-4711\n",
        "a: '${canary_4711}'\n",
    ],
)
def test_nothing_is_quoted_of_a_file_that_is_no_config(project: Project, run: Run, content: str) -> None:
    (project.folder / "notes").write_text(content)
    for text in (
        "files: [notes]",
        "tools: [{name: a, type: openapi, openapi: {spec: notes}}]",
        "discovery: {examples: {file: notes}}",
    ):
        project.write(text)
        code, said = run("check")
        assert (code, "notes" in said, "canary" in said) == (2, True, False), said
    (project.folder / "notes").replace(project.path)
    code, said = run("check")
    assert (code, "canary" in said) == (2, False), said


# ---- the environment


def test_only_the_variables_that_are_listed_are_read(project: Project) -> None:
    project.env = {"ACME_KEY": "sesame-8731", "TOKEN": "sesame-8732", "OPENAI_API_KEY": "sesame-8733"}
    listed = "env: [ACME_*]\n"
    assert project.write(listed + "settings: {a: '${ACME_KEY}'}").said() == []
    for text in (
        "settings: {a: '${TOKEN}'}",
        "settings: {a: '${TOKEN:-none}'}",
        "settings: {a: '${ACME_KEY}${TOKEN}'}",
        "settings: {a: '${acme_key}'}",
        "env: ['${TOKEN}']",
    ):
        said = project.write((listed if not text.startswith("env") else "") + text).said()
        assert said, text
        assert "sesame" not in "".join(said)
    (said,) = project.write(listed + "models: {default: 'openai:gpt-5.2'}").said()
    assert "'OPENAI_API_KEY' is not under `env:`" in said
    _, config = project.write(listed + "predicates: {p: {secret: TOKEN}}").load()
    assert set(config.secrets) == set()
    assert any("'TOKEN' is not under `env:`" in warning.message for warning in config.warnings)
    project.file("more.yaml", "env: ['*']\nsettings: {a: '${TOKEN}'}")
    assert len(project.write(listed + "files: [more.yaml]").said()) == 2


# ---- who may write


@pytest.fixture
def guarded(project: Project) -> Project:
    ran = project.folder / "ran"
    project.file("acting.py", f"open({str(ran)!r}, 'a').close()\n")
    project.file("tools/more.yaml", "groups: {a: ''}")
    project.file("parts/__init__.py", "")
    project.file("parts/inside/deep.py", "")
    project.file("pegboard.lock", '{"version": 1, "servers": {}}')
    project.file("keys.db", "")
    return project.write(
        """\
        python: [acting]
        files: [tools/*.yaml]
        identity: {api_keys: {store: "sqlite:./keys.db"}, map: [{when: {key: a}, user: a}]}
        """
    )


@pytest.mark.parametrize(
    "name",
    [
        "pegboard.yaml",
        "tools/more.yaml",
        "pegboard.lock",
        "keys.db",
        "acting.py",
        ".",
        "tools",
        "real.yaml",
        "parts/__init__.py",
        "parts/inside/deep.py",
        "parts/inside",
    ],
)
def test_what_others_may_write_is_refused_when_strict_and_warned_of_otherwise(
    guarded: Project, run: Run, name: str
) -> None:
    if name == "real.yaml":
        guarded.path.rename(guarded.folder / name)
        guarded.path.symlink_to(name)
    code, said = run("check", "--strict")
    assert (code, "may be written" in said) == (0, False), said
    path = guarded.folder / name
    ran = guarded.folder / "ran"
    ran.unlink()
    path.chmod(0o777 if path.is_dir() else 0o666)
    for command in (("check",), ("serve", "--port", "0")):
        code, said = run(*command, "--strict")
        assert (code, "may be written by everybody" in said) == (2, True), said
        assert not ran.exists(), "it ran all the same"
    code, said = run("check")
    assert (code, f"warning: {path}: " in said or name == ".") == (0, True), said
    assert "may be written by everybody" in said
    assert ran.exists()


@pytest.mark.parametrize(
    "text",
    [
        'tools: [{name: go, type: internal, description: x, parameters: {}, handler: "${CODE}"}]',
        'tools: [{name: go, type: internal, description: x, parameters: {}, handler: "python:${MODULE}:go"}]',
        'tools: [{name: go, type: internal, description: x, parameters: {}, handler: "python:mine:${NAME:-go}"}]',
        'tools: [{name: go, type: internal, description: x, handler: "python:mine:own", consent: "${CODE}"}]',
        'predicates: {go: {python: "${CODE}"}}',
        'hooks: [{at: before_call, use: "${CODE}"}]',
        'python: ["${MODULE}"]',
        "python: [mine, '${file:module}']",
        'plugins: ["${MODULE}"]',
        'allow_imports: ["${MODULE}"]',
        'allow_imports: ["acme.${NAME}"]',
        'env: [CODE, MODULE, NAME, "${NAME}*"]',
    ],
)
def test_the_environment_does_not_name_code_that_runs(tmp_path: Path, text: str) -> None:
    project = Project(tmp_path, env={"CODE": "python:ran:go", "MODULE": "ran", "NAME": "own"})
    project.file("mine.py", "def own() -> str:\n    return 'own'\n").file("module", "ran")
    project.file("ran.py", f"open({str(tmp_path / 'proof')!r}, 'w').close()\ndef go() -> str:\n    return 'ran'\n")
    said = project.write(text).said()
    assert not (tmp_path / "proof").exists()
    assert [line for line in said if "a variable is not expanded here" in line], said
