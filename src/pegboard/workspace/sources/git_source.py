"""Git source: the files of one commit of a Git repository, read with the program `git` and never checked out."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

from msgspec import Struct

from pegboard.egress.connections import GuardedBackend
from pegboard.egress.destinations import Destinations
from pegboard.egress.process import Process, launch
from pegboard.model.bounds import MIB
from pegboard.model.document import SourceType
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.record import CarriesCredentials
from pegboard.model.secret import Secret
from pegboard.workspace.parsing.signatures import SIGNATURE_BYTES
from pegboard.workspace.sources.document_source import (
    BadFile,
    Fetched,
    SourceFile,
    check_count,
    is_hidden,
    path_fault,
    path_of_stored,
)
from pegboard.workspace.store.source_settings import SourceRoot
from pegboard.workspace.store.writing import StoredFile

GIT_PREFIX: Final = "git:"
GIT_ASK_S = 60.0  # seconds to ask a repository for its newest commit
GIT_CLONE_S = 900.0  # seconds to fetch a commit
GIT_BATCH_FILES = 500  # files listed at once
GIT_LIST_BYTES = 256 * MIB  # bytes of the list of files of one commit

_SCP = re.compile(r"(?P<user>[\w.-]+@)?(?P<host>[\w.-]+\.[\w.-]+|localhost):(?P<path>[^\s:]+)")
_NAME = re.compile(r"(?!-)[^\s~^:?*\[\\\x00-\x1f\x7f]+")
_PORTS: Final = {"https": 443, "http": 80, "ssh": 22}
_KINDS: Final = {
    b"120000": "it is a symbolic link, which is not followed",
    b"160000": "it is another repository (a submodule), which is not read; declare it as a separate source",
}
# No configuration of the user or the machine counts, no question is asked, and no program of a repository runs.
_ENV: Final = {
    "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "",
    "GIT_ALLOW_PROTOCOL": "https:http:ssh", "GIT_NO_REPLACE_OBJECTS": "1", "GIT_OPTIONAL_LOCKS": "0",
    "GIT_SSH_COMMAND": "ssh -o BatchMode=yes -o ProxyCommand=none", "LC_ALL": "C",
}  # fmt: skip
_SETTINGS: Final = {
    "core.hooksPath": "/dev/null", "credential.helper": "", "http.followRedirects": "false", "protocol.version": "2",
    "transfer.fsckObjects": "true",
}  # fmt: skip


class GitPlace(Struct, frozen=True, kw_only=True):
    """A part of a repository. Without a `branch` (or tag) it is the repository's default one."""

    url: str
    branch: str = ""
    folder: str = ""

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of this machine."""
        return "://" not in self.url and _SCP.fullmatch(self.url) is None

    @property
    def shown(self) -> str:
        """The address of the part, for people."""
        part = f"#{self.branch}{f':{self.folder}' if self.folder else ''}" if self.branch or self.folder else ""
        return f"{GIT_PREFIX}{self.url}{part}"

    @classmethod
    def parse(cls, address: str) -> GitPlace:
        """Read `git:URL`, `git:URL#branch` or `git:URL#branch:folder`; the URL may be a local path.

        Raises:
            DefinitionError: it is not such an address.
        """
        url, _, part = address.removeprefix(GIT_PREFIX).partition("#")
        branch, _, folder = part.partition(":")
        return cls(url=url, branch=branch, folder=folder.strip("/")).checked()

    def checked(self) -> GitPlace:
        """Return it if it is valid.

        Raises:
            DefinitionError: it is not.
        """
        scheme = urlsplit(self.url).scheme if "://" in self.url else ""
        if not self.url or self.url.startswith("-") or "::" in self.url or (scheme and scheme not in _PORTS):
            text = f"{self.url[:200]!r} is not a Git repository: write https://HOST/PATH, ssh://HOST/PATH or a folder."
            raise DefinitionError(text)
        if scheme and (urlsplit(self.url).password is not None or (scheme != "ssh" and urlsplit(self.url).username)):
            raise DefinitionError("The URL of a Git repository has a credential. Remove it, and use `token`.")
        if self.branch and not _NAME.fullmatch(self.branch):
            raise DefinitionError(
                f"{self.branch[:100]!r} is not the name of a branch or tag. Use one that git accepts."
            )
        if ".." in self.folder.split("/") or "\0" in self.folder:
            raise DefinitionError(f"{self.folder[:100]!r} is not a path in a repository. Write it from the root.")
        return self

    def server(self) -> tuple[str, int]:
        """Return the host and port of a repository that is not local."""
        if (short := _SCP.fullmatch(self.url)) is not None:
            return short["host"], _PORTS["ssh"]
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or _PORTS[parts.scheme]

    def name(self) -> str:
        """Return the name of a source that has none: that of the repository."""
        return re.split(r"[/:]", self.url.rstrip("/").removesuffix("/.git"))[-1].removesuffix(".git") or "git"


class GitAccess(CarriesCredentials, frozen=True, kw_only=True):
    """The access to repositories: the allowed hosts, and the token for https."""

    destinations: Destinations
    token: Secret | None = None


class _Blob(Struct, frozen=True):
    """A file of a commit: the hash of its content, and its size in bytes."""

    sha: str
    size_bytes: int


class GitSource:
    """The files of the newest commit of a branch. A run over the commit of the run before costs one request.

    Hidden files, symbolic links and submodules are skipped. Nothing is checked out, so no hook, filter or attribute of
    a repository has an effect.

    Args:
        place: the repository, and what of it.
        access: how it is reached.
        beside: the folder of a relative path.
    """

    type: SourceType = "git"
    is_whole = True

    def __init__(self, place: GitPlace, access: GitAccess, *, beside: Path) -> None:
        self._place, self._access, self._beside = place, access, beside
        self._commit = ""
        self._folder: TemporaryDirectory[str] | None = None
        self._repository: Path | None = beside / place.url if place.is_local else None
        self._blobs: dict[str, _Blob] | None = None
        self._skipped: list[BadFile] = []
        self._reader: Process | None = None
        self._reading, self._listing = asyncio.Lock(), asyncio.Lock()

    @property
    def origin(self) -> str:
        return self._place.shown

    async def __aenter__(self) -> Self:
        if self._repository is not None and not self._repository.is_dir():
            raise DefinitionError(f"There is no repository {str(self._repository)!r}.")
        self._commit = await (self._newest() if self._repository is None else self._local())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reader is not None:
            await self._reader.stop(grace_s=0)
        if self._folder is not None:
            await asyncio.to_thread(self._folder.cleanup)

    async def place(self) -> SourceRoot | None:
        return SourceRoot(self.origin, 0, 0)

    def version(self) -> str:
        return self._commit

    async def files(self, on_bad: Callable[[BadFile], None]) -> AsyncIterator[Sequence[SourceFile]]:
        listed = [*(await self._listed()).items()]
        for bad in self._skipped:
            on_bad(bad)
        for start in range(0, len(listed), GIT_BATCH_FILES):
            yield [
                SourceFile(path=path, size_bytes=blob.size_bytes, etag=blob.sha)
                for path, blob in listed[start : start + GIT_BATCH_FILES]
            ]

    async def beginning(self, file: SourceFile) -> bytes:
        return (await self._content(file.etag))[:SIGNATURE_BYTES]

    async def fetch(self, file: SourceFile, *, max_bytes: int, known_etag: str) -> Fetched | None:
        if file.etag == known_etag:
            return None
        if file.size_bytes > max_bytes:
            raise CallError("result_too_large", f"it has more than {max_bytes / MIB:,.0f} MiB")
        return Fetched(payload=await self._content(file.etag), etag=file.etag)

    async def without_file(self, documents: Sequence[StoredFile]) -> list[StoredFile]:
        blobs = await self._listed()
        return [each for each in documents if path_of_stored(each) not in blobs]

    # ------------------------------------------------------------ git

    async def _local(self) -> str:
        """Return the commit of a local repository."""
        lines = await self._lines(
            ("rev-parse", "--verify", "--end-of-options", f"{self._place.branch or 'HEAD'}^{{commit}}")
        )
        return lines[0].decode()

    async def _newest(self) -> str:
        """Return the newest commit of a repository elsewhere."""
        wanted = self._place.branch or "HEAD"
        lines = await self._lines(("ls-remote", "--quiet", "--", self._place.url, *_refs(wanted)), timeout_s=GIT_ASK_S)
        found: dict[str, str] = {}
        for line in lines:
            commit, _, ref = line.decode("utf-8", "replace").partition("\t")
            found[ref] = commit
        for ref in _refs(wanted):
            if ref in found:
                return found[ref]
        raise CallError("upstream_error", f"The repository {self._place.url!r} has no branch or tag {wanted!r}.")

    async def _cloned(self) -> Path:
        """Return the repository on this machine, fetched without its history if it is elsewhere."""
        if self._repository is None:
            self._folder = await asyncio.to_thread(
                TemporaryDirectory, prefix="pegboard-git-", ignore_cleanup_errors=True
            )
            repository = Path(self._folder.name) / "repository"
            branch = ("--branch", self._place.branch) if self._place.branch else ()
            clone = ("clone", "--quiet", "--bare", "--depth", "1", "--single-branch", "--no-tags", *branch)
            await self._lines((*clone, "--", self._place.url, str(repository)), timeout_s=GIT_CLONE_S)
            self._repository = repository
            # The branch may have moved since it was asked for.
            [commit] = await self._lines(("rev-parse", "--verify", "HEAD^{commit}"))
            self._commit = commit.decode()
        return self._repository

    async def _listed(self) -> Mapping[str, _Blob]:
        """Return the files of the commit by path."""
        async with self._listing:
            if self._blobs is None:
                await self._cloned()
                tree = f"{self._commit}:{self._place.folder}"
                listed = b"\n".join(await self._lines(("ls-tree", "-r", "-z", "-l", "--full-tree", tree)))
                self._blobs = await asyncio.to_thread(self._parsed, listed)
            return self._blobs

    def _parsed(self, listed: bytes) -> dict[str, _Blob]:
        blobs: dict[str, _Blob] = {}
        for row in listed.split(b"\0"):
            if not row:
                continue
            described, _, raw_path = row.partition(b"\t")
            mode, _, sha, size = described.split()
            path = raw_path.decode("utf-8", "surrogateescape")
            if is_hidden(path):
                continue
            fault = path_fault(path) or _KINDS.get(mode, "")
            if fault:
                shown = path.encode("utf-8", "backslashreplace").decode()
                self._skipped.append(BadFile(path=shown, reason=fault))
            else:
                blobs[path] = _Blob(sha.decode(), int(size))
        check_count(len(blobs), self.origin)
        return blobs

    async def _content(self, sha: str) -> bytes:
        """Return the content of a file."""
        async with self._reading:
            if self._reader is None:
                await self._cloned()
                self._reader = await self._launch(("cat-file", "--batch"))
            await self._reader.write(sha.encode() + b"\n")
            head = await self._reader.read_line()
            if head is None or not head.endswith(tuple(b"0123456789"[n : n + 1] for n in range(10))):
                raise CallError("upstream_error", "git cannot read it")
            left = int(head.split()[-1]) + 1
            lines: list[bytes] = []
            while left > 0:
                line = await self._reader.read_line()
                if line is None:
                    raise CallError("upstream_error", "git ended while it was read")
                lines.append(line)
                left -= len(line) + 1
            return b"\n".join(lines)

    async def _lines(self, words: Sequence[str], *, timeout_s: float = GIT_ASK_S) -> list[bytes]:
        """Run git; return the lines of its output.

        Raises:
            CallError: it failed.
        """
        async with await self._launch(words) as process:
            process.close_stdin()
            try:
                async with asyncio.timeout(timeout_s):
                    lines = [line async for line in process.lines()]
                    status = await process.exited()
            except TimeoutError:
                text = f"{self._place.url!r} did not answer git within {timeout_s:g} s."
                raise CallError("timeout", text, outcome_unknown=False) from None
            if status != 0:
                await process.ended(within_s=1.0)
                why = " ".join(process.stderr_tail.split())[-300:] or f"exit code {status}"
                if self._access.token is not None:
                    why = why.replace(self._access.token.reveal(), "…")
                raise CallError("upstream_error", f"git could not read {self._place.url!r}: {why}")
            return lines

    async def _launch(self, words: Sequence[str]) -> Process:
        settings = dict(_SETTINGS)
        if not self._place.is_local:
            settings |= await self._reached()
        env = {**_ENV, "GIT_CONFIG_COUNT": str(len(settings))}
        if self._place.is_local:
            # The configuration of a local repository can name a server, and git would fetch missing objects from it.
            env["GIT_ALLOW_PROTOCOL"] = "none"
        # Not as arguments, which other users of the machine can see.
        for number, (name, value) in enumerate(settings.items()):
            env |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
        within = () if self._repository is None else ("-C", str(self._repository.absolute()))
        return await launch("git", [*within, *words], env=env, line_bytes=GIT_LIST_BYTES, keeps_returns=True)

    async def _reached(self) -> dict[str, str]:
        """Return the settings for a server: the addresses that were checked, and the credential.

        Raises:
            EgressError: blocked_destination, or the name is unknown.
        """
        host, port = self._place.server()
        addresses = await GuardedBackend(self._access.destinations).addresses(host, port, timeout_s=GIT_ASK_S)
        listed = ",".join(f"[{each}]" if ":" in each else each for each in addresses)
        settings = {"http.curloptResolve": f"{host}:{port}:{listed}"}
        token = self._access.token
        if token is not None:
            credential = base64.b64encode(f"x-access-token:{token.reveal()}".encode()).decode()
            settings["http.extraHeader"] = f"Authorization: Basic {credential}"
        return settings


def _refs(wanted: str) -> tuple[str, ...]:
    """Return the full names that a name may have, best first; a tag also as the commit that it names."""
    if wanted == "HEAD":
        return ("HEAD",)
    return (f"refs/heads/{wanted}", f"refs/tags/{wanted}^{{}}", f"refs/tags/{wanted}")
