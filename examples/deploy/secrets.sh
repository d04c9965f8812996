#!/bin/sh
# Create the secrets of this folder. Files that exist are kept.
set -eu
cd "$(dirname "$0")"
# Containers read the files as other users, so the files are readable. Their folder is closed to other users of the host.
mkdir -p -m 700 secrets
umask 022
for name in pegboard_key audit_key redis_password database_password pegboard_password reader_password; do
    [ -e "secrets/$name" ] || openssl rand -hex 32 > "secrets/$name"
done
# A self-signed certificate to try the example. Replace both files with a real certificate.
[ -e secrets/tls.pem ] || openssl req -x509 -newkey rsa:2048 -nodes -days 90 -subj "/CN=localhost" \
    -addext "subjectAltName=DNS:localhost" -keyout secrets/tls.key -out secrets/tls.pem 2> /dev/null
chmod 644 secrets/*
