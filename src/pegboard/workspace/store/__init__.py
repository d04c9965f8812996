"""Store: the document store in SQL, independent of the database."""
