"""Load: read pegboard.yaml and the files that it names, and collect all problems."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct, field
from pydantic import BaseModel

from pegboard.config.allowed_imports import AllowedImports
from pegboard.config.config import LOCK_NAME, AgentDeclaration, Config, Declared, ExampleFile, Refused
from pegboard.config.example_requests import read_requests
from pegboard.config.forms.agent_words import ASTROMESH, KEYS_OF_AGENT_FILES, PEGBOARD
from pegboard.config.forms.embedder_form import EmbedderForm
from pegboard.config.forms.main_file import Fragment, HookForm, MainFile
from pegboard.config.forms.model_form import ModelForm, key_variable
from pegboard.config.forms.predicate_form import PredicateForm, secret_names
from pegboard.config.forms.validation import unknown_top_level, validated
from pegboard.config.forms.value_types import as_names, rate_limit
from pegboard.config.identity import key_store_of
from pegboard.config.kinds import KINDS, Kind
from pegboard.config.python_files import python_files_in
from pegboard.config.renamed_keys import renamed
from pegboard.config.unsupported import UNSUPPORTED, refusal
from pegboard.config.yaml.config_files import find_files, has_top_level_key, looks_like_config, read_text
from pegboard.config.yaml.environment import Environment
from pegboard.config.yaml.parser import parse
from pegboard.config.yaml.problems import Report, unseen
from pegboard.config.yaml.tree import At, Items, Mark, Node, Scalar, Step, Table, without_extensions
from pegboard.core.names import fold, nearest, nearest_one
from pegboard.lazy import LazyModule
from pegboard.model.bounds import Bounds
from pegboard.model.error import DefinitionError, Problem
from pegboard.model.json_types import JSON, is_list, is_object
from pegboard.model.lint_rule import LintIgnore
from pegboard.model.record import replace
from pegboard.model.skill import SKILL_FILES
from pegboard.platforms import platform
from pegboard.sources.plugins import load_plugin
from pegboard.storage.file_permissions import permission_faults

if TYPE_CHECKING:
    from pegboard.config.forms import agent_form
    from pegboard.config.kinds import plugin
else:
    agent_form = LazyModule("pegboard.config.forms.agent_form")
    plugin = LazyModule("pegboard.config.kinds.plugin")

CONFIG_FILES = 1_000  # files that one config may lead to

M = TypeVar("M", bound=BaseModel)
F = TypeVar("F", bound=Fragment)
_NO_OPENAI_KEY = "the variable 'OPENAI_API_KEY' is not set; set it, or write `api_key`"
_TOP_LEVEL = MainFile.model_fields.keys() | {key for key in UNSUPPORTED if "." not in key} | KEYS_OF_AGENT_FILES
_NO_CONFIG = (
    "this is not a Pegboard config: no line begins with one of its keys, such as `tools:` or `profiles:`. "
    "`pegboard init` writes a config to start from"
)
# Sections of the main file that read-only commands can work without, and the part to leave out together. Not `files`
# and `predicates`: without them, nobody can say which tools exist and who may see them.
_DISPENSABLE = {
    ("models",): 2, ("profiles",): 2, ("settings",): 2, ("discovery",): 2, ("workspace", "embedder"): 2,
    ("workspace",): 1, ("server",): 1, ("consents",): 1, ("identity",): 1, ("agents",): 1, ("tasks",): 1,
    ("connections",): 1, ("console",): 1,
    ("rate_limits",): 1, ("audit",): 1, ("alerts",): 1, ("limits",): 2,
}  # fmt: skip
# Unknown keys of other files may be quoted if they are words; values never.
_WORD = re.compile(r"[A-Za-z][A-Za-z_-]{0,31}")


def load(path: Path, *, env: Mapping[str, str]) -> Config:
    """Read a config. `env` are the variables for its `${NAME}`; files for its `${file:PATH}` are read.

    Raises:
        DefinitionError: with all problems, by file and line.
    """
    config, report = read(path, env=env)
    if report:
        raise DefinitionError(report.sorted(config.files, config.secrets))
    return config


def read(path: Path, *, env: Mapping[str, str], strict: bool = False, leave_out: bool = False) -> tuple[Config, Report]:
    """Return the valid part of a config, and the problems of the rest.

    A file that other users may write is a problem with `strict`, otherwise a warning. With `leave_out`, tools and
    agents with unset variables are left out instead of reported.
    """
    environment = Environment(env, folder=path.parent)
    loading = _Load(path=path, environment=environment, strict=strict, leaves_out=leave_out)
    loading.check_permissions([path])
    try:
        main = loading.file(path, MainFile)
        if main is not None:
            loading.load_plugins(main)
            loading.collect(main)
            for fragment in loading.fragments(main):
                loading.collect(fragment)
            return loading.config(main.value, main.at), loading.report
    except OSError as error:
        loading.report.add(unseen(path, error))
    return loading.config(MainFile.model_validate({})), loading.report


class _Load(Struct, kw_only=True):
    """One load in progress: the declarations of all files so far."""

    path: Path
    environment: Environment
    strict: bool
    leaves_out: bool = False
    report: Report = field(default_factory=Report)
    files: list[Path] = field(default_factory=list[Path])
    warnings: list[Problem] = field(default_factory=list[Problem])
    open_files: list[Problem] = field(default_factory=list[Problem])
    left_out: Report = field(default_factory=Report)
    skipped: set[str] = field(default_factory=set[str])
    lost_models: set[str] = field(default_factory=set[str])
    python: list[Declared[str]] = field(default_factory=list[Declared[str]])
    tools: list[Declared[Any]] = field(default_factory=list[Declared[Any]])
    hooks: list[Declared[HookForm]] = field(default_factory=list[Declared[HookForm]])
    named: dict[str, dict[str, Declared[Any]]] = field(default_factory=dict[str, dict[str, Declared[Any]]])
    tool_names: dict[str, At] = field(default_factory=dict[str, At])
    agents: dict[str, AgentDeclaration] = field(default_factory=dict[str, AgentDeclaration])
    refused: Refused = field(default_factory=Refused)
    kinds: dict[str, Kind[Any]] = field(default_factory=lambda: dict(KINDS))
    lacks_kinds: bool = False
    imports: AllowedImports = field(default_factory=AllowedImports)

    # ------------------------------------------------------------ files

    def check_permissions(self, paths: Iterable[Path]) -> None:
        """Report each of these files that other users may write, once, as a problem or a warning."""
        if self.strict and platform.NO_OWNERS is not None:
            self.report.add(Problem(where=str(self.path), message=f"{platform.NO_OWNERS}; leave out --strict"))
            return
        for problem in permission_faults(paths):
            if self.strict:
                self.report.add(problem)
            elif problem not in self.open_files:
                self.open_files.append(problem)

    def file(self, path: Path, model: type[F]) -> Declared[F] | None:
        """Read and validate one file; `None` if nothing in it is usable."""
        self.files.append(path)
        root = self._tree(path)
        if root is None:
            return None
        at = At(root)
        if model is MainFile:
            self._restrict(at)
        plain = self.environment.plain(at)
        self.report.add(*self.environment.problems)
        is_agent = is_agent_file(root)
        needs_unset = self._judge_unset(plain, is_agent=is_agent)
        if is_agent:
            if model is MainFile:
                text = "this is the file of an agent; name it in a pegboard.yaml: `files: [agents/*.yaml]`"
                self.report.add(at.problem(text))
            elif needs_unset:
                self._lose_agent(plain)
            else:
                self._agent(plain, at)
            return None
        predicates = set(plain["predicates"]) if is_object(plain.get("predicates")) else set[str]()
        file = self._validated(model, plain, at)
        if file is not None:
            self.refused.predicates.update(predicates - set(file.value.predicates))
        return file

    def _judge_unset(self, plain: Any, *, is_agent: bool) -> bool:
        """Report unset variables, or leave out the declarations with them; return whether a tool or agent is left out.

        Whole tools, hooks, agents, models and sections are left out; the last two are removed from `plain`. A
        declaration with an unset variable is never used.
        """
        is_any = False
        for at, problem in self.environment.unset:
            if self.leaves_out and (is_agent or (at.steps[:1] in (("tools",), ("hooks",)) and len(at.steps) > 1)):
                is_any = True
                self.left_out.add(problem)
                if not is_agent:
                    self.skipped.add(At(at.root, at.steps[:2]).origin)
            elif self.leaves_out and (whole := _dispensable(at.steps)) and is_object(plain):
                self.left_out.add(problem)
                self._drop(plain, whole)
            else:
                self.report.add(problem)
        self.environment.unset.clear()
        return is_any

    def _drop(self, plain: JSON, steps: Sequence[str]) -> None:
        """Remove a section, or one entry of it, from the contents of a file."""
        inner = plain.get(steps[0]) if len(steps) > 1 else plain
        if is_object(inner):
            inner.pop(steps[-1], None)
        if steps[0] == "models":
            self.lost_models.update(steps[1:])
        elif steps[0] == "profiles":
            self.refused.profiles.update(steps[1:])
        if steps[0] in ("models", "settings", "tasks", "connections") or list(steps) == ["workspace"]:
            self.refused.sections.add(steps[0])

    def _lose_agents_of_models(self) -> None:
        """Leave out the agents whose model is left out."""
        for name, agent in list(self.agents.items()):
            form = agent.file.value.spec.model
            model = "default" if form is None else form
            if isinstance(model, str) and model in self.lost_models:
                at = agent.file.at / "spec" / "model"
                self.left_out.add(at.problem(f"the model {model!r} is left out, and so is this agent"))
                del self.agents[name]
                self._lose_agent({"metadata": dict(agent.file.value.metadata)})

    def _lose_agent(self, plain: Any) -> None:
        """Remember the name of an agent that is left out, for the tools that run it."""
        metadata = plain.get("metadata") if is_object(plain) else None
        if is_object(metadata):
            self.refused.agents.add(str(metadata.get("name", "")))
            self.refused.namespaces.add(str(metadata.get("namespace", "")))

    def _restrict(self, at: At) -> None:
        """Apply the limits of the main file before using anything else in it; an invalid list allows nothing."""
        if (at / "env").exists:
            # Unexpanded: the environment must not decide which variables may be read.
            self.environment.restrict(_texts(at / "env"))
        if (at / "allow_imports").exists:
            self.imports = replace(self.imports, globs=_texts(at / "allow_imports"))

    def _tree(self, path: Path) -> Node | None:
        text = read_text(path)
        if isinstance(text, Problem):
            self.report.add(text)
            return None
        root, problems = parse(text, file=str(path))
        root = root and without_extensions(root)
        if not problems and (root is None or (isinstance(root, Scalar) and root.value is None)):
            empty = "the file is empty; `pegboard init` writes one to start from"
            self.report.add(Problem(where=str(Mark(str(path), 1, 1)), message=empty))
            return None
        if not problems and root is not None and not isinstance(root, Table):
            # Do not quote the file: the path may name any file.
            kind = "a list" if isinstance(root, Items) else "a text"
            self.report.add(At(root).problem(f"expected a mapping, such as `tools: […]`, not {kind}"))
            return None
        is_known = isinstance(root, Table) and (not root.items or not root.items.keys().isdisjoint(_TOP_LEVEL))
        if not is_known and not looks_like_config(text, _TOP_LEVEL):
            if isinstance(root, Table) and not problems and all(map(_WORD.fullmatch, root.items)):
                self.report.add(*unknown_top_level(root.items, At(root), MainFile))
                return None
            place = problems[0].where if problems else str(Mark(str(path), 1, 1))
            self.report.add(Problem(where=place, message=_NO_CONFIG))
            return None
        # An invalid YAML file may be any file that happens to have a word before a colon.
        if isinstance(root, Table) or has_top_level_key(text, _TOP_LEVEL):
            self.report.may_show(str(path), text)
        self.report.add(*problems)
        if not isinstance(root, Table):
            return None
        root, former_names = renamed(root, self.report)
        self.warnings += former_names
        return root

    def _validated(self, model: type[M], plain: Any, at: At) -> Declared[M] | None:
        form = validated(model, plain, at, report=self.report, refusal=refusal)
        return None if form is None else Declared(value=form, at=at)

    def fragments(self, main: Declared[MainFile]) -> Iterable[Declared[Fragment]]:
        """Yield the files that the main file names, each once, in the order of the globs and then of names."""
        seen = {self.path.resolve()}
        for index, pattern in enumerate(main.value.files):
            at = main.at / "files" / index
            for path in self._matching(pattern, at):
                if path.resolve() in seen:
                    continue
                seen.add(path.resolve())
                if len(seen) > CONFIG_FILES:
                    self.report.add(at.problem(f"{pattern!r} leads to more than {CONFIG_FILES} files"))
                    return
                fragment = self.file(path, Fragment)
                if fragment is not None:
                    yield fragment

    def _matching(self, pattern: str, at: At) -> list[Path]:
        try:
            paths = find_files(pattern, beside=self.path)
        except ValueError as error:
            self.report.add(at.problem(str(error)))
            return []
        if not paths:
            self.warnings.append(at.problem(f"{pattern!r} matches no file at present"))
        return paths

    # ------------------------------------------------------------ content

    def collect(self, file: Declared[Fragment]) -> None:
        """Add the declarations of one file to those of the others."""
        content, at = file.value, file.at
        self.python += [Declared(value=name, at=at / "python" / i) for i, name in enumerate(content.python)]
        for section in ("predicates", "groups", "profiles", "settings"):
            entries: Mapping[str, Any] = getattr(content, section)
            for name, entry in entries.items():
                self._name(section, name, Declared(value=entry, at=at / section / name))
        for index, plain in enumerate(content.tools):
            self._tool(plain, at / "tools" / index)
        for index, plain in enumerate(content.hooks):
            if (at / "hooks" / index).origin in self.skipped:
                continue
            hook = self._validated(HookForm, plain, at / "hooks" / index)
            if hook is not None:
                self.hooks.append(hook)

    def load_plugins(self, main: Declared[MainFile]) -> None:
        """Let the plugins that the main file names add their kinds."""
        if self.strict and self.report:
            return  # Plugins are code, and another user may have changed the file that names them.
        owners = dict.fromkeys(KINDS, "Pegboard")
        for index, name in enumerate(main.value.plugins):
            try:
                plugin_kinds = load_plugin(name, taken=owners, imports=self.imports)
            except DefinitionError as error:
                self.report.add((main.at / "plugins" / index).problem(str(error)))
                self.lacks_kinds = True
                continue
            for kind in plugin_kinds.values():
                owners[kind.name] = kind.plugin
                self.kinds[kind.name] = Kind[Any].of(plugin.plugin_form(kind), plugin.plugin_declare(kind))

    def _name(self, section: str, name: str, entry: Declared[Any]) -> None:
        known = self.named.setdefault(section, {})
        if name in known:
            first = known[name].at.key_mark
            self.report.add(entry.at.problem(f"{name!r} is declared twice: first at {first}. Remove one", at_key=True))
        else:
            known[name] = entry

    def _agent(self, plain: Any, at: At) -> None:
        """Collect the file of an agent."""
        version = (at / "apiVersion").text
        model = agent_form.AstromeshFile if version == ASTROMESH else agent_form.AgentFile
        known = len(self.report)
        if (at / "metadata" / "name").exists:
            self.refused.agents.add((at / "metadata" / "name").text)
        if version not in (PEGBOARD, ASTROMESH):
            where = at / "apiVersion"
            text = f"expected {PEGBOARD} or {ASTROMESH}, not {where.shown}" if where.exists else "is missing"
            self.report.add(where.problem(text if where.exists else f"the key 'apiVersion' is missing: {PEGBOARD}"))
            return
        file = self._validated(model, plain, at)
        tools, groups, shared = list[Declared[Any]](), list[Declared[str]](), list[Declared[str]]()
        names = dict[str, At]()
        declared = plain.get("spec") if is_object(plain) else None
        items = declared.get("tools") if is_object(declared) else None
        for index, item in enumerate(items if is_list(items) else ()):
            here = at / "spec" / "tools" / index
            if is_object(item) and "type" not in item and "group" in item:
                if (form := self._validated(agent_form.GroupForm, item, here)) is not None:
                    groups.append(Declared(value=form.value.group, at=here / "group"))
            elif is_object(item) and "type" not in item and "tool" in item:
                if (validated := self._validated(agent_form.SharedToolForm, item, here)) is not None:
                    shared.append(Declared(value=validated.value.tool, at=here / "tool"))
            elif (tool := self._one_tool(item, here)) is not None:
                self._keep(tool, tools, names, fold(tool.value.called))
        variable = None if file is None else agent_form.agent_key_variable(file.value.spec.model)
        if variable is not None and not self.environment.variable(variable):
            fault = self.environment.fault(variable)
            text = fault or f"the variable {variable!r} is not set; set it, or write `api_key`"
            problem = (at / "spec" / "model").problem(text, variable="" if fault else variable)
            if self.leaves_out and fault is None:
                self.left_out.add(problem)
                self._lose_agent(plain)
                return
            self.report.add(problem)
        if file is None or len(self.report) != known:
            return
        name = file.value.metadata.name
        agent = AgentDeclaration(file=file, tools=tuple(tools), groups=tuple(groups), shared=tuple(shared))
        first = self.agents.setdefault(name, agent)
        if first is not agent:
            where = (first.file.at / "metadata" / "name").mark
            text = f"the agent {name!r} is declared twice: first at {where}. Rename one"
            self.report.add((at / "metadata" / "name").problem(text))

    def _tool(self, plain: Any, at: At) -> None:
        if at.origin in self.skipped:
            self._lose_tool(plain)
            return
        tool = self._one_tool(plain, at)
        if tool is not None:
            namespace = tool.value.option("namespace") or ""
            self._keep(tool, self.tools, self.tool_names, fold(f"{namespace}.{tool.value.called}"))

    def _one_tool(self, plain: Any, at: At) -> Declared[Any] | None:
        """Return one declared tool; `None` after reporting that it is invalid."""
        if not is_object(plain):
            self.report.add(at.problem(f"expected a mapping, such as {{name: …, type: internal}}, not {at.shown}"))
            return None
        kind = self._kind(at / "type")
        tool = None if kind is None else self._validated(kind.form, plain, at)
        if tool is None:
            self._lose_tool(plain)
        return tool

    def _lose_tool(self, plain: JSON) -> None:
        """Remember the names that a refused tool would have declared."""
        self.refused.namespaces.update(str(plain[key]) for key in ("name", "namespace") if key in plain)
        self.refused.groups.update(_groups_in(plain))

    def _running(self, tools: Iterable[Declared[Any]]) -> tuple[Declared[Any], ...]:
        """Return the tools, except those that run an agent that is left out."""
        if not self.leaves_out:
            return tuple(tools)
        running: list[Declared[Any]] = []
        for tool in tools:
            if tool.value.type == "agent" and tool.value.agent in self.refused.agents - self.agents.keys():
                text = f"the agent {tool.value.agent!r} is left out, and so is this tool"
                self.left_out.add((tool.at / "agent").problem(text))
                self.refused.namespaces.add(tool.value.called)
                self.refused.groups.update(tool.value.groups or ())
            else:
                running.append(tool)
        return tuple(running)

    def _keep(self, tool: Declared[Any], tools: list[Declared[Any]], names: dict[str, At], key: str) -> None:
        """Add a tool to those of the catalog, or of an agent, unless its name is taken."""
        at = tool.at
        first = names.setdefault(key, at)
        if first is at:
            tools.append(tool)
            self.files += tool.value.files_in(self.path.parent)
            return
        message = f"the tool {tool.value.called!r} is declared twice: first at {(first / 'name').mark}"
        self.report.add((at / "name").problem(f"{message}. {tool.value.when_repeated}"))

    def _kind(self, at: At) -> Kind[Any] | None:
        known = ", ".join(self.kinds)
        if not at.exists:
            suggestion = nearest_one("type", at.node.items if isinstance(at.node, Table) else ())
            if suggestion is None:
                self.report.add(at.problem(f"the key 'type' is missing: what kind of tool it is ({known})"))
            else:
                place = At(at.root, at.steps[:-1]) / suggestion
                self.report.add(place.problem(f"unknown key {suggestion!r}. Did you mean 'type'?", at_key=True))
            return None
        name = at.text
        if name in self.kinds:
            return self.kinds[name]
        unknown = f"{at.shown} is not a type of tool.{nearest(name, self.kinds, label='Types')}"
        # It may be a kind of a plugin that could not be loaded, which was reported.
        if not self.lacks_kinds:
            self.report.add(at.problem(refusal(at.steps, name) or unknown))
        return None

    # ------------------------------------------------------------ whole

    def _models(self, main: MainFile, at: At | None) -> dict[str, Declared[ModelForm | str]]:
        """Return the language models, and report those without a key."""
        if at is None:
            return {}
        models: dict[str, Declared[ModelForm | str]] = {}
        for name, form in main.models.items():
            here, variable = at / "models" / name, key_variable(form)
            if variable is not None and not self.environment.variable(variable):
                fault = self.environment.fault(variable)
                text = f"the variable {variable!r} is not set; set it, or write `api_key`"
                problem = here.problem(fault or text, variable="" if fault else variable)
                if self.leaves_out and fault is None:
                    self.left_out.add(problem)
                    self.lost_models.add(name)
                    self.refused.sections.add("models")
                    continue
                self.report.add(problem)
            models[name] = Declared(value=form, at=here)
        return models

    def _embedder(self, main: MainFile, at: At | None) -> Declared[EmbedderForm] | None:
        """Return the embedder of tool search, and report one without a key."""
        if main.discovery is None or main.discovery.embedder is None or at is None:
            return None
        return self._with_key(main.discovery.embedder, at / "discovery" / "embedder")

    def _examples(self, main: MainFile, at: At | None) -> Declared[ExampleFile] | None:
        """Return the example requests of tools, and report problems of their file."""
        form = None if main.discovery is None else main.discovery.examples
        if form is None or at is None:
            return None
        here = at / "discovery" / "examples"
        if form.model is not None and form.model not in main.models and form.model not in self.lost_models:
            text = f"{form.model!r} is not one of `models:`.{nearest(form.model, main.models, label='Models')}"
            self.report.add((here / "model").problem(text))
        path = self.path.parent / form.file
        # Watched even if it does not exist yet.
        self.files.append(path)
        requests = read_requests(path, self.report)
        return Declared(value=ExampleFile(path=path, model=form.model, requests=requests), at=here)

    def _passage_embedder(self, main: MainFile, at: At | None) -> Declared[EmbedderForm] | None:
        """Return the embedder of documents, and report one without a key."""
        if main.workspace is None or at is None or main.workspace.embedder == "none":
            return None
        form, here = main.workspace.embedder, at / "workspace" / "embedder"
        return self._with_key(EmbedderForm.model_validate({"type": "hashing"}) if form == "hashing" else form, here)

    def _with_key(self, form: EmbedderForm, here: At) -> Declared[EmbedderForm] | None:
        needs_key = form.type == "openai" and form.api_key is None and form.base_url is None
        if needs_key and not self.environment.variable("OPENAI_API_KEY"):
            fault = self.environment.fault("OPENAI_API_KEY")
            problem = here.problem(fault or _NO_OPENAI_KEY, variable="" if fault else "OPENAI_API_KEY")
            if self.leaves_out and fault is None:
                self.left_out.add(problem)
                return None
            self.report.add(problem)
        return Declared(value=form, at=here)

    def config(self, main: MainFile, at: At | None = None) -> Config:
        """Return everything collected."""
        predicates: dict[str, Declared[PredicateForm]] = self.named.get("predicates", {})
        for entry in predicates.values():
            for name in secret_names(entry.value):
                self.environment.variable(name)
                if self.environment.fault(name) is not None:
                    text = f"the variable {name!r} is not under `env:`, so only the host can give this secret"
                    self.warnings.append(entry.at.problem(text))
        folder = self.path.absolute().parent
        models = self._models(main, at)
        self._lose_agents_of_models()
        keys = None if main.identity is None else key_store_of(main.identity, self.path)
        examples = self._examples(main, at)
        other_files = (folder / LOCK_NAME, *python_files_in(folder), *(() if keys is None else (keys,)))
        self.check_permissions([*self.files, *(path for path in other_files if path.exists())])
        skills = (
            {}
            if at is None
            else {name: Declared(value=folder / path, at=at / "skills" / name) for name, path in main.skills.items()}
        )
        for skill in skills.values():
            # Only files are watched here; the build validates them.
            self.files += islice(filter(Path.is_file, skill.value.rglob("*")), SKILL_FILES)
        limits = main.limits.model_dump(exclude_none=True) if main.limits is not None else {}
        store = None if main.rate_limits is None else main.rate_limits.store
        return Config(
            path=self.path,
            files=tuple(self.files),
            env=main.env,
            globs=main.files,
            name=main.name,
            python=tuple(self.python),
            settings={name: entry.value for name, entry in self.named.get("settings", {}).items()},
            secrets=dict(self.environment.secrets),
            defaulted=dict(self.environment.defaulted),
            predicates=predicates,
            groups={name: entry.value or "" for name, entry in self.named.get("groups", {}).items()},
            tools=self._running(self.tools),
            profiles=self.named.get("profiles", {}),
            hooks=tuple(self.hooks),
            agents=tuple(replace(agent, tools=self._running(agent.tools)) for agent in self.agents.values()),
            agent_store=None
            if main.agents is None or main.agents.store is None or at is None
            else Declared(value=main.agents.store, at=at / "agents" / "store"),
            models=models,
            embedder=self._embedder(main, at),
            examples=examples,
            learn=None
            if main.discovery is None or main.discovery.learn is None or at is None
            else Declared(value=main.discovery.learn, at=at / "discovery" / "learn"),
            passage_embedder=self._passage_embedder(main, at),
            bounds=Bounds(**limits),
            default_limit=None if main.rate_limits is None else rate_limit(main.rate_limits.default),
            limit_store=None if store is None or at is None else Declared(value=store, at=at / "rate_limits" / "store"),
            budgets=None if main.budgets is None or at is None else Declared(value=main.budgets, at=at / "budgets"),
            consent_store=None
            if main.consents is None or at is None
            else Declared(value=main.consents.store, at=at / "consents" / "store"),
            consent_page=None if main.consents is None else main.consents.url,
            connections=None
            if main.connections is None or at is None
            else Declared(value=main.connections, at=at / "connections"),
            audit=None if main.audit is None or at is None else Declared(value=main.audit, at=at / "audit"),
            alerts=()
            if at is None
            else tuple(Declared(value=form, at=at / "alerts" / index) for index, form in enumerate(main.alerts)),
            server=None if main.server is None or at is None else Declared(value=main.server, at=at / "server"),
            console=None if main.console is None or at is None else Declared(value=main.console, at=at / "console"),
            identity=None if main.identity is None or at is None else Declared(value=main.identity, at=at / "identity"),
            workspace=None
            if main.workspace is None or at is None
            else Declared(value=main.workspace, at=at / "workspace"),
            skills=skills,
            tasks=None if main.tasks is None or at is None else Declared(value=main.tasks, at=at / "tasks"),
            lint_ignores=() if main.lint is None else tuple(LintIgnore(**dict(form)) for form in main.lint.ignore),
            warnings=(*self.warnings, *self.environment.warnings),
            open_files=tuple(self.open_files),
            left_out=tuple(self.left_out.sorted(self.files, self.environment.secrets)),
            refused=self.refused,
            kinds=self.kinds,
            imports=self.imports,
            strict=self.strict,
        )


def _dispensable(steps: Sequence[Step]) -> tuple[str, ...]:
    """Return the part that is left out together with a value of the main file; empty if commands need it."""
    depths = (depth for prefix, depth in _DISPENSABLE.items() if tuple(steps[: len(prefix)]) == prefix)
    return tuple(map(str, steps[: next(depths, 0)]))


def is_agent_file(root: Node) -> bool:
    """Tell whether a file is an agent's, by its top-level keys."""
    return isinstance(root, Table) and not root.items.keys().isdisjoint({"apiVersion", "kind"})


def _groups_in(plain: JSON) -> set[str]:
    """Return all groups that a tool names: its own, and those for the tools of a server."""
    groups: set[str] = set()
    for key, value in plain.items():
        if key == "groups":
            values = [*value.values()] if is_object(value) else [value]
            groups.update(str(name) for each in values for name in as_names(each))
        elif is_object(value):
            groups |= _groups_in(value)
    return groups


def _texts(at: At) -> tuple[str, ...]:
    """Return the texts of a list, as written in the file."""
    node = at.node
    return tuple(item.text for item in node.items if isinstance(item, Scalar)) if isinstance(node, Items) else ()
