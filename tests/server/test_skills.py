"""Skills over MCP: how the tools of a namespace are used together, for those who have one of its tools."""

import hashlib
from base64 import b64decode
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pegboard import Catalog, DefinitionError, Policy, Profile, http_app
from pegboard.model.skill import SKILL_FILES
from pegboard.server.mcp.handlers.skill_handlers import MCP_PAGE_SKILLS
from tests.config.project import Project
from tests.server.doors import JSON_HEADERS, answer_of, inside, post

MAIN = (
    b"---\nname: file-store\ndescription: Read before you write\nmetadata: {major: 1, since: 2026-09-01}\n---\n# How\n"
)
LOGO = b"\x89PNG\x00\xff"
# Nine levels of nine aliases each.
LAUGHS = "\n".join(["a0: &a0 [1]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))])
URI = "skill://file-store/SKILL.md"
FORMS = "skill://file-store/parts/forms%20%26%20more.md"


def write(folder: Path, main: bytes = MAIN) -> Path:
    (folder / "parts").mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_bytes(main)
    (folder / "parts/forms & more.md").write_bytes(b"# Forms\n")
    (folder / "logo.png").write_bytes(LOGO)
    (folder / ".hidden").write_bytes(b"not a part of it")
    return folder


def catalog_with(folder: Path) -> Catalog:
    catalog = Catalog("shop")
    catalog.profile(Profile(name="default"))
    catalog.profile(Profile(name="narrow", policy=Policy(deny=("file_store.*",))))
    catalog.tool(name="read", namespace="file_store", description="Read.")(lambda: "text")
    catalog.tool(name="other", description="Something else.")(lambda: "text")
    catalog.skill("file_store", folder)
    return catalog


class Modern:
    """A client of 2026-07-28."""

    def __init__(self, client: httpx2.AsyncClient, path: str = "/mcp") -> None:
        self._client, self._path = client, path

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        headers = {"mcp-name": params["uri"]} if method == "resources/read" else {}
        answer = answer_of(await post(self._client, method, params, path=self._path, headers=headers))
        return answer.get("result") or answer["error"]

    async def capabilities(self) -> dict[str, Any]:
        return (await self.ask("server/discover"))["capabilities"]


class Earlier:
    """A client of 2025-11-25, in a session."""

    def __init__(self, client: httpx2.AsyncClient, path: str = "/mcp") -> None:
        self._client, self._path, self._session, self._said = client, path, "", dict[str, Any]()

    async def _send(self, method: str, params: dict[str, Any], **more: Any) -> httpx2.Response:
        heads = {**JSON_HEADERS, "mcp-session-id": self._session} if self._session else JSON_HEADERS
        body = {"jsonrpc": "2.0", "method": method, "params": params, **more}
        return await self._client.post(self._path, headers=heads, json=body)

    async def capabilities(self) -> dict[str, Any]:
        client = {"name": "test", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
        response = await self._send("initialize", params, id=1)
        self._session = response.headers["mcp-session-id"]
        await self._send("notifications/initialized", {})
        return answer_of(response)["result"]["capabilities"]

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        if not self._session:
            await self.capabilities()
        answer = answer_of(await self._send(method, params, id=2))
        return answer.get("result") or answer["error"]


def file(uri: str, content: bytes) -> dict[str, Any]:
    return {"uri": uri, "digest": f"sha256:{hashlib.sha256(content).hexdigest()}", "size": len(content)}


@pytest.mark.parametrize("era", [Modern, Earlier])
async def test_a_skill_is_announced_listed_got_and_read_in_both_eras(era: type[Any], tmp_path: Path) -> None:
    async with inside(http_app(catalog_with(write(tmp_path)))) as http:
        client = era(http)
        announced = await client.capabilities()
        assert announced["extensions"] == {"io.modelcontextprotocol/skills": {"directoryRead": True}}
        assert "resources" in announced
        listed = await client.ask("skills/list")
        [skill] = listed["skills"]
        assert skill["uri"] == URI
        assert skill["frontmatter"] == {
            "name": "file-store", "description": "Read before you write",
            "metadata": {"major": 1, "since": "2026-09-01"},
        }  # fmt: skip
        files = [file(URI, MAIN), file(FORMS, b"# Forms\n"), file("skill://file-store/logo.png", LOGO)]
        assert sorted(skill["resources"], key=lambda each: each["uri"]) == sorted(files, key=lambda each: each["uri"])
        assert (listed["cacheScope"], listed["ttlMs"] > 0, "nextCursor" in listed) == ("private", True, False)
        got = await client.ask("skills/get", uri=URI)
        assert (got["skill"], got["cacheScope"]) == (skill, "private")
        [main] = (await client.ask("resources/read", uri=URI))["contents"]
        assert main == {"uri": URI, "mimeType": "text/markdown", "text": MAIN.decode()}
        [logo] = (await client.ask("resources/read", uri="skill://file-store/logo.png"))["contents"]
        assert (logo["mimeType"], b64decode(logo["blob"])) == ("image/png", LOGO)
        [shown] = (await client.ask("resources/list"))["resources"]
        assert (shown["uri"], shown["name"], shown["description"]) == (URI, "file-store", "Read before you write")


async def test_folders_are_read_one_level_at_a_time(tmp_path: Path) -> None:
    async with inside(http_app(catalog_with(write(tmp_path)))) as http:
        client = Modern(http)
        for uri in ("skill://file-store", "skill://file-store/"):
            children = (await client.ask("resources/directory/read", uri=uri))["resources"]
            assert [(one["uri"], one["name"], one["mimeType"]) for one in children] == [
                (URI, "SKILL.md", "text/markdown"),
                ("skill://file-store/logo.png", "logo.png", "image/png"),
                ("skill://file-store/parts", "parts", "inode/directory"),
            ]
        children = (await client.ask("resources/directory/read", uri="skill://file-store/parts"))["resources"]
        assert [(one["uri"], one["name"]) for one in children] == [(FORMS, "forms & more.md")]


OUTSIDE = (
    "skill://file-store/.hidden", "skill://file-store/../secret.txt", "skill://file-store/parts/../SKILL.md",
    "skill://file-store/parts", "skill://file-stor/SKILL.md", "skill://FILE-STORE/SKILL.md", "skill://", "skill:///",
    f"{URI}#x", f"{URI}/", "file:///etc/passwd",
)  # fmt: skip


async def test_only_what_is_a_file_of_a_skill_is_read(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("canary")
    async with inside(http_app(catalog_with(write(tmp_path / "skill")))) as http:
        client = Modern(http)
        for uri in OUTSIDE:
            assert (await client.ask("resources/read", uri=uri))["code"] == -32602, uri
            assert (await client.ask("skills/get", uri=uri))["code"] == -32602, uri
        for uri in (URI, "skill://file", "skill://file-store/part", "skill://", "skill:", "", "skill://file-store/.."):
            assert (await client.ask("resources/directory/read", uri=uri))["code"] == -32602, uri


async def test_who_has_no_tool_of_the_namespace_has_no_skill_either(tmp_path: Path) -> None:
    catalog = catalog_with(write(tmp_path))
    async with inside(http_app(catalog)) as http:
        narrow = Modern(http, "/mcp/narrow")
        assert (await narrow.ask("skills/list"))["skills"] == []
        assert (await narrow.ask("resources/list"))["resources"] == []
        for method, uri in (
            ("skills/get", URI), ("resources/read", URI), ("resources/directory/read", "skill://file-store"),
        ):  # fmt: skip
            hidden = await narrow.ask(method, uri=uri)
            unknown = await narrow.ask(method, uri=uri.replace("file-store", "nothing"))
            assert (hidden["code"], hidden["message"].replace("file-store", "nothing")) == (-32602, unknown["message"])
        catalog.reset()
        assert "extensions" not in await Modern(http).capabilities()


async def test_many_skills_come_in_pages_that_split_none(tmp_path: Path) -> None:
    catalog = Catalog("many")
    for number in range(MCP_PAGE_SKILLS + 1):
        catalog.tool(name="t", namespace=f"n{number}", description="Do.")(lambda: "text")
        main = b"---\nname: n%d\ndescription: Some\n---\n" % number
        catalog.skill(f"n{number}", write(tmp_path / str(number), main))
    async with inside(http_app(catalog)) as http:
        client = Modern(http)
        first = await client.ask("skills/list")
        second = await client.ask("skills/list", cursor=first["nextCursor"])
        names = [skill["frontmatter"]["name"] for page in (first, second) for skill in page["skills"]]
        assert (len(first["skills"]), len(second["skills"]), len(set(names))) == (MCP_PAGE_SKILLS, 1, len(names))
        assert "nextCursor" not in second
        assert (await client.ask("skills/list", cursor="made up"))["code"] == -32602


def front(text: str) -> bytes:
    return f"---\n{text}\n---\nBody\n".encode()


@pytest.mark.parametrize(
    ("main", "problem"),
    [
        (b"# No front matter\n", "must begin with front matter"),
        (b"\xef\xbb\xbf" + MAIN, "must begin with front matter"),
        (b"\n" + MAIN, "must begin with front matter"),
        (b"---\nname: file-store\n", "must begin with front matter"),
        (front("- a list"), "must begin with front matter"),
        (front("name: other\ndescription: x"), "write `name: file-store`"),
        (front("name: file_store\ndescription: x"), "write `name: file-store`"),
        (front("description: x"), "write `name: file-store`"),
        (front("name: file-store"), "has no `description:`"),
        (front("name: file-store\ndescription: ' '"), "has no `description:`"),
        (front("name: file-store\ndescription: 1"), "has no `description:`"),
        (front("name: file-store\ndescription: x\nname: file-store"), "be there once"),
        (front("name: file-store\ndescription: x\n1: y"), "must be a text"),
        (front("name: [\ndescription: x"), "cannot be read"),
        (front(LAUGHS), "too many"),
        (front("name: file-store\ndescription: x\nmetadata: {io.modelcontextprotocol/x: y}"), "reserved"),
        (b"---\nname: \xff\n---\n", "cannot be read"),
    ],
)  # fmt: skip
def test_a_skill_that_is_not_in_order_is_refused_in_a_sentence(main: bytes, problem: str, tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=problem):
        catalog_with(write(tmp_path, main))


def test_a_skill_leads_out_of_its_folder_nowhere_and_has_bounds(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("canary")
    folder = write(tmp_path / "skill")
    (folder / "link.md").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(DefinitionError, match="cannot be read"):
        catalog_with(folder)
    (folder / "link.md").unlink()
    (folder / "out").symlink_to(tmp_path)
    with pytest.raises(DefinitionError, match="cannot be read"):
        catalog_with(folder)
    (folder / "out").unlink()
    with (folder / "large.bin").open("wb") as large:
        large.truncate(16 * 1024 * 1024)
    with pytest.raises(DefinitionError, match="too large"):
        catalog_with(folder)
    (folder / "large.bin").unlink()
    for number in range(SKILL_FILES - 2):
        (folder / f"{number}.md").touch()
    with pytest.raises(DefinitionError, match="too large"):
        catalog_with(folder)
    (folder / "0.md").unlink()
    catalog = catalog_with(folder)
    with pytest.raises(DefinitionError, match="already"):
        catalog.skill("file_store", folder)
    for namespace in ("a--b", "_a", "x" * 65):
        with pytest.raises(DefinitionError, match="not a valid skill name"):
            catalog.skill(namespace, folder)
    with pytest.raises(DefinitionError, match=r"needs a SKILL\.md"):
        Catalog().skill("parts", folder / "parts")


async def test_a_config_names_skills_and_says_where_one_is_wrong(tmp_path: Path) -> None:
    text = """\
        skills: {file_store: ./how}
        tools: [{name: read, namespace: file_store, type: internal, handler: "python:mine:read"}]
        """
    project = Project(tmp_path).write(text, mine="def read() -> str:\n    return 'text'\n")
    write(tmp_path / "how")
    catalog, config = project.load()
    assert tmp_path / "how/SKILL.md" in [path.resolve() for path in config.files], "a change of it is a reload"
    async with inside(http_app(catalog)) as http:
        assert [one["uri"] for one in (await Modern(http).ask("skills/list"))["skills"]] == [URI]
    (tmp_path / "how/SKILL.md").write_bytes(b"nothing")
    with pytest.raises(DefinitionError, match=r"pegboard\.yaml:1") as refused:
        project.load()
    assert "front matter" in str(refused.value)
