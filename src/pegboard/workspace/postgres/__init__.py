"""postgres: a document store in a PostgreSQL database."""
