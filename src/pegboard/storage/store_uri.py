"""StoreUri: the one way to write where a store is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from msgspec import Struct

from pegboard.model.error import DefinitionError
from pegboard.model.secret import Secret

POSTGRES_SCHEMES = ("postgresql", "postgres")


class StoreUri(Struct, frozen=True, kw_only=True):
    """A parsed store URI: an SQLite file or a PostgreSQL database.

    `path` is the absolute path of the SQLite file, `None` for PostgreSQL. `text` is the URI as it was written, which
    may hold a password.

        sqlite:FILE         relative to the folder, or absolute if FILE begins with a slash
        sqlite:///FILE      relative to the folder, as in SQLAlchemy, Django and DBOS; %20 is a space
        sqlite:////FILE     absolute: /FILE
        postgresql://…      anything that libpq accepts
    """

    kind: Literal["sqlite", "postgresql"]
    text: Secret
    path: Path | None = None

    @classmethod
    def parse(cls, uri: str | Secret, *, folder: Path, others: Sequence[str] = ()) -> StoreUri:
        """Return the parsed URI.

        Args:
            uri: the text.
            folder: relative files are below it.
            others: what else the caller accepts and has already ruled out, for the error message.

        Raises:
            DefinitionError: the URI is neither SQLite nor PostgreSQL, or names no file.
        """
        text = uri if isinstance(uri, Secret) else Secret(uri)
        scheme, _, rest = text.reveal().partition(":")
        if scheme in POSTGRES_SCHEMES and rest:
            return cls(kind="postgresql", text=text)
        if scheme != "sqlite" or not rest.strip("/"):
            first = ", ".join(("sqlite:FILE", *(["postgresql://HOST/NAME"] if others else [])))
            last = others[-1] if others else "postgresql://HOST/NAME"
            middle = "".join(f", {each}" for each in others[:-1])
            kinds = f"{first}{middle} or {last}"
            raise DefinitionError(f"a store of the kind {scheme[:40]!r} is unknown; write {kinds}")
        return cls(kind="sqlite", text=text, path=folder.absolute() / _file_of(rest))

    @classmethod
    def located(cls, uri: str | Secret, *, folder: Path, others: Sequence[str] = ()) -> StoreUri:
        """Parse a URI, and refuse one that an earlier Pegboard read as another file, if only that file exists.

        Up to 0.1.0 `sqlite:///x.db` was the file `/x.db` for every store but that of the API keys.

        Raises:
            DefinitionError: as `parse`; or the file exists only at its former place.
        """
        parsed = cls.parse(uri, folder=folder, others=others)
        rest = parsed.text.reveal().partition(":")[2]
        if parsed.path is None or not rest.startswith("///") or rest.startswith("////"):
            return parsed
        former = Path(rest.removeprefix("//"))
        if former.exists() and not parsed.path.exists():
            name = rest.removeprefix("///")
            raise DefinitionError(
                f"'sqlite:///{name}' is relative now and means {str(parsed.path)!r}, which does not exist; an earlier "
                f"Pegboard stored it in {str(former)!r}, which does. Write sqlite:////{name} to go on with that file, "
                f"or sqlite:./{name} to start an empty one"
            )
        return parsed


def _file_of(rest: str) -> str:
    if not rest.startswith("//"):
        return rest
    if not rest.startswith("///"):
        raise DefinitionError("a file has no host; write sqlite:FILE, or sqlite:///FILE with three slashes")
    if "?" in rest or "#" in rest:
        raise DefinitionError("the URI of an SQLite store takes no parameters; write sqlite:FILE")
    return unquote(rest[3:])
