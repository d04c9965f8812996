"""Store URIs: one reading for every store, and none that silently starts empty."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pegboard import DefinitionError
from pegboard.storage.store_uri import StoreUri
from tests.config.project import Project

FOLDER = Path("/srv/shop")


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("sqlite:x.db", "/srv/shop/x.db"),
        ("sqlite:./a/x.db", "/srv/shop/a/x.db"),
        ("sqlite:../x.db", "/srv/shop/../x.db"),
        ("sqlite:/var/x.db", "/var/x.db"),
        ("sqlite:///x.db", "/srv/shop/x.db"),
        ("sqlite:///a%20b.db", "/srv/shop/a b.db"),
        ("sqlite:////var/x.db", "/var/x.db"),
    ],
)
def test_three_slashes_are_relative_and_four_absolute(uri: str, path: str) -> None:
    assert StoreUri.parse(uri, folder=FOLDER).path == Path(path)


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("x.db", "kind 'x.db' is unknown; write sqlite:FILE or postgresql://HOST/NAME"),
        ("sqlite:", "is unknown"),
        ("sqlite:///", "is unknown"),
        ("sqlite://x.db", "a file has no host"),
        ("sqlite:///x.db?mode=ro", "takes no parameters"),
        ("redis://x", "kind 'redis' is unknown"),
    ],
)
def test_a_uri_that_names_no_store_is_refused(uri: str, said: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        StoreUri.parse(uri, folder=FOLDER)
    assert said in str(raised.value)


def test_a_password_is_in_no_text_of_it() -> None:
    uri = StoreUri.parse("postgresql://ann:hunter22@db/shop", folder=FOLDER)
    assert (uri.kind, uri.path, "hunter22" in repr(uri)) == ("postgresql", None, False)


def test_a_file_that_exists_only_at_its_former_place_is_named_with_both_spellings(tmp_path: Path) -> None:
    former = tmp_path / "former" / "x.db"
    former.parent.mkdir()
    former.touch()
    uri = f"sqlite://{former}"
    with pytest.raises(DefinitionError) as raised:
        StoreUri.located(uri, folder=tmp_path)
    name = str(former).removeprefix("/")
    assert f"Write sqlite:////{name} to go on with that file, or sqlite:./{name}" in str(raised.value)
    assert StoreUri.located(f"sqlite:////{name}", folder=tmp_path).path == former
    new = tmp_path / name
    new.parent.mkdir(parents=True)
    new.touch()
    assert StoreUri.located(uri, folder=tmp_path).path == new


@pytest.mark.skipif(os.name == "nt", reason="POSIX paths")
def test_a_config_is_refused_where_each_store_stands(tmp_path: Path) -> None:
    former = tmp_path / "former.db"
    former.touch()
    folder = tmp_path / "project"
    folder.mkdir()
    project = Project(folder)
    uri = f"sqlite://{former}"
    project.write(
        f"consents: {{store: '{uri}'}}\nagents: {{store: '{uri}'}}\ntasks: {{store: '{uri}'}}\n"
        f"workspace: {{store: '{uri}', space: s}}\n"
    )
    said = project.said()
    assert [len([each for each in said if f"{key}" in each and "Write sqlite:////" in each]) for key in (
        "consents", "agents", "tasks", "workspace",
    )] == [1, 1, 1, 1]  # fmt: skip
