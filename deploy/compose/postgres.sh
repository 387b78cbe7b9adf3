#!/bin/sh
# Run once by PostgreSQL's image, when it has made the cluster: Drover's own user and database.
# That user is no superuser, who could run programs and read files in this container. All services
# know its password; the superuser's is known here alone.
set -eu
psql --username "$POSTGRES_USER" --dbname postgres --set ON_ERROR_STOP=1 --quiet \
  --set password="$(cat /run/password/password)" <<'SQL'
CREATE ROLE drover LOGIN PASSWORD :'password';
CREATE DATABASE drover OWNER drover;
SQL
