"""A webhook from YAML: what it sends, what it takes of the answer, and which declarations cannot be honoured."""

import asyncio
from typing import Any

import pytest

from pegboard import ToolError
from pegboard.core.view import View
from tests.builtin.web import Asked, Site, answer, as_json, page
from tests.config.project import Project
from tests.config.test_refusals import cases
from tests.egress.loopback import RawServer
from tests.timing import PATIENCE_S

TOOL = """\
tools:
  - name: ask
    type: webhook
    description: Ask the service
    webhook: {{url: "{url}", {keys}}}
    parameters: {parameters}
"""
TO = "{to: {type: string, required: true}, n: {type: integer}, tags: {type: array}, o: {type: object}}"


def view(project: Project, url: str, keys: str = "", parameters: str = TO, **env: str) -> View:
    project.env = env
    return project.write(TOOL.format(url=url, keys=keys, parameters=parameters)).view(user="ann")


def echo(asked: Asked) -> bytes:
    body = asked.json if asked.body else None
    return as_json({"method": asked.method, "target": asked.target, "body": body})


async def value(tools: View, **args: Any) -> Any:
    return (await tools.call("ask", args)).unwrap()


async def error(tools: View, **args: Any) -> ToolError:
    found = (await tools.call("ask", args)).error
    assert found is not None
    return found


# ---------------------------------------------------------------- what is sent


async def test_arguments_are_the_json_body_and_headers_carry_the_secret(project: Project) -> None:
    site = Site(echo)
    async with site.server() as server:
        tools = view(project, f"{server.url}/send", 'headers: {Authorization: "Bearer ${KEY}", X-A: b}', KEY="sesame-1")
        got = await value(tools, to="bob", n=5)
    assert got == {"method": "POST", "target": "/send", "body": {"to": "bob", "n": 5}}
    asked = site.asked[0].headers
    assert (asked["authorization"], asked["x-a"], asked["content-type"]) == ("Bearer sesame-1", "b", "application/json")


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_get_and_delete_send_a_query_string_beside_the_one_that_is_there(project: Project, method: str) -> None:
    async with Site(echo).server() as server:
        tools = view(project, f"{server.url}/find?v=1", f"method: {method}")
        got = await value(tools, to="a&b=c #é", n=5, tags=["x", "y z", None], o={"k": 1})
    query = "v=1&to=a%26b%3Dc%20%23%C3%A9&n=5&tags=x&tags=y%20z&o=%7B%22k%22%3A1%7D"
    assert got == {"method": method, "target": f"/find?{query}", "body": None}


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_arguments_in_the_path_are_segments_and_no_longer_in_the_body(project: Project, method: str) -> None:
    async with Site(echo).server() as server:
        tools = view(
            project,
            server.url + "/users/{to}/notes?by={n}",
            f"method: {method}",
            TO.replace("integer", "integer, default: 7"),
        )
        got = await value(tools, to="../a b/ü?x#y", tags=[1])
    assert got == {"method": method, "target": "/users/..%2Fa%20b%2F%C3%BC%3Fx%23y/notes?by=7", "body": {"tags": [1]}}


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        ("{mail: {to: '{{ to }}', text: 'n is {{ n }}, o is {{data.o}}'}, n: '{{ data.n }}', by: ['{{to}}', me]}",
         {"mail": {"to": 'x", "y": "', "text": 'n is 5, o is {"k":[true]}'}, "n": 5, "by": ['x", "y": "', "me"]}),
        ("""'{"to": "{{ data.to }}", "n": "{{ n }}", "raw": {{ data.n | tojson }}, "k": {{ o.k }}}'""",
         {"to": 'x", "y": "', "n": "5", "raw": 5, "k": [True]}),
        ("'{{ data }}'", {"to": 'x", "y": "', "n": 5, "o": {"k": [True]}}),
        ("{key: '${KEY}', literal: '$${KEY}'}", {"key": 'q"uote', "literal": "${KEY}"}),
        ("args", {"to": 'x", "y": "', "n": 5, "o": {"k": [True]}}),
    ],
)  # fmt: skip
async def test_a_body_template_is_filled_with_values_that_stay_values(project: Project, body: str, sent: Any) -> None:
    site = Site(lambda asked: as_json({}))
    async with site.server() as server:
        parameters = TO.replace("tags:", "gone: {type: string}, tags:")
        await value(
            view(project, server.url, f"body: {body}", parameters, KEY='q"uote'), to='x", "y": "', n=5, o={"k": [True]}
        )
    assert site.asked[0].json == sent


@pytest.mark.parametrize(
    "body",
    [
        "{to: '{{ to }}', note: '{{ gone }}'}",
        "{list: [1, '{{ gone }}']}",
        "{text: 'Dear {{ gone }}'}",
        "{text: '{{ o.gone }}'}",
        "{text: '{{ o.k.gone }}'}",
        """'{"to": "{{ to }}", "raw": {{ gone | tojson }}}'""",
        """'{"to": "{{ data.gone }}"}'""",
    ],
)
async def test_nothing_is_sent_where_the_template_has_a_place_that_no_argument_fills(
    project: Project, body: str
) -> None:
    site = Site(lambda asked: as_json({}))
    async with site.server() as server:
        tools = view(project, server.url, f"body: {body}", TO.replace("tags:", "gone: {type: string}, tags:"))
        result = await tools.call("ask", {"to": "x", "o": {"k": [True]}})
        assert result.error is not None
        assert (result.error.kind, "gone" in result.error.message) == ("template_error", True)
        assert site.asked == []
        if "o." not in body:
            assert not (await tools.call("ask", {"to": "x", "gone": "", "o": {}})).is_error
            assert len(site.asked) == 1


# ---------------------------------------------------------------- what comes back


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$.data.id", 7), ("data.id", 7), ("$", {"data": {"id": 7, "a b": [1, 2]}}), ("$['data']['a b'][-1]", 2),
        ('$.data["a b"]', [1, 2]), ("$.data.{id: id}", {"id": 7}), ("$.data['a b'][?(@ > `1`)]", [2]),
    ],
)  # fmt: skip
async def test_the_result_is_the_part_of_the_answer_that_the_path_names(
    project: Project, path: str, found: Any
) -> None:
    quoted = path.replace("'", "''")
    async with Site(lambda asked: page('{"data": {"id": 7, "a b": [1, 2]}}')).server() as server:
        assert await value(view(project, server.url, f"result: '{quoted}'"), to="x") == found


async def test_an_answer_without_what_the_path_names_is_an_error_and_not_nothing(project: Project) -> None:
    async with Site(lambda asked: as_json({"data": None})).server() as server:
        found = await error(view(project, server.url, "result: $.data.id"), to="x")
    assert (found.kind, found.outcome_unknown) == ("protocol_error", True)
    assert found.message.startswith("The service behind 'ask' answered 200, but there is nothing at '$.data.id'")


@pytest.mark.parametrize(
    ("reply", "text", "structured"),
    [
        (as_json([1, 2]), "[1,2]", [1, 2]),
        (page("plain é", kind="text/plain; charset=utf-8"), "plain é", None),
        (answer(b"", status="204 No Content"), "The service behind 'ask' answered 204 and said nothing.", None),
    ],
)
async def test_json_comes_as_a_value_and_all_else_as_text(
    project: Project, reply: bytes, text: str, structured: Any
) -> None:
    async with Site(lambda asked: reply).server() as server:
        result = await view(project, server.url).call("ask", {"to": "x"})
    assert (result.text, result.structured, result.is_error) == (text, structured, False)


async def test_an_image_comes_as_an_image(project: Project) -> None:
    async with Site(lambda asked: answer(b"\x89PNG\r\n\0", headers=["Content-Type: image/png"])).server() as server:
        result = await view(project, server.url).call("ask", {"to": "x"})
    [block] = result.content
    assert block[:2] == (b"\x89PNG\r\n\0", "image/png")


async def test_a_promised_output_is_checked(project: Project) -> None:
    async with Site(lambda asked: page('{"id": "seven"}')).server() as server:
        text = TOOL.format(url=server.url, keys="", parameters=TO)
        tools = project.write(text + "    output: {type: object, properties: {id: {type: integer}}}\n").view()
        assert (await error(tools, to="x")).kind == "output_invalid"


# ---------------------------------------------------------------- when it fails


@pytest.mark.parametrize(
    ("status", "headers", "kind", "retryable", "wait_s", "unknown"),
    [
        ("502 Bad", [], "upstream_unavailable", True, None, True),
        ("503 Away", ["Retry-After: 7"], "upstream_unavailable", True, 7.0, True),
        ("504 Late", [], "upstream_unavailable", True, None, True),
        ("500 Oops", [], "upstream_error", True, None, True),
        ("501 Never", [], "upstream_error", False, None, True),
        ("429 Slow down", ["Retry-After: 1.5"], "rate_limited", True, None, False),
        ("429 Slow down", ["Retry-After: 60"], "rate_limited", True, 60.0, False),
        ("429 Slow down", ["Retry-After: 9999999999999"], "rate_limited", True, 999_999.0, False),
        ("401 Who", [], "upstream_auth", False, None, False),
        ("403 No", [], "upstream_auth", False, None, False),
        ("404 Not Found", ["Retry-After: soon"], "upstream_error", False, None, False),
        ("300 Choose", [], "upstream_error", False, None, False),
    ],
)  # fmt: skip
async def test_a_status_says_what_is_wrong_and_when_to_come_back(
    project: Project, status: str, headers: list[str], kind: str, retryable: bool, wait_s: float | None, unknown: bool
) -> None:
    async with Site(lambda asked: answer(b"a\n \x1b[31m reason", status=status, headers=headers)).server() as server:
        found = await error(view(project, server.url), to="x")
    assert (found.kind, found.retryable, found.retry_after_s, found.outcome_unknown) == (
        kind, retryable, wait_s, unknown,
    )  # fmt: skip
    assert found.details == {"status": int(status[:3]), "body": "a [31m reason"}
    assert found.message.startswith(f"The service behind 'ask' answered {status[:3]}: 'a [31m reason'.")


@pytest.mark.parametrize(("year", "wait_s"), [("2015", 0.0), ("2095", 999_999.0)])
async def test_a_date_says_too_when_to_come_back(project: Project, year: str, wait_s: float) -> None:
    header = f"Retry-After: Wed, 21 Oct {year} 07:28:00 GMT"
    async with Site(lambda asked: answer(b"", status="503 Away", headers=[header])).server() as server:
        assert (await error(view(project, server.url), to="x")).retry_after_s == wait_s


async def test_a_read_that_failed_has_done_no_harm(project: Project) -> None:
    async with Site(lambda asked: answer(b"", status="500 Oops")).server() as server:
        found = await error(view(project, server.url, "method: GET"), to="x")
    assert (found.outcome_unknown, found.message) == (
        False, "The service behind 'ask' answered 500. Try again later.",
    )  # fmt: skip


@pytest.mark.parametrize(("keys", "more"), [("timeout: {}", ""), ("timeout: 600", "    timeout_seconds: {}\n")])
async def test_the_smaller_of_both_time_limits_holds(project: Project, keys: str, more: str) -> None:
    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab")
        await reader.read()

    # A busy machine may spend a short time on the way there; of a request never sent, all is known.
    for limit_s in (0.2, 2, 20):
        async with RawServer(stall) as server, asyncio.timeout(PATIENCE_S):
            declared = TOOL.format(url=server.url, keys=keys.format(limit_s), parameters=TO) + more.format(limit_s)
            found = await error(project.write(declared).view(), to="x")
        assert found.kind == "timeout"
        if server.heads:
            break
    assert found.outcome_unknown


async def test_an_object_does_not_fit_into_a_url(project: Project) -> None:
    async with Site(echo).server() as server:
        tools = view(project, server.url + "/{to}", parameters="{to: {required: true}}")
        assert (await error(tools, to={"a": 1})).kind == "invalid_arguments"
        assert (await error(tools, to="")).kind == "invalid_arguments"
        assert (await value(tools, to=True))["target"] == "/true"


# ---------------------------------------------------------------- what cannot be honoured


@pytest.mark.parametrize(("keys", "said"), cases("refused_webhooks.txt"))
def test_a_webhook_that_cannot_be_honoured_is_refused_at_its_key(project: Project, keys: str, said: str) -> None:
    project.env = {"NEWLINE": "a\r\nHost: evil"}
    project.write(
        f"tools:\n  - name: a\n    type: webhook\n    description: x\n    webhook: {{{keys}}}\n    parameters: {TO}\n"
    )
    [problem] = project.problems()
    assert (problem.where.split(":")[1], f"{problem.path}: {problem.message}") == ("5", f"tools[0].webhook.{said}")


def test_all_that_is_wrong_is_said_at_once(project: Project) -> None:
    project.write(
        """\
        tools:
          - {name: a, type: webhook}
          - {name: b, type: webhook, description: x, webhook: {url: "x", body: "x", result: "!", headers: {Te: a}}}
        """
    )
    assert [problem.path for problem in project.problems()] == [
        "tools[0].description", "tools[0].webhook", "tools[1].webhook.url", "tools[1].webhook.body",
        "tools[1].webhook.result", "tools[1].webhook.headers.Te",
    ]  # fmt: skip


async def test_integers_of_any_length_are_sent_as_they_are(project: Project) -> None:
    site, huge = Site(lambda _: as_json({})), 10**30
    async with site.server() as server:
        for said in (
            f"url: {server.url}/x",
            f"url: '{server.url}/{{n}}', method: GET",
            f"url: {server.url}, method: PUT, body: {{a: 'n={{{{ n }}}}'}}",
        ):
            project.write(
                f"""\
                tools:
                  - name: t
                    type: webhook
                    description: x
                    consent: always
                    webhook: {{{said}}}
                    parameters: {{n: {{type: integer, required: true}}}}
                """
            )
            tools = project.view(user="ann", approve=lambda request: True)
            assert (await tools.call("t", {"n": huge})).error is None
    assert [(asked.target, asked.body) for asked in site.asked] == [
        ("/x", b'{"n":%d}' % huge), (f"/{huge}", b""), ("/", b'{"a":"n=%d"}' % huge),
    ]  # fmt: skip


def test_an_integer_that_most_readers_would_round_is_refused_in_a_schema(project: Project) -> None:
    project.write(
        """\
        tools:
          - name: a
            type: webhook
            description: x
            webhook: {url: "https://x.example"}
            parameters: {n: {type: integer, maximum: 99999999999999999999}}
        """
    )
    [said] = project.said()
    assert said == "pegboard.yaml:6:17: tools[0].parameters: The schema has an integer of more than 64 bits."
