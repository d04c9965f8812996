"""The shared template cases, through json_transform. Named after their ids."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

from pegboard import ToolResult
from tests.builtin.parts import shelf
from tests.timing import is_within

# What must end by itself has time to, on a busy machine too.
CONFIG = {"template": True, "timeout_seconds": 30}


async def render(template: str, data: Any = None, **config: Any) -> ToolResult:
    args = {"data": {"a": 1} if data is None else data, "expression": template, "language": "template"}
    return await shelf("json_transform", CONFIG | config).call("json_transform", args)


REACHING = [
    "{{ data.__class__.__mro__[1].__subclasses__() }}",
    "{{ data['__class__'] }}",
    "{{ data|attr('__class__') }}",
    "{{ ''.__class__ }}",
    "{{ data.items.__self__ }}",
    "{{ '{0.__class__.__mro__}'.format(data) }}",
    "{{ ('{0.__class__}'|format_map if false else '{a.__class__}').format_map({'a': data}) }}",
    "{{ cycler.__init__.__globals__.os.environ }}",
    "{{ joiner.__init__.__globals__ }}",
    "{{ lipsum.__globals__ }}",
    "{{ namespace.__init__ }}",
    "{{ self.__init__.__globals__ }}",
    "{{ self._TemplateReference__context }}",
    "{% import 'os' as os %}{{ os }}",
    "{% include '/etc/passwd' %}",
    "{% set x = data.__class__ %}{{ x }}",
    "{{ data|map(attribute='__class__')|list }}",
    "{{ [data]|map(attribute='__class__')|list }}",
    "{{ [data]|groupby('__class__') }}",
    "{{ data.update({'admin': true}) }}",
]


@pytest.mark.parametrize("template", REACHING)
async def test_tpl_01_02_08_no_spelling_reaches_python(template: str) -> None:
    result = await render(template)
    if result.error is None:
        # Nothing of Python's may come out where the sandbox gives nothing instead of refusing.
        assert not any(word in str(result.structured) for word in ("class", "built-in", "module", "environ", "root:"))
    else:
        assert result.error.kind == "template_error"
        assert result.error.outcome_unknown is False


@pytest.mark.parametrize("name", ["range", "dict", "lipsum", "cycler", "joiner", "namespace"])
async def test_tpl_02_no_function_of_the_engine_itself_is_there(name: str) -> None:
    result = await render(f"{{{{ {name} }}}}")
    assert result.error is not None, result.structured
    assert result.error.kind == "template_error"


@pytest.mark.parametrize("change", ["data.update({'b': 2})", "data.list.append(2)"])
async def test_a_template_reads_its_data_and_changes_nothing(change: str) -> None:
    result = await render(f"{{{{ {change} }}}}{{{{ data.b }}}}", {"a": 1, "list": [1]})
    assert result.error is not None, result.structured
    assert (result.error.kind, "it reaches for what is not data" in result.error.message) == ("template_error", True)


async def test_tpl_05_values_of_arguments_are_text_and_no_template() -> None:
    for value in ("{{7*7}}", '"}, "admin": true, {"x":"', "{% for x in y %}", "${7*7}", "<%= 7 %>"):
        plain = await render("name={{ data.company }};", {"company": value})
        assert plain.structured == {"result": f"name={value};"}
        as_json = await render('{"name": {{ data.company|tojson }}}', {"company": value})
        assert as_json.structured["result"] == {"name": value}


async def test_a_template_that_works_gives_its_text() -> None:
    result = await render(
        "{% for n in data.names %}{{ loop.index }}. {{ n|upper }}\n{% endfor %}", {"names": ["a", "ü"]}
    )
    assert result.structured == {"result": "1. A\n2. Ü\n"}
    missing = await render("{{ data.nothing }}")
    assert missing.error is not None
    assert "nothing" in missing.error.message


EATERS = [
    ("{% for a in 'x'*9999 %}{% for b in 'x'*9999 %}{% if a == 'y' %}{% endif %}{% endfor %}{% endfor %}", "timeout"),
    ("{{ 'x' * 10**10 }}", "template_error"),
    ("{{ 10 ** (10 ** 10) }}", "template_error"),
    ("{% for a in 'x'*9999 %}{{ 'y' * 9999 }}{% endfor %}", "result_too_large"),
    ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "template_error"),
    ("{{ ('a' * 40 + '!')|replace('a', 'b' * 10**8) }}", "template_error"),
    ("{% set ns = [0] %}{% for i in 'x' * 10**6 %}{% set _ = 'y' * 10**6 %}{% endfor %}", "timeout"),
]  # fmt: skip


@pytest.mark.parametrize(("template", "kind"), EATERS)
async def test_a_template_cannot_eat_the_machine(template: str, kind: str) -> None:
    started, before = time.monotonic(), children()
    # Where it is not the time that runs out, there is plenty of it.
    result = await render(template, timeout_seconds=1 if kind == "timeout" else 30)
    assert result.error is not None, str(result.structured)[:100]
    assert result.error.kind == kind
    # Its own time, and that of the child to start.
    assert is_within(time.monotonic() - started, 4)
    assert children() <= before


async def test_the_loop_goes_on_while_a_template_runs() -> None:
    running = asyncio.create_task(render(EATERS[0][0], timeout_seconds=1))
    ticks = 0
    while not running.done():
        await asyncio.sleep(0.01)
        ticks += 1
    # A loop that was held for the second that the template has would have ticked once.
    assert ticks > 5


def children() -> set[int]:
    """Our own children that are still there."""
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}
