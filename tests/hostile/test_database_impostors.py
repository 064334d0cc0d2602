"""A server that cannot prove its identity does not get the password of a source. No server gets a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pymysql
import pytest

from cdc.model.errors import Retriable, TailorbirdError
from cdc.topology.reader import read_topology
from cdc.topology.topology import Source
from ingest.binlog.format.errors import ConnectionLost
from ingest.binlog.transports.mysql_transport import MysqlTransport, connect
from ingest.mysql.mysql_connection import address_of, connected
from ingest.postgres import pg_connection
from tests.hostile.rogue_mysql import WAYS, Way, rogue_mysql
from tests.hostile.rogue_postgres import rogue_postgres

PASSWORD = "correct horse battery"
ELSEWHERE = "0.0.0.0"  # reaches this machine, and is no loopback address, like the address of another machine


def source_of(kind: str, host: str, port: int, more: Mapping[str, object]) -> Source:
    """Return a source of a topology with these settings."""
    fields: dict[str, Any] = {
        "type": kind, "hostname": host, "port": port, "username": "cdc", "password": PASSWORD, "database": "shop",
        "tables": ["t"], **({"server_id": 4711} if kind == "mysql" else {"dbname": "shop"}), **more,
    }  # fmt: skip
    lines = "\n".join(f"    {key}: {value if not isinstance(value, list) else '[t]'}" for key, value in fields.items())
    text = f"name: t\nlog: {{bootstrap_servers: 'k:9092'}}\nsources:\n  shop:\n{lines}\n"
    return read_topology(text, file="t.yml", environ={}).sources["shop"]


@pytest.mark.parametrize(
    ("way", "mode"),
    [
        (way, mode)
        for way in WAYS
        for mode in ("", "preferred", "required", "verify_identity")
        # these modes accept every certificate
        if way != "own certificate" or mode not in ("preferred", "required")
    ],
)
def test_a_rogue_mysql_server_learns_no_password(way: Way, mode: str, tmp_path: Path) -> None:
    """It asks in clear text, with a key of its own, or over TLS with a certificate of its own.

    Snapshots and the reader of the binlog connect in different ways.
    """
    with rogue_mysql(way, tmp_path) as rogue:
        source = source_of("mysql", ELSEWHERE, rogue.port, {"ssl_mode": mode} if mode else {})
        with pytest.raises(Retriable, match=r"ssl_ca|ssl_mode"), connected(source):
            pass
        with pytest.raises(ConnectionLost):
            connect(address_of(source))
    assert not rogue.learned(PASSWORD), rogue.heard


@pytest.mark.parametrize("way", WAYS)
def test_the_rogue_server_would_learn_the_password_of_a_trusting_client(way: Way, tmp_path: Path) -> None:
    """Otherwise the test above would prove nothing. A server on this machine is trusted without TLS."""
    with rogue_mysql(way, tmp_path) as rogue:
        source = source_of("mysql", "127.0.0.1", rogue.port, {})
        with pytest.raises(TailorbirdError), connected(source):
            pass
    assert rogue.learned(PASSWORD), rogue.heard


def test_a_rogue_mysql_server_gets_no_file(tmp_path: Path) -> None:
    """MySQL's protocol lets a server answer any query with a request for a file of the client's machine.

    Even a server that the source trusts gets none. A client that agrees to it would send the file.
    """
    (tmp_path / "secret").write_text("content of a file")
    with rogue_mysql("local file", tmp_path) as rogue:
        source = source_of("mysql", "127.0.0.1", rogue.port, {"ssl_mode": "disabled"})
        with pytest.raises(Retriable, match="asked for a file of this machine"), connected(source):
            pass
        with pytest.raises(ConnectionLost):
            MysqlTransport(address_of(source))
        assert rogue.asked > 2
        assert not rogue.learned("content of a file")
        agreeing: dict[str, Any] = {"local_infile": True, "autocommit": None, "ssl_disabled": True, "read_timeout": 10}
        with (
            pymysql.connect(host="127.0.0.1", port=rogue.port, user="cdc", **agreeing) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SELECT 1")
        assert rogue.learned("content of a file")


@pytest.mark.parametrize("settings", [{}, {"ssl_mode": "preferred"}, {"ssl_mode": "verify_identity"}])
def test_a_rogue_postgresql_server_learns_no_password(settings: Mapping[str, str]) -> None:
    with rogue_postgres() as (port, heard):
        source = source_of("postgresql", ELSEWHERE, port, settings)
        with pytest.raises(Retriable, match=r"ssl_ca|ssl_mode"), pg_connection.connected(source):
            pass
        assert PASSWORD.encode() not in heard()


def test_the_rogue_postgresql_server_would_learn_the_password_of_a_trusting_client() -> None:
    with rogue_postgres() as (port, heard):
        source = source_of("postgresql", "127.0.0.1", port, {})
        with pytest.raises(TailorbirdError), pg_connection.connected(source):
            pass
        assert PASSWORD.encode() in heard()
