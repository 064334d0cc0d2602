"""The expected rows of a table, compared with rows that the table stored under an older type."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from cdc.stored.cells import RowCodec, document_id
from cdc.topology.topology import Source
from joins.query.plan import Plan
from tailorbird.verify.mysql_tables import SourceTable, TablesSnapshot
from tailorbird.verify.table.source_query import SourceQuery, rescaled
from tests.joins.altering import table_id
from tests.joins.joincase import Case

WIDE: dict[str, dict[str, Any]] = {
    "shop.o": {"key": ["id"], "id": "int", "total": "decimal(9,2)", "rate": "decimal(9,2)"}
}
NARROW: dict[str, dict[str, Any]] = {
    "shop.o": {"key": ["id"], "id": "int", "total": "decimal(9,1)", "rate": "decimal(9,1)"}
}
QUERY = "SELECT rate, sum(total) AS total, array_agg(total) AS totals FROM shop.o GROUP BY rate"


def case(tables: dict[str, dict[str, Any]]) -> tuple[Case, Plan]:
    made = Case(tables=tables, query=QUERY, row_key=["rate"], history=[])
    return made, made.plan()


def test_groups_keep_their_type_after_an_alter_of_the_scale() -> None:
    """The table has DECIMAL(…,2) of before. Without the adaptation, the row even has another key."""
    (_, before), (after, _) = case(WIDE), case(NARROW)
    orders = table_id("shop.o")
    types = tuple((column.name, column.type) for column in after.schemas()[orders].columns)
    rows = [(1, Decimal("3106.4"), Decimal("0.5")), (2, Decimal("-0.4"), Decimal("0.5"))]

    def read(source: Source, tables: object) -> TablesSnapshot:
        return TablesSnapshot(position="p", tables={orders: SourceTable(columns=types, rows=rows)})

    topology, layout = after.topology(), before.layout(1)
    found = SourceQuery(topology, topology.tables["wide"], layout, [orders], read=read).ask().rows
    stored: dict[str, Any] = {"rate": "0.50", "total": "3106.00", "totals": ["-0.40", "3106.40"]}
    ((key, row),) = found.items()
    assert key == document_id(RowCodec(layout).row_key(stored))
    assert {**row, "totals": sorted(row["totals"])} == stored  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "scale", "expected"),
    [
        ("3106.4", 2, "3106.40"),
        ("3106.40", 1, "3106.4"),
        ("-7.00", 0, "-7"),
        ("7", 3, "7.000"),
        ("7.25", 1, "7.25"),  # does not fit: it is really different
        (None, 2, None),
    ],
)
def test_digits_are_added_and_removed_only_if_they_are_zero(
    value: str | None, scale: int, expected: str | None
) -> None:
    assert rescaled({"a": value, "b": "1.5"}, {"a": scale}) == {"a": expected, "b": "1.5"}
