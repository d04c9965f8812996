"""PostgreSQL store: the document store in a database shared by several machines. Needs `pegboard[postgres]`."""

from __future__ import annotations

from pegboard.core.ports import Embedder
from pegboard.model.secret import Secret
from pegboard.workspace.passage_embedder import PassageEmbedder
from pegboard.workspace.postgres.postgres_database import VECTOR_EXACT_PASSAGES, PostgresDatabase
from pegboard.workspace.store.document_store import SqlDocumentStore


class PostgresDocumentStore(SqlDocumentStore):
    """The documents of all spaces in a PostgreSQL database with the extension `vector`.

    Args:
        uri: `postgresql://…`.
        embedder: makes vectors of passages and questions; without one, search uses words only.
        exact_passages: a search compares all passages of a space up to this number; above, it may use an index.

    Raises:
        DefinitionError: the URI is invalid.
    """

    def __init__(
        self,
        uri: str | Secret,
        *,
        embedder: Embedder | None = None,
        exact_passages: int = VECTOR_EXACT_PASSAGES,
    ) -> None:
        database = PostgresDatabase(uri if isinstance(uri, Secret) else Secret(uri), exact_passages=exact_passages)
        super().__init__(database, embedder=None if embedder is None else PassageEmbedder(embedder))
        self.place = "the PostgreSQL database"
