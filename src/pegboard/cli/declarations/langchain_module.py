"""LangChain module: convert the tools of a Python module to a module next to the config that declares them."""

from __future__ import annotations

import pkgutil
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pegboard.cli.command_error import CommandError
from pegboard.cli.declarations.proposal import Proposal
from pegboard.config.python_modules import hidden_module, hidden_modules, importable_last
from pegboard.extras import install_command
from pegboard.lazy import LazyModule
from pegboard.model.error import DefinitionError

if TYPE_CHECKING:
    from pegboard.adapters import langchain
else:
    langchain = LazyModule("pegboard.adapters.langchain")

_REFERENCE = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")
_TEXT = '''\
"""LangChain tools of {module}, taken in by `pegboard import`. Guard each as it needs: see `declared`."""

{imports}

for entry in declared({found}, groups=["{group}"]):
    default_catalog.register(entry)
'''


def is_module_reference(word: str) -> bool:
    """Tell whether a word is `module:object`."""
    return _REFERENCE.fullmatch(word) is not None


def langchain_proposal(word: str, *, folder: Path) -> Proposal:
    """Import the module, and return the text of a module that declares its tools.

    Raises:
        CommandError: it cannot be imported, or has no such tools.
    """
    match = _REFERENCE.fullmatch(word)
    assert match is not None
    module, path = match[1], match[2]
    tools = _imported_object(module, path, folder)
    try:
        count = len(langchain.declared(tools, groups=["langchain"]))
    except ImportError:
        text = f"LangChain is not installed here: `{install_command('langchain')}`."
        raise CommandError(text, kind="package_missing") from None
    except DefinitionError as error:
        raise CommandError(f"{word!r} cannot be taken: {error}", kind="unknown_form") from None
    if not count:
        raise CommandError(f"{word!r} has no tools of LangChain.", kind="unknown_form")
    stem = re.sub(r"\W", "_", path.lower())
    root, _, rest = path.partition(".")
    imports = "\n".join(
        [
            f"from {module} import {root}",
            "",
            "from pegboard import default_catalog",
            "from pegboard.adapters.langchain import declared",
        ]
    )
    text = _TEXT.format(module=module, imports=imports, found=f"{root}.{rest}" if rest else root, group=f"{stem}_tools")
    name = f"langchain_{stem}"
    return Proposal(python=(name,), files={f"{name}.py": text})


def _imported_object(module: str, path: str, folder: Path) -> Any:
    """Import the object as a config would, so that modules next to the config are found."""
    top = module.partition(".")[0]
    if (place := hidden_modules(folder, top).get(top)) is not None:
        raise CommandError(f"{module}:{path} cannot be imported: {hidden_module(top, place)}.", kind="unreadable")
    try:
        with importable_last(folder), redirect_stdout(sys.stderr):
            return pkgutil.resolve_name(f"{module}:{path}")
    except (ImportError, AttributeError) as error:
        raise CommandError(f"{module}:{path} cannot be imported: {error}.", kind="unreadable") from None
    except Exception as error:  # noqa: BLE001 - boundary: code of the operator's runs here
        kind = type(error).__name__
        raise CommandError(f"{module!r} fails when it is imported ({kind}): {error}.", kind="unreadable") from None
