"""storage: the SQLite files and PostgreSQL databases of every store: URIs, opening, permissions, versions, backup."""
