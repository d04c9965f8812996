"""fetch_web_page: pages of the web, only where the config allows it, only from hosts that it allows, part by part."""

from __future__ import annotations

from tests.builtin.web import Asked, Site
from tests.config.project import Project
from tests.egress.loopback import answer

WORDS = " ".join(f"word{number}" for number in range(2_000))
PAGE = f"<html><title>Long page</title><body><article><h1>Long page</h1><p>{WORDS}</p></article></body></html>"


def reply(asked: Asked) -> bytes:
    if asked.path == "/away":
        return answer(b"", status="302 Found", headers=["Location: http://169.254.169.254/latest/meta-data"])
    if asked.path == "/moved":
        return answer(b"", status="302 Found", headers=["Location: /page"])
    return answer(PAGE.encode(), headers=["Content-Type: text/html"])


async def test_a_page_is_fetched_part_by_part_and_every_hop_is_guarded(project: Project) -> None:
    site = Site(reply)
    async with site.server() as server:
        base = server.url.rstrip("/")
        project.write("workspace: {web_fetch: {allow_hosts: [127.0.0.1], allow_private: true}}\n")
        view = project.view(user="ann", space="s1")
        first = (await view.call("fetch_web_page", {"url": f"{base}/moved", "max_chars": 1_000})).structured
        assert (first["title"], first["url"], first["status"]) == ("Long page", f"{base}/page", 200)
        assert (len(first["content"]), first["next_start"], first["truncated"]) == (1_000, 1_000, True)
        rest = (await view.call("fetch_web_page", {"url": f"{base}/page", "start": 1_000})).structured
        assert "word1999" in rest["content"]
        assert (rest["next_start"], rest["truncated"]) == (None, False)
        assert "word0 " not in rest["content"]
        # Neither by its name nor by a redirect may it leave the hosts that are allowed.
        for url in (f"{base}/away", "http://169.254.169.254/latest/meta-data", "http://127.0.0.2/page"):
            refused = await view.call("fetch_web_page", {"url": url})
            assert refused.error is not None
            assert refused.error.kind != "internal", url
    assert [asked.path for asked in site.asked] == ["/moved", "/page", "/page", "/away"]


async def test_without_the_setting_it_is_not_there_and_private_addresses_are_never_reached(project: Project) -> None:
    project.write("workspace: {}\n")
    assert "fetch_web_page" not in project.view(user="ann", space="s1").names()
    site = Site(reply)
    async with site.server() as server:
        project.write("workspace: {web_fetch: true}\n")
        refused = await project.view(user="ann").call("fetch_web_page", {"url": server.url.rstrip("/") + "/page"})
        assert refused.error is not None
    assert site.asked == []


def test_a_host_that_cannot_be_read_is_refused_where_it_stands(project: Project) -> None:
    project.write("workspace: {web_fetch: {allow_hosts: ['http://x/y']}}\n")
    [said] = project.said()
    assert said.startswith("pegboard.yaml:1:")
    assert "web_fetch" in said
