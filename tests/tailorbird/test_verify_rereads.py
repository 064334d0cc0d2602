"""Source rows that are read again, so that the join writes some rows again."""

from __future__ import annotations

from typing import Any

import pytest

from tailorbird.verify.table.rereads import MOST_KEYS, TableReread, rereads
from tests.joins.altering import table_id
from tests.joins.joincase import Case

TABLES: dict[str, dict[str, Any]] = {
    "shop.o": {"key": ["id"], "id": "bigint", "c": "int?", "n": "int", "day": "date"},
    "shop.i": {"key": ["day", "code"], "day": "date", "code": "varchar(9)", "o": "bigint?"},
    "crm.c": {"key": ["id"], "id": "int", "name": "varchar(9)?"},
}


def read_again(query: str, *rows: dict[str, Any], row_key: tuple[str, ...] = (), **more: Any) -> list[tuple[str, str]]:
    case = Case(tables=TABLES, query=query, row_key=list(row_key), history=[], **more)
    return [(str(one.table), one.where) for one in rereads(case.plan(), case.schemas(), rows)]


def test_rows_of_the_root_by_their_keys() -> None:
    """The keys are found under any output names; other columns of the row key are ignored."""
    joined = "SELECT o.n, o.id AS number, c.name FROM shop.o JOIN crm.c ON c.id = o.c"
    rows = ({"n": 1, "number": 7}, {"n": 2, "number": -9})
    assert read_again(joined, *rows, row_key=("n", "number")) == [("shop.shop.o", "`id` IN (7, -9)")]
    composed = "SELECT i.day, i.code, o.n FROM shop.i LEFT JOIN shop.o ON o.id = i.o"
    row = {"day": "2024-02-03", "code": "it's \\"}
    assert read_again(composed, row, row_key=("day", "code")) == [
        ("shop.shop.i", "(`day` = '2024-02-03' AND `code` = 'it''s \\\\')"),
    ]


def test_of_very_many_the_table_is_read_whole() -> None:
    """A condition is kept with the capture's position until it is done."""
    many = [{"id": number} for number in range(MOST_KEYS + 1)]
    assert read_again("SELECT id, n FROM shop.o", *many, row_key=("id",)) == [("shop.shop.o", "")]
    assert read_again("SELECT id, n FROM shop.o", {"id": None}, row_key=("id",)) == []


def test_a_union_is_read_whole() -> None:
    """The name of a row does not say which of its tables has it."""
    query = "SELECT 'o' AS of, id FROM shop.o UNION ALL SELECT 'c' AS of, id FROM crm.c"
    case = Case(tables=TABLES, query=query, row_key=["of", "id"], history=[])
    assert rereads(case.plan(), case.schemas(), [{"of": "o", "id": 1}]) == (
        TableReread(table=table_id("shop.o"), where=""), TableReread(table=table_id("crm.c"), where=""),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("query", "row_key", "more"),
    [
        ("SELECT c, count(*) AS n FROM shop.o GROUP BY c", ("c",), {}),
        ("SELECT o.id, i.day, i.code FROM shop.o JOIN shop.i ON i.o = o.c", ("id", "day", "code"), {}),
        ("SELECT id, n FROM shop.o", ("id",), {"delivery": "at_least_once"}),
    ],
)
def test_what_is_reported_only_when_it_changes_is_not_read(
    query: str, row_key: tuple[str, ...], more: dict[str, Any]
) -> None:
    """Groups, pairs, and where an order is made: reading again would change nothing."""
    assert read_again(query, dict.fromkeys(row_key, 1), row_key=row_key, **more) == []
