"""Check whether a PostgreSQL server accepts the login of the capture."""

from __future__ import annotations

import psycopg

from tailorbird.operate.probes.login import Login


def postgres_problem(host: str, port: int, login: Login, database: str = "billing") -> str:
    """Return the reason why the server is not ready, or an empty string."""
    try:
        with psycopg.connect(
            host=host, port=port, user=login.user, password=login.password, dbname=database, connect_timeout=2
        ) as connection:
            connection.execute("SELECT 1")
    except psycopg.Error as error:
        return " ".join(str(error).split())
    return ""
