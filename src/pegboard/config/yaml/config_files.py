"""Config files: read the files of a config, and find the files that it names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from pegboard.config.yaml.tree import Mark
from pegboard.core.names import nearest_one
from pegboard.model.bounds import MIB
from pegboard.model.error import Problem

CONFIG_FILE_BYTES = 1 * MIB  # bytes of one file
CONFIG_KEYS_LOOKED_AT = 200  # keys examined to tell whether a file is a config

# A key in YAML or JSON; `root:x:0` is not one.
_KEY = re.compile(r"""(?:^|[{,]\s*)(?:["'](\w+)["']\s*:|(\w+)[ \t]*:(?=\s|$))""", re.MULTILINE)
_VARIABLE = re.compile(r"\$\{(?!file:)(\w+)")


def read_text(path: Path, *, max_bytes: int = CONFIG_FILE_BYTES) -> str | Problem:
    """Return the text of a file, or the problem of reading it."""

    def refused(message: str) -> Problem:
        return Problem(where=str(path), message=message)

    try:
        if path.is_dir():
            return refused("is a folder; name the file in it, such as pegboard.yaml")
        if not path.exists():
            return refused("does not exist; `pegboard init` writes one to start from")
        if not path.is_file():
            return refused("is not an ordinary file")
        with path.open("rb") as file:  # raw: the operator's own file, named by the operator; it may be a link
            content = file.read(max_bytes + 1)
    except OSError as error:
        return refused(f"cannot be read: {error.strerror}")
    if len(content) > max_bytes:
        return refused(f"is larger than {max_bytes:,} bytes; split it, and name the parts under `files:`")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        mark = Mark(str(path), before.count(b"\n") + 1, len(before) - before.rfind(b"\n"))
        return Problem(where=str(mark), message="is not UTF-8 text; save the file as UTF-8")


def find_files(pattern: str, *, beside: Path) -> list[Path]:
    """Return the files that a glob relative to the folder of `beside` matches, by name; a plain name must exist.

    Files outside that folder are not returned, whether reached by `..` or by a link.

    Raises:
        ValueError: why the glob cannot be used.
    """
    folder = beside.absolute().parent
    if Path(pattern).is_absolute():
        raise ValueError(f"{pattern!r} is absolute; name files relative to {beside.name}")
    leads_out = f"{pattern!r} leads out of the folder of {beside.name}; move what is meant below that folder"
    if ".." in Path(pattern).parts:
        raise ValueError(leads_out)
    is_glob = any(mark in pattern for mark in "*?[")
    if is_glob:
        try:
            paths = [path for path in sorted(beside.parent.glob(pattern)) if not path.is_dir()]
        except (ValueError, NotImplementedError, OSError) as error:
            raise ValueError(f"{pattern!r} is not a glob: {error}") from None
    else:
        paths = [beside.parent / pattern]
    # Checked first: an error must not reveal whether a file outside exists.
    if not all(is_below(path, folder) for path in paths):
        raise ValueError(leads_out)
    if not is_glob and not paths[0].exists():
        raise ValueError(f"there is no file {str(paths[0])!r}")
    return paths


def looks_like_config(text: str, keys: Iterable[str]) -> bool:
    """Tell whether a text has a line that begins with one of these keys, or a similar one.

    Other files must not be quoted: somebody may have named the wrong file, with any contents.
    """
    known = frozenset(keys)
    names = [quoted or plain for quoted, plain in _KEY.findall(text)]
    return any(name in known or nearest_one(name, known) is not None for name in names[:CONFIG_KEYS_LOOKED_AT])


def has_top_level_key(text: str, keys: Iterable[str]) -> bool:
    """Tell whether an unindented line begins with one of these keys: the text was probably meant for such a file."""
    return re.search(rf"^(?:{'|'.join(map(re.escape, keys))}):(?:\s|$)", text, re.MULTILINE) is not None


def is_below(path: Path, folder: Path) -> bool:
    """Tell whether a path stays in a folder after all links are followed."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):
        return False


def named_variables(path: Path) -> frozenset[str]:
    """Return every `${VARIABLE}` in a config, and in other YAML files in its folder or one folder down."""
    files = {path, *path.parent.glob("*.y*ml"), *path.parent.glob("*/*.y*ml")}
    texts = [content for file in files if isinstance(content := read_text(file), str)]
    return frozenset(name for text in texts for name in _VARIABLE.findall(text))
