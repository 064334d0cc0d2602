"""Which schema follows from what the log says about a table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.errors import Fatal
from cdc.schema import Column, TableId, TableSchema
from ingest.agent.columns import Charset, LoggedColumn, LoggedTable, is_hidden, normal, schema_of

CHARSETS = {
    255: Charset(name="utf8mb4", width=4),
    63: Charset(name="binary", width=1),
    8: Charset(name="latin1", width=1),
    28: Charset(name="gbk", width=2),
}
ID = LoggedColumn(name="id", code=3, nullable=False)
TABLE = LoggedTable(
    database="d",
    table="t",
    columns=(
        ID,
        LoggedColumn(name="n", code=3, unsigned=True),
        LoggedColumn(name="a", code=246, precision=10, scale=2),
        LoggedColumn(name="v", code=15, size=480, collation=255),
        LoggedColumn(name="e", code=247, size=1, collation=255, members=("it's", "b")),
        LoggedColumn(name="x", code=252, size=3, collation=63),
        LoggedColumn(name="at", code=18, scale=3),
    ),
    primary_key=(0,),
)
KNOWN = TableSchema(
    table_id=TableId(source="s", database="d", table="t"),
    version=4,
    columns=(
        Column(name="id", column_type="int(11)", nullable=False),
        Column(name="n", column_type="int(10) unsigned zerofill"),
        Column(name="a", column_type="decimal(10,2)"),
        Column(name="v", column_type="varchar(120)", charset="utf8mb4"),
        Column(name="e", column_type="enum('it''s','b')", charset="utf8mb4"),
        Column(name="x", column_type="mediumblob"),
        Column(name="at", column_type="datetime(3)"),
    ),
    primary_key=("id",),
)


def changed(i: int, column: LoggedColumn) -> LoggedTable:
    columns = list(TABLE.columns)
    columns[i] = column
    return replace(TABLE, columns=tuple(columns))


def test_a_table_as_known_keeps_its_schema() -> None:
    """Display widths and zerofill, which the log does not carry, make no new version."""
    assert schema_of(TABLE, "s", KNOWN, CHARSETS) is KNOWN


@pytest.mark.parametrize(
    "table",
    [
        changed(0, replace(ID, name="id2")),
        changed(1, replace(TABLE.columns[1], unsigned=False)),
        changed(2, replace(TABLE.columns[2], scale=3)),
        changed(3, replace(TABLE.columns[3], size=1020)),
        changed(3, replace(TABLE.columns[3], collation=8, size=120)),
        changed(4, replace(TABLE.columns[4], members=("it's", "c"))),
        changed(5, replace(TABLE.columns[5], size=4)),
        changed(6, replace(TABLE.columns[6], scale=0)),
        changed(6, replace(TABLE.columns[6], nullable=False)),
        replace(TABLE, columns=TABLE.columns[:-1]),
        replace(TABLE, primary_key=(0, 1)),
    ],
)
def test_every_change_of_a_column_makes_the_next_version(table: LoggedTable) -> None:
    """A row is never published under a schema that is not its own."""
    schema = schema_of(table, "s", KNOWN, CHARSETS)
    assert schema.version == 5
    assert [c.name for c in schema.columns] == [c.name for c in table.columns]
    assert schema_of(table, "s", schema, CHARSETS) is schema


def test_a_table_that_nobody_knows_is_version_one() -> None:
    """The log alone describes a table."""
    schema = schema_of(TABLE, "s", None, CHARSETS)
    assert schema.version == 1
    assert [c.column_type for c in schema.columns] == [normal(c.column_type) for c in KNOWN.columns]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (replace(TABLE, primary_key=()), "no primary key"),
        (changed(3, replace(TABLE.columns[3], collation=28)), "character set gbk"),
        (changed(3, replace(TABLE.columns[3], collation=9999)), "collation 9999"),
        (changed(6, replace(TABLE.columns[6], code=12)), "MySQL 5.5"),
        (changed(6, replace(TABLE.columns[6], code=255)), "field type 255"),
    ],
)
def test_what_cannot_be_captured_is_fatal(table: LoggedTable, said: str) -> None:
    """A column that would come out wrong stops the capture and is named with its table."""
    with pytest.raises(Fatal, match=said) as caught:
        schema_of(table, "s", KNOWN, CHARSETS)
    assert "s.d.t" in str(caught.value)
    assert caught.value.hint


def test_columns_that_mysql_made_are_no_columns() -> None:
    """Columns behind functional indexes are not published; a user's column of such a name is."""
    md5 = "1cdd6da5e3b068edf8ce88fe07126996"
    assert is_hidden("!hidden!i!0!0", None)
    assert is_hidden(md5, KNOWN)
    assert not is_hidden(md5, replace(KNOWN, columns=(*KNOWN.columns, Column(name=md5, column_type="int"))))
    assert not is_hidden("id", KNOWN)
    hidden = replace(TABLE, columns=(*TABLE.columns, LoggedColumn(name=md5, code=3, hidden=True)))
    assert schema_of(hidden, "s", KNOWN, CHARSETS) is KNOWN
