"""Tools of any name are taken, each under a name of its own that stays the same; what is left out is named."""

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from pegboard.core.names import check_tool_name
from pegboard.sources.mcp.definition_changes import skeleton
from pegboard.sources.mcp.lock_file import LockFile
from tests import forking
from tests.upstream_mcp.parts import on_stdio, running, view_of
from tests.upstream_mcp.test_foreign_metadata import TELLING, telling

NAMES = [
    "plain", "with space", "with_space", "straße", "naïve tool", "日本", "中文", "upper", "UPPER", "Upper", "a.b",
    "a/b", "a:b", "x" * 100, "x" * 101, "🙂", "__", "-", "admin__x",
]  # fmt: skip
BAD: list[Any] = [
    "r\u0435ad",
    "\uff52\uff45\uff41\uff44",
    "",
    "  ",
    "a\u200bb",
    "a\nb",
    "a\u202eb",
    "x" * 129,
    5,
    None,
    "\x00",
]


def named(*names: Any) -> dict[str, Any]:
    tools = [{"name": name, "description": f"Is {name}.", "inputSchema": {"type": "object"}} for name in names]
    return {"tools": tools, "result": {"content": [{"type": "text", "text": "done"}]}}


async def names_of(folder: Path, *names: Any, lock: LockFile | None = None) -> tuple[dict[str, str], list[Any]]:
    """Return our name by the server's, and what was left out."""
    file = telling(folder, named(*names))
    async with running(on_stdio(TELLING, str(file)), lock=lock) as (catalog, source):
        view = view_of(catalog)
        visible = set(view.names())
        ours: dict[str, str] = {}
        for entry in catalog.snapshot().entries:
            if entry.wire_name in visible:
                ours[entry.spec.description.removeprefix("Is ").removesuffix(".")] = entry.wire_name
                assert (await view.call(entry.wire_name, {})).text == "done"
        return ours, list(source.rejected)


async def test_every_tool_has_a_wire_name_of_its_own_whatever_it_is_called(tmp_path: Path) -> None:
    ours, left_out = await names_of(tmp_path, *NAMES)
    assert left_out == []
    assert set(ours) == set(NAMES)
    assert len({name.casefold() for name in ours.values()}) == len(NAMES)
    assert all(check_tool_name(name) for name in ours.values())
    assert ours["plain"] == "up__plain"
    assert ours["with_space"] == "up__with_space"
    assert ours["upper"] == "up__upper"
    assert ours["with space"].startswith("up__with_space_")
    assert ours["日本"].startswith("up__tool_")


async def test_the_names_are_the_same_in_any_order_and_after_a_restart(tmp_path: Path) -> None:
    first, _ = await names_of(tmp_path, *NAMES)
    again, _ = await names_of(tmp_path, *reversed(NAMES))
    assert again == first


@pytest.mark.parametrize("newcomer", ["UPPER", "Upper", "with_space", "a_b"])
async def test_no_newcomer_takes_the_name_of_a_tool_that_was_accepted(tmp_path: Path, newcomer: str) -> None:
    lock = LockFile(tmp_path / "pegboard.lock")
    first, _ = await names_of(tmp_path, "upper", "with space", "a.b", lock=lock)
    again, _ = await names_of(tmp_path, newcomer, "upper", "with space", "a.b", lock=LockFile(lock.path))
    assert again == first


async def test_what_cannot_be_taken_is_named_with_its_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ours, left_out = await names_of(tmp_path, *BAD, "fine", "fine")
    assert list(ours) == ["fine"]
    assert len(left_out) == len(BAD) + 1
    assert caplog.text.count("was left out") == len(BAD) + 1


async def test_a_name_in_other_signs_that_is_drawn_like_one_of_the_list_is_left_out(tmp_path: Path) -> None:
    ours, left_out = await names_of(tmp_path, "read\u2010file", "read_file", "send\u2010file")
    assert sorted(ours) == ["read_file", "send\u2010file"]
    assert [reason for _, reason in left_out] == ["its name is drawn like that of another tool, 'read_file'"]


async def test_a_list_whose_pages_repeat_ends_there_and_says_so(tmp_path: Path) -> None:
    file = telling(tmp_path, named("fine") | {"page": {"nextCursor": "again"}})
    async with running(on_stdio(TELLING, str(file))) as (catalog, source):
        assert (view_of(catalog).names(), source.partial) == (["up__fine"], "its pages repeat")
        assert source.state().reason == "its pages repeat"


def test_doctor_and_the_whole_list_name_what_was_left_out(tmp_path: Path) -> None:
    file = telling(tmp_path, named("fine", "a\u200bb"))
    server = {"transport": "stdio", "command": sys.executable, "args": ["-S", str(TELLING), str(file)]}
    config = {"tools": [{"name": "up", "type": "mcp", "mcp": server}]}
    (tmp_path / "pegboard.yaml").write_text(json.dumps(config))

    def told(*args: str) -> str:
        return forking.run(["pegboard", *args], cwd=tmp_path).stdout.decode()

    reason = "its name has invisible characters: 'ab'"
    assert json.loads(told("list", "--all", "--json"))["left_out"] == [{"name": "ab", "source": "up", "reason": reason}]
    assert "1 left out" in told("list", "--all")
    assert "left out" not in told("list")
    assert f"ab was left out: {reason}" in json.dumps(json.loads(told("doctor", "--json")), ensure_ascii=False)


@pytest.mark.parametrize("name", ["rеad_file", "ｒead_file", "read‐file", "Read File", "rea𝐝_file"])
def test_a_name_that_is_drawn_like_another_looks_like_it(name: str) -> None:
    assert skeleton("read_file") == skeleton(name)
    assert skeleton("日本") != skeleton("中文")
