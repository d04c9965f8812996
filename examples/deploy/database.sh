#!/bin/sh
# Runs once, when the database is created. `pegboard` owns the database of consents and audit rows; `reader`, the login
# of the tool, may read one table of another database.
set -eu
secrets=${SECRETS:-/run/secrets}
psql --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" \
    --set pegboard="$(cat "$secrets/pegboard_password")" --set reader="$(cat "$secrets/reader_password")" <<'SQL'
CREATE ROLE pegboard LOGIN PASSWORD :'pegboard';
CREATE ROLE reader LOGIN PASSWORD :'reader';
CREATE DATABASE pegboard OWNER pegboard;
REVOKE ALL ON DATABASE pegboard FROM PUBLIC;
CREATE DATABASE shop;
REVOKE ALL ON DATABASE shop FROM PUBLIC;
GRANT CONNECT ON DATABASE shop TO reader;
\connect shop
CREATE TABLE items (name text PRIMARY KEY, price numeric NOT NULL);
INSERT INTO items VALUES ('hammer', 12.50), ('nails', 3.20);
GRANT SELECT ON items TO reader;
SQL
