"""File permissions: who beside the operator may change what a config is read from."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pegboard.storage import file_permissions
from pegboard.storage.file_permissions import permission_faults


class Groups:
    """A machine with one group, of these members."""

    def __init__(self, name: str, *members: str) -> None:
        self.group = SimpleNamespace(gr_name=name, gr_mem=list(members))

    def getgrgid(self, _number: int) -> Any:
        return self.group


class Users:
    def getpwuid(self, _number: int) -> Any:
        return SimpleNamespace(pw_name="ann")


def faults(path: Path, at: Path) -> list[str]:
    return [problem.message for problem in permission_faults([path]) if problem.where == str(at)]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(file_permissions, "pwd", Users())
    folder = tmp_path / "shared" / "own"
    folder.mkdir(parents=True)
    path = folder / "pegboard.yaml"
    path.write_text("name: x\n")
    path.chmod(0o644)
    return path


@pytest.mark.parametrize(
    ("groups", "is_fault"),
    [
        (Groups("ann"), False),
        (Groups("ann", "ann"), False),
        (Groups("ann", "ann", "bob"), True),
        (Groups("staff"), True),
        (Groups("staff", "ann"), True),
    ],
    ids=["own", "own with oneself", "own with another", "of all", "of all with oneself"],
)
def test_a_group_may_write_where_it_is_the_users_own(
    config: Path, monkeypatch: pytest.MonkeyPatch, groups: Groups, is_fault: bool
) -> None:
    monkeypatch.setattr(file_permissions, "grp", groups)
    assert faults(config, config) == []
    config.chmod(0o664)
    assert (len(faults(config, config)), is_fault) in ((1, True), (0, False))


def test_a_sticky_folder_is_no_fault_above_and_one_where_files_can_be_added_beside(config: Path) -> None:
    above = config.parent.parent
    above.chmod(0o1777)
    assert faults(config, above) == []
    config.parent.chmod(0o1777)
    assert len(faults(config, config.parent)) == 1
    above.chmod(0o777)
    assert len(faults(config, above)) == 1


def test_a_file_of_another_user_is_a_fault_whatever_its_mode(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert faults(config, config) == []
    try:
        os.chown(config, 12_345, -1)
    except PermissionError:
        # Not as root: then it is we who are another.
        monkeypatch.setattr("os.geteuid", lambda: 12_345)
        monkeypatch.setattr("os.getuid", lambda: 12_345)
    [fault] = faults(config, config)
    assert "belongs to another user" in fault
