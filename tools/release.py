"""release: check the files of a release before anybody gets them.

python tools/release.py FOLDER     FOLDER holds the sdist, the wheel and its bill of materials

Builds a second wheel from the sdist and compares the two byte for byte, reads the metadata as an index would, and
renders the README. The last line names what was checked; the first fault ends it with 1.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from markdown_it import MarkdownIt
from packaging.metadata import Metadata

from pegboard.version import __version__


def faults(folder: Path) -> list[str]:
    """Return what is wrong with the files of a release."""
    [sdist], [wheel] = folder.glob("*.tar.gz"), folder.glob("*.whl")
    found = [
        f"{file.name} is not of version {__version__}" for file in (sdist, wheel) if f"-{__version__}" not in file.name
    ]
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(sdist) as sources:
        sources.extractall(scratch, filter="data")
        [unpacked] = Path(scratch).iterdir()
        again = Path(scratch) / "wheel"
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", again], cwd=unpacked, check=True
        )
        found += _differences(wheel, again / wheel.name)
    with zipfile.ZipFile(wheel) as files:
        [name] = [each for each in files.namelist() if each.endswith(".dist-info/METADATA")]
        # Unknown fields and wrong values raise an exception group, as an index would refuse them.
        metadata = Metadata.from_email(files.read(name), validate=True)
    html = MarkdownIt("gfm-like", {"linkify": False}).render(metadata.description or "")
    if metadata.description_content_type != "text/markdown" or "<h1>" not in html or "<pre>" not in html:
        found.append(f"the README does not render: {metadata.description_content_type!r}, {len(html)} characters")
    bill = json.loads(wheel.with_suffix(".cdx.json").read_text())
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if [each["content"] for each in bill["metadata"]["component"]["hashes"]] != [digest]:
        found.append("the bill of materials is of another wheel")
    return found


def _differences(wheel: Path, again: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(again) as second:
        contents = [{name: files.read(name) for name in files.namelist()} for files in (first, second)]
    names = sorted(contents[0].keys() | contents[1].keys())
    return [
        f"{name} differs in the wheel of the sdist" for name in names if contents[0].get(name) != contents[1].get(name)
    ]


if __name__ == "__main__":
    problems = faults(Path(sys.argv[1]))
    print(
        "\n".join(problems)
        or f"{__version__}: the sdist builds the same wheel; metadata, README and bill of materials hold."
    )
    sys.exit(1 if problems else 0)
