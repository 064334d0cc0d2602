"""Make a server the replica of another and promote it, for tests of failover."""

from __future__ import annotations

from tests.ingest.binlog.binlog_servers import Server


def replicate(server: Server, replica: Server) -> None:
    """Make one server the replica of the other, from its beginning; MariaDB needs --log-slave-updates for it."""
    place = f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={server.port}, MASTER_USER='cdc', "
    with replica.session() as connected, connected.cursor() as cursor:
        cursor.execute("DROP DATABASE d")
        cursor.execute("RESET MASTER")
        if replica.maria:
            cursor.execute("SET GLOBAL gtid_slave_pos = ''")
            place += "MASTER_PASSWORD='cdc', MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1"
        else:
            place += "MASTER_PASSWORD='cdc', MASTER_AUTO_POSITION=1, GET_MASTER_PUBLIC_KEY=1, MASTER_CONNECT_RETRY=1"
        cursor.execute(place)
        cursor.execute("START SLAVE")


def promote(server: Server, replica: Server) -> None:
    """Promote the replica once it has executed all of the server's transactions; then kill the server."""
    asked = ("gtid_binlog_pos", "MASTER_GTID_WAIT") if server.maria else ("gtid_executed", "WAIT_FOR_EXECUTED_GTID_SET")
    with server.session() as connected, connected.cursor() as cursor:
        cursor.execute(f"SELECT @@GLOBAL.{asked[0]}")
        executed = cursor.fetchone()
    with replica.session() as connected, connected.cursor() as cursor:
        cursor.execute(f"SELECT {asked[1]}(%s, 120)", executed)
        assert cursor.fetchone() == (0,)
        cursor.execute("STOP SLAVE")
        cursor.execute("RESET SLAVE ALL")
    server.process.kill()
    server.process.wait()
