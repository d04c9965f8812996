"""`pegboard matrix`: profiles and tools as `why` decides them, and the callers and agents that reach one tool."""

from pathlib import Path

import orjson
import pytest

from tests.cli.conftest import Run

REACHED = """
identity:
  api_keys: {store: "sqlite:./keys.db"}
  jwt: {issuer: "https://id.example", audience: "https://tools.example/mcp", jwks_url: "https://id.example/keys"}
  map:
    - {when: {key: ann}, user: ann, roles: [boss], profiles: [operator]}
    - {when: {key: ann}, user: ann, profiles: [chat]}
    - {when: {claim: {sub: "*"}}, user: "{sub}", roles: ["{groups}"], profiles: ["{team}"]}
  anonymous: {profile: chat}
models: {default: {provider: openai_compatible, base_url: "http://127.0.0.1:9/v1", name: none}}
files: [helper.yaml]
"""
HELPER = """\
apiVersion: pegboard/v1
kind: Agent
metadata: {name: helper}
spec:
  prompts: {system: Help.}
  tools: [{group: admin}]
  permissions: {denied_actions: [shout]}
"""


def test_the_matrix_has_the_code_that_why_gives_for_each_tool_and_profile(run: Run, folder: Path) -> None:
    path = folder / "pegboard.yaml"
    path.write_text(path.read_text().replace("{web: false}", "{web: true}"))
    ran = run("matrix", "--json")
    answer = orjson.loads(ran.out)
    assert answer["profiles"] == ["chat", "operator"]
    for tool in answer["tools"]:
        for profile, code in tool["codes"].items():
            why = orjson.loads(run("why", tool["name"], "--profile", profile, "--json").out)
            assert code == ("asks" if why["visible"] and why["asks"] else why["code"])
    assert {tool["name"]: tuple(tool["codes"].values()) for tool in answer["tools"]} == {
        "count_words": ("visible", "visible"),
        "echo": ("visible", "visible"),
        "delete_page": ("group", "asks"),
        "search_web": ("policy", "visible"),
        "explode": ("group", "visible"),
        "shout": ("group", "visible"),
        "chatter": ("group", "visible"),
    }
    text = run("matrix").out
    assert "7 tools: chat sees 2, operator sees 7." in text
    assert "| `delete_page` | `group` |" in run("matrix", "--markdown", "--profile", "chat").out
    assert "operator" not in run("matrix", "--markdown", "--profile", "chat").out


def test_who_reaches_a_tool_by_profile_credential_role_and_agent(run: Run, folder: Path) -> None:
    path = folder / "pegboard.yaml"
    bossy = (
        path.read_text()
        .replace("{setting: web}", '{python: "python:tests.cli.workshop:is_boss"}')
        .replace("description: Search the web.", "description: Search the web.\n    groups: [admin]")
    )
    path.write_text(bossy + REACHED)
    (folder / "helper.yaml").write_text(HELPER)
    ran = run("matrix", "search_web", "--json")
    assert ran.code == 0, ran.err
    answer = orjson.loads(ran.out)
    assert [(one["profile"], one["code"]) for one in answer["profiles"]] == [
        ("chat", "group"), ("operator", "available"),
    ]  # fmt: skip
    shown = [
        (one["caller"], one["depends_on"], [(p["profile"], p["code"]) for p in one["profiles"]])
        for one in answer["callers"]
    ]
    assert shown == [
        ("key ann", [], [("operator", "visible")]),
        ("token {'sub': '*'}", ["{sub}", "{groups}", "{team}"], [("chat", "group"), ("operator", "available")]),
        ("anonymous on this machine", [], [("chat", "group")]),
    ]
    # The profile's `deny` applies to an agent that a caller of it starts; its groups do not.
    as_boss = orjson.loads(run("matrix", "search_web", "--json", "--as", "user=ann,roles=boss").out)
    assert [(one["profile"], one["code"]) for one in as_boss["agents"]] == [(None, "visible")]
    assert [one["code"] for one in orjson.loads(run("matrix", "shout", "--json").out)["agents"]] == ["policy"]
    assert "key ann" in run("matrix", "search_web").out


@pytest.mark.usefixtures("folder")
def test_a_tool_that_nobody_knows_is_an_error(run: Run) -> None:
    ran = run("matrix", "serch_web")
    assert ran.code == 1
    assert "serch_web: 0 of 4 reach it." in ran.out
    assert run("matrix", "--profile", "nope").code == 2
