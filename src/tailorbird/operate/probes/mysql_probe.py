"""Whether a MySQL server of the stack answers the user that capture logs in as."""

from __future__ import annotations

import pymysql

from tailorbird.operate.probes.login import Login


def mysql_problem(host: str, port: int, login: Login) -> str:
    """Why the server is not ready, empty when it is."""
    try:
        connection = pymysql.connect(
            host=host, port=port, user=login.user, password=login.password, connect_timeout=2, read_timeout=2
        )
    except pymysql.MySQLError as error:
        return str(error)
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return ""
