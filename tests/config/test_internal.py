"""Tools of kind `internal`: the documented form, both ways to write parameters, and the common keys."""

import json
import threading

import pytest

from pegboard.model.rate_limit import RateLimit
from pegboard.model.tool import Annotations
from tests.config.project import Project

WEB_SEARCH = """
from pegboard import default_catalog

@default_catalog.tool(groups="web", read_only=True)
def web_search(query: str, max_results: int = 10) -> str:
    '''Find pages.'''
    return f"{query} x{max_results}"
"""
DOCUMENTED = (
    '{"type":"function","function":{"name":"web_search","description":"Search the web for current information",'
    '"parameters":{"type":"object","properties":{"query":{"type":"string","description":"Search query"},'
    '"max_results":{"type":"integer","description":"Maximum results","default":5}},"required":["query"]}}}'
)
ECHO = """
def echo(text: str, times: int = 1) -> str:
    '''Say it again.'''
    return text * times
"""


def internal(*keys: str) -> str:
    lines = ['handler: "python:mine:echo"', *keys]
    return "tools:\n  - name: a\n    type: internal\n" + "".join(f"    {line}\n" for line in lines)


async def test_the_documented_tool_comes_out_exactly(project: Project) -> None:
    project.write(
        """\
        python: [mine]
        tools:
          - {name: web_search, type: internal, description: "Search the web for current information", parameters: {query: {type: string, description: "Search query", required: true}, max_results: {type: integer, description: "Maximum results", required: false, default: 5}}, rate_limit: {max_calls: 10, window_seconds: 60}}
        """,  # noqa: E501 - as the contract has it
        mine=WEB_SEARCH,
    )
    view = project.view()
    (exported,) = view.export("openai")
    assert json.dumps(exported, separators=(",", ":")) == DOCUMENTED
    entry = view["web_search"]
    assert entry.spec.rate_limit == RateLimit(max_calls=10, window_s=60)
    assert entry.spec.origin == f"{project.path}:3"
    assert (await view.call("web_search", {"query": "q"})).text == "q x5"


def test_what_the_config_does_not_say_of_a_registered_function_stays(project: Project) -> None:
    project.write("python: [mine]\ntools: [{name: web_search, type: internal, timeout_seconds: 5}]", mine=WEB_SEARCH)
    spec = project.view()["web_search"].spec
    assert (spec.description, spec.groups, spec.is_read_only, spec.timeout_s) == ("Find pages.", ("web",), True, 5)
    assert spec.input_schema["properties"]["max_results"]["default"] == 10


def test_a_handler_without_parameters_has_those_of_its_signature(project: Project) -> None:
    project.write(internal(), mine=ECHO)
    spec = project.view()["a"].spec
    assert spec.description == "Say it again."
    assert spec.input_schema == {
        "type": "object",
        "properties": {"text": {"type": "string"}, "times": {"type": "integer", "default": 1}},
        "required": ["text"],
    }


def test_the_shorthand_means_the_same_as_the_whole_schema(project: Project) -> None:
    short = "parameters: {text: {type: string, required: true, minLength: 2}, times: {type: integer, default: 3}}"
    whole = (
        "parameters: {type: object, required: [text], "
        "properties: {text: {type: string, minLength: 2}, times: {type: integer, default: 3}}}"
    )
    specs = [project.write(internal(keys), mine=ECHO).view()["a"].spec for keys in (short, whole)]
    assert specs[0].input_schema == specs[1].input_schema
    assert list(specs[0].input_schema["properties"]) == ["text", "times"]


def test_the_shorthand_reaches_into_objects_and_leaves_their_own_lists_alone(project: Project) -> None:
    project.write(
        """\
        tools:
          - name: a
            type: internal
            handler: "python:mine:f"
            parameters:
              type: {type: string, required: true}
              to:
                type: object
                properties: {street: {type: string, required: true}, no: {type: integer}}
                required: true
              by: {type: object, properties: {id: {type: string}}, required: [id]}
              properties: {type: object}
        """,
        mine="def f(**anything: object) -> str:\n    return 'x'\n",
    )
    assert project.view()["a"].spec.input_schema == {
        "type": "object",
        "properties": {
            "type": {"type": "string"},
            "to": {
                "type": "object",
                "properties": {"street": {"type": "string"}, "no": {"type": "integer"}},
                "required": ["street"],
            },
            "by": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
            "properties": {"type": "object"},
        },
        "required": ["type", "to"],
    }


def test_no_parameters_at_all_is_an_empty_object(project: Project) -> None:
    project.write(internal("parameters: {}").replace("echo", "f"), mine="def f() -> str:\n    return 'x'\n")
    assert project.view()["a"].spec.input_schema == {"type": "object", "properties": {}}


async def test_unknown_arguments_are_refused_though_the_schema_does_not_say_so(project: Project) -> None:
    project.write(
        internal("parameters: {text: {type: string, required: true}}").replace("echo", "f"),
        mine="def f(**anything: object) -> str:\n    return str(anything)\n",
    )
    view = project.view()
    assert "additionalProperties" not in view["a"].spec.input_schema
    refused = await view.call("a", {"text": "x", "more": 1})
    assert refused.error is not None
    assert refused.error.kind == "invalid_arguments"
    assert (await view.call("a", {"text": "x"})).text == "{'text': 'x'}"


def test_every_common_key_reaches_the_declaration(project: Project) -> None:
    project.write(
        internal(
            "description: Twice",
            "groups: [g, h]",
            "available: {all: [true, {not: false}]}",
            "rate_limit: {max_calls: 2, window_seconds: 1.5, scope: user, when_store_is_down: open}",
            "timeout_seconds: 1.5",
            "consent: destructive",
            "internal_only: true",
            "repair: true",
            "annotations: {title: T, read_only: false, destructiveHint: true, idempotent: true, openWorldHint: false}",
            "aliases: {words: text, phrase: words}",
            "output: {type: object}",
            "examples: [{text: x, times: 2}]",
        ),
        mine=ECHO,
    )
    entry = project.catalog().snapshot().find("a")
    assert entry is not None
    spec = entry.spec
    assert (spec.description, spec.groups, spec.timeout_s, spec.consent) == ("Twice", ("g", "h"), 1.5, "destructive")
    assert spec.available == {"all": [True, {"not": False}]}
    assert spec.rate_limit == RateLimit(max_calls=2, window_s=1.5, scope="user", when_store_is_down="open")
    assert (spec.internal_only, spec.repair) == (True, True)
    assert spec.annotations == Annotations(read_only=False, destructive=True, idempotent=True, open_world=False)
    assert spec.title == "T"
    assert spec.aliases == {"words": "text", "phrase": "text"}
    assert spec.output_schema == {"type": "object"}
    assert spec.examples == ({"text": "x", "times": 2},)


async def test_arguments_are_mended_where_the_config_says_so(project: Project) -> None:
    project.write(internal("repair: true"), mine=ECHO)
    result = await project.view().call("a", {"text": "x", "times": "2"})
    assert result.meta["repaired"] == [{"path": "$.times", "repair": "number_in_text"}]
    project.write(internal("repair: false"), mine=ECHO)
    assert (await project.view().call("a", {"text": "x", "times": "2"})).is_error


async def test_aliases_are_taken_on_input_and_not_shown(project: Project) -> None:
    project.write(internal("aliases: {words: text}"), mine=ECHO)
    view = project.view()
    assert (await view.call("a", {"words": "x"})).text == "x"
    assert list(view.schema("a")["properties"]) == ["text", "times"]


async def test_a_limit_as_text_holds(project: Project) -> None:
    project.write(internal("rate_limit: 1/60s"), mine=ECHO)
    view = project.view()
    kinds = [(await view.call("a", {"text": "x"})).error for _ in range(2)]
    assert kinds[0] is None
    assert kinds[1] is not None
    assert kinds[1].kind == "rate_limited"


async def test_consent_may_be_a_function_of_the_arguments(project: Project) -> None:
    project.write(
        internal('consent: "python:mine:risky"'),
        mine=ECHO + "\ndef risky(args: dict) -> bool:\n    return args['text'] == 'rm'\n",
    )
    view = project.view()
    assert (await view.call("a", {"text": "ls"})).error is None
    refused = (await view.call("a", {"text": "rm"})).error
    assert refused is not None
    assert refused.kind == "consent_required"


@pytest.mark.parametrize(("key", "is_inline"), [("inline: true", True), ("inline: false", False)])
async def test_a_plain_function_runs_in_a_thread_unless_it_is_inline(
    project: Project, key: str, is_inline: bool
) -> None:
    project.write(
        internal(key).replace("echo", "where"),
        mine="import threading\n\ndef where() -> int:\n    return threading.get_ident()\n",
    )
    found = (await project.view().call("a", {})).structured
    assert (found == threading.get_ident()) is is_inline


async def test_a_handler_may_be_async_and_take_the_context(project: Project) -> None:
    project.write(
        internal("parameters: {text: {type: string, required: true}}").replace("echo", "f"),
        mine="""
        from pegboard import CallContext

        async def f(ctx: CallContext, text: str) -> str:
            return f"{ctx.user_id} {text} {ctx.settings['tone']}"
        """,
    )
    project.path.write_text(project.path.read_text() + "settings: {tone: kind}\n")
    assert (await project.view(user="ann").call("a", {"text": "x"})).text == "ann x kind"


async def test_a_handler_may_be_a_class_of_tools(project: Project) -> None:
    project.write(
        """\
        tools: [{name: mail, type: internal, handler: "python:mine:SendEmail", description: Post it}]
        """,
        mine="""
        from pegboard import Field, Tool

        class SendEmail(Tool, destructive=True):
            to: str = Field(description="Address")

            def perform(self) -> str:
                return f"sent to {self.to}"
        """,
    )
    view = project.view()
    assert view.names() == ["mail"]
    assert view["mail"].spec.annotations.destructive is True
    assert (await view.call("mail", {"to": "a@b"})).text == "sent to a@b"


def test_a_limit_for_every_tool_that_has_none(project: Project) -> None:
    project.write("rate_limits: {default: 100/60s}")
    assert project.catalog().registry.declarations.default_limit == RateLimit(max_calls=100, window_s=60)


async def test_rate_limits_follow_the_clock_that_is_given(project: Project) -> None:
    from pegboard.config import build, context_for, load

    now = [0.0]
    project.write(internal("rate_limit: 1/60s"), mine=ECHO)
    config = load(project.path, env={})
    view = build(config, clock=lambda: now[0]).view(context_for(config))
    errors = []
    for now[0] in (0.0, 59.9, 60.0):
        errors.append((await view.call("a", {"text": "x"})).is_error)
    assert errors == [False, True, False]
