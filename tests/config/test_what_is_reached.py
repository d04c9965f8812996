"""What a tool of a config reaches is part of its definition: a consent or a grant does not go along elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.config.project import Project

API = {
    "openapi": "3.1.0",
    "info": {"title": "a", "version": "1"},
    "paths": {
        "/pay": {"post": {"operationId": "pay", "summary": "Pay.", "responses": {"200": {"description": "ok"}}}},
        "/sell": {"post": {"operationId": "sell", "summary": "Pay.", "responses": {"200": {"description": "ok"}}}},
    },
}
HOOK = "{{name: act, type: webhook, description: Pay., parameters: {{to: {{type: string}}}}, webhook: {{{}}}}}"
FETCH = "{{name: http_request, as: act, type: builtin, config: {{allow_hosts: [{}]}}}}"
SLACK = "{{name: send_slack, as: act, type: builtin, config: {{webhook_url: 'https://hooks.slack.com/services/{}'}}}}"
FUNCTION = "{{name: act, type: internal, description: Act., handler: 'python:mine:{}'}}"
OF_API = (
    "{{name: act, type: openapi, openapi: {{spec: api.json, operations: [{}], rename: {{{}: it}}, base_url: '{}'}}}}"
)
SAME = "url: 'https://a.test/x'"
CHANGES: dict[str, tuple[str, str]] = {
    "the address of a webhook": (HOOK.format(SAME), HOOK.format("url: 'https://b.test/x'")),
    "the body of a webhook": (
        HOOK.format(SAME + ", body: {to: '{{ to }}'}"),
        HOOK.format(SAME + ", body: {to: 'eve {{ to }}'}"),
    ),
    "the settings of a builtin": (FETCH.format("a.test"), FETCH.format("b.test")),
    "an address that is a secret": (SLACK.format("a"), SLACK.format("b")),
    "the function": (FUNCTION.format("keep"), FUNCTION.format("drop")),
    "the server of an API": (
        OF_API.format("pay", "pay", "https://a.test"),
        OF_API.format("pay", "pay", "https://b.test"),
    ),
    "the operation of an API": (
        OF_API.format("pay", "pay", "https://a.test"),
        OF_API.format("sell", "sell", "https://a.test"),
    ),
}
MINE = """
def keep(to: str) -> str:
    "Act."
    return to

def drop(to: str) -> str:
    "Act."
    return to
"""


def fingerprints(folder: Path, tool: str, *, key: str = "k1") -> dict[str, str]:
    project = Project(folder, env={"KEY": key}).write(f"name: x\ntools:\n  - {tool}\n", mine=MINE)
    catalog, _ = project.file("api.json", json.dumps(API)).load()
    return {entry.qualified_id: entry.fingerprint for entry in catalog.snapshot().entries}


@pytest.mark.parametrize(("before", "after"), CHANGES.values(), ids=CHANGES)
def test_a_tool_that_reaches_something_else_is_another_definition(before: str, after: str, tmp_path: Path) -> None:
    first, same, other = (fingerprints(tmp_path, tool) for tool in (before, before, after))
    assert first == same
    assert first.keys() == other.keys()
    assert all(first[name] != other[name] for name in first)


def test_a_new_credential_is_no_other_definition(tmp_path: Path) -> None:
    tool = HOOK.format("url: 'https://a.test/x', headers: {authorization: 'Bearer ${KEY}'}")
    assert fingerprints(tmp_path, tool) == fingerprints(tmp_path, tool, key="k2")
    database = "{name: sql_query, as: act, type: builtin, config: {connection_string: 'postgresql://${KEY}@db.test/a'}}"
    first, other = fingerprints(tmp_path, database), fingerprints(tmp_path, database, key="k2:x")
    assert (first, first != fingerprints(tmp_path, database.replace("/a'", "/b'"))) == (other, True)
