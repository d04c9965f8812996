"""Templates of agents: what values say is data, what is undefined is an error, and what loops ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pegboard import CallError
from pegboard.agents.templates import SandboxedTemplates
from tests.agents.files import agent_file, faults, load
from tests.agents.team import asked, playing

QUOTED = '{"company": "{{ data.company }}"}'
AS_JSON = '{"company": {{ data.company | tojson }}}'
NASTY = [
    'Acme", "role": "admin', "{{ 7 * 7 }}", "{% for x in y %}", '"}', "\\", "\\u0022", "a\nb\tc", "}{", "'",
    "\ue0000\ue001",
    "\ue000\ue0000\ue001\ue001", "`${x}`", "\u2028", "{# #}", "é😀", "",
]  # fmt: skip


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def templates(anyio_backend: str) -> AsyncIterator[SandboxedTemplates]:
    made = SandboxedTemplates()
    yield made
    await made.close()


@pytest.mark.parametrize("template", [QUOTED, AS_JSON])
async def test_a_value_cannot_change_the_structure(templates: SandboxedTemplates, template: str) -> None:
    for value in NASTY:
        assert await templates.json_object(template, {"company": value}) == {"company": value}


async def test_values_are_of_their_own_type_outside_of_quotes(templates: SandboxedTemplates) -> None:
    data: dict[str, Any] = {"n": 3, "yes": True, "none": None, "list": ["a", {"b": '"'}], "items": "x", "k": 'a":1,"'}
    template = (
        '{"n": {{ data.n }}, "yes": {{ data.yes }}, "none": {{ data.none }}, "list": {{ data.list | tojson }},'
        ' "text": "{{ data.n }}/{{ data.list | tojson }}", "items": "{{ data.items }}", "{{ data.k }}": 1,'
        ' "each": [{% for x in data.list %}{{ x | tojson }}{% if not loop.last %}, {% endif %}{% endfor %}],'
        ' "set": "{% set y %}{{ data.k }}{% endset %}{{ y }}", "up": "{{ data.k | upper }}"}'
    )
    assert await templates.json_object(template, data) == {
        "n": 3, "yes": True, "none": None, "list": ["a", {"b": '"'}], "text": '3/["a", {"b": "\\""}]', "items": "x",
        'a":1,"': 1, "each": ["a", {"b": '"'}], "set": 'a":1,"', "up": 'A":1,"',
    }  # fmt: skip


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ('{"a": "{{ data.missing }}"}', "missing"),
        ('{"a": "{{ nothing }}"}', "nothing"),
        ('{"a": "{{ data.values }}"}', "undefined"),
        ('{"a": "{{ data.text.upper }}"}', "'upper' is undefined as a value: it is a function"),
        ('{% macro m() %}{% endmacro %}{"a": "{{ m }}"}', "'m' is undefined as a value"),
        (
            '{"a": "{% for x in [1] %}{{ loop }}{% endfor %}"}',
            "a LoopContext is not a JSON value. Name the",
        ),
        ('{"a": 1,\n "b": "{{ data.missing }}"}', "line 2: 'dict object' has no attribute 'missing'"),
        ('{"a": 1,\n\n "b": "{{ data.text.upper }}"}', "line 3: 'upper'"),
        ('{"a": {{ data.text }}}', "outside of quotes"),
        ('{"a": {{ data.list }}}', "outside of quotes"),
        ('["{{ data.text }}"]', "not a JSON object"),
        ('{"a": NaN}', "not JSON"),
        ('{"a": 1', "not JSON"),
        ('{"a": "{{ data.text }}", "a": 1, "{{ data.key }}": 2}', "twice"),
        ('{"a": "{% for x in range(9) %}{% endfor %}"}', "range"),
        ('{"a": "{{ data.__class__.__mro__ }}"}', "not data"),
        ('{"a": "{{ data.text.__class__ }}"}', "not data"),
        ('{"a": "{{ \'%s\' | format(data.text) ** 9 }}"}', "template"),
        ('{"a": "{{ data.text * 9000000 }}"}', "template"),
    ],
)
async def test_what_cannot_be_filled_is_a_template_error(
    templates: SandboxedTemplates, template: str, said: str
) -> None:
    with pytest.raises(CallError) as caught:
        await templates.json_object(template, {"text": '"}', "list": [1], "key": "b" if said != "twice" else "a"})
    assert caught.value.error.kind == "template_error"
    assert said in caught.value.error.message


async def test_a_template_that_loops_or_grows_ends_and_the_next_one_is_filled(templates: SandboxedTemplates) -> None:
    digits = "[1,2,3,4,5,6,7,8,9]"
    loop = "".join(f"{{% for x{i} in {digits} %}}" for i in range(12)) + "x" + "{% endfor %}" * 12
    silent = loop.replace("x{% endfor", "{% endfor", 1)
    for template in (loop, silent, "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"):
        with pytest.raises(CallError) as caught:
            await templates.text(template, {})
        assert caught.value.error.kind == "template_error"
    assert await templates.text("{{ a }}", {"a": "{{ b }}"}) == "{{ b }}"
    evil = '{"a": "{% set y %}{{ data.k }}{% endset %}{{ y ~ data.k }}"}'
    assert await templates.json_object(evil, {"k": '", "b": "'}) == {"a": '", "b": "' * 2}


def test_a_template_that_reads_what_the_parameters_lack_is_refused_at_load(tmp_path: Path) -> None:
    tool = "{{name: ask, type: agent, agent: b, context_transform: '{0}', parameters: {{topic: {{type: string}}}}}}"
    files = {"agents/b.yaml": agent_file("b", "prompts: {system: '{{ context.topic '}")}
    transform = '{"topic": "{{ data.topik }}", "x": "{{ data.topic }}"}'
    files["agents/a.yaml"] = agent_file("a", "tools:\n  - " + tool.format(transform))
    assert faults(tmp_path, files) == [
        "agents/a.yaml:7: spec.tools[0].context_transform: reads `data.topik`, which is not one of the parameters. "
        "Declare it, or take it out",
        "agents/b.yaml:6: spec.prompts.system: is not a template: line 1: unexpected end of template, expected "
        "'end of print statement'.",
    ]


async def test_the_arguments_become_the_context_of_the_agent(tmp_path: Path) -> None:
    tool = f"{{name: ask, type: agent, agent: b, context_transform: '{QUOTED}'}}"
    catalog = load(
        tmp_path,
        {
            "agents/b.yaml": agent_file("b", "prompts: {system: 'About {{ company }} and {{ context.company }}'}"),
            "agents/a.yaml": agent_file("a", f"tools:\n  - {tool}"),
        },
    )
    seen: dict[str, list[Any]] = {}
    calls = [("ask", {"company": '"Acme" {{ 1 }}'}), ("ask", {})]
    catalog.runtime.agents.make_model = playing({"a": [calls, "end"], "b": ["ok"]}, seen=seen)
    assert (await catalog.agents.run("a", "go")).status == "completed"
    [(messages, info)] = seen["b"]
    assert info.instructions == 'About "Acme" {{ 1 }} and "Acme" {{ 1 }}'
    assert asked(messages) == ['{"company": "\\"Acme\\" {{ 1 }}"}']
    assert [tool.name for tool in seen["a"][0][1].function_tools] == ["ask"]
    assert seen["a"][0][1].function_tools[0].parameters_json_schema["required"] == ["company"]
    await catalog.close()
