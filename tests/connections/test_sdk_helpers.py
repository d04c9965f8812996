"""The parts of the MCP SDK that connections use exist, and send nothing themselves."""

import ast
import importlib
import inspect
from pathlib import Path

import pytest

from pegboard.connections import oauth_protocol

CONNECTIONS = Path(oauth_protocol.__file__).parent


@pytest.mark.parametrize("name", sorted(oauth_protocol.__all__))
def test_each_helper_of_the_sdk_can_be_imported(name: str) -> None:
    helper = getattr(oauth_protocol, name)
    assert getattr(importlib.import_module(helper.__module__), name) is helper


def test_one_module_alone_imports_the_sdk() -> None:
    importing = {
        path.name
        for path in CONNECTIONS.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "mcp"
    }
    assert importing == {"oauth_protocol.py"}


def test_no_helper_sends_a_request() -> None:
    for name in oauth_protocol.__all__:
        helper = getattr(oauth_protocol, name)
        if inspect.isfunction(helper):
            assert not {"AsyncClient", "Client", "send"} & {*helper.__code__.co_names}, name
