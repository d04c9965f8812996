"""The example examples/openapi: a shop on loopback whose operations are tools."""

import asyncio
import importlib.util
import json
import shlex
import threading
from collections.abc import Iterator
from http.server import HTTPServer
from pathlib import Path

import pytest

from pegboard import Catalog, View
from pegboard.cli import main
from pegboard.config import Config, context_for, load_catalog

FOLDER = Path(__file__).parents[2] / "examples" / "openapi"


@pytest.fixture
def shop() -> Iterator[str]:
    """Serve the shop on a free port for the time of the test."""
    found = importlib.util.spec_from_file_location("shop_of_the_example", FOLDER / "shop.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    server = HTTPServer(("127.0.0.1", 0), module.Shop)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def loaded(url: str, **env: str) -> tuple[Catalog, Config]:
    return load_catalog(FOLDER / "pegboard.yaml", env={"SHOP_URL": url, **env})


def view(url: str, profile: str = "assistant", **env: str) -> View:
    catalog, config = loaded(url, **env)
    return catalog.view(context_for(config, user="ann", approve=lambda request: True), profile=profile)


async def test_four_operations_are_tools_and_a_window_shopper_only_looks(shop: str) -> None:
    assert view(shop).names() == ["shop__listItems", "shop__getItem", "shop__placeOrder", "shop__cancelOrder"]
    assert view(shop, "window").names() == ["shop__listItems", "shop__getItem"]


async def test_the_tools_do_what_the_description_says(shop: str) -> None:
    tools = view(shop)
    found = (await tools.call("shop__listItems", {"tag": ["steel"], "max_price": 10})).unwrap()
    assert [item["name"] for item in found] == ["nails"]
    assert (await tools.call("shop__getItem", {"itemId": 2})).structured["name"] == "drill"
    order = (await tools.call("shop__placeOrder", {"item": 3, "quantity": 100})).unwrap()
    assert order == {"id": 1, "item": 3, "quantity": 100}
    gone = await tools.call("shop__cancelOrder", {"orderId": 1})
    assert gone.text == "The API 'shop' answered 204 and said nothing."


async def test_what_goes_wrong_is_told_and_the_key_is_not(shop: str) -> None:
    missing = (await view(shop).call("shop__getItem", {"itemId": 9})).error
    wrong = (await view(shop, SHOP_KEY="not-the-key").call("shop__listItems", {})).error
    assert missing is not None
    assert wrong is not None
    assert (missing.kind, missing.details["status"], missing.details["body"]) == (
        "upstream_error", 404, '{"error": "there is no item 9"}',
    )  # fmt: skip
    assert (wrong.kind, wrong.details["status"], "not-the-key" in repr(wrong)) == ("upstream_auth", 401, False)


async def test_without_a_person_nothing_is_ordered(shop: str) -> None:
    catalog, config = loaded(shop)
    tools = catalog.view(context_for(config, user="ann"), profile="assistant")
    results = await asyncio.gather(*(tools.call(f"shop__{name}", {}) for name in ("listItems", "placeOrder")))
    refused = await tools.call("shop__placeOrder", {"item": 1, "quantity": 1})
    kinds = [result.error and result.error.kind for result in (*results, refused)]
    assert kinds == [None, "invalid_arguments", "consent_required"]


def test_the_commands_of_its_readme_do_what_they_say(
    shop: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(FOLDER)
    monkeypatch.setenv("SHOP_URL", shop)
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    commands = [shlex.split(line)[1:] for line in readme.splitlines() if line.startswith("pegboard call ")]
    assert len(commands) == 2
    said = list[str]()
    for command in commands:
        assert main([*command, "--json"]) == 0
        said.append(capsys.readouterr().out)
    found, ordered = (json.loads(text)["structured"] for text in said)
    assert ([item["name"] for item in found], ordered["quantity"]) == (["nails"], 100)
