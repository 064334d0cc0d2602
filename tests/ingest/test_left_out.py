"""Only columns whose type is not captured are left out, and reported once; the rest of their table is captured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdc.model.errors import Skippable
from cdc.model.event import Position
from cdc.model.filters import TableRule
from cdc.model.schema import Column, TableId, TableSchema, schema_from_json
from ingest.capture.observer import Observer
from ingest.ddl.catalog import Catalog, ColumnDefinition, Key, TableDefinition
from ingest.ddl.dialect import dialect_of
from ingest.events.published import published
from ingest.events.tables import Tables

TABLE = TableId(source="s", database="d", table="t")
SCHEMA = TableSchema(
    table_id=TABLE,
    version=1,
    columns=(
        Column(name="id", column_type="int", nullable=False),
        Column(name="place", column_type="xmltype", nullable=False),
        Column(name="v", column_type="nested(3)"),
    ),
    primary_key=("id",),
)


class ReportedLines(Observer):
    """Keeps the reported lines."""

    def __init__(self) -> None:
        self.reported: list[dict[str, Any]] = []

    def phase(self, what: str, **details: object) -> None:
        self.reported.append(details)


def test_columns_of_other_types_are_left_out_and_named() -> None:
    """The published schema lists them, so that a query that names one gets the reason."""
    found = published(SCHEMA, (), None)
    assert [column.name for column in found.columns] == ["id"]
    assert found.left_out == (("place", "xmltype"), ("v", "nested(3)"))
    assert schema_from_json(found.to_json()) == found
    ignored = published(SCHEMA, (), TableRule(ignored_columns=("v", "place")))
    assert (ignored.left_out, ignored.columns) == ((), found.columns)
    assert "left_out" not in ignored.to_json()


def test_every_type_of_mysql_and_mariadb_is_captured() -> None:
    """UUID and addresses are text, vectors are lists, geometries are structs; the latter identify no row."""
    columns = (
        *SCHEMA.columns[:1],
        *(
            Column(name=name, column_type=name)
            for name in ("uuid", "inet4", "inet6", "vector(3)", "point", "geomcollection", "multipolygon")
        ),
    )
    schema = replace(SCHEMA, columns=columns)
    found = published(schema, (), None)
    assert (found.left_out, found.columns) == ((), columns)
    assert published(replace(schema, primary_key=("uuid",)), (), None).primary_key == ("uuid",)
    for name in ("vector(3)", "point"):
        with pytest.raises(Skippable, match=r"which cannot identify a row.*message_key_columns"):
            published(replace(schema, primary_key=(name,)), (), None)


def test_a_key_of_an_unsupported_type_identifies_no_row() -> None:
    """The rows of a table whose key has such a type have no identity."""
    with pytest.raises(Skippable, match=r"column place of its key has type xmltype.*message_key_columns"):
        published(replace(SCHEMA, primary_key=("place",)), (), None)


def tables(rule: TableRule | None = None) -> Tables:
    known = Tables("s", ["d"], lambda *name: name == ("d", "t"), dialect_of("mysql"), rule_of={TABLE: rule}.get)
    columns = tuple(
        ColumnDefinition(name=c.name, column_type=c.column_type, nullable=c.nullable, charset=None)
        for c in SCHEMA.columns[:2]
    )
    table = TableDefinition(columns=columns, keys=(Key(name="PRIMARY", kind="primary", columns=("id",)),))
    known.begin(Catalog(default_charset="utf8mb4", databases={"d": "utf8mb4"}, tables={("d", "t"): table}))
    return known


def test_images_omit_them_and_each_table_is_reported_once() -> None:
    """No value of the column is published; one line per table names it with the remedy, and another line follows when
    more are added."""
    known, lines = tables(), ReportedLines()
    shape = known.shape(TABLE)
    assert shape is not None
    row: Any = {"id": 1, "place": "AAAA"}
    shape(row)
    assert row == {"id": 1}
    assert not known.hides(TABLE)  # so rows that cannot be decoded go to the quarantine, and do not end the capture
    assert [c.name for c in known.read_schema(TABLE).columns] == ["id"]
    for _ in range(3):
        lines.left_out(known.take_left_out())
    ((reported),) = lines.reported
    assert (reported["table"], reported["columns"]) == ("s.d.t", "place xmltype")
    assert "ignored_columns: [place]" in reported["remedy"]
    table = known.catalog.tables["d", "t"]
    more = ColumnDefinition(name="area", column_type="xmltype", nullable=True, charset=None)
    wider = replace(table, columns=(*table.columns, more))
    position = Position(file="f", pos=9, gtid_set="", sequence=1)
    known.adopt(known.catalog.with_table(("d", "t"), wider), position)
    lines.left_out(known.take_left_out())
    assert lines.reported[1]["columns"] == "place xmltype, area xmltype"
    silent = tables(TableRule(ignored_columns=("place",)))
    assert silent.take_left_out() == []
