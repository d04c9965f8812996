"""Unreadable URLs: a host that no URL has is a problem of the config, told at its place and without a password."""

from __future__ import annotations

import pytest

from tests.config.project import Project

PASSWORD = "hunter2-canary"
URLS = ["://u:${KEY}@[[[/x", "://u:${KEY}@[::1/x", "://u:${KEY}@a]b/x", "://u:${KEY}@h:port/x",
        "://u:${KEY}@h:99999999/x", "://u:${KEY}@℀.test/x"]  # fmt: skip
PLACES = {
    "a database": ("tools: [{{name: sql_query, type: builtin, config: {{connection_string: '{}'}}}}]", "postgresql"),
    "another engine": ("tools: [{{name: sql_query, type: builtin, config: {{connection_string: '{}'}}}}]", "mysql"),
    "a webhook": ("tools: [{{name: w, description: d, type: webhook, webhook: {{url: '{}'}}}}]", "https"),
    "Slack": ("tools: [{{name: send_slack, type: builtin, config: {{webhook_url: '{}'}}}}]", "https"),
    "limits": ("rate_limits: {{store: '{}'}}", "redis"),
}


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("place", PLACES)
def test_a_url_that_cannot_be_read_is_a_problem_at_its_place(project: Project, place: str, url: str) -> None:
    text, scheme = PLACES[place]
    problems = Project(project.folder, env={"KEY": PASSWORD}).write(text.format(scheme + url)).said()
    assert problems
    assert all(problem.startswith("pegboard.yaml:1:") for problem in problems)
    assert PASSWORD not in str(problems)
