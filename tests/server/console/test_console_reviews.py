"""Reviews in the console: changed definitions of upstream tools, and changed files of the config."""

from __future__ import annotations

import json
import os
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from pegboard import Policy, Profile
from pegboard.config import load_catalog
from pegboard.config.reload import Reloader
from pegboard.model.record import replace
from pegboard.planning.changed_files import ChangedFiles
from pegboard.server.principal import context_maker
from pegboard.sources.mcp.lock_file import LockFile
from pegboard.sources.mcp.supervised_source import McpSource
from tests.server.console.browsing import Browser, console, text_of
from tests.server.console.test_console_login import Office
from tests.server.console.test_console_operating import Noted
from tests.upstream_mcp.parts import EVIL, on_stdio

TOOL: dict[str, Any] = {
    "name": "read", "description": "Read a file.",
    "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}},
}  # fmt: skip
CHANGED = {**TOOL, "description": "Read <b>any</b> file."}


def reads(page: str) -> list[str]:
    """Return what the forms of a page say was read."""
    return [unescape(found) for found in re.findall(r'name="(?:read|mark)" value="([^"]+)"', page)]


class Shop(Office):
    """An office with an MCP server that offers another definition than the lock has."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "tools.json").write_text(json.dumps([CHANGED, {**TOOL, "name": "write"}]))
        self.lock = folder / "pegboard.lock"
        LockFile(self.lock).accept("up", {"read": TOOL, "old": {**TOOL, "name": "old"}})
        self.source = McpSource(on_stdio(EVIL, f"tools={folder / 'tools.json'}"), lock=LockFile(self.lock))
        self.catalog.add_source(self.source)
        self.noted: Any = Noted()
        executor = self.catalog.executor
        executor.swap(replace(executor.ports, audit=self.noted))


async def test_an_operator_reads_what_changed_at_a_server_and_accepts_it_as_it_was_read(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    async with console(shop.catalog, pending=Files(tmp_path).pending) as browser:
        await shop.source.listed(afresh=True)
        await browser.log_in(shop.key["olga"])
        tool = text_of((await browser.get("/tools/up__write")).text)
        assert "Here Read what changed, and accept it, under Sources ." in tool
        page = (await browser.get("/sources")).text
        assert "<del>  &#34;description&#34;: &#34;Read a file.&#34;,</del>" in page
        assert "Read &lt;b&gt;any&lt;/b&gt; file." in page
        assert "<b>any" not in page
        # The tool that is gone, the changed one and the new one.
        assert [name for name in ("up.old gone", "up.read cosmetic", "up.write new") if name not in text_of(page)] == []
        by_name = dict(zip([one.id for one in shop.source.held()], reads(page), strict=True))
        assert (await browser.post("/sources/up/accept", read="another")).status_code == 409
        for name in ("up.read", "up.write", "up.old"):
            assert (await browser.post("/sources/up/accept", read=by_name[name])).status_code == 303
        assert list(shop.source.held()) == []
        assert shop.noted.changes == [
            ("lock_accepted", {"accepted": ["up.read"], "forgotten": []}, "olga"),
            ("lock_accepted", {"accepted": ["up.write"], "forgotten": []}, "olga"),
            ("lock_accepted", {"accepted": [], "forgotten": ["up.old"]}, "olga"),
        ]
        # The console wrote the lock; nobody changed the files of the config.
        assert "have changed" not in (await browser.get("/sources")).text
        pins = LockFile(shop.lock).pins("up")
        assert (pins["read"], sorted(pins)) == (CHANGED, ["read", "write"])
        # Nobody else has such a page.
        await browser.post("/logout")
        await browser.log_in(shop.key["paul"])
        assert (await browser.get("/sources")).status_code == 404
        await browser.get()
        assert (await browser.post("/sources/up/accept", read=by_name["up.read"])).status_code == 404


async def test_a_definition_is_not_accepted_over_a_lock_that_another_program_wrote(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    async with console(shop.catalog) as browser:
        await shop.source.listed(afresh=True)
        await browser.log_in(shop.key["olga"])
        [first, *_] = reads((await browser.get("/sources")).text)
        LockFile(shop.lock).accept("other", {"read": TOOL})
        answer = await browser.post("/sources/up/accept", read=first)
        assert (answer.status_code, "Another program has changed pegboard.lock" in answer.text) == (409, True)


def config_of(**tools: Any) -> str:
    listed = [
        {"name": name, "type": "internal", "handler": "python:tests.cli.workshop:echo", "description": "Do.", **values}
        for name, values in tools.items()
    ]
    return json.dumps({"tools": listed})


class Files:
    """A catalog from files that nobody watches, unless said otherwise."""

    def __init__(self, folder: Path, *, is_alone: bool = True, is_watched: bool = False) -> None:
        self.path = folder / "pegboard.yaml"
        self.path.write_text(config_of(look={}, pay={"consent": "always"}))
        self.catalog, config = load_catalog(self.path)
        reloader = Reloader(self.path, os.environ, self.catalog, config=config)
        self.pending = ChangedFiles(reloader, self.catalog, is_watched=is_watched, is_alone=is_alone)
        self.options: dict[str, Any] = {"config": context_maker(config), "pending": self.pending}


async def names(browser: Browser) -> list[str]:
    answer = await browser.client.get("/v1/tools")
    return sorted(tool["name"] for tool in answer.json()["tools"])


async def test_an_operator_compares_changed_files_and_uses_them_as_they_were_compared(tmp_path: Path) -> None:
    files = Files(tmp_path)
    async with console(files.catalog, **files.options) as browser:
        await browser.log_in()
        assert "have changed" not in (await browser.get("/sources")).text
        files.path.write_text(config_of(look={}, pay={}, new={}))
        assert "The files of the config have changed" in (await browser.get("/sources")).text
        page = (await browser.post("/sources/config/compare")).text
        assert "1 weaker, 1 gained" in text_of(page)
        assert "weaker pay consent always → never all" in text_of(page)
        [mark] = reads(page)
        # Nothing is taken that was not compared.
        files.path.write_text(config_of(new={}))
        assert (await browser.post("/sources/config/take", mark=mark)).status_code == 409
        assert await names(browser) == ["look", "pay"]
        [mark] = reads((await browser.post("/sources/config/compare")).text)
        assert (await browser.post("/sources/config/take", mark=mark)).status_code == 303
        assert await names(browser) == ["new"]
        assert "have changed" not in (await browser.get("/sources")).text


async def test_files_that_would_be_refused_are_shown_with_their_problems_and_cannot_be_used(tmp_path: Path) -> None:
    files = Files(tmp_path)
    async with console(files.catalog, **files.options) as browser:
        await browser.log_in()
        files.path.write_text('{"tools": [{"name": "a", "type": "nothing"}]}')
        await browser.get("/sources")
        page = (await browser.post("/sources/config/compare")).text
        assert "pegboard.yaml:1:" in text_of(page)
        assert reads(page) == []
        assert (await browser.post("/sources/config/take", mark=files.pending.mark())).status_code == 409


async def test_one_of_several_workers_compares_files_and_does_not_take_them(tmp_path: Path) -> None:
    files = Files(tmp_path, is_alone=False)
    async with console(files.catalog, **files.options) as browser:
        await browser.log_in()
        files.path.write_text(config_of(new={}))
        await browser.get("/sources")
        page = (await browser.post("/sources/config/compare")).text
        assert "To take the files, send SIGHUP to the first process." in page
        assert (await browser.post("/sources/config/take", mark=files.pending.mark())).status_code == 404


@pytest.mark.parametrize(("is_watched", "is_alone", "said"), [
    (True, True, "The server runs with --reload : a saved file takes effect by itself."),
    (False, True, "Then apply the changed file on Sources , or restart the server."),
    (False, False, "The server has several workers. Send SIGHUP to the first process, or restart the server."),
])  # fmt: skip
async def test_the_fix_of_a_hidden_tool_says_how_this_server_starts_to_use_a_changed_file(
    tmp_path: Path, is_watched: bool, is_alone: bool, said: str
) -> None:
    files = Files(tmp_path, is_watched=is_watched, is_alone=is_alone)
    files.catalog.profile(Profile(name="few", policy=Policy(deny=("pay",))))
    async with console(files.catalog, **files.options) as browser:
        await browser.log_in()
        page = text_of((await browser.get("/tools/pay?profile=few")).text)
        assert (
            f"Fix remove pay from deny for profile few, in the config. Callers with this profile: you. {said}" in page
        )
