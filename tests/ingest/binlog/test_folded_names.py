"""On a server that folds names (lower_case_table_names) every spelling of a table means the same table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest
from pymysql.err import OperationalError

from cdc.model.errors import UsageError
from tests.cdc.test_identifiers import DIFFERENT, SAME
from tests.ingest.binlog.binlog_servers import Server, start
from tests.support.memory_capture import captured, topology_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.fixture(
    scope="module",
    params=["mysql80", *(pytest.param(f, marks=pytest.mark.matrix) for f in ("mysql57", "maria10", "maria11"))],
)
def folding(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with lower_case_table_names=1."""
    server = start(request.param, tmp_path_factory.mktemp("folding"), "--lower-case-table-names=1")
    yield server
    server.stop()


def test_names_in_any_case_are_one_table(folding: Server) -> None:
    """TRUNCATE, RENAME, ALTER and DROP spell the table differently from the topology; the server uses lower case."""
    with folding.session() as connected, connected.cursor() as cursor:

        def run(*statements: str) -> None:
            for statement in statements:
                cursor.execute(statement)

        run(
            "CREATE DATABASE Shop", "USE SHOP", "CREATE TABLE Orders (Id INT PRIMARY KEY, Mail VARCHAR(20), v INT)",
            "INSERT INTO orders VALUES (1, 'a', 1), (2, 'b', 2)", "CREATE TABLE Items (id INT PRIMARY KEY)",
            "INSERT INTO ITEMS VALUES (1), (2)", "CREATE TABLE Parent (id INT PRIMARY KEY)",
            "CREATE TABLE Child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES PARENT (id) ON DELETE CASCADE)",
            "INSERT INTO Parent VALUES (1), (2)", "INSERT INTO Child VALUES (10, 1), (20, 2)",
        )  # fmt: skip
        rules = "{Orders: {ignored_columns: [mail], message_key_columns: [ID]}, Items: {}, CHILD: {}, Parent: {}}"
        with captured(topology_of(folding, "Shop", rules, policy="drop"), folding) as capture:
            orders, items = capture.table("Orders"), capture.table("Items")
            assert capture.read(orders) == [(1, 1), (2, 2)]
            run("TRUNCATE TABLE sHOP.iTems", "INSERT INTO items VALUES (7)")
            run("CREATE TABLE fresh LIKE orders", "INSERT INTO fresh VALUES (5, 'e', 5)")
            run("RENAME TABLE ORDERS TO Old, Fresh TO oRDERS", "UPDATE Orders SET V = 6")
            run("ALTER TABLE ORDERS MODIFY V VARCHAR(20)", "DELETE FROM PARENT WHERE ID = 1")
            capture.caught_up(folding)
            assert capture.read(items) == [(7,)]
            assert capture.read(orders) == [(5, "6")]
            assert capture.read(capture.table("CHILD")) == [(20, 2)]
            run("DROP TABLE ITEMS")
            capture.caught_up(folding)
            assert not capture.folded(items)


def test_all_tables_of_a_database_in_any_case(folding: Server) -> None:
    """With `accept` tables have the server's names; a table on the exclusion list is not captured."""
    with folding.session() as connected, connected.cursor() as cursor:
        for statement in (
            "CREATE DATABASE Every", "USE Every", "CREATE TABLE Kept (id INT PRIMARY KEY)",
            "CREATE TABLE Secret (id INT PRIMARY KEY)", "INSERT INTO kept VALUES (1)", "INSERT INTO secret VALUES (1)",
        ):  # fmt: skip
            cursor.execute(statement)
        with captured(topology_of(folding, "EVERY", "[SECRET]"), folding) as capture:
            cursor.execute("CREATE TABLE Later (id INT PRIMARY KEY)")
            cursor.execute("INSERT INTO LATER VALUES (3)")
            cursor.execute("INSERT INTO Secret VALUES (2)")
            capture.caught_up(folding)
            assert capture.read(capture.table("kept")) == [(1,)]
            assert capture.read(capture.table("later")) == [(3,)]
            assert not any("ecret" in record.topic.lower() for record in capture.broker.records)


def test_one_table_under_two_names_is_refused(folding: Server) -> None:
    """`Orders` and `orders` are one table: a topology with both is refused."""
    topology = topology_of(folding, "shop", "[Orders, orders]", policy="drop")
    with pytest.raises(UsageError, match="are one table"), captured(topology, folding):
        pass


@pytest.mark.parametrize(("name", "other", "same"), [(*p, True) for p in SAME] + [(*p, False) for p in DIFFERENT])
def test_the_server_folds_the_names_of_columns_likewise(folding: Server, name: str, other: str, same: bool) -> None:
    """The server finds a column under exactly those names that `fold_identifier` takes for it."""
    with folding.session() as connected, connected.cursor() as cursor:
        cursor.execute("CREATE DATABASE IF NOT EXISTS spellings")
        cursor.execute("DROP TABLE IF EXISTS spellings.t")
        cursor.execute(f"CREATE TABLE spellings.t (`{name}` INT)")
        unknown = pytest.raises(OperationalError, match="Unknown column")
        with nullcontext() if same else unknown:
            cursor.execute(f"SELECT `{other}` FROM spellings.t")
