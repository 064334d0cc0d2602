"""Polling SQL Server. No server of it runs on our machines: its SQL is compared as text, its types as reflected.

The contract that all databases share is tested on SQLite and PostgreSQL (`test_poll_contract.py`).
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mssql as _mssql
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeEngine

from cdc.model.errors import Retriable
from cdc.model.schema import TableId
from cdc.topology.reader import read_topology
from cdc.topology.topology import Topology
from ingest.poll.poll_interfaces import Ask, cursor_of
from ingest.poll.sql_reader import SqlReader, sql_reader
from ingest.poll.sql_types import column_type, not_a_cursor
from tests.support.ports import free_port

MSSQL: Any = _mssql  # its types have no hints
TABLE = TableId(source="s", database="dbo", table="orders")


def topology(mode: str = "updated_at", port: int = 1433) -> Topology:
    url, cursor = (
        f"mssql+pytds://u:p@127.0.0.1:{port}/shop?login_timeout=1",
        "changed" if mode == "updated_at" else "nr",
    )
    text = (
        f"name: top\nsources:\n  s: {{type: sql, capture: poll, url: '{url}', database: dbo, tables: [orders], "
        f"cursor: {cursor}, mode: {mode}}}\n"
        "tables:\n  t: {query: SELECT o.id FROM s.orders o, row_key: [id]}\n"
    )
    return read_topology(text, file="top.yml", environ={})


class RecordedConnection:
    """A connection that records the text of each statement, as SQL Server would get it."""

    def __init__(self) -> None:
        self.dialect: Dialect = MSSQL.dialect()
        self.said: list[str] = []

    def execute(self, statement: Any) -> RecordedConnection:
        compiled = statement.compile(dialect=self.dialect, compile_kwargs={"literal_binds": True})
        self.said.append(" ".join(str(compiled).split()))
        return self

    def scalar_one(self) -> Any:
        return dt.datetime(2026, 1, 2, 3, 4, 5) if "SYSDATETIME" in self.said[-1] else 7

    def __iter__(self) -> Any:
        return iter(())


def reader(
    cursor: TypeEngine[Any], mode: str = "updated_at", line: TypeEngine[Any] | None = None
) -> tuple[RecordedConnection, SqlReader, Any]:
    """Return a reader of a table with a composite key, whose second column is a number unless `line` declares it."""
    source, reported = topology(mode).sources["s"], RecordedConnection()
    assert source.poll is not None
    one = SqlReader(reported, source, source.poll)  # type: ignore[arg-type]  # it stands for a connection
    described = sa.Table(
        "orders", sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True), sa.Column("line", line or sa.Integer(), primary_key=True),
        sa.Column(source.poll.cursor, cursor, nullable=False), schema="dbo",
    )  # fmt: skip
    one._tables[TABLE] = described
    return reported, one, one._schema(TABLE, described, None)


def test_its_sql() -> None:
    """Every statement of a poll: pages by TOP, ties broken by each key column, the clock of the server."""
    reported, one, schema = reader(MSSQL.DATETIME2(6))
    start = cursor_of(dt.datetime(2026, 1, 2, 3, 4, 5, 600000))
    reported.execute(one._clock(one._cursor_column(schema)))
    one.page(schema, Ask(start=None, after=None, limit=3))
    one.page(schema, Ask(start=start, after=None, limit=3))
    one.page(schema, Ask(start=start, after=(4, 5), limit=3))
    one.backlog(schema, start, 100)
    columns = "SELECT TOP 3 dbo.orders.id, dbo.orders.line, dbo.orders.changed FROM dbo.orders WHERE"
    keys = "(dbo.orders.id > 4 OR dbo.orders.id = 4 AND dbo.orders.line > 5)"
    order = "ORDER BY dbo.orders.changed, dbo.orders.id, dbo.orders.line"
    at = "'2026-01-02 03:04:05.600000'"
    assert reported.said == [
        "SELECT SYSDATETIME()",
        f"{columns} dbo.orders.changed IS NOT NULL {order}",
        f"{columns} dbo.orders.changed >= {at} {order}",
        f"{columns} dbo.orders.changed = {at} AND {keys} {order}",
        "SELECT count(*) AS count_1 FROM "
        f"(SELECT TOP 100 1 AS anon_2 FROM dbo.orders WHERE dbo.orders.changed >= {at}) AS anon_1",
    ]


def test_its_sql_of_a_feed_and_of_times_with_a_zone() -> None:
    """A feed compares numbers; DATETIMEOFFSET uses another clock function, and is published with a zone."""
    reported, one, schema = reader(sa.BigInteger(), "feed")
    one.page(schema, Ask(start=9, after=None, limit=2))
    assert reported.said[0].endswith("WHERE dbo.orders.nr >= 9 ORDER BY dbo.orders.nr, dbo.orders.id, dbo.orders.line")
    reported, one, schema = reader(MSSQL.DATETIMEOFFSET(6))
    reported.execute(one._clock(one._cursor_column(schema)))
    assert reported.said == ["SELECT SYSDATETIMEOFFSET()"]
    one.page(schema, Ask(start=cursor_of(dt.datetime(2026, 1, 2)), after=None, limit=2))
    assert "'2026-01-02 00:00:00+00:00'" in reported.said[-1]
    assert schema.column("changed").column_type == "timestamp(6)"


def test_its_sql_of_dumps() -> None:
    """Pages by TOP in the key's order, whatever the cursor is; a condition unchanged; texts of a key in the column's
    own type, which determines order and index."""
    reported, one, schema = reader(sa.BigInteger(), "feed")
    one.walk(schema, None, "", 3)
    one.walk(schema, [4, 5], "", 3)
    one.walk(schema, None, "note LIKE 'a%:b' AND line > 2", 3)
    one.walk(schema, [4, 5], "note = 'x'", 3)
    columns = "SELECT TOP 3 dbo.orders.id, dbo.orders.line, dbo.orders.nr FROM dbo.orders"
    keys, order = (
        "dbo.orders.id > 4 OR dbo.orders.id = 4 AND dbo.orders.line > 5",
        "ORDER BY dbo.orders.id, dbo.orders.line",
    )
    assert reported.said == [
        f"{columns} {order}",
        f"{columns} WHERE {keys} {order}",
        f"{columns} WHERE (note LIKE 'a%:b' AND line > 2) {order}",
        f"{columns} WHERE (note = 'x') AND ({keys}) {order}",
    ]
    collation = MSSQL.VARCHAR(20, collation="Latin1_General_CI_AS")
    reported, one, schema = reader(sa.BigInteger(), "feed", collation)
    one.walk(schema, [4, "a-b"], "", 3)
    at = "CAST('a-b' AS VARCHAR(20)) COLLATE Latin1_General_CI_AS"
    assert f"WHERE dbo.orders.id > 4 OR dbo.orders.id = 4 AND dbo.orders.line > {at} ORDER" in reported.said[0]
    moment = dt.datetime(2026, 1, 2, 3, 4, 5, 600000)
    reported, one, schema = reader(sa.BigInteger(), "feed", MSSQL.DATETIME2(6))
    one.walk(schema, [4, {"datetime": moment.isoformat()}], "", 3)
    assert "dbo.orders.line > '2026-01-02 03:04:05.600000' ORDER" in reported.said[0]


TYPES: list[tuple[TypeEngine[Any], str | None]] = [
    (MSSQL.BIT(), "bit(1)"), (MSSQL.TINYINT(), "bigint"), (MSSQL.MONEY(), "decimal(19,4)"),
    (MSSQL.SMALLMONEY(), "decimal(10,4)"), (MSSQL.DECIMAL(18, 4), "decimal(18,4)"), (MSSQL.REAL(), "double"),
    (MSSQL.DATE(), "date"), (MSSQL.TIME(7), "time(6)"), (MSSQL.DATETIME2(7), "datetime(6)"),
    (MSSQL.DATETIMEOFFSET(7), "timestamp(6)"), (MSSQL.UNIQUEIDENTIFIER(), "longtext"), (MSSQL.XML(), "longtext"),
    (MSSQL.NVARCHAR(50), "varchar(50)"), (MSSQL.NVARCHAR(), "longtext"), (MSSQL.VARBINARY(), "longblob"),
    (MSSQL.ROWVERSION(), None), (MSSQL.SQL_VARIANT(), None),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "found"), TYPES, ids=[repr(kind) for kind, _ in TYPES])
def test_its_types(kind: TypeEngine[Any], found: str | None) -> None:
    """The canonical type of each; None means left out, by name."""
    assert column_type(kind) == found


def test_times_that_equal_none_of_their_values_are_no_cursors() -> None:
    """A page would never reach its end with the value that was read."""
    for kind in (
        MSSQL.DATETIME2(),
        MSSQL.DATETIME2(7),
        MSSQL.DATETIMEOFFSET(),
        MSSQL.DATETIME(),
        MSSQL.SMALLDATETIME(),
    ):
        assert not_a_cursor(kind, "mssql")
    for fine in (MSSQL.DATETIME2(6), MSSQL.DATETIME2(0), MSSQL.DATETIMEOFFSET(3)):
        assert not_a_cursor(fine, "mssql") is None
    assert not_a_cursor(sa.DateTime(), "sqlite") is None


def test_its_driver_is_loaded_and_an_unavailable_server_is_waited_for() -> None:
    """`mssql+pytds` is installed with the extra; errors of its socket are Retriable, and contain no password."""
    source = topology(port=free_port()).sources["s"]
    assert source.poll is not None
    with pytest.raises(Retriable, match="source s: connect"), sql_reader(source, source.poll):
        pass
