"""Predicates of a config: what each form asks, and what `why` says of a no."""

import asyncio
import sys
import threading
from typing import Any

import pytest

from pegboard import Secret, ToolContext
from pegboard.config import context_for
from tests.config.project import Project
from tests.timing import PATIENCE_S

MINE = """
from pegboard import ToolContext, default_catalog

CALLS = []

def is_ann(ctx: ToolContext) -> bool:
    CALLS.append(ctx.user_id)
    return ctx.user_id == "ann"

async def is_bob(ctx: ToolContext) -> bool:
    return ctx.user_id == "bob"

def raises(ctx: ToolContext) -> bool:
    raise RuntimeError("down")

@default_catalog.predicate
def registered(ctx: ToolContext) -> bool:
    return "admin" in ctx.roles

def f() -> str:
    return "x"
"""


def config(form: str, extra: str = "") -> str:
    return (
        f"python: [mine]\n{extra}predicates:\n  p: {form}\n"
        'tools: [{name: a, type: internal, handler: "python:mine:f", available: p}]\n'
    )


@pytest.mark.parametrize(
    ("form", "env", "who", "visible"),
    [
        ("{secret: TOKEN}", {"TOKEN": "abcd"}, {}, True),
        ("{secret: TOKEN}", {"TOKEN": ""}, {}, False),
        ("{secret: TOKEN}", {}, {}, False),
        ("{secret: TOKEN}", {}, {"secrets": {"TOKEN": Secret("abcd")}}, True),
        ("{secret: TOKEN}", {"TOKEN": "abcd"}, {"secrets": {"TOKEN": Secret("")}}, False),
        ("{context: space_id}", {}, {"space": "s1"}, True),
        ("{context: space_id}", {}, {}, False),
        ("{context: space_id}", {}, {"space": ""}, False),
        ("{context: message_queue}", {}, {"message_queue": []}, True),
        ("{setting: on_}", {}, {}, True),
        ("{setting: off_}", {}, {}, False),
        ("{setting: text_no}", {}, {}, False),
        ("{setting: text_yes}", {}, {}, True),
        ("{setting: on_}", {}, {"settings": {"on_": False}}, False),
        ("{setting: from_env}", {"FLAG": "false"}, {}, False),
        ("{setting: from_env}", {"FLAG": "true"}, {}, True),
        ('{python: "python:mine:is_ann"}', {}, {"user": "ann"}, True),
        ('{python: "python:mine:is_ann"}', {}, {"user": "bob"}, False),
        ('{python: "python:mine:raises"}', {}, {"user": "ann"}, False),
        ("{all: [registered, {context: user_id}]}", {}, {"user": "ann", "roles": ["admin"]}, True),
        ("{all: [registered, {context: user_id}]}", {}, {"user": "ann"}, False),
        ("{any: [registered, {context: user_id}]}", {}, {"user": "ann"}, True),
        ("{any: []}", {}, {}, False),
        ("{all: []}", {}, {}, True),
        ("{not: registered}", {}, {}, True),
        ("{not: {any: [registered, {setting: on_}]}}", {}, {}, False),
        ("{not: user_id}", {}, {"user": "ann"}, False),
        ("{not: user_id}", {}, {}, True),
    ],
)
def test_each_form_asks_what_it_says(
    project: Project, form: str, env: dict[str, str], who: dict[str, Any], visible: bool
) -> None:
    project.env = {"FLAG": "", **env}
    extra = "settings: {on_: true, off_: false, text_no: 'No', text_yes: yes, from_env: '${FLAG}'}\n"
    project.write(config(form, extra), mine=MINE)
    assert project.view(**who).names() == (["a"] if visible else [])


def test_the_environment_counts_also_in_a_context_that_the_host_built(project: Project) -> None:
    project.env = {"TOKEN": "abcd"}
    catalog = project.write(config("{secret: TOKEN}"), mine=MINE).catalog()
    assert catalog.view(ToolContext()).names() == ["a"]


def test_the_context_has_the_secrets_that_predicates_name(project: Project) -> None:
    project.env = {"TOKEN": "abcd", "OTHER": "efgh"}
    project.write("predicates: {p: {any: [{secret: TOKEN}, {not: {secret: NONE}}]}}")
    _, loaded = project.load()
    assert context_for(loaded).secrets == {"TOKEN": Secret("abcd")}


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ("{secret: TOKEN}", "the secret TOKEN is missing or empty"),
        ("{context: space_id}", "the context has no space_id"),
        ("{not: {setting: on_}}", "not: setting on_"),
        ("{any: [{secret: TOKEN}, registered]}",
         "none of: the secret TOKEN is missing or empty; predicate 'registered' answered no"),
    ],
)  # fmt: skip
def test_why_names_what_is_missing(project: Project, form: str, reason: str) -> None:
    project.write(config(form, "settings: {on_: true}\n"), mine=MINE)
    decision = project.view().why("a")
    assert (decision.code, decision.reason) == ("available", reason)


async def test_an_async_predicate_may_stand_inside_others(project: Project) -> None:
    project.write(config('{any: [{python: "python:mine:is_bob"}, {all: [{context: space_id}]}]}'), mine=MINE)
    catalog, loaded = project.load()
    who = [context_for(loaded, user="bob"), context_for(loaded, user="ann"), context_for(loaded, space="s")]
    assert [(await catalog.aview(ctx)).names() for ctx in who] == [["a"], [], ["a"]]


async def test_code_in_a_composed_predicate_that_hangs_delays_no_other_caller(project: Project) -> None:
    mine = """
import threading

THREADS, GO = [], threading.Event()

def hangs(ctx) -> bool:
    THREADS.append(threading.get_ident())
    return GO.wait(60)

def f() -> str:
    return "x"
"""
    patient = f"limits: {{predicate_s: {PATIENCE_S}}}\n"
    project.write(config('{all: [{python: "python:mine:hangs"}]}', patient), mine=mine)
    catalog, loaded = project.load()
    waiting = asyncio.create_task(catalog.aview(context_for(loaded, user="ann")))
    module = sys.modules["mine"]
    async with asyncio.timeout(PATIENCE_S):
        while not module.THREADS:
            await asyncio.sleep(0)
        module.GO.set()
        assert (await waiting).names() == ["a"]
    assert threading.get_ident() not in module.THREADS


def test_a_question_that_two_predicates_share_runs_once_a_context(project: Project) -> None:
    project.write(
        """\
        python: [mine]
        predicates:
          late: {all: [early, {not: {not: early}}]}
          early: {python: "python:mine:is_ann"}
        tools:
          - {name: a, type: internal, handler: "python:mine:f", available: {all: [late, early]}}
          - {name: b, type: internal, handler: "python:mine:f", available: {not: late}}
        """,
        mine=MINE,
    )
    view = project.view(user="bob")
    assert view.names() == ["b"]
    assert sys.modules["mine"].CALLS == ["bob"]


def test_python_tools_may_name_predicates_of_the_config(project: Project) -> None:
    project.write(
        "python: [mine]\npredicates: {p: {context: user_id}}\n",
        mine="""
        from pegboard import default_catalog

        @default_catalog.tool(available="p")
        def a() -> str:
            return ""
        """,
    )
    assert project.view().names() == []
    assert project.view(user="ann").names() == ["a"]


def test_a_predicate_that_python_registers_too_is_refused(project: Project) -> None:
    project.write("python: [mine]\npredicates: {registered: {context: user_id}}\n", mine=MINE)
    assert project.said() == [
        "pegboard.yaml:2:14: predicates.registered: a Python module registers a predicate 'registered' already; "
        "rename one"
    ]


def test_a_circle_is_refused_by_its_members(project: Project) -> None:
    project.write("predicates:\n  a: {not: b}\n  b: {all: [c]}\n  c: {any: [a]}\n")
    assert project.said() == ["pegboard.yaml:2:3: predicates.a: the predicate asks for itself: a → b → c → a"]
