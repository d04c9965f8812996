"""Parsers: the host's own parsers of file formats, and its text recognition for scans and pictures."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Callable, Mapping
from typing import Final, Protocol, runtime_checkable

from msgspec import Struct

from pegboard.model.bounds import MIB
from pegboard.model.error import DefinitionError
from pegboard.workspace.parsing.formats import PICTURES, format_of

PARSE_S = 30.0  # seconds to parse one file
PARSE_MEMORY_BYTES = 512 * MIB  # bytes of memory of a parsing child

_NAME: Final = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_REFERENCE: Final = re.compile(rf"(?:python:)?({_NAME}:{_NAME})")
_ENDING: Final = re.compile(r"\.[^/\s]+")
_MEDIA_TYPE: Final = re.compile(r"[\w.+-]+/[\w.+-]+")
_PDF: Final = "application/pdf"
# Not the functions of `mimetypes`, which read other files on each machine.
_TYPES: Final = mimetypes.MimeTypes()


class DocumentParser(Struct, frozen=True):
    """A function of the host that reads files, run in a child process that is killed when it exceeds a limit.

    A parser takes the content and the name of a file. It returns the text, or a mapping with `text` and any of `title`,
    `author`, `created`, `language`, `headings`, `pages`, `metadata` and `tables`. A function that
    recognizes text takes a picture and its media type, and returns the text. If a file cannot be read, either raises
    a `CallError` with the reason.

    Args:
        function: a function of a module, or `module:function`; it may be async.
        timeout_s: seconds for one file.
        memory_bytes: memory of the process.
    """

    function: Callable[..., object] | str
    timeout_s: float = PARSE_S
    memory_bytes: int = PARSE_MEMORY_BYTES

    @property
    def reference(self) -> str:
        """The function as `module:function`.

        Raises:
            DefinitionError: a child process cannot import it.
        """
        return reference_of(self.function)


Parser = DocumentParser | Callable[..., object] | str


class Parsers(Struct, frozen=True, kw_only=True):
    """The parsers of the host by file ending or media type, and its text recognition.

    `folders` are searched for their modules after those of Python and of installed packages.
    """

    own: Mapping[str, DocumentParser] = {}
    ocr: DocumentParser | None = None
    folders: tuple[str, ...] = ()

    @staticmethod
    def of(own: Mapping[str, Parser], ocr: Parser | None = None, *, folders: tuple[str, ...] = ()) -> Parsers:
        """Return parsers that are given as functions.

        Raises:
            DefinitionError: a key is neither a file ending nor a media type, or a function cannot be imported.
        """
        for key in own:
            if not (_ENDING.fullmatch(key) or _MEDIA_TYPE.fullmatch(key)):
                text = f"{key[:100]!r} is not a file ending such as '.dwg', nor a media type such as 'image/vnd.dwg'."
                raise DefinitionError(text)
        checked = {key.lower(): _checked(parser) for key, parser in own.items()}
        return Parsers(own=checked, ocr=None if ocr is None else _checked(ocr), folders=folders)

    def for_name(self, name: str) -> DocumentParser | None:
        """Return the host's parser for a file name: that of its longest ending, or else of its media type."""
        lowered = name.lower()
        endings = [key for key in self.own if key.startswith(".") and lowered.endswith(key)]
        return self.own[max(endings, key=len)] if endings else self.own.get(type_of(name))

    def for_type(self, mime: str) -> DocumentParser | None:
        """Return the host's parser for a media type."""
        return self.own.get(mime)

    def reads(self, name: str) -> bool:
        """Tell whether the host's parsers or its text recognition read a file with this name."""
        return self.for_name(name) is not None or self.recognizes(name)

    def recognizes(self, name: str) -> bool:
        """Tell whether a file with this name is a picture for the text recognition."""
        return self.ocr is not None and type_of(name) in PICTURES.values()

    def way(self, name: str) -> tuple[str, str]:
        """Return the functions that may read a file: a parser, and text recognition; empty for none."""
        own = self.for_name(name)
        sees = self.ocr is not None and own is None and type_of(name) in {_PDF, "", *PICTURES.values()}
        return "" if own is None else own.reference, self.ocr.reference if sees and self.ocr is not None else ""

    def recorded(self) -> dict[str, str]:
        """Return the functions by key, and that of the text recognition under `ocr`, to compare with a later run."""
        functions = {key: parser.reference for key, parser in self.own.items()}
        return {**functions, **({"ocr": self.ocr.reference} if self.ocr is not None else {})}

    @staticmethod
    def of_record(recorded: Mapping[str, str]) -> Parsers:
        """Return the parsers of an earlier run."""
        own = {key: DocumentParser(function) for key, function in recorded.items() if key != "ocr"}
        return Parsers(own=own, ocr=DocumentParser(recorded["ocr"]) if "ocr" in recorded else None)


NO_PARSERS: Final = Parsers()


@runtime_checkable
class HasParsers(Protocol):
    """A document store with parsers of the host."""

    parsers: Parsers


def parsers_of(store: object) -> Parsers:
    """Return the parsers that a document store was given; a host's own store may have none."""
    return store.parsers if isinstance(store, HasParsers) else NO_PARSERS


def type_of(name: str) -> str:
    """Return the media type that the ending of a name stands for; empty if it is unknown."""
    known = format_of(name)
    if known is not None:
        return known.mime
    ending = f".{name.lower().rpartition('.')[2]}"
    return PICTURES.get(ending) or _TYPES.guess_type(f"file{ending}")[0] or ""


def reference_of(function: Callable[..., object] | str) -> str:
    """Return a function as `module:function`.

    Raises:
        DefinitionError: the text is not `module:function`, or another process cannot import the function.
    """
    if isinstance(function, str):
        match = _REFERENCE.fullmatch(function)
        if match is None:
            raise DefinitionError(f"{function[:100]!r} is not a function: write `module:function`.")
        return match[1]
    module: object = getattr(function, "__module__", None)
    name: object = getattr(function, "__qualname__", None)
    reference = f"{module}:{name}"
    if module == "__main__" or not _REFERENCE.fullmatch(reference):
        text = f"The parser {name if isinstance(name, str) else function!r} cannot be imported by another process. Move"
        raise DefinitionError(f"{text} it to the top level of a module.")
    return reference


def _checked(parser: Parser) -> DocumentParser:
    each = parser if isinstance(parser, DocumentParser) else DocumentParser(parser)
    if each.timeout_s <= 0 or each.memory_bytes <= 0:
        raise DefinitionError(f"The limits of the parser {each.reference!r} have to be greater than 0.")
    return DocumentParser(each.reference, each.timeout_s, each.memory_bytes)
