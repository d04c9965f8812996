"""`pegboard add github`: the entry of a known service, as the page on accounts lists them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from pegboard.cli.declarations.service_presets import PRESETS, READ_ON
from pegboard.config import load_catalog
from tests.cli.conftest import Run

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "connect-accounts.md"
ENV = {"CONNECTIONS_KEY": "a-random-text-of-at-least-32-characters"}


@pytest.mark.parametrize("name", PRESETS)
def test_a_known_service_is_written_so_that_the_config_is_good(name: str, run: Run, tmp_path: Path) -> None:
    code, out, err = run("add", "--yes", name)
    assert (code, PRESETS[name].page in err, "not tried by us" in err) == (0, True, True)
    written = (tmp_path / "pegboard.yaml").read_text()
    [entry] = yaml.safe_load(written)["tools"]
    assert (entry["name"], entry["mcp"]["url"], entry["auth"]["mode"]) == (name, PRESETS[name].url, "user")
    by_hand: list[Any] = [word for word in ("client_id", "client_secret", "issuer") if word in entry["auth"]]
    assert bool(by_hand) == (PRESETS[name].client == "by_hand")
    assert entry["auth"].items() >= PRESETS[name].auth.items()
    variables = [line.split()[1].split("=")[0] for line in out.splitlines() if line.strip().startswith("export ")]
    load_catalog(tmp_path / "pegboard.yaml", env={**dict.fromkeys(variables, "some.value.example.com"), **ENV})


def test_a_config_that_connects_people_already_keeps_its_section(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_KEY", ENV["CONNECTIONS_KEY"])
    before = "connections:\n  key: ${OUR_KEY}  # from the vault\n"
    (tmp_path / "pegboard.yaml").write_text(before)
    code, _, err = run("add", "--yes", "linear")
    assert code == 0, err
    written = (tmp_path / "pegboard.yaml").read_text()
    assert written.startswith(before)
    assert written.count("connections:") == 1


def test_the_page_lists_every_known_service_with_its_source() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert READ_ON == "2026-11-27"
    for preset in PRESETS.values():
        assert f"| `{preset.name}` | [{preset.title}]({preset.page}) |" in text
