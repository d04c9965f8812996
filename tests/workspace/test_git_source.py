"""Git sources: the files of a commit come in, and nothing of a repository runs or leads elsewhere."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from pegboard import Workspace
from pegboard.model.error import CallError, DefinitionError
from pegboard.workspace.sources.git_source import GitPlace
from tests.workspace.library import ON_SQLITE_ALONE, Library, files
from tests.workspace.test_watching import ids

FILES = {"docs/leave.md": "# Leave\n\nThirty days.\n", "docs/crlf.txt": "one\r\ntwo\r\n", "docs/last.txt": "no end",
         "README.md": "# Read me\n", ".hidden/a.txt": "hidden", "docs/ä ö.txt": "umlauts"}  # fmt: skip


def git(folder: Path, *words: str) -> str:
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    names = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main")
    return subprocess.run(
        ["git", *names, "-C", str(folder), *words], check=True, capture_output=True, text=True, env=env
    ).stdout


def commit(folder: Path, content: Mapping[str, str]) -> Path:
    """Commit files to a repository, which is created if necessary."""
    folder.mkdir(exist_ok=True)
    git(folder, "init", "--quiet")
    files(folder, content)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "a change")
    return folder


async def taken_in(library: Library, address: str) -> dict[str, int]:
    workspace = Workspace(library.store, allow_private=True)
    report = await workspace.ingest(address, space="s1")
    removed = {"removed": report.removed} if report.removed else {}
    return {**report.counts, **removed}


async def text_of(library: Library, path: str) -> str:
    scope = library.store.operator_scope("s1")
    return (await library.store.read_document(scope, (await ids(library))[path], start=0, end=1_000))["text"]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return commit(tmp_path / "handbook", FILES)


@pytest.fixture
def served(repository: Path) -> str:
    """The address of the repository at a server."""
    git(repository, "update-server-info")
    return f"git:{_smart_server(repository)}/handbook"


def _smart_server(repository: Path) -> str:
    """Serve a folder of repositories with git's own `http-backend`; the thread ends with the tests."""

    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
            pass

        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            length = int(self.headers.get("content-length", 0))
            env = {
                "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(repository.parent), "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": path, "QUERY_STRING": query, "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("content-type", ""), "CONTENT_LENGTH": str(length),
                "HTTP_CONTENT_ENCODING": self.headers.get("content-encoding", ""),
                "GIT_PROTOCOL": self.headers.get("git-protocol", ""), "HOME": str(repository.parent),
                "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*",
            }  # fmt: skip
            seen.append(self.headers.get("authorization", ""))
            done = subprocess.run(
                ["git", "http-backend"], input=self.rfile.read(length), env=env, capture_output=True, check=True
            )
            head, _, body = done.stdout.partition(b"\r\n\r\n")
            headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
            self.send_response(int(headers.pop("Status", "200").split()[0]))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    SEEN[f"http://127.0.0.1:{server.server_port}"] = seen
    return f"http://127.0.0.1:{server.server_port}"


SEEN: dict[str, list[str]] = {}


async def test_the_files_of_a_repository_come_in_and_follow_its_commits(
    library: Library, repository: Path, served: str
) -> None:
    address = f"{served}#main:docs"
    assert await taken_in(library, address) == {"added": 4}
    before = await ids(library)
    assert set(before) == {"leave.md", "crlf.txt", "last.txt", "ä ö.txt"}
    assert await text_of(library, "last.txt") == "no end"
    assert await text_of(library, "crlf.txt") == "one\ntwo\n"
    git(repository, "mv", "docs/leave.md", "docs/holiday.md")
    git(repository, "rm", "--quiet", "docs/last.txt")
    commit(repository, {"docs/new.txt": "new", "docs/crlf.txt": "three\r\n"})
    assert await taken_in(library, address) == {"added": 1, "changed": 1, "renamed": 1, "unchanged": 1, "removed": 1}
    after = await ids(library)
    assert after["holiday.md"] == before["leave.md"]
    assert after["crlf.txt"] == before["crlf.txt"]


async def test_a_repository_of_this_machine_is_read_at_its_commit_and_not_its_files(
    library: Library, repository: Path
) -> None:
    draft = files(repository, {"docs/draft.txt": "not committed"}) / "docs" / "draft.txt"
    assert await taken_in(library, f"git:{repository}") == {"added": 5}
    assert "docs/draft.txt" not in await ids(library)
    draft.unlink()
    git(repository, "branch", "other")
    commit(repository, {"main.txt": "main"})
    assert await taken_in(library, f"git:{repository}#other") == {"unchanged": 5}
    assert await taken_in(library, f"git:{repository}#main") == {"added": 1, "unchanged": 5}


async def test_a_commit_that_was_read_before_is_not_read_again(library: Library, repository: Path, served: str) -> None:
    address = f"{served}#main:docs"
    await taken_in(library, address)
    requests = SEEN[served.removeprefix("git:").removesuffix("/handbook")]
    requests.clear()
    assert await taken_in(library, address) == {"unchanged": 4}
    # One question for the newest commit, in two requests of the protocol.
    assert len(requests) <= 2


@ON_SQLITE_ALONE
async def test_a_branch_that_loses_most_of_its_files_loses_no_documents(library: Library, repository: Path) -> None:
    await taken_in(library, f"git:{repository}")
    before = await ids(library)
    git(repository, "rm", "-r", "--quiet", "docs")
    commit(repository, {})
    with pytest.raises(CallError, match="4 of 5 documents of the source 'handbook' would be removed"):
        await taken_in(library, f"git:{repository}")
    assert await ids(library) == before


@ON_SQLITE_ALONE
async def test_links_and_submodules_are_skipped_and_no_hook_or_filter_runs(
    library: Library, repository: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    (repository / "docs" / "link.txt").symlink_to(secret)
    inner = commit(tmp_path / "inner", {"a.txt": "inner"})
    sha = git(inner, "rev-parse", "HEAD").strip()
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{sha},vendored")
    for name in ("post-checkout", "post-merge", "reference-transaction"):
        hook = repository / ".git" / "hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        hook.chmod(0o755)
    git(repository, "config", "filter.evil.smudge", f"touch {tmp_path}/ran")
    files(repository, {".gitattributes": "*.txt filter=evil\n"})
    git(repository, "add", "docs/link.txt", ".gitattributes")
    git(repository, "commit", "--quiet", "-m", "links")
    (tmp_path / "ran").unlink(missing_ok=True)
    workspace = Workspace(library.store)
    report = await workspace.ingest(f"git:{repository}", space="s1")
    assert {bad.path: bad.reason for bad in report.bad} == {
        "docs/link.txt": "it is a symbolic link, which is not followed",
        "vendored": "it is another repository (a submodule), which is not read; declare it as a separate source",
    }
    assert not (tmp_path / "ran").exists()
    assert (await library.call("grep_documents", pattern="secret"))["total"] == 0


@ON_SQLITE_ALONE
async def test_a_repository_of_this_machine_fetches_nothing_from_a_server_that_its_configuration_names(
    library: Library, repository: Path, served: str, tmp_path: Path
) -> None:
    """A partial clone has no contents; git would fetch them, past the rules for destinations."""
    git(repository, "config", "uploadpack.allowFilter", "true")
    url = served.removeprefix("git:")
    partial = tmp_path / "partial"
    subprocess.run(["git", "clone", "--quiet", "--no-checkout", "--filter=blob:none", url, str(partial)], check=True)
    seen = SEEN[url.removesuffix("/handbook")]
    before = len(seen)
    assert before > 0
    with suppress(CallError):
        await Workspace(library.store).ingest(f"git:{partial}", space="s1")
    assert len(seen) == before


@ON_SQLITE_ALONE
async def test_a_private_server_is_refused_unless_it_is_allowed(library: Library, served: str) -> None:
    with pytest.raises(CallError) as refused:
        await Workspace(library.store).ingest(served, space="s1")
    assert refused.value.error.kind == "blocked_destination"


@ON_SQLITE_ALONE
async def test_a_token_is_sent_and_in_no_argument_or_error(library: Library, served: str) -> None:
    workspace = Workspace(library.store, allow_private=True, env={"GIT_TOKEN": "t0ken"})
    await workspace.ingest(served, space="s1")
    requests = SEEN[served.removeprefix("git:").removesuffix("/handbook")]
    assert set(requests) == {"Basic eC1hY2Nlc3MtdG9rZW46dDBrZW4="}
    with pytest.raises(CallError) as refused:
        await workspace.ingest(f"{served}#nonesuch", space="s1")
    assert "has no branch or tag 'nonesuch'" in refused.value.error.message
    with pytest.raises(CallError) as refused:
        await workspace.ingest(served.replace("handbook", "nonesuch"), space="s1")
    assert refused.value.error.kind == "upstream_error"
    assert "t0ken" not in refused.value.error.message


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("git:ext::sh -c touch% /tmp/x", "is not a Git repository"),
        ("git:file:///etc", "is not a Git repository"),
        ("git:--upload-pack=touch", "is not a Git repository"),
        ("git:https://user:pass@example.com/a.git", "has a credential"),
        ("git:https://example.com/a.git#--output=x", "is not the name of a branch or tag"),
        ("git:https://example.com/a.git#main:../etc", "is not a path in a repository"),
    ],
)
def test_an_address_that_could_run_or_read_something_else_is_refused(address: str, reason: str) -> None:
    with pytest.raises(DefinitionError, match=reason):
        GitPlace.parse(address)


def test_addresses_name_a_server_a_branch_and_a_folder() -> None:
    place = GitPlace.parse("git:git@git.example.com:team/handbook.git#main:docs/")
    assert (place.is_local, place.server(), place.branch, place.folder, place.name()) == (
        False, ("git.example.com", 22), "main", "docs", "handbook",
    )  # fmt: skip
    assert GitPlace.parse("git:ssh://git@example.com:2222/a/b").server() == ("example.com", 2222)
    assert place.shown == "git:git@git.example.com:team/handbook.git#main:docs"
    assert GitPlace.parse("git:./handbook").is_local
