#!/bin/sh
# Runs once, when the database is made. Whoever asks it for agents may read one table and nothing else.
set -eu
psql --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" --set password="$(cat /run/secrets/reader_password)" <<'SQL'
CREATE TABLE items (name text PRIMARY KEY, price numeric NOT NULL);
INSERT INTO items VALUES ('hammer', 12.50), ('nails', 3.20);
CREATE ROLE reader LOGIN PASSWORD :'password';
GRANT SELECT ON items TO reader;
SQL
