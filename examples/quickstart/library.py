"""Library: the pages that the tools read, and the scratch copies of those that were changed."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cached_property
from pathlib import Path

from pegboard import CallError
from pegboard.egress.files import Root

HERE = Path(__file__).resolve().parent
MAX_PAGE_BYTES = 256 * 1024


def pages_folder() -> Path:
    """Return the documentation of the repository that this example is part of; else the pages that come with it."""
    repository = HERE.parent.parent
    is_checkout = (repository / "pyproject.toml").is_file() and (repository / "docs" / "glossary.md").is_file()
    return repository / "docs" if is_checkout else HERE / "pages"


class Library:
    """Markdown pages below one folder. A changed page is kept in a temporary folder; the original stays as it is."""

    def __init__(self, folder: Path) -> None:
        self.pages = Root(path=folder)
        self.changed: set[str] = set()

    @cached_property
    def scratch(self) -> Root:
        """The temporary folder; it is gone when the process ends."""
        folder = tempfile.mkdtemp(prefix="pegboard-quickstart-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return Root(path=Path(folder))

    def names(self, folder: str = ".") -> list[str]:
        """Return the paths of all pages, by name."""
        found: list[str] = []
        for entry in self.pages.listing(folder):
            if entry.kind == "folder":
                found.extend(self.names(entry.path))
            elif entry.kind == "file" and entry.path.endswith(".md"):
                found.append(entry.path)
        return found

    def read(self, page: str, *, original: bool = False) -> str:
        """Return the text of a page, changed or not.

        Raises:
            CallError: there is no such page.
        """
        if page in self.changed and not original:
            with self.scratch.open_read(scratch_name(page)) as file:
                return file.read().decode()
        if not page.endswith(".md"):
            text = f"{page!r} is not a page: pages end with '.md'. list_pages has them all."
            raise CallError("invalid_arguments", text)
        with self.pages.open_read(page) as file:
            return file.read(MAX_PAGE_BYTES).decode()

    def write(self, page: str, text: str) -> int:
        """Put the text of a page into the scratch copy; return its size in bytes."""
        size_bytes = self.scratch.write(scratch_name(page), text.encode(), max_bytes=MAX_PAGE_BYTES)
        self.changed.add(page)
        return size_bytes


def scratch_name(page: str) -> str:
    """Return the name of a page's scratch copy: all copies lie in one folder."""
    return page.replace("/", "__")


library = Library(pages_folder())
