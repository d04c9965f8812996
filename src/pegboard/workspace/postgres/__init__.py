"""postgres: the documents of all spaces in a PostgreSQL database."""
