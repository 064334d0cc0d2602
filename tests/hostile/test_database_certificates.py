"""TLS to real servers: who is accepted by which `ssl_mode`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from cdc.model.errors import Retriable, TopologyError
from ingest.binlog.format.errors import ConnectionLost
from ingest.binlog.transports.mysql_transport import MysqlTransport
from ingest.mysql.mysql_connection import address_of, connected, query
from ingest.postgres import pg_connection
from tests.hostile.conftest import Files
from tests.hostile.test_database_impostors import ELSEWHERE, source_of
from tests.ingest.binlog.binlog_servers import Server, start
from tests.support.pg_servers import PgServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
HERE = "127.0.0.1"
# host, settings, whether the server is accepted; {ca} is its authority, {other} is another one
CASES: list[tuple[str, Mapping[str, str], bool]] = [
    (HERE, {}, True),
    (HERE, {"ssl_mode": "verify_identity", "ssl_ca": "{ca}"}, True),
    (HERE, {"ssl_mode": "verify_identity", "ssl_ca": "{other}"}, False),
    (HERE, {"ssl_mode": "verify_identity"}, False),  # the operating system does not know its authority
    (ELSEWHERE, {}, False),
    (ELSEWHERE, {"ssl_ca": "{ca}"}, False),  # the certificate names another host
    (ELSEWHERE, {"ssl_mode": "verify_ca", "ssl_ca": "{ca}"}, True),
    (ELSEWHERE, {"ssl_mode": "verify_ca", "ssl_ca": "{other}"}, False),
    (ELSEWHERE, {"ssl_mode": "required"}, True),
]


@pytest.fixture(
    scope="module",
    params=["mysql80", *(pytest.param(one, marks=pytest.mark.matrix) for one in ("maria10", "maria11"))],
)
def mysql(request: pytest.FixtureRequest, files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run a server with a certificate for 127.0.0.1, and a user who must show one, too."""
    shared = request.param == "mysql80"
    server = (
        request.getfixturevalue("mysql80")
        if shared
        else start(request.param, tmp_path_factory.mktemp("server"), *files.mysql_options)
    )
    with server.session() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE USER known@'%' IDENTIFIED BY 'correct horse battery' REQUIRE X509")
        cursor.execute("GRANT ALL ON *.* TO known@'%'")
    yield server
    if not shared:
        server.stop()


@pytest.mark.parametrize(("host", "given", "accepted"), CASES)
def test_a_mysql_server_is_accepted_by_its_certificate(
    mysql: Server, files: Files, host: str, given: Mapping[str, str], accepted: bool
) -> None:
    """Snapshots and the reader of the binlog decide alike."""
    login = {"username": "cdc", "password": "cdc"}
    source = source_of("mysql", host, mysql.port, {**files.settings(given), **login})
    if accepted:
        with connected(source) as connection:
            ((_, cipher),) = query(connection, "SHOW STATUS LIKE 'Ssl_cipher'")
            assert cipher
        MysqlTransport(address_of(source)).close()
        return
    with pytest.raises(Retriable, match="ssl_ca"), connected(source):
        pass
    with pytest.raises(ConnectionLost, match=r"(?i)certificate"):
        MysqlTransport(address_of(source))


def test_a_mysql_server_that_asks_for_a_certificate_gets_it(mysql: Server, files: Files) -> None:
    own = {"ssl_cert": str(files.folder / "ca.pem"), "ssl_key": str(files.folder / "ca.key")}
    given = {"ssl_mode": "verify_identity", "ssl_ca": "{ca}"}
    source = source_of("mysql", HERE, mysql.port, {**files.settings(given), **own, "username": "known"})
    with connected(source) as connection:
        assert query(connection, "SELECT 1") == [("1",)]
    MysqlTransport(address_of(source)).close()


@pytest.mark.parametrize(("host", "given", "accepted"), CASES)
def test_a_postgresql_server_is_accepted_by_its_certificate(
    postgres_server: PgServer, files: Files, host: str, given: Mapping[str, str], accepted: bool
) -> None:
    login = {"username": "cdc", "password": "cdc", "dbname": "billing"}
    source = source_of("postgresql", host, postgres_server.port, {**files.settings(given), **login})
    if accepted:
        with pg_connection.connected(source) as connection:
            assert connection.texts("SELECT ssl::text FROM pg_stat_ssl WHERE pid = pg_backend_pid()") == [("true",)]
        return
    with pytest.raises(Retriable, match="ssl_ca"), pg_connection.connected(source):
        pass


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"ssl_mode": "sometimes"}, "verify_identity"),
        ({"ssl_mode": "verify_ca"}, "no authority to trust"),
        ({"ssl_mode": "required", "ssl_ca": "x.pem"}, "not used with"),
        ({"ssl_cert": "x.pem"}, "half of a client certificate"),
        ({"ssl_mode": "disabled", "ssl_cert": "x.pem", "ssl_key": "x.key"}, "not used with"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(given: Mapping[str, str], why: str) -> None:
    """The error names the file and line."""
    with pytest.raises(TopologyError, match=why) as raised:
        source_of("mysql", ELSEWHERE, 3306, given)
    assert "t.yml:" in str(raised.value)
