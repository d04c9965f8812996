"""Files that are written whole: under a name that nobody can guess, so that no link of others is written through."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pegboard.cli.operator_file import write_operator_file
from pegboard.config.example_requests import write_file
from pegboard.sources.mcp.lock_file import LockFile
from pegboard.storage.whole_file import write_whole


def test_the_name_before_it_counts_cannot_be_guessed_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    seen: list[str] = []

    def look() -> None:
        (temporary,) = tmp_path.iterdir()
        seen.append(temporary.name)
        temporary.unlink()
        temporary.write_bytes(b"put back")

    for number in range(8):
        write_whole(tmp_path / "kept", b"text", before_it_counts=look)
        (tmp_path / "kept").unlink()
        assert len(set(seen)) == number + 1
    assert all(str(os.getpid()) not in name for name in seen)


def test_a_file_has_the_wanted_rights_from_its_first_byte(tmp_path: Path) -> None:
    modes: list[int] = []

    def look() -> None:
        (temporary,) = tmp_path.iterdir()
        modes.append(temporary.stat().st_mode & 0o777)

    write_whole(tmp_path / "kept", b"text", mode=0o640, before_it_counts=look)
    assert modes == [0o640]
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o640


def test_a_write_that_fails_leaves_what_was_there_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("before")

    def refuse() -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_whole(tmp_path / "kept", b"after", before_it_counts=refuse)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept").read_text() == "before"


def test_links_at_names_that_can_be_guessed_lead_to_no_file_of_others(tmp_path: Path) -> None:
    folder, victim = tmp_path / "shared", tmp_path / "victim"
    folder.mkdir()
    victim.write_text("mine")
    for name in ("requests.yaml", "pegboard.lock", "pegboard.yaml"):
        for guess in (f".{name}.{os.getpid()}.tmp", f".{name}-", f"{name}.tmp", f".{name}.tmp"):
            (folder / guess).symlink_to(victim)
    write_file(folder / "requests.yaml", {})
    write_operator_file(folder / "pegboard.yaml", "tools: []\n")
    lock = LockFile(folder / "pegboard.lock")
    lock.write()
    assert victim.read_text() == "mine"
    assert (folder / "pegboard.yaml").read_text() == "tools: []\n"
    assert not (folder / "requests.yaml").is_symlink()
