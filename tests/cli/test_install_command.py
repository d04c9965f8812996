"""The command for a missing extra fits how Pegboard was installed."""

import json

import pytest

from pegboard.cli.install_command import command_for

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
    assert command_for("tools", None if origin is None else json.dumps(origin)) == command
