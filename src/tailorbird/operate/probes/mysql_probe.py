"""Check whether a MySQL server accepts the login of the capture."""

from __future__ import annotations

import pymysql

from tailorbird.operate.probes.login import Login


def mysql_problem(host: str, port: int, login: Login) -> str:
    """Return the reason why the server is not ready, or an empty string."""
    try:
        connection = pymysql.connect(
            host=host, port=port, user=login.user, password=login.password, connect_timeout=2, read_timeout=2
        )
    except pymysql.MySQLError as error:
        return str(error)
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return ""
