"""Site: build the documentation site into `build/site` and check every link in it.

Run as `make docs`. The pages of `docs/` are copied into `build/site-source`, with every file of the repository that
they link to, so that no link leaves the site. mkdocs renders them. Each page gets its Markdown text next to it
(`page.md` next to `page.html`), and `llms.txt` lists all of them. Nothing in the site is loaded from the network: the
two scripts that mkdocs-material would load from elsewhere come from npm, pinned by hash, and are part of the site.
"""

from __future__ import annotations

import base64
import hashlib
import html
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
SOURCE = ROOT / "build" / "site-source"
SITE = ROOT / "build" / "site"
NPM_CACHE = ROOT / "build" / "npm"
NOT_PAGES = {".py", ".pyc"}

# Third-party scripts in the site, all under the MIT licence: the package, the sha512 of its archive, the file, and its
# name in `assets/vendor`. The mermaid version is the one that mkdocs-material loads from the network by default.
VENDORED = (
    (
        "mermaid@11.17.2",
        "V6K3C8EBdEsPFZXSKMJe6ppQOENxuHARr9GvHX4hh47lAbhMRD9qf4oEK7LoaRQxULMa80/qt5gHO73aCleBBg==",
        "package/dist/mermaid.min.js",
        "mermaid.min.js",
    ),
    (
        "iframe-worker@1.0.4",
        "roeaaI+Lg1LJNfgpCjoRe/+WzEjy9+Z08LoEvu85MCPbBjwm+qXz8Ag5U05lHa6V1CysZyGzE0SOkAtSUA5q7Q==",
        "package/shim/index.js",
        "iframe-worker.js",
    ),
)

_FENCE = re.compile(r"^(?P<indent> *)```(?P<head>[^`\n]*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_COLUMNS = re.compile(r"[│╭╰]|\S {3,}\S")
# A link, or code and comments, in which nothing is a link. The text of a link may itself have code in it.
_LINK = re.compile(
    r"^ *```.*?^ *```$|<!--.*?-->|(?P<before>\[(?:`[^`\n]*`|[^\]`])*\]\()(?P<target>[^)\s]+)\)|`[^`\n]*`",
    re.MULTILINE | re.DOTALL,
)
_COMMENTS_ABOVE = re.compile(r"\A(?:<!--.*?-->\s*)+", re.DOTALL)
_LIST_ITEM = re.compile(r"(?:[*-]|\d+\.) ")


# ---- links of the source pages ---------------------------------------------------------------------------------------


def links_of(text: str) -> Iterator[str]:
    """Yield the targets of a page's links and pictures, without those in code."""
    yield from (found["target"] for found in _LINK.finditer(text) if found["target"])


def is_remote(target: str) -> bool:
    """Return whether a link has a scheme, so that it leaves the repository."""
    return urlsplit(target).scheme != ""


def file_behind(page: Path, target: str) -> Path:
    """Return the file or folder of the repository that a link of a page names; for a folder its README, if any."""
    path = (page.parent / unquote(target.partition("#")[0])).resolve()
    return path / "README.md" if (path / "README.md").exists() else path


def anchors_of(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site write them."""
    heads = re.findall(r"^#+ (.+)$", _FENCE.sub("", text), re.MULTILINE)
    texts = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", head) for head in heads)
    return {re.sub(r"[^\w -]", "", text).strip().lower().replace(" ", "-") for text in texts}


def dead_links(page: Path) -> list[str]:
    """Return the links of a page that lead to no file or no heading."""
    dead: list[str] = []
    for target in links_of(page.read_text(encoding="utf-8")):
        if is_remote(target):
            continue
        path, anchor = file_behind(page, target) if target.partition("#")[0] else page, target.partition("#")[2]
        if not path.exists() or (anchor and anchor not in anchors_of(path.read_text(encoding="utf-8"))):
            dead.append(target)
    return dead


# ---- the pages of the site -------------------------------------------------------------------------------------------


def places() -> dict[Path, str]:
    """Return each file of the site's source with its place in it, starting from the pages of `docs/`.

    A file elsewhere in the repository that a page links to comes along at its own path. A file that is not Markdown and
    a folder without a README become pages, at their path with `.md` added.
    """
    found = {path: path.relative_to(DOCS).as_posix() for path in sorted(DOCS.rglob("*")) if _is_of_docs(path)}
    todo = [path for path in found if path.suffix == ".md"]
    while todo:
        page = todo.pop()
        for target in links_of(page.read_text(encoding="utf-8")):
            if is_remote(target) or target.startswith("#"):
                continue
            path = file_behind(page, target)
            if path in found or not path.is_relative_to(ROOT):
                continue
            place = path.relative_to(DOCS if path.is_relative_to(DOCS) else ROOT).as_posix()
            if path.is_dir():
                found[path] = f"{place}/index.md"
            elif path.suffix == ".md":
                # The README of the repository would replace the start page.
                found[path] = "about/README.md" if path == ROOT / "README.md" else place
                todo.append(path)
            elif path.suffix in (".svg", ".png"):
                found[path] = place
            else:
                found[path] = f"{place}.md"
    return found


def _is_of_docs(path: Path) -> bool:
    return path.is_file() and path.suffix not in NOT_PAGES


def text_of(path: Path, found: Mapping[Path, str]) -> str:
    """Return the Markdown of one page of the site, with its links as they are in the site."""
    if path.is_dir():
        return _listing(path, found)
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".md":
        name = path.relative_to(ROOT).as_posix()
        return f"# {path.name}\n\nThe file `{name}` of the repository.\n\n````{path.suffix[1:]}\n{text}````\n"
    here = os.path.dirname(found[path])

    def mapped(link: re.Match[str]) -> str:
        name, hash_sign, anchor = (link["target"] or "").partition("#")
        if not name or is_remote(name):
            return link[0]
        place = found[file_behind(path, name)]
        return f"{link['before']}{os.path.relpath(place, here)}{hash_sign}{anchor})"

    return _LINK.sub(mapped, text)


def _listing(folder: Path, found: Mapping[Path, str]) -> str:
    """Return a page that lists the pages of a folder without a README, by title."""
    here = os.path.dirname(found[folder])
    lines = [
        f"* [{title_of(page.read_text(encoding='utf-8'))}]({os.path.relpath(found[page], here)})"
        for page in sorted(folder.glob("*.md"))
        if page in found
    ]
    return f"# {folder.name.capitalize()}\n\n" + "\n".join(lines) + "\n"


def title_of(text: str) -> str:
    """Return the first heading of a page."""
    heading = re.search(r"^# (.+)$", text, re.MULTILINE)
    return heading[1] if heading else "(no title)"


def summary_of(text: str) -> str:
    """Return the first sentence below the first heading of a page, without its links."""
    body = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL).partition("\n# ")[2] or text
    paragraphs = [part.strip() for part in _FENCE.sub("", body).split("\n\n")[1:]]
    prose = next((part for part in paragraphs if part and part[0] not in "#|!*<-"), "")
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(prose.split()))
    return re.split(r"(?<=[.:])\s", plain, maxsplit=1)[0].rstrip(":")


def for_renderer(text: str) -> str:
    """Return a page as Python-Markdown reads it, which differs from GitHub in four small ways.

    Comments above the heading are removed: mkdocs takes the title of a page from its first element. Text with columns
    gets the class `columns`, because it is unreadable when its lines wrap.
    """

    def fence(block: re.Match[str]) -> str:
        if block["head"].strip() == "mermaid":
            return f'<pre class="mermaid"><code>{html.escape(block["text"])}</code></pre>'
        head = re.sub(r"title=([^\s\"]+)", r'title="\1"', block["head"])
        if re.match(r" *text\b", head) and _COLUMNS.search(block["text"]):
            head = " ".join((" { .text .columns", *head.split()[1:], "}"))
        return f"{block['indent']}```{head}\n{block['text']}{block['indent']}```"

    lines, is_code, previous = list[str](), False, ""
    for line in _COMMENTS_ABOVE.sub("", text).splitlines():
        is_code ^= line.lstrip().startswith("```")
        starts_list = _LIST_ITEM.match(line) and previous.strip() and not re.match(r" |[*-] |\d+\. ", previous)
        if line.startswith("|") and not is_code:
            line = re.sub(r"`[^`]+`", lambda code: code[0].replace(r"\|", "|"), line)
        lines += ["", line] if starts_list and not is_code else [line]
        previous = line
    return _FENCE.sub(fence, "\n".join(lines) + "\n")


def write_source(found: Mapping[Path, str]) -> None:
    """Write the source of the site, from which mkdocs or zensical renders it."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    for path, place in found.items():
        target = SOURCE / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if place.endswith(".md"):
            target.write_text(for_renderer(text_of(path, found)), encoding="utf-8")
        else:
            shutil.copyfile(path, target)
    for package, sha512, name, target in VENDORED:
        vendored = SOURCE / "assets" / "vendor" / target
        vendored.parent.mkdir(parents=True, exist_ok=True)
        vendored.write_bytes(_from_npm(package, sha512, name))


def _from_npm(package: str, sha512: str, name: str) -> bytes:
    """Return one file of an npm package, fetched once and checked by its hash each time."""
    archive = NPM_CACHE / f"{package.replace('@', '-')}.tgz"
    if not archive.exists():
        NPM_CACHE.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "pack", package, "--silent"], cwd=NPM_CACHE, check=True, stdout=subprocess.DEVNULL)
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if digest != sha512:
        archive.unlink()
        sys.exit(f"{package}: its archive has the sha512 {digest!r}, not {sha512!r}; nothing of it was used")
    with tarfile.open(archive) as files:
        member = files.extractfile(name)
        assert member is not None
        return member.read()


def navigation() -> list[tuple[str, list[str]]]:
    """Return each section of the navigation with the pages in it, in order."""
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    return [(name, list(_leaves(entry))) for section in nav for name, entry in section.items()]


def _leaves(entry: object) -> Iterator[str]:
    match entry:
        case str():
            yield entry
        case list():
            for item in entry:  # pyright: ignore[reportUnknownVariableType] - YAML
                yield from _leaves(item)  # pyright: ignore[reportUnknownArgumentType] - YAML
        case dict():
            for item in entry.values():  # pyright: ignore[reportUnknownVariableType] - YAML
                yield from _leaves(item)  # pyright: ignore[reportUnknownArgumentType] - YAML
        case _:
            raise TypeError(f"the navigation of mkdocs.yml has {entry!r}")


def finish(found: Mapping[Path, str]) -> None:
    """Add the Markdown copies and `llms.txt` to the rendered site, and mermaid to the pages that need it."""
    texts = {place: text_of(path, found) for path, place in found.items() if place.endswith(".md")}
    for place, text in texts.items():
        (SITE / place).parent.mkdir(parents=True, exist_ok=True)
        (SITE / place).write_text(text, encoding="utf-8")
    lines = ["# Pegboard", "", f"> {yaml.safe_load((ROOT / 'mkdocs.yml').read_text('utf-8'))['site_description']}"]
    for section, pages in navigation():
        lines += ["", f"## {section}", ""]
        lines += [f"- [{title_of(texts[page])}]({page}): {summary_of(texts[page])}" for page in pages]
    (SITE / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (SITE / "404.html").unlink(missing_ok=True)  # its links start at the root of a server, which need not be the site
    for page in SITE.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        if '<pre class="mermaid">' in text:
            script = os.path.relpath(SITE / "assets" / "vendor" / "mermaid.min.js", page.parent)
            page.write_text(text.replace("</head>", f'<script src="{script}"></script></head>', 1), encoding="utf-8")


# ---- links of the built site -----------------------------------------------------------------------------------------


class _Page(HTMLParser):
    """Collects the ids of a page, where its links lead, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids, self.links, self.loads = set[str](), set[str](), set[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.add(values["href"])
        if "src" in values:
            self.loads.add(values["src"])
        if tag == "link" and "href" in values and values.get("rel") not in ("prev", "next", "canonical"):
            self.loads.add(values["href"])


def dead_links_of_site(site: Path) -> list[str]:
    """Return what is wrong with the links of a built site: dead ones, and anything loaded from the network."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    wrong: list[str] = []
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        wrong += [f"{name} loads {target} from the network" for target in page.loads if is_remote(target)]
        for target in sorted(page.links | page.loads):
            parts = urlsplit(target)
            if parts.scheme:
                continue
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            file = file / "index.html" if file.is_dir() else file
            anchor = unquote(parts.fragment)
            if not file.exists():
                wrong.append(f"{name} links to {target}, which does not exist")
            elif anchor and file in pages and anchor not in pages[file].ids and anchor != "__nothing":
                wrong.append(f"{name} links to {target}, but {file.name} has no such heading")
    for page in (SITE / "llms.txt", *(path.with_suffix(".md") for path in pages)):
        if page.name == "index.md" and not page.exists():
            page = page.with_name("README.md")
        if not page.exists():
            wrong.append(f"{page.relative_to(site)} is missing")
    return wrong


def main() -> int:
    """Build the site; with arguments, the command that renders it instead of mkdocs."""
    found = places()
    wrong = [
        f"{page.relative_to(ROOT)} links to {link}"
        for page in found
        if page.suffix == ".md"
        for link in dead_links(page)
    ]
    if not wrong:
        write_source(found)
        shutil.rmtree(SITE, ignore_errors=True)
        render = sys.argv[1:] or [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict"]
        # The advertisement of mkdocs-material's successor would be the only output of a good build.
        if subprocess.run(render, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}).returncode:
            return 1
        finish(found)
        wrong = dead_links_of_site(SITE)
    for line in wrong:
        print(line, file=sys.stderr)
    if wrong:
        return 1
    print(f"build/site/index.html: {len(list(SITE.rglob('*.html')))} pages, no dead link")
    return 0


if __name__ == "__main__":
    sys.exit(main())
