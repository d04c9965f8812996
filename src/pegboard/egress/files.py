"""Files: opens, lists and writes files below one folder, and nowhere else."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal

from msgspec import Struct

from pegboard.egress.limits import PATH_CHARS
from pegboard.model.error import CallError, DefinitionError
from pegboard.platforms import platform

FILE_LOCK_TRIES = 100  # attempts to lock a folder that another writer holds
FILE_LOCK_PAUSE_S = 0.02  # seconds between these attempts
LISTED_FILES = 1_000  # files in one listing

FileKind = Literal["file", "folder", "symlink", "special"]
WriteMode = Literal["overwrite", "append", "create"]

_MARK = ".pegboard-"
_LEFT_OVER = re.compile(r"\.pegboard-[0-9a-f]{16}\.tmp")
_SAFELY = platform.OPEN_SAFELY
_REASONS = {
    errno.ENOENT: "does not exist",
    errno.ENOTDIR: "leads through something that is not a folder",
    errno.ELOOP: "leads through a symbolic link, which is not followed",
    errno.EISDIR: "is a folder",
    errno.EEXIST: "exists already",
    errno.ENAMETOOLONG: "has a name that is too long",
    errno.ENXIO: "is not an ordinary file",
}
# Suggestions for errors that another file name would not fix.
_ADVICE = {
    "is a hard link": "The operator can allow such files: `hard_links: true` in the config of this tool.",
    "decides what": "Choose another name.",
    "is hidden": "Choose a name without a leading dot, or have `write_hidden` set.",
    "would have": "Write less.",
    "exists already": "Choose another name, or the mode 'overwrite'.",
    "does not exist": "Check the name and its folders.",
}
_FULL = frozenset({errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EFBIG, errno.EIO, errno.EROFS})


class FileEntry(Struct, frozen=True, kw_only=True):
    """One item in a folder. `path` is relative to the root; `size_bytes` is 0 for all but files.

    `version` changes with the item and its name; `changed_s` is the time of the last such change.
    """

    path: str
    kind: FileKind
    size_bytes: int
    modified_s: float
    version: str = ""
    changed_s: float = 0.0


def decides_nothing(path: Path) -> bool:
    """Return False for every file: the default of `decides`."""
    return False


@dataclass(frozen=True, kw_only=True, slots=True)
class Root:
    """An operator's folder, below which callers may name files.

    Every step of a path is opened relative to the handle of the previous one, so concurrent changes cannot lead
    outside. Symbolic links are refused, even those that stay inside; so are `..`, devices, FIFOs and sockets. `path`
    itself may be a link, since the operator chose it.

    Args:
        hard_links: whether a file may have several names; another name may be outside the root.
        write_hidden: whether names with a leading dot may be written; they configure programs (`.git/hooks`, `.env`).
        decides: tells whether a file determines what code runs here; such files are not written.

    Raises:
        DefinitionError: `path` is not a folder.
    """

    path: Path
    write_hidden: bool = False
    hard_links: bool = False
    decides: Callable[[Path], bool] = field(default=decides_nothing, repr=False)
    _tidied: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]], init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if platform.NO_FILES is not None:
            raise DefinitionError(f"The root {str(self.path)!r} cannot be used: {platform.NO_FILES}.")
        if not self.path.is_dir():
            raise DefinitionError(f"The root {str(self.path)!r} is not a folder. Create it, or correct the path.")

    def relative(self, path: str) -> str | None:
        """Return an absolute path relative to this root, a relative one unchanged, or None if it is elsewhere."""
        if not path.startswith("/"):
            return path
        for own in (self.path.absolute(), self.path.resolve()):
            with suppress(ValueError):
                return str(Path(path).relative_to(own))
        return None

    @contextmanager
    def open_read(self, path: str) -> Generator[BinaryIO]:
        """Open an ordinary file for reading.

        Raises:
            CallError: invalid_arguments if the path is not an ordinary file below the root.
        """
        with self._parent(path) as (folder, name), _explained(path):
            _require_kind(folder, name, path)
            file = _opened(folder, name, path, hard_links=self.hard_links)
        with file:
            yield file

    def stat(self, path: str) -> FileEntry:
        """Describe the item at a path, without opening it.

        Raises:
            CallError: invalid_arguments if it does not exist, or the path leaves the root.
        """
        if not _parts(path):
            with self._folder((), path) as folder:
                return _entry(".", os.fstat(folder))
        with self._parent(path) as (folder, name), _explained(path):
            return _entry("/".join(_parts(path)), os.stat(name, dir_fd=folder, follow_symlinks=False))

    def listing(self, path: str = ".", *, max_entries: int = LISTED_FILES) -> tuple[FileEntry, ...]:
        """Describe the items in a folder, by name, at most `max_entries`.

        Raises:
            CallError: invalid_arguments if it is not a folder below the root.
        """
        parts = _parts(path)
        entries: list[FileEntry] = []
        with self._folder(parts, path) as folder, _explained(path):
            for name in sorted(os.listdir(folder))[:max_entries]:  # noqa: PTH208  (a handle, not a path):
                with suppress(FileNotFoundError):
                    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    entries.append(_entry("/".join((*parts, name)), status))
        return tuple(entries)

    def write(self, path: str, content: bytes, *, mode: WriteMode = "overwrite", max_bytes: int) -> int:
        """Write a file atomically: readers see the old file or the new one, never a part. Returns its size.

        `create` refuses an existing file, `append` keeps its content. The folder must exist.

        Raises:
            CallError: invalid_arguments if the path or the size is not allowed; storage_unavailable if the disk is
                full; busy if another writer locks the folder for more than 2 s.
        """
        if not self.write_hidden and any(part.startswith(".") for part in _parts(path)):
            raise _refusal(path, "is hidden (a name starts with a dot), which this tool does not write")
        with self._parent(path) as (folder, name), _explained(path), _locked(folder, path):
            self._tidy(folder)
            old = _require_kind(folder, name, path, may_be_missing=True)
            if self.decides(self.path.joinpath(*_parts(path))):
                raise _refusal(path, "decides what runs here, or who may run it, which no tool writes")
            if old is not None and mode == "create":
                raise FileExistsError(errno.EEXIST, "exists")
            if mode == "append" and old is not None:
                content = _read_up_to(folder, name, path, max_bytes, hard_links=self.hard_links) + content
            if len(content) > max_bytes:
                raise _refusal(path, f"would have {len(content)} bytes or more; at most {max_bytes} are allowed")
            permissions = None if old is None else old.st_mode & 0o777
            _put(folder, name, content, permissions=permissions, is_new=mode == "create")
        return len(content)

    def _tidy(self, folder: int) -> None:
        """Remove the temporary files of killed writers in a folder; we hold its lock, so none is in use."""
        status = os.fstat(folder)
        key = (status.st_dev, status.st_ino)
        if key in self._tidied:
            return
        self._tidied.add(key)
        for name in os.listdir(folder):
            if _LEFT_OVER.fullmatch(name):
                with suppress(OSError):
                    os.unlink(name, dir_fd=folder)

    @contextmanager
    def _parent(self, path: str) -> Generator[tuple[int, str]]:
        *folders, name = _parts(path) or ("",)
        if not name:
            raise _refusal(path, "is a folder")
        with self._folder(folders, path) as folder:
            yield folder, name

    @contextmanager
    def _folder(self, parts: Sequence[str], path: str) -> Generator[int]:
        flags = platform.OPEN_FOLDER
        with _explained(path):
            handle = os.open(self.path, flags)
        try:
            for part in parts:
                with _explained(path):
                    inner = os.open(part, flags | platform.NO_LINK, dir_fd=handle)
                os.close(handle)
                handle = inner
            yield handle
        finally:
            os.close(handle)


def locate(path: str, roots: Sequence[Root]) -> tuple[Root, str]:
    """Return the root of a path, and the path relative to it; a relative path belongs to the first root.

    Raises:
        CallError: invalid_arguments if it belongs to none.
    """
    for root in roots:
        inside = root.relative(path)
        if inside is not None:
            return root, inside
    raise _refusal(path, "is outside the folders that this tool may use")


def _parts(path: str) -> tuple[str, ...]:
    """Split a relative path, or refuse it before the file system sees it."""
    if "\0" in path:
        raise _refusal(path, "has a NUL character")
    if len(path) > PATH_CHARS:
        raise _refusal(path[:80] + "…", "is too long")
    if path.startswith("/"):
        raise _refusal(path, "is outside the folders that this tool may use")
    try:
        # A name that is not UTF-8 could not be reported to the caller.
        path.encode()
    except UnicodeEncodeError:
        raise _refusal(path, "has a character that file names cannot hold") from None
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise _refusal(path, "has a '..' step")
    return parts


def _require_kind(folder: int, name: str, path: str, *, may_be_missing: bool = False) -> os.stat_result | None:
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        if may_be_missing:
            return None
        raise
    if stat.S_ISDIR(status.st_mode):
        raise _refusal(path, "is a folder")
    if stat.S_ISLNK(status.st_mode):
        raise _refusal(path, "is a symbolic link, which is not followed")
    if not stat.S_ISREG(status.st_mode):
        raise _refusal(path, "is not an ordinary file")
    return status


def _opened(folder: int, name: str, path: str, *, hard_links: bool) -> BinaryIO:
    """Open an ordinary file, and check the open file, since its name may be replaced after a check of the path."""
    handle = os.open(name, os.O_RDONLY | _SAFELY, dir_fd=folder)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise _refusal(path, "is not an ordinary file")
        if status.st_nlink > 1 and not hard_links:
            raise _refusal(path, f"is a hard link: it has {status.st_nlink} names, some maybe outside of this folder")
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _read_up_to(folder: int, name: str, path: str, max_bytes: int, *, hard_links: bool) -> bytes:
    with _opened(folder, name, path, hard_links=hard_links) as file:
        return file.read(max_bytes + 1)


def _put(folder: int, name: str, content: bytes, *, permissions: int | None, is_new: bool) -> None:
    """Write under a temporary name, then rename; `is_new` fails if another writer took the name meanwhile."""
    temporary = f"{_MARK}{secrets.token_hex(8)}.tmp"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFELY, 0o666, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            if permissions is not None:
                os.fchmod(handle, permissions)
            file.write(content)
            file.flush()
            os.fsync(handle)
        if is_new:
            os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        else:
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
    os.fsync(folder)


@contextmanager
def _locked(folder: int, path: str) -> Generator[None]:
    """Lock the folder against our other writers, so that two appends are both kept."""
    for _ in range(FILE_LOCK_TRIES):
        with suppress(BlockingIOError):
            platform.lock_now(folder)
            break
        time.sleep(FILE_LOCK_PAUSE_S)
    else:
        raise CallError("busy", f"The folder of {path!r} is being written to. Try again.")
    try:
        yield
    finally:
        platform.unlock(folder)


@contextmanager
def _explained(path: str) -> Generator[None]:
    """Convert system errors to messages for the caller, with the path as the caller wrote it."""
    try:
        yield
    except OSError as exc:
        if exc.errno in _FULL:
            text = f"{path!r} could not be stored: {exc.strerror}. The old content is kept."
            raise CallError("storage_unavailable", text) from None
        if exc.errno in _REASONS:
            raise _refusal(path, _REASONS[exc.errno]) from None
        raise CallError("tool_error", f"{path!r} cannot be used: {exc.strerror}.") from None


def _refusal(path: str, reason: str) -> CallError:
    advice = next((text for begin, text in _ADVICE.items() if reason.startswith(begin)), "Name a file below the root.")
    return CallError("invalid_arguments", f"The path {path!r} {reason}. {advice}")


def _entry(path: str, status: os.stat_result) -> FileEntry:
    kinds: dict[int, FileKind] = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "symlink"}
    kind = kinds.get(stat.S_IFMT(status.st_mode), "special")
    size_bytes = status.st_size if kind == "file" else 0
    # The time of the inode too: a program may set the time of a file back after it has changed it.
    version = f"{status.st_mtime_ns:x}-{status.st_ctime_ns:x}-{status.st_ino:x}-{status.st_size:x}"
    changed_s = max(status.st_mtime, status.st_ctime)
    return FileEntry(
        path=path, kind=kind, size_bytes=size_bytes, modified_s=status.st_mtime, version=version, changed_s=changed_s
    )
