"""A tracker of issues in one file."""

import json
from pathlib import Path

FILE = Path(__file__).with_name("issues.json")


def list_issues(project: str) -> list[int]:
    """List the open issues of a project, by number.

    Args:
        project: as its folder is called, e.g. "web".
    """
    return json.loads(FILE.read_text())[project]


def close_issue(project: str, number: int) -> str:
    """Close an issue. It cannot be opened again.

    Args:
        project: as its folder is called, e.g. "web".
        number: of the issue, as `list_issues` gives it.
    """
    issues = json.loads(FILE.read_text())
    issues[project].remove(number)
    FILE.write_text(json.dumps(issues))
    return f"{project} {number} is closed"
