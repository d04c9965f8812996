"""The command for a missing extra fits how Pegboard was installed."""

import json
import re
from pathlib import Path

import pytest

import pegboard
from pegboard.extras import command_for

_GIT = {"vcs": "git", "commit_id": "0a1b"}


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'pegboard[tools]'"),
        ({"url": "file:///srv/peg%20board", "dir_info": {"editable": True}}, "pip install -e '/srv/peg board[tools]'"),
        ({"url": "file:///srv/pegboard", "dir_info": {}}, "pip install '/srv/pegboard[tools]'"),
        ({"url": "file:///srv/p.whl", "archive_info": {}}, "pip install 'pegboard[tools] @ file:///srv/p.whl'"),
        (
            {"url": "https://example.org/p.git", "vcs_info": _GIT, "subdirectory": "py"},
            "pip install 'pegboard[tools] @ git+https://example.org/p.git@0a1b#subdirectory=py'",
        ),
    ],
)
def test_the_command_names_the_origin_of_the_installation(origin: object, command: str) -> None:
    direct_url = None if origin is None else json.dumps(origin)
    assert command_for("tools", direct_url=direct_url, installer="pip\n") == command
    # Environments that uv makes have no pip.
    assert command_for("tools", direct_url=direct_url, installer="uv") == f"uv {command}"


def test_no_message_has_an_install_command_written_by_hand() -> None:
    package = Path(pegboard.__file__).parent
    by_hand = re.compile(r"\b(install|add|inject) .*pegboard\[")
    assert [
        f"{path.relative_to(package)}: {line.strip()}"
        for path in package.rglob("*.py")
        if path.name != "extras.py"
        for line in path.read_text(encoding="utf-8").splitlines()
        if by_hand.search(line)
    ] == []
