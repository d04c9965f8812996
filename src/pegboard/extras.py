"""Extras: the command that installs an optional part of Pegboard, for the way that Pegboard was installed."""

from __future__ import annotations

import json
import shlex
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from urllib.parse import unquote, urlsplit


def needs_package(package: str | None, extra: str) -> str:
    """Return the end of a message about a missing package of an extra, with the command that installs it."""
    return f"needs the package {package!r}, which is not installed; run `{install_command(extra)}`"


def install_command(extra: str) -> str:
    """Return the command that installs an extra, or several with commas, from the origin of this installation."""
    try:
        pegboard: Distribution | None = distribution("pegboard")
    except PackageNotFoundError:  # on the path, but not installed
        return command_for(extra, direct_url=None)
    direct_url = pegboard.read_text("direct_url.json")  # raw: metadata of Pegboard's own installation
    installer = pegboard.read_text("INSTALLER")  # raw: the same
    return command_for(extra, direct_url=direct_url, installer=installer)


def command_for(extra: str, *, direct_url: str | None, installer: str | None = None) -> str:
    """Return the command for the metadata files `direct_url.json` and `INSTALLER`.

    Without `direct_url` the origin is a package index.

    Source: the specifications "Recording the Direct URL Origin of installed distributions" (PEP 610) and "Recording
    installed projects" (PEP 376).
    """
    # Environments that uv makes have no pip.
    install = "uv pip install" if (installer or "").strip() == "uv" else "pip install"
    if direct_url is None:
        return f"{install} 'pegboard[{extra}]'"
    origin = json.loads(direct_url)
    url = str(origin["url"])
    if "dir_info" in origin:
        option = "-e " if origin["dir_info"].get("editable") else ""
        return f"{install} {option}{shlex.quote(f'{unquote(urlsplit(url).path)}[{extra}]')}"
    if "vcs_info" in origin:
        url = f"{origin['vcs_info']['vcs']}+{url}@{origin['vcs_info']['commit_id']}"
    if "subdirectory" in origin:
        url += f"#subdirectory={origin['subdirectory']}"
    return f"{install} {shlex.quote(f'pegboard[{extra}] @ {url}')}"
