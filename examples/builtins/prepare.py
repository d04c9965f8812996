"""Prepare: write the small database that the example's sql_query reads."""

import sqlite3
from contextlib import closing
from pathlib import Path

SHOP = Path(__file__).parent / "files" / "shop.db"


def main() -> None:
    with closing(sqlite3.connect(SHOP)) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS tools (name TEXT PRIMARY KEY, price REAL)")
        rows = [("hammer", 12.5), ("saw", 18.0), ("pliers", 9.9)]
        connection.executemany("INSERT OR REPLACE INTO tools VALUES (?, ?)", rows)


if __name__ == "__main__":
    main()
