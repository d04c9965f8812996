"""A real folder, ingested by the command, looked at over MCP: every tool, and only by those who may."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pegboard.auth.keys import KeyStore
from tests import forking
from tests.auth.parts import bearer
from tests.server.doors import JSON_HEADERS, answer_of, call, post
from tests.server.processes import serving
from tests.workspace.library import files

CONFIG = """\
name: acme
limits: {upload_bytes: 2000000}
workspace: {store: "sqlite:./documents.db"}
tools: [{name: rag_query, type: builtin, config: {collection: handbook}}]
hooks: [{on: before, match: docs.upload_document, use: "python:guard:no_secrets"}]
profiles: {default: {}, without: {deny: ["docs.*"]}}
identity:
  api_keys: {store: "sqlite:./keys.db"}
  map:
    - {when: {key: ann}, user: ann, space: s1, profiles: [default]}
    - {when: {key: bob}, user: bob, roles: [support], profiles: [default]}
    - {when: {key: eve}, user: eve, space: s3, profiles: [default]}
    - {when: {key: kim}, user: kim, space: s4, profiles: [default, without]}
    - {when: {key: lea}, user: lea, space: s6, profiles: [default]}
    - {when: {key: moe}, user: moe, space: s7, profiles: [default]}
    - {when: {key: nia}, user: nia, space: s8, profiles: [default]}
    - {when: {key: root}, user: root, roles: [document_administrator], profiles: [default]}
"""
GUARD = """\
from pegboard import Verdict


def no_secrets(call):
    told = call.args
    assert set(told) - {"metadata"} == {"space", "source", "path", "size_bytes", "checksum"}, told
    if "secret" in told["path"] or told["size_bytes"] > 1_000_000:
        return Verdict.deny(f"{told['path']} with {told['size_bytes']} bytes is not for agents.")
"""
CALLERS = ("ann", "bob", "eve", "kim", "lea", "moe", "nia", "root")
HANDBOOK = {
    "leave.md": "# Leave\n\nYou have thirty days of holiday a year.\n\n## Illness\n\nTell your manager.\n",
    "travel/trains.html": "<title>Trains</title><h1>Trains</h1><p>Second class, canary one.</p>",
    "orders.csv": "id,region,total\n1,north,10\n2,south,20\n",
    "notes.jsonl": '{"a": 1}\n{"a": 2}\n',
}


@pytest.fixture(scope="module")
async def door(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, httpx2.AsyncClient]]:
    """A client for each of the callers, of one server."""
    folder = tmp_path_factory.mktemp("acme")
    (folder / "pegboard.yaml").write_text(CONFIG)
    (folder / "guard.py").write_text(GUARD)
    files(folder / "handbook", HANDBOOK)
    files(folder / "secret", {"plans.md": "# Plans\n\nThe canary two sings of holiday.\n"})
    files(folder / "attic", {"letter.md": "# A letter\n"})
    for words in (
        ["ingest", "handbook", "--space", "s1"],
        ["ingest", "attic", "--space", "s8"],
        ["ingest", "secret", "--space", "s2"],
        ["workspace", "grant", "role:support", "s2"],
    ):
        ran = forking.run(["pegboard", *words], cwd=folder)
        assert ran.returncode == 0, ran
    keys = {name: KeyStore(folder / "keys.db").add(name)[0] for name in CALLERS}
    async with serving(folder) as server:
        clients = {
            name: httpx2.AsyncClient(base_url=server.url, headers=bearer(key), trust_env=False)
            for name, key in keys.items()
        }
        yield clients
        for client in clients.values():
            await client.aclose()


async def rpc(client: httpx2.AsyncClient, method: str, **params: Any) -> Any:
    """Ask in 2026-07-28; return the result, or the error."""
    headers = {"mcp-name": params["uri"]} if "uri" in params else {}
    answer = answer_of(await post(client, method, params, headers=headers))
    return answer.get("result") or answer["error"]


async def rpc_before(client: httpx2.AsyncClient, method: str, **params: Any) -> Any:
    """Ask in a session of an earlier revision."""
    version = "2025-06-18"
    headers = {**JSON_HEADERS, "mcp-protocol-version": version}
    greeting = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": greeting}
    begun = await client.post("/mcp", headers=headers, json=body)
    headers["mcp-session-id"] = begun.headers["mcp-session-id"]
    answered = await client.post("/mcp", headers=headers, json={**body, "id": 2, "method": method, "params": params})
    answer = answer_of(answered)
    return answer.get("result") or answer["error"]


async def told(client: httpx2.AsyncClient, name: str, **arguments: Any) -> Any:
    result = (await call(client, name, arguments))["result"]
    return result["_meta"]["pegboard/error"] if result.get("isError") else result["structuredContent"]


async def test_an_agent_browses_searches_and_reads_the_folder_of_its_space(
    door: dict[str, httpx2.AsyncClient],
) -> None:
    ann = door["ann"]
    [source] = (await told(ann, "list_sources"))["items"]
    assert (source["name"], source["document_count"]) == ("handbook", 4)
    tree = await told(ann, "folder_tree", source_id=source["source_id"], include_documents=True)
    assert tree["text"].splitlines() == [
        "handbook/ (4 documents)",
        "  travel/ (1 document)",
        "    trains.html",
        "  leave.md",
        "  notes.jsonl",
        "  orders.csv",
    ]
    listed = await told(ann, "list_folder_contents", source_id=source["source_id"], path="/travel")
    assert [each["name"] for each in listed["items"]] == ["trains.html"]
    [hit, *_] = (await told(ann, "search_documents", query="How many days of holiday do I have?"))["hits"]
    assert (hit["name"], "thirty days" in hit["text"]) == ("leave.md", True)
    read = await told(ann, "read_document", document_id=hit["document_id"], start=hit["start"], end=hit["end"])
    assert read["text"] == hit["text"]
    lines = await told(ann, "grep_documents", pattern="second class", ignore_case=True)
    assert [each["name"] for each in lines["matches"]] == ["trains.html"]
    [found] = (await told(ann, "find_by_name", pattern="*.csv"))["items"]
    info = await told(ann, "document_info", document_id=found["document_id"])
    assert info["tables"] == [{"table": "orders", "columns": ["id", "region", "total"], "row_count": 2}]
    grouped = await told(ann, "query_documents", sql="SELECT region, sum(total) FROM orders GROUP BY 1 ORDER BY 1")
    assert grouped["rows"] == [["north", 10], ["south", 20]]
    assert [each["source"] for each in (await told(ann, "rag_query", query="holiday"))["results"]] == ["leave.md"]


async def test_others_get_nothing_of_it_and_are_told_what_they_would_be_told_of_nothing(
    door: dict[str, httpx2.AsyncClient],
) -> None:
    [source] = (await told(door["ann"], "list_sources"))["items"]
    [found] = (await told(door["ann"], "find_by_name", pattern="leave"))["items"]
    assert [hit["name"] for hit in (await told(door["bob"], "search_documents", query="holiday"))["hits"]] == [
        "plans.md"
    ]
    for name in ("bob", "eve"):
        stolen = await told(door[name], "read_document", document_id=found["document_id"])
        invented = await told(door[name], "read_document", document_id="doc_0000000000000000")
        assert json.dumps(stolen).replace(found["document_id"], "X") == json.dumps(invented).replace(
            "doc_0000000000000000", "X"
        )
        assert (await told(door[name], "grep_documents", pattern="canary one"))["matches"] == []
    assert (await told(door["eve"], "list_sources"))["items"] == []
    hidden = await told(door["eve"], "folder_tree", source_id=source["source_id"])
    assert hidden["kind"] == "not_found"
    # In no one space, what belongs to one is not even listed.
    listed = answer_of(await post(door["bob"], "tools/list"))["result"]["tools"]
    assert "list_sources" not in {tool["name"] for tool in listed}
    assert {"search_documents", "read_document"} <= {tool["name"] for tool in listed}
    reads = next(tool for tool in listed if tool["name"] == "read_document")
    assert reads["annotations"]["readOnlyHint"] is True


async def test_a_query_across_spaces_sees_only_what_was_granted(door: dict[str, httpx2.AsyncClient]) -> None:
    answer = await call(door["bob"], "grep_documents", {"pattern": "canary"})
    assert "canary two" in json.dumps(answer)
    assert "canary one" not in json.dumps(answer)


@pytest.mark.parametrize("ask", [rpc, rpc_before])
async def test_documents_are_resources_to_those_who_may_read_them_and_to_others_nothing(
    door: dict[str, httpx2.AsyncClient], ask: Any
) -> None:
    listed = (await ask(door["ann"], "resources/list"))["resources"]
    assert [each["uri"] for each in listed] == [
        "docs://s1/handbook/leave.md", "docs://s1/handbook/notes.jsonl", "docs://s1/handbook/orders.csv",
        "docs://s1/handbook/travel/trains.html",
    ]  # fmt: skip
    [template] = (await ask(door["ann"], "resources/templates/list"))["resourceTemplates"]
    assert template["uriTemplate"] == "docs://{space}/{source}/{+path}"
    for each in listed:
        [contents] = (await ask(door["ann"], "resources/read", uri=each["uri"]))["contents"]
        assert (contents["uri"], contents["mimeType"], bool(contents["text"])) == (each["uri"], "text/plain", True)
    assert [each["uri"] for each in (await ask(door["bob"], "resources/list"))["resources"]] == [
        "docs://s2/secret/plans.md"
    ]
    assert (await ask(door["eve"], "resources/list"))["resources"] == []
    for name in ("bob", "eve"):
        refused = [
            await ask(door[name], "resources/read", uri=uri)
            for uri in ("docs://s1/handbook/leave.md", "docs://s1/handbook/nothing.md", "docs://s9/handbook/leave.md")
        ]
        assert {each["code"] for each in refused} == {-32602}
        assert {each["message"].replace(each["data"]["uri"], "X") for each in refused} == {
            "No resource 'X' is available to this caller."
        }


async def sent(client: httpx2.AsyncClient, content: bytes, **query: str) -> Any:
    """Upload a file; return the status and the answer."""
    answer = await client.post("/v1/documents", params=query, content=content)
    return answer.status_code, answer.json()


async def test_a_file_that_is_sent_over_http_is_found_and_stands_for_the_one_before(
    door: dict[str, httpx2.AsyncClient],
) -> None:
    kim = door["kim"]
    status, first = await sent(kim, b"a,b\n1,kiwi\n", path="lists/fruit.csv", source="lists")
    assert (status, first["status"], first["path"], first["space"]) == (201, "added", "lists/fruit.csv", "s4")
    assert (await told(kim, "query_documents", sql="select b from fruit"))["rows"] == [["kiwi"]]
    # Letters are joined by such a character in Persian.
    assert (await sent(kim, b"x", path="\u0641\u200c\u0646 1\u202fPM.txt", source="lists"))[0] == 201
    status, second = await sent(kim, b"a,b\n1,plum\n", path="/lists//fruit.csv", source="lists")
    assert (status, second["status"], second["document_id"]) == (200, "changed", first["document_id"])
    assert (await told(kim, "query_documents", sql="select b from fruit"))["rows"] == [["plum"]]
    assert (await sent(kim, b"a,b\n1,plum\n", path="lists/fruit.csv", source="lists"))[1]["status"] == "unchanged"
    # Other tests of this door may have sent into other sources before.
    sources = {source["name"]: source for source in (await told(kim, "list_sources"))["items"]}
    assert (sources["lists"]["type"], sources["lists"]["document_count"]) == ("upload", 2)
    # Nobody else has it.
    assert (await told(door["eve"], "find_by_name", pattern="fruit"))["items"] == []


@pytest.mark.parametrize(
    ("name", "content", "query", "status", "kind"),
    [
        ("kim", b"MZ\0", {"path": "a.exe"}, 422, "invalid_arguments"),
        ("kim", b"x" * 2_000_001, {"path": "a.txt"}, 413, "body_too_large"),
        ("kim", b"x", {"path": "../a.txt"}, 422, "invalid_arguments"),
        ("kim", b"x", {"path": ""}, 422, "invalid_arguments"),
        ("kim", b"x", {"path": "\u202ea.txt"}, 422, "invalid_arguments"),
        ("kim", b"x", {"path": "a\nb.txt"}, 422, "invalid_arguments"),
        ("kim", b"caf\xe9\0\1", {"path": "a.txt"}, 422, "invalid_arguments"),
        ("kim", b"no pdf", {"path": "a.pdf"}, 422, "invalid_arguments"),
        ("kim", b"x", {"path": "a.txt", "source": "a\nb"}, 422, "invalid_arguments"),
        ("kim", b"x", {"path": "a.txt", "space": "s1"}, 404, "not_found"),
        ("kim", b"x", {"path": "a.txt", "space": "nowhere"}, 404, "not_found"),
        ("bob", b"x", {"path": "a.txt", "space": "s2"}, 403, "read_only"),
        ("bob", b"x", {"path": "a.txt", "space": "s1"}, 404, "not_found"),
        ("bob", b"x", {"path": "a.txt"}, 422, "invalid_arguments"),
        ("kim", b"x", {"path": "a.txt", "more": "x"}, 400, "bad_request"),
        ("kim", b"x", {"path": "a.txt", "profile": "without"}, 404, "not_found"),
    ],
)
async def test_what_may_not_be_sent_is_refused_and_leaves_nothing(
    door: dict[str, httpx2.AsyncClient], name: str, content: bytes, query: dict[str, str], status: int, kind: str
) -> None:
    before = await told(door[name], "find_by_name", pattern="*")
    said, answer = await sent(door[name], content, **query)
    assert (said, answer["kind"]) == (status, kind), answer
    assert await told(door[name], "find_by_name", pattern="*") == before


async def test_a_file_that_is_sent_passes_the_hooks_like_any_call_and_no_list_shows_what_takes_it(
    door: dict[str, httpx2.AsyncClient],
) -> None:
    kim = door["kim"]
    status, answer = await sent(kim, b"x" * 7, path="my/secret.txt")
    assert (status, answer["kind"]) == (403, "hook_refused")
    assert answer["detail"] == "my/secret.txt with 7 bytes is not for agents."
    assert (await told(kim, "find_by_name", pattern="secret"))["items"] == []
    assert "upload_document" not in str(await rpc(kim, "tools/list"))
    assert "upload_document" not in str(await rpc(kim, "resources/list"))
    assert "upload_document" not in str(await rpc(kim, "resources/templates/list"))
    refused = await call(kim, "upload_document", {"space": "s4", "source": "a", "path": "b.txt"})
    assert "No tool named 'upload_document'" in refused["error"]["message"]


async def test_callers_who_send_slowly_leave_others_a_place(door: dict[str, httpx2.AsyncClient]) -> None:
    goes_on, begun = asyncio.Event(), list[str]()

    async def slow(name: str) -> AsyncIterator[bytes]:
        yield b"one "
        begun.append(name)
        await goes_on.wait()
        yield b"two"

    async def send(whose: str, name: str) -> int:
        url = door[whose].base_url.join("/v1/documents")
        async with httpx2.AsyncClient(headers=door[whose].headers, trust_env=False, timeout=None) as client:
            answer = await client.post(url, params={"path": f"{name}.txt"}, content=slow(name))
            return answer.status_code

    first = [asyncio.create_task(send("lea", f"slow{n}")) for n in range(6)]
    while len(begun) < len(first):
        await asyncio.sleep(0)
    # Each is being sent, and nobody else waits for them.
    for n in range(3):
        assert (await sent(door["moe"], b"quick", path=f"quick{n}.txt"))[0] == 201
    assert not any(task.done() for task in first)
    # Now a second one has the last place; for who has none, one of those who have three gives up his.
    second = [asyncio.create_task(send("moe", f"slow{n}")) for n in range(2)]
    while len(begun) < len(first) + len(second):
        await asyncio.sleep(0)
    # That they were sent is known here before the server has given them a place: what is asked later is answered later.
    for _ in range(5):
        assert (await door["kim"].get("/v1/tools")).status_code == 200
    assert (await sent(door["kim"], b"quick", path="quick.txt"))[0] == 201
    assert not any(task.done() for task in second)
    goes_on.set()
    answers = await asyncio.gather(*first)
    assert (sorted(answers).count(201), sorted(answers).count(503)) == (5, 1)
    assert await asyncio.gather(*second) == [201] * 2


async def test_a_form_is_told_how_a_file_is_sent(door: dict[str, httpx2.AsyncClient]) -> None:
    answer = await door["kim"].post("/v1/documents", params={"path": "a.txt"}, files={"file": ("a.txt", b"x")})
    assert (answer.status_code, "--data-binary" in answer.json()["detail"]) == (415, True)


async def test_grants_over_http_are_for_the_role_that_may_and_hold_at_once(
    door: dict[str, httpx2.AsyncClient],
) -> None:
    root, cid = door["root"], {"principal": "role:support", "space": "s5"}
    for name in ("ann", "bob", "eve", "kim"):
        asked = [
            await door[name].get("/v1/grants"), await door[name].post("/v1/grants", json=cid),
            await door[name].delete("/v1/grants", params=cid),
        ]  # fmt: skip
        assert {each.status_code for each in asked} == {404}
        assert {each.json()["detail"] for each in asked} == {"Not found"}
    assert (await sent(door["bob"], b"x", path="a.txt", space="s5"))[0] == 404
    granted = await root.post("/v1/grants", json={**cid, "access": "write"})
    assert (granted.status_code, granted.json()) == (200, {**cid, "access": "write"})
    assert (await sent(door["bob"], b"pear", path="a.txt", space="s5"))[0] == 201
    listed = (await root.get("/v1/grants", params={"space": "s5"})).json()
    assert listed == {"grants": [{"space": "s5", "principal": "role:support", "access": "write"}]}
    for bad in (
        {},
        {"principal": "bob", "space": "s5"},
        {"principal": "group:bob", "space": "s5"},
        {"principal": "user:" + "b" * 1_000, "space": "s5"},
        {**cid, "access": "own"},
        {**cid, "x": 1},
        {**cid, "space": 5},
    ):
        assert (await root.post("/v1/grants", json=bad)).status_code == 422, bad
    # Who grants sees no document for that.
    assert (await told(root, "find_by_name", pattern="*"))["items"] == []
    assert (await root.delete("/v1/grants", params=cid)).json() == {"revoked": cid}
    assert (await root.delete("/v1/grants", params=cid)).status_code == 404
    assert "a.txt" not in str(await told(door["bob"], "find_by_name", pattern="*"))


async def test_a_server_that_asks_nobody_has_one_space_or_says_why_there_is_nothing(tmp_path: Path) -> None:
    files(tmp_path / "handbook", HANDBOOK)
    for config, count in (("", 0), (", space: s1", 1)):
        (tmp_path / "pegboard.yaml").write_text(f"workspace: {{store: 'sqlite:./documents.db'{config}}}\n")
        if not count:
            assert forking.run(["pegboard", "ingest", "handbook", "--space", "s1"], cwd=tmp_path).returncode == 0
        async with serving(tmp_path) as server, httpx2.AsyncClient(base_url=server.url, trust_env=False) as client:
            found = await told(client, "search_documents", query="holiday")
            assert len(found["hits"]) == count
            assert ("workspace: {space: NAME}" in found.get("note", "")) is (not count)
            assert ("workspace: {space: NAME}" in server.said.read_text()) is (not count)
            assert len((await rpc(client, "resources/list"))["resources"]) == count * 4


async def answered(client: httpx2.AsyncClient, method: str, path: str, **options: Any) -> Any:
    answer = await client.request(method, f"/v1/documents{path}", **options)
    return answer.status_code, answer.json()


async def test_metadata_is_given_kept_and_cleared_over_http(door: dict[str, httpx2.AsyncClient]) -> None:
    lea = door["lea"]
    status, stored = await sent(lea, b"one", path="told/a.txt", source="told", **{"meta.team": "support"})
    assert status == 201, stored
    place = f"/{stored['document_id']}"
    for params, team in (({}, "support"), ({"meta.team": "sales"}, "sales"), ({"meta": ""}, None)):
        assert (await answered(lea, "PUT", place, params=params, content=str(params)))[0] == 200
        assert (await answered(lea, "GET", place))[1]["metadata"].get("team") == team
    assert (await answered(lea, "PUT", place, params={"meta": "x"}, content=b"x"))[0] == 422
    assert (await answered(lea, "GET", place, params={"metadata": "x"}))[0] == 400


async def test_one_document_is_listed_shown_read_replaced_and_removed_over_http(
    door: dict[str, httpx2.AsyncClient],
) -> None:
    lea = door["lea"]
    for name in ("a.txt", "b.txt", "c.txt"):
        assert (await sent(lea, f"canary {name}".encode(), path=f"single/{name}", source="single"))[0] == 201
    status, page = await answered(lea, "GET", "", params={"source": "single", "folder": "single", "limit": "2"})
    assert (status, [each["path"] for each in page["items"]]) == (200, ["single/a.txt", "single/b.txt"])
    rest = (await answered(lea, "GET", "", params={"source": "single", "cursor": page["next_cursor"]}))[1]
    assert ([each["path"] for each in rest["items"]], rest["next_cursor"]) == (["single/c.txt"], None)
    known = page["items"][0]["document_id"]
    status, shown = await answered(lea, "GET", f"/{known}")
    assert (status, shown["path"], shown["space"], shown["source"]) == (200, "single/a.txt", "s6", "single")
    assert (await answered(lea, "GET", f"/{known}/text", params={"start": "7"}))[1]["text"] == "a.txt"
    status, replaced = await answered(lea, "PUT", f"/{known}", content=b"canary of another text")
    assert (status, replaced["status"], replaced["document_id"]) == (200, "changed", known)
    assert (replaced["path"], replaced["source"]) == ("single/a.txt", "single")
    assert (await answered(lea, "GET", f"/{known}/text"))[1]["text"] == "canary of another text"
    status, removed = await answered(lea, "DELETE", f"/{known}")
    assert (status, removed) == (200, {
        "document_id": known, "space": "s6", "source": "single", "source_type": "upload", "path": "single/a.txt",
        "removed": True,
    })  # fmt: skip
    assert (await answered(lea, "GET", f"/{known}"))[0] == (await answered(lea, "DELETE", f"/{known}"))[0] == 404
    assert (await told(lea, "search_documents", query="another text"))["hits"] == []


@pytest.mark.parametrize("text", ["x", "0", "201", "-1", "1" * 40, "²"])
async def test_a_limit_that_is_none_is_refused(door: dict[str, httpx2.AsyncClient], text: str) -> None:
    assert (await answered(door["lea"], "GET", "", params={"limit": text}))[0] == 422


async def test_single_documents_are_for_those_who_may_read_or_write_their_space(
    door: dict[str, httpx2.AsyncClient],
) -> None:
    [leave] = (await told(door["ann"], "find_by_name", pattern="leave"))["items"]
    [plans] = (await told(door["bob"], "find_by_name", pattern="plans"))["items"]
    for asked in (leave, plans):
        known, invented = asked["document_id"], "doc_0000000000000000"
        for method, path in (("GET", ""), ("GET", "/text"), ("PUT", ""), ("DELETE", "")):
            body = {"content": b"stolen"} if method == "PUT" else {}
            strange = await answered(door["eve"], method, f"/{known}{path}", **body)
            missing = await answered(door["eve"], method, f"/{invented}{path}", **body)
            assert strange[0] == missing[0] == 404
            assert strange[1]["detail"].replace(known, "X") == missing[1]["detail"].replace(invented, "X")
    assert (await answered(door["eve"], "GET", "", params={"space": "s1"}))[1]["items"] == []
    # Read, and not written.
    known = plans["document_id"]
    assert (await answered(door["bob"], "GET", f"/{known}"))[0] == 200
    assert (await answered(door["bob"], "PUT", f"/{known}", content=b"x"))[0] == 403
    assert (await answered(door["bob"], "DELETE", f"/{known}"))[0] == 403
    assert "canary two" in (await answered(door["bob"], "GET", f"/{known}/text"))[1]["text"]
    # A profile without document tools has no documents.
    refused = await answered(door["kim"], "GET", "", params={"profile": "without"})
    assert (refused[0], refused[1]["detail"]) == (404, "This server has no documents for this caller.")


async def test_a_document_of_a_folder_that_is_removed_says_that_it_may_come_back(
    door: dict[str, httpx2.AsyncClient],
) -> None:
    # Of a space of its own: the other tests read the handbook.
    [letter] = (await told(door["nia"], "find_by_name", pattern="letter"))["items"]
    status, removed = await answered(door["nia"], "DELETE", f"/{letter['document_id']}")
    assert (status, removed["note"]) == (200, "The next ingest of its source stores it again if it is still there.")
    assert (await told(door["nia"], "find_by_name", pattern="letter"))["items"] == []
