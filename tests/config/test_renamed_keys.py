"""A config key that was renamed is read under its former name for two minor versions, with a warning."""

import pytest

from pegboard.config import renamed_keys, warnings
from pegboard.config.renamed_keys import RENAMED_KEYS, RenamedKey
from pegboard.version import __version__
from tests.config.project import Project


def test_a_former_name_is_read_and_check_names_the_new_one(project: Project) -> None:
    catalog, config = project.write("name: shop\ntasks:\n  ttl_s: 60\n").load()
    assert catalog.tasks.ttl_s == 60.0
    [warning] = warnings(config, catalog)
    assert (warning.where, warning.path, warning.message) == (
        f"{project.path}:3:3",
        "tasks.ttl_s",
        "'ttl_s' is now called 'ttl_seconds'; Pegboard 0.3 refuses the former name",
    )


def test_a_key_of_every_entry_of_a_section_can_be_renamed(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    table = {
        "tools.*.label": RenamedKey(name="description", since=(0, 1)),
        "profiles.*.take": RenamedKey(name="include", since=(0, 1)),
    }
    monkeypatch.setattr(renamed_keys, "RENAMED_KEYS", table)
    tool = "{name: a, type: internal, handler: 'python:mine:f', label: Of old, groups: [core]}"
    project.write(f"tools: [{tool}]\nprofiles: {{p: {{take: [core]}}}}\n", mine="def f(q: str) -> str:\n    return q\n")
    assert project.view(profile="p").names() == ["a"]


def test_no_former_name_outlives_two_minor_versions() -> None:
    major, minor = map(int, __version__.split(".")[:2])
    due = [path for path, key in RENAMED_KEYS.items() if key.until <= (major, minor)]
    assert due == [], "delete these rows from renamed_keys.py"
