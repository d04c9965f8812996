"""The opener: nothing outside its root is read or written, whatever the path says or becomes meanwhile."""

import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pegboard.egress.file_text import TextPart, encode_text, read_text
from pegboard.egress.files import FileEntry, Root, WriteMode, locate
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.record import replace
from tests.timing import is_within

MIB = 1024 * 1024

Moments = dict[tuple[str, str], Callable[[], object]]


@pytest.fixture
def moments(monkeypatch: pytest.MonkeyPatch) -> Moments:
    """Let somebody else act once, at the moment in which this process is about to do something with a name.

    Keyed by the function of `os` and the name.
    """
    waiting: Moments = {}

    def acted(function: str) -> Callable[..., Any]:
        real = getattr(os, function)

        def call(*args: Any, **options: Any) -> Any:
            for name in {str(arg) for arg in args[:2]}:
                waiting.pop((function, name), lambda: None)()
            return real(*args, **options)

        return call

    for function in ("open", "link", "rename"):
        monkeypatch.setattr(os, function, acted(function))
    return waiting


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """`data` is the root; beside it lie a secret and a folder whose name begins like the root's."""
    data = tmp_path / "data"
    (data / "sub").mkdir(parents=True)
    (data / "a.txt").write_text("hello")
    (data / "sub" / "b.txt").write_text("deep")
    (tmp_path / "secret.txt").write_text("SECRET")
    (tmp_path / "data_secret").mkdir()
    (tmp_path / "data_secret" / "k").write_text("SECRET")
    before = _descriptors()
    yield data
    # Fewer if what an earlier test forgot was collected meanwhile.
    assert _descriptors() <= before
    assert (tmp_path / "secret.txt").read_text() == "SECRET"
    assert (tmp_path / "data_secret" / "k").read_text() == "SECRET"
    assert sorted(os.listdir(tmp_path)) == ["data", "data_secret", "secret.txt"]


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def read(root: Root, path: str) -> bytes:
    with root.open_read(path) as file:
        return file.read()


def refusal(root: Root, path: str, *, to_write: bool = True) -> str:
    """Both reading and writing must be refused, at once, without a word about where the root is."""
    started = time.monotonic()
    with pytest.raises(CallError) as caught:
        read(root, path)
    if to_write:
        with pytest.raises(CallError) as writing:
            root.write(path, b"x", max_bytes=10)
        assert writing.value.error.kind == "invalid_arguments", writing.value
    assert is_within(time.monotonic() - started, 0.5)  # a FIFO would keep us for ever
    assert caught.value.error.kind == "invalid_arguments", caught.value
    message = caught.value.error.message
    assert str(root.path) not in message.replace(repr(path), "")
    return message


def test_files_below_the_root_are_read_listed_and_described(folder: Path) -> None:
    root = Root(path=folder)
    assert (read(root, "a.txt"), read(root, "./sub//b.txt")) == (b"hello", b"deep")
    assert [(entry.path, entry.kind, entry.size_bytes) for entry in root.listing()] == [
        ("a.txt", "file", 5),
        ("sub", "folder", 0),
    ]
    assert [entry.path for entry in root.listing("sub")] == ["sub/b.txt"]
    assert len(root.listing(max_entries=1)) == 1
    modified_s = (folder / "a.txt").stat().st_mtime
    entry = root.stat("a.txt")
    assert replace(entry, version="", changed_s=0.0) == FileEntry(
        path="a.txt", kind="file", size_bytes=5, modified_s=modified_s
    )
    assert root.stat(".").kind == "folder"


def test_file_01_without_a_root_nothing_can_be_named(tmp_path: Path) -> None:
    with pytest.raises(CallError, match="outside the folders"):
        locate("/etc/passwd", [])
    with pytest.raises(CallError, match="outside the folders"):
        locate("etc/passwd", [])
    with pytest.raises(DefinitionError, match="is not a folder"):
        Root(path=tmp_path / "nowhere")


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt", "../../etc/passwd", "a/../../secret.txt", "sub/../a.txt", "....//secret.txt",
        "%2e%2e/secret.txt", "..\\..\\secret.txt", "..", "sub/..", ".../../secret.txt",
        "\uff0e\uff0e/secret.txt", "..\0/x",
    ],
)  # fmt: skip
def test_file_02_dotdot_in_any_spelling(folder: Path, path: str) -> None:
    refusal(Root(path=folder), path)


def test_file_03_a_sibling_that_begins_with_the_name_of_the_root(folder: Path) -> None:
    root = Root(path=folder)
    for path in (f"{folder}_secret/k", "../data_secret/k", "_secret/k"):
        refusal(root, path)
    with pytest.raises(CallError, match="outside the folders"):
        locate(f"{folder}_secret/k", [root])


@pytest.mark.parametrize("path", ["/etc/passwd", "~/.ssh/id_rsa", "$HOME/x", "file:///etc/passwd", "//etc/passwd"])
def test_file_04_absolute_and_home_paths(folder: Path, path: str) -> None:
    # Not even where the same steps lead to something below the root.
    (folder / "etc").mkdir()
    (folder / "etc" / "passwd").write_text("ours")
    refusal(Root(path=folder), path)


def test_an_absolute_path_below_a_root_belongs_to_it(folder: Path) -> None:
    first, second = Root(path=folder / "sub"), Root(path=folder)
    assert locate(f"{folder}/sub/b.txt", [first, second]) == (first, "b.txt")
    assert locate(f"{folder}/a.txt", [first, second]) == (second, "a.txt")
    assert locate("a.txt", [first, second]) == (first, "a.txt")
    root, inside = locate(f"{folder}/../secret.txt", [second])
    assert "'..' step" in refusal(root, inside)


def test_file_07_special_files_are_refused_without_waiting(folder: Path) -> None:
    root = Root(path=folder)
    os.mkfifo(folder / "fifo")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(folder / "sock"))
    for path in ("fifo", "sock", "sub", "", ".", "a.txt/x"):
        refusal(root, path)
    assert root.stat("fifo").kind == "special"
    for device_folder, name in ((Path("/dev"), "zero"), (Path("/dev"), "null"), (Path("/dev"), "stdin")):
        refusal(Root(path=device_folder), name, to_write=False)


def test_symbolic_links_are_refused_also_those_that_stay_inside(folder: Path) -> None:
    (folder / "out").symlink_to("../secret.txt")
    (folder / "in").symlink_to("a.txt")
    (folder / "proc").symlink_to("/proc/self/environ")
    (folder / "way").symlink_to("..")
    (folder / "dangling").symlink_to("../made.txt")
    root = Root(path=folder)
    for path in ("out", "in", "proc", "way/secret.txt", "dangling", "way"):
        refusal(root, path)
    with pytest.raises(CallError):
        root.listing("way")
    assert root.stat("out").kind == "symlink"


def test_the_root_itself_may_be_a_link(folder: Path, tmp_path: Path) -> None:
    (folder / "link").symlink_to(folder / "sub")
    assert read(Root(path=folder / "link"), "b.txt") == b"deep"


@pytest.mark.parametrize("path", ["x\0y", "a" * 300, "a/" * 3000, "\ud800", "missing", "missing/x"])
def test_names_that_no_file_can_have_are_refused_with_a_reason(folder: Path, path: str) -> None:
    refusal(Root(path=folder), path, to_write=path != "missing")


@given(path=st.text(alphabet="./a~\\\0x", max_size=12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_path_of_any_shape_reaches_the_secret(folder: Path, path: str) -> None:
    try:
        found = read(Root(path=folder), path)
    except CallError as exc:
        assert exc.error.kind == "invalid_arguments"
    else:
        assert b"SECRET" not in found


def test_a_folder_swapped_for_a_link_meanwhile_leads_nowhere_else(folder: Path, tmp_path: Path) -> None:
    """One thread swaps `sub` between a folder and a link to the outside; the other reads and writes through it."""
    (tmp_path / "data" / "other").mkdir()
    (folder / "sub" / "k").write_text("inside")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            os.rename(folder / "sub", folder / "parked")
            os.symlink(tmp_path / "data_secret", folder / "sub")
            os.unlink(folder / "sub")
            os.rename(folder / "parked", folder / "sub")

    swapper = threading.Thread(target=swap)
    swapper.start()
    root, seen = Root(path=folder), set[bytes]()
    try:
        for _ in range(2000):  # how many of them meet the folder itself is luck
            try:
                seen.add(read(root, "sub/k"))
                root.write("sub/k", b"inside", max_bytes=100)
            except CallError:
                continue
    finally:
        stop.set()
        swapper.join()
    seen.add(read(root, "sub/k"))
    assert seen == {b"inside"}


def becomes(path: Path, kind: str) -> Callable[[], object]:
    """Return what makes something else of a file."""
    other = {
        "a link": lambda: path.symlink_to("../secret.txt"),
        "a link to a device": lambda: path.symlink_to("/dev/zero"),
        "a FIFO": lambda: os.mkfifo(path),
        "a folder": path.mkdir,
    }[kind]
    return lambda: (path.unlink(), other())


@pytest.mark.parametrize("kind", ["a link", "a link to a device", "a FIFO", "a folder"])
def test_a_file_that_becomes_something_else_while_it_is_opened_is_refused(
    folder: Path, kind: str, moments: Moments
) -> None:
    moments["open", "a.txt"] = becomes(folder / "a.txt", kind)
    started = time.monotonic()
    with pytest.raises(CallError) as caught:
        read(Root(path=folder), "a.txt")
    assert (caught.value.error.kind, moments) == ("invalid_arguments", {})
    assert is_within(time.monotonic() - started, 0.5)


@pytest.mark.parametrize("kind", ["a link", "a FIFO", "a folder"])
def test_what_is_appended_to_is_never_taken_from_elsewhere(folder: Path, kind: str, moments: Moments) -> None:
    moments["open", "a.txt"] = becomes(folder / "a.txt", kind)
    with pytest.raises(CallError) as caught:
        Root(path=folder).write("a.txt", b"+", mode="append", max_bytes=100)
    assert (caught.value.error.kind, moments) == ("invalid_arguments", {})


def test_a_file_that_appears_while_it_is_created_is_kept(folder: Path, moments: Moments) -> None:
    for function in ("link", "rename"):
        moments[function, "new.txt"] = lambda: (folder / "new.txt").write_text("theirs")
    with pytest.raises(CallError, match="exists already"):
        Root(path=folder).write("new.txt", b"ours", mode="create", max_bytes=100)
    assert ((folder / "new.txt").read_text(), sorted(os.listdir(folder))) == ("theirs", ["a.txt", "new.txt", "sub"])


# ---- writing ---------------------------------------------------------------------------------------------------------


def test_the_modes_overwrite_append_and_create(folder: Path) -> None:
    root = Root(path=folder)
    assert root.write("a.txt", b"new", max_bytes=10) == 3
    assert root.write("a.txt", b"+more", mode="append", max_bytes=10) == 8
    assert root.write("sub/c.txt", b"c", mode="append", max_bytes=10) == 1
    assert root.write("d.txt", b"d", mode="create", max_bytes=10) == 1
    with pytest.raises(CallError, match="exists already"):
        root.write("d.txt", b"again", mode="create", max_bytes=10)
    assert [read(root, path) for path in ("a.txt", "sub/c.txt", "d.txt")] == [b"new+more", b"c", b"d"]


@pytest.mark.parametrize("mode", ["overwrite", "append"])
def test_what_would_be_too_large_changes_nothing(folder: Path, mode: WriteMode) -> None:
    root = Root(path=folder)
    with pytest.raises(CallError, match="at most 8"):
        root.write("a.txt", b"123456789", mode=mode, max_bytes=8)
    if mode == "append":
        with pytest.raises(CallError, match="at most 8"):
            root.write("a.txt", b"1234", mode=mode, max_bytes=8)
    assert read(root, "a.txt") == b"hello"
    assert sorted(os.listdir(folder)) == ["a.txt", "sub"]


def test_file_09_write_attacks(folder: Path, tmp_path: Path) -> None:
    (folder / ".git" / "hooks").mkdir(parents=True)
    (folder / "link").symlink_to(tmp_path / "secret.txt")
    root = Root(path=folder)
    for path in (".git/hooks/pre-commit", ".bashrc", "sub/.env", "link", "sub", "nowhere/x", "../x", f"{tmp_path}/x"):
        with pytest.raises(CallError) as caught:
            root.write(path, b"x", max_bytes=10)
        assert caught.value.error.kind == "invalid_arguments"
    assert (folder / "link").is_symlink()
    assert Root(path=folder, write_hidden=True).write(".env", b"A=1", max_bytes=10) == 3


def test_a_hard_link_is_replaced_and_not_written_through(folder: Path, tmp_path: Path) -> None:
    os.link(tmp_path / "secret.txt", folder / "hard")
    Root(path=folder).write("hard", b"mine", max_bytes=10)
    assert ((folder / "hard").read_text(), (tmp_path / "secret.txt").read_text()) == ("mine", "SECRET")


def test_permissions_are_kept_but_never_setuid(folder: Path) -> None:
    (folder / "a.txt").chmod(0o4750)
    Root(path=folder).write("a.txt", b"new", max_bytes=10)
    assert stat.S_IMODE((folder / "a.txt").stat().st_mode) == 0o750


def test_a_full_disk_keeps_the_old_content(folder: Path) -> None:
    code = """
import resource, signal, sys
from pathlib import Path
from pegboard.model.error import CallError
from pegboard.egress.files import Root
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    Root(path=Path(sys.argv[1])).write("a.txt", b"x" * 5000, max_bytes=10_000)
except CallError as exc:
    print(exc.error.kind)
"""
    ran = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "storage_unavailable"
    assert (folder / "a.txt").read_text() == "hello"
    assert sorted(os.listdir(folder)) == ["a.txt", "sub"]


def test_file_10_a_write_that_is_killed_or_finds_no_room_leaves_the_old_or_the_new_content(folder: Path) -> None:
    code = """
import os, random, resource, signal, sys, time
from pathlib import Path
from pegboard.model.error import CallError
from pegboard.egress.files import Root
folder, kinds = Path(sys.argv[1]), set()
wholes = {b"hello", b"a" * 200_000, b"b" * 200_000}
def write(letter):
    Root(path=folder).write("a.txt", letter * 200_000, max_bytes=1_000_000)
for _ in range(200):
    writer = os.fork()
    while writer == 0:
        write(b"a")
        write(b"b")
    time.sleep(random.uniform(0, 0.006))
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
    assert (folder / "a.txt").read_bytes() in wholes
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for _ in range(200):
    before = (folder / "a.txt").read_bytes()
    resource.setrlimit(resource.RLIMIT_FSIZE, (random.randrange(200_000), resource.RLIM_INFINITY))
    try:
        write(random.choice([b"a", b"b"]))
    except CallError as exc:
        kinds.add((exc.error.kind, exc.error.retryable))
    assert (folder / "a.txt").read_bytes() == before
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
write(b"b")
print(kinds)
"""
    ran = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "{('storage_unavailable', True)}\n"), ran.stderr
    assert sorted(os.listdir(folder)) == ["a.txt", "sub"]


def test_what_a_killed_writer_left_goes_with_the_next_write_and_nothing_else(folder: Path) -> None:
    kept = [".pegboard-notes", ".pegboard-0.tmp", "x.pegboard-0123456789abcdef.tmp"]
    for name in (".pegboard-0123456789abcdef.tmp", *kept):
        (folder / "sub" / name).write_text("left over")
    Root(path=folder).write("sub/b.txt", b"new", max_bytes=10)
    assert sorted(os.listdir(folder / "sub")) == sorted(["b.txt", *kept])


def test_appends_at_the_same_time_all_arrive(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A writer whose turn does not come for two seconds is told that the folder is busy; a slow disk can take as long.
    monkeypatch.setattr("pegboard.egress.files.FILE_LOCK_TRIES", 10_000)
    root = Root(path=folder)

    def append() -> None:
        for _ in range(20):
            root.write("log.txt", b"x\n", mode="append", max_bytes=MIB)

    writers = [threading.Thread(target=append) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert read(root, "log.txt") == b"x\n" * 80


# ---- text ------------------------------------------------------------------------------------------------------------


def test_text_is_read_in_parts_counted_in_characters(folder: Path) -> None:
    (folder / "t.txt").write_text("\u00e9\u20ac" * 50_000 + "end", encoding="utf-8")
    root, start, parts = Root(path=folder), 0, list[str]()
    while True:
        part = read_text(root, "t.txt", start=start, max_chars=30_000)
        parts.append(part.content)
        if part.next_start is None:
            break
        start = part.next_start
    assert "".join(parts) == "\u00e9\u20ac" * 50_000 + "end"
    assert [len(part) for part in parts] == [30_000, 30_000, 30_000, 10_003]
    assert read_text(root, "t.txt", start=500_000) == TextPart(content="", size_bytes=250_003, next_start=None)
    assert read_text(root, "a.txt", max_chars=5) == TextPart(content="hello", size_bytes=5, next_start=None)


def test_bytes_that_are_not_in_the_encoding_are_refused_with_advice(folder: Path) -> None:
    (folder / "latin.txt").write_bytes(b"caf\xe9")
    root = Root(path=folder)
    with pytest.raises(CallError, match="not valid 'utf-8'"):
        read_text(root, "latin.txt")
    assert read_text(root, "latin.txt", encoding="latin-1").content == "caf\u00e9"
    with pytest.raises(CallError, match="cannot hold"):
        encode_text("\u20ac", "latin-1")
    assert encode_text("\u20ac", "utf-16-le") == b"\xac\x20"


@pytest.mark.parametrize("encoding", ["zip", "base64", "rot13", "hex", "idna", "unicode_escape", "no-such", "", "a\0b"])
def test_encodings_that_are_none_are_refused(folder: Path, encoding: str) -> None:
    for attempt in (
        lambda: read_text(Root(path=folder), "a.txt", encoding=encoding),
        lambda: encode_text("a", encoding),
    ):
        with pytest.raises(CallError, match="is unknown"):
            attempt()


def test_a_start_far_behind_the_limit_is_refused_and_not_searched_for(folder: Path) -> None:
    (folder / "big").write_bytes(b"x" * 300_000)
    with pytest.raises(CallError, match="Use a lower start"):
        read_text(Root(path=folder), "big", start=250_000, max_scanned_bytes=100_000)
