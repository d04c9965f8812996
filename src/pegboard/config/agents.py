"""Agents: build the agents of a config with their private tools, and report faults between several agents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pegboard.catalog import Catalog
from pegboard.config.build_context import BuildContext
from pegboard.config.config import AgentDeclaration, Config, Declared
from pegboard.config.forms.agent_words import KEY_VARIABLES
from pegboard.config.model_specs import PROVIDERS, model_spec
from pegboard.config.parameters import read_schema
from pegboard.config.yaml.problems import Report
from pegboard.config.yaml.tree import At
from pegboard.core.agent_graph import Edge, agent_graph, cycles, taken_by, way_out
from pegboard.core.declarations import PrivateSource
from pegboard.core.names import nearest, nearest_one, private_name_fault
from pegboard.extras import needs_package
from pegboard.lazy import LazyModule
from pegboard.model.agent import AgentBudgets, AgentEntry, AgentMemory, AgentSpec, Guardrail, ModelSpec
from pegboard.model.error import DefinitionError, Problem
from pegboard.model.policy import OPEN_POLICY, Policy
from pegboard.model.record import replace
from pegboard.model.secret import Secret
from pegboard.model.tool import ToolEntry
from pegboard.storage.store_uri import StoreUri

if TYPE_CHECKING:
    from pegboard.agents import budgets, conversations, template_analysis
    from pegboard.agents.conversations import ConversationStore
    from pegboard.config.forms import agent_form
    from pegboard.config.kinds import agent as agent_kind
else:
    agent_form = LazyModule("pegboard.config.forms.agent_form")
    agent_kind = LazyModule("pegboard.config.kinds.agent")
    budgets = LazyModule("pegboard.agents.budgets")
    conversations = LazyModule("pegboard.agents.conversations")
    template_analysis = LazyModule("pegboard.agents.template_analysis")

_OPENAI_COMPATIBLE_AT: Mapping[str, str] = {
    "ollama": "http://127.0.0.1:11434", "vllm": "http://127.0.0.1:8000", "llamacpp": "http://127.0.0.1:8080",
}  # fmt: skip


def declare_agents(build: BuildContext) -> None:
    """Add every agent to the catalog, after all shared tools."""
    declared: dict[str, AgentEntry] = {}
    for agent in build.config.agents:
        entry = _entry(agent, build)
        if entry is not None:
            declared[entry.spec.name] = entry
    build.catalog.registry.change(agents=declared)
    _check_targets(build)
    if not build.report:
        _check_cycles(build)
        _check_prices(build)


# ---------------------------------------------------------------- one agent


def _entry(agent: AgentDeclaration, build: BuildContext) -> AgentEntry | None:
    file, at = agent.file.value, agent.file.at
    if (missing := agent_kind.missing_package()) is not None:
        build.report.add((at / "kind").problem(missing))
        return None
    form, name = file.spec, file.metadata.name
    here = at / "spec"
    namespace = file.metadata.namespace or name
    own, sources = _own_tools(agent, build, namespace)
    groups = tuple(item.value for item in agent.groups)
    build.report.add(*_unknown_groups(agent, build))
    shared = tuple(_shared(agent, build))
    orchestration, prompts, permissions = form.orchestration, form.prompts, form.permissions
    prompt = "" if prompts is None else prompts.system
    if prompt and (fault := template_analysis.template_fault(prompt)) is not None:
        build.report.add((here / "prompts" / "system").problem(f"is not a template: {fault}"))
    policy = OPEN_POLICY
    if permissions is not None:
        policy = Policy(allow=permissions.allowed_actions, deny=permissions.denied_actions, origin=here.origin)
    model = _model(agent.file, build)
    if model is None:
        return None
    described = form.description or (form.identity.description if form.identity else None)
    guardrails = form.guardrails
    spec = AgentSpec(
        name=name,
        namespace=namespace,
        version=file.metadata.version or "",
        description=described or "",
        model=model,
        prompt=prompt,
        max_iterations=orchestration.max_iterations if orchestration else None,
        timeout_s=orchestration.timeout_seconds if orchestration else None,
        groups=groups,
        shared=shared,
        policy=policy,
        secrets=form.secrets,
        output_schema=_output_schema(form.output_schema, here / "output_schema", build),
        budgets=_budgets(form.budgets),
        memory=_memory(form),
        input_guardrails=_guardrails(guardrails.input if guardrails else (), here / "guardrails" / "input", build),
        output_guardrails=_guardrails(guardrails.output if guardrails else (), here / "guardrails" / "output", build),
        origin=(at / "metadata" / "name").origin,
    )
    return AgentEntry(spec=spec, tools=own, sources=sources)


def _own_tools(
    agent: AgentDeclaration, build: BuildContext, namespace: str
) -> tuple[tuple[ToolEntry, ...], tuple[str, ...]]:
    """Return the private tools of an agent, and the names of its private sources."""
    aside = Catalog(build.config.name, bounds=build.config.bounds)
    private = replace(build, catalog=aside, is_private=True)
    for tool in agent.tools:
        if (fault := private_name_fault(tool.value.name, namespace=namespace)) is not None:
            build.report.add((tool.at / "name").problem(fault))
            continue
        build.config.kinds[tool.value.type].declare(tool, private)
    build.catalog.add_secrets(*aside.secrets)
    entries = [entry for _, entry in aside.registry.declarations.tools.items()]
    names = {f"{agent.file.value.metadata.name}.{name}": source for name, source in aside.registry.sources.items()}
    for name, source in names.items():
        build.catalog.registry.add_source(PrivateSource(source, name))
    return tuple(_placed(entry, namespace) for entry in entries), tuple(names)


def _placed(entry: ToolEntry, namespace: str) -> ToolEntry:
    """Return a private tool in the namespace of its agent; tools of a toolset keep the toolset's namespace."""
    if entry.is_toolset:
        return entry
    return replace(entry, spec=replace(entry.spec, namespace=namespace), fingerprint="", wire_name="")


def _unknown_groups(agent: AgentDeclaration, build: BuildContext) -> Iterator[Problem]:
    known = build.catalog.registry.known_groups() | build.config.refused.groups
    for item in agent.groups:
        if item.value not in known:
            yield item.at.problem(f"unknown group {item.value!r}.{nearest(item.value, known, label='Groups')}")


def _shared(agent: AgentDeclaration, build: BuildContext) -> Iterator[str]:
    """Yield the qualified ids of the shared tools that an agent names. A source may not have listed its tools yet."""
    registry = build.catalog.registry
    snapshot = registry.build()
    for item in agent.shared:
        tool = snapshot.find(item.value)
        namespace = item.value.replace("__", ".").partition(".")[0]
        if tool is not None:
            yield tool.qualified_id
        elif namespace in registry.sources:
            yield item.value.replace("__", ".", 1)
        elif build.config.left_out:
            continue  # It may be one of the tools that were left out.
        elif namespace not in build.config.refused.namespaces and item.value not in build.config.refused.namespaces:
            known = [entry.qualified_id for entry in snapshot.entries]
            near = nearest_one(item.value, known)
            hint = f" Did you mean {near!r}?" if near else " Name it as `namespace.name`; `pegboard list` shows them."
            build.report.add(item.at.problem(f"unknown tool {item.value!r}.{hint}"))


def _guardrails(references: tuple[str, ...], at: At, build: BuildContext) -> tuple[Guardrail, ...]:
    resolved = [(build.resolve(name, at / index), name) for index, name in enumerate(references)]
    return tuple(Guardrail(run=run, name=name.removeprefix("python:")) for run, name in resolved if run is not None)


def _output_schema(declared: Mapping[str, Any] | None, at: At, build: BuildContext) -> Any:
    if declared is None:
        return None
    schema, problems = read_schema(declared, at)
    if not problems and schema.get("type") != "object":
        problems = [at.problem("the schema of an answer has `type: object`")]
    build.report.add(*problems)
    return None if problems else schema


def _budgets(form: agent_form.BudgetsForm | None) -> AgentBudgets:
    if form is None:
        return AgentBudgets()
    counts = form.model_dump(exclude={"usd"})
    return AgentBudgets(**counts, usd=None if form.usd is None else Decimal(str(form.usd)))


def _memory(form: Any) -> AgentMemory:
    if isinstance(form, agent_form.AstromeshSpecForm):
        memory = form.memory.conversational if form.memory else None
        return AgentMemory(conversation=memory is not None, max_turns=memory.max_turns if memory else 50)
    return AgentMemory() if form.memory is None else AgentMemory(**dict(form.memory))


# ---------------------------------------------------------------- its model


def _model(file: Declared[Any], build: BuildContext) -> ModelSpec | None:
    """Return the model of an agent; `None` after reporting a problem."""
    form, at = file.value.spec, file.at / "spec" / "model"
    if form.model is None:
        default = build.config.models.get("default")
        if default is None:
            text = "the key 'model' is missing: `provider:name`, such as openai:gpt-5.2, or `models: {default: …}`"
            build.report.add((file.at / "spec").problem(text))
            return None
        return model_spec(default.value, build.config)
    if isinstance(form, agent_form.AstromeshSpecForm):
        return _primary(form.model.primary, at / "primary", build) if form.model else None
    if not isinstance(form.model, str):
        return model_spec(form.model, build.config)
    if form.model in build.config.models:
        return model_spec(build.config.models[form.model].value, build.config)
    provider, _, name = form.model.partition(":")
    if provider in PROVIDERS and name:
        key = build.config.secrets.get(KEY_VARIABLES[provider])
        return ModelSpec(provider=PROVIDERS[provider], name=name, api_key=key)
    if provider == "openai_compatible":
        text = "openai_compatible needs `base_url`: write a mapping with provider, base_url and name"
    else:
        known = [*build.config.models, *(f"{each}:" for each in ("openai", "anthropic", "google"))]
        text = f"{form.model!r} is not a model.{nearest(form.model, known, label='Known')} Or write `provider:name`"
    build.report.add(at.problem(text))
    return None


def _primary(form: agent_form.PrimaryForm, at: At, build: BuildContext) -> ModelSpec | None:
    """Return the model that an `astromesh/v1` agent names."""
    key: str | Secret | None = form.api_key
    if key is None:
        variable = agent_form.agent_key_variable(agent_form.AstromeshModelForm(primary=form))
        key = build.config.secrets.get(variable or "")
    provider = PROVIDERS.get(form.provider, "openai_compatible")
    base_url = form.endpoint or _OPENAI_COMPATIBLE_AT.get(form.provider)
    if provider == "openai_compatible":
        if base_url is None:
            build.report.add(at.problem(f"{form.provider} needs `endpoint`"))
            return None
        # The API's paths begin with /v1, which people usually leave out of an endpoint.
        base_url = base_url.rstrip("/")
        base_url = base_url if base_url.endswith("/v1") else f"{base_url}/v1"
    return ModelSpec(
        provider=provider,
        name=form.model,
        base_url=base_url,
        api_key=None if key is None else Secret(key),
        parameters=form.parameters,
    )


# ---------------------------------------------------------------- all of them


class _AgentTool(Struct, frozen=True):
    """A tool that runs an agent, and its place in the config."""

    target: str
    at: At


def _agent_tools(config: Config) -> Iterator[_AgentTool]:
    for tool in (*config.tools, *(tool for agent in config.agents for tool in agent.tools)):
        if tool.value.type == "agent":
            yield _AgentTool(tool.value.agent, tool.at)


def _check_targets(build: BuildContext) -> None:
    """Report tools that run an unknown agent; agents whose own declaration was refused are not reported again."""
    known = {*build.catalog.registry.declarations.agents, *build.config.refused.agents}
    known |= {agent.file.value.metadata.name for agent in build.config.agents}
    for tool in _agent_tools(build.config):
        if tool.target not in known:
            text = f"there is no agent {tool.target!r}.{nearest(tool.target, known, label='Agents')}"
            build.report.add((tool.at / "agent").problem(text))


def _check_cycles(build: BuildContext) -> None:
    places = {tool.at.origin: tool.at for tool in _agent_tools(build.config)}
    declared = build.catalog.registry.declarations
    for cycle in cycles(agent_graph(declared)):
        names = " → ".join([*(edge.agent for edge in cycle), cycle[0].agent])
        steps = "; ".join(_described_edge(edge, build) for edge in cycle)
        text = f"agents run each other in a circle: {names}: {steps}. {way_out(cycle, declared)}"
        at = places.get(cycle[0].tool.spec.origin)
        build.report.add(Problem(message=text) if at is None else (at / "agent").problem(text))


def _described_edge(edge: Edge, build: BuildContext) -> str:
    """Return the tool that an agent uses to run another, with the line of the config that gives the agent that tool."""
    step = f"{edge.agent} by {edge.tool.spec.name!r} ({edge.tool.spec.origin})"
    key = taken_by(edge, build.catalog.registry.declarations)
    if key is None:
        return step
    wanted = key.partition(": ")[2]
    lines = [
        taken_item.at.origin
        for agent in build.config.agents
        if agent.file.value.metadata.name == edge.agent
        for taken_item in (*agent.groups, *agent.shared)
        if taken_item.value == wanted
    ]
    return f"{step}, taken by `{key}` ({lines[0]})" if lines else step


def _check_prices(build: BuildContext) -> None:
    """Report agents with a budget in dollars whose model, or whose sub-agent's model, has no known price."""
    agents = build.catalog.registry.declarations.agents
    graph = agent_graph(build.catalog.registry.declarations)
    for agent in build.config.agents:
        name = agent.file.value.metadata.name
        if agents[name].spec.budgets.usd is None:
            continue
        reached, waiting = {name}, [name]
        while waiting:
            new = {edge.target for edge in graph[waiting.pop()]} - reached
            reached |= new
            waiting += new
        for each in sorted(reached):
            model = agents[each].spec.model
            if budgets.price_of(model) is None:
                whose = "" if each == name else f" of its sub-agent {each!r}"
                text = f"there is no price of {model.provider}:{model.name}{whose}; take `usd` off, or budget tokens"
                build.report.add((agent.file.at / "spec" / "budgets" / "usd").problem(text))


def conversation_store(config: Config, report: Report) -> ConversationStore | None:
    """Return the store of conversations in a config; `None` if there is none, or after reporting a problem."""
    declared = config.agent_store
    if declared is None:
        return None
    try:
        return conversations.conversations_of(StoreUri.located(declared.value, folder=config.path.absolute().parent))
    except ImportError as error:
        report.add(declared.at.problem(needs_package(error.name, "postgres")))
    except DefinitionError as error:
        report.add(declared.at.problem(str(error)))
    return None
