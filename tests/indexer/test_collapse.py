"""Merge of a batch's cells into rows, as HBase itself would read them."""

from __future__ import annotations

import pytest

from indexer.index.collapse import RowChange
from indexer.index.collapse import collapse as collapse_writes
from indexer.peer import wire
from indexer.peer.wire import DELETE, DELETE_COLUMN, DELETE_FAMILY, DELETE_FAMILY_VERSION, PUT, Cell


def collapse(cells: list[Cell], family: bytes) -> list[RowChange]:
    """Collapse cells after encoding and decoding them, so that their grouping is tested, too."""
    return collapse_writes(wire.read_writes(wire.write_cells(cells), 0, len(cells))[0], family)


def put(at: int, value: bytes = b"v", qualifier: bytes = b"a") -> Cell:
    return Cell(b"row", b"d", qualifier, at, PUT, value)


def marker(type_: int, at: int, qualifier: bytes = b"") -> Cell:
    return Cell(b"row", b"d", qualifier, at, type_, b"")


CASES = {
    "a put": ([put(5)], 10, {b"a": b"v"}, False),
    "the newer put wins": ([put(6, b"new"), put(5, b"old")], 12, {b"a": b"new"}, False),
    "of one stamp the later put wins": ([put(5, b"1"), put(5, b"2")], 10, {b"a": b"2"}, False),
    "a row delete": ([marker(DELETE_FAMILY, 5)], 11, {}, True),
    "put, then delete": ([put(5), marker(DELETE_FAMILY, 6)], 13, {}, True),
    "delete, then put": ([marker(DELETE_FAMILY, 6), put(7)], 14, {b"a": b"v"}, False),
    "put at stamp + 1 before the delete at stamp": ([put(7), marker(DELETE_FAMILY, 6)], 14, {b"a": b"v"}, False),
    "a delete wins over a put of its stamp": ([marker(DELETE_FAMILY, 6), put(6)], 13, {}, True),
    "a put behind the marker stays hidden": ([marker(DELETE_FAMILY, 6), put(5)], 13, {}, True),
    "cells are merged": ([put(5, b"1"), put(6, b"2", b"b")], 12, {b"a": b"1", b"b": b"2"}, False),
    "delete of a column": (
        [put(5), put(5, b"2", b"b"), marker(DELETE_COLUMN, 6, b"b")],
        12,
        {b"a": b"v"},
        False,
    ),
    "delete of one version of a cell": ([put(5), put(6, b"6"), marker(DELETE, 6, b"a")], 12, {b"a": b"v"}, False),
    "a cell deleted and put again, put first": (
        [put(7, b"new"), marker(DELETE_COLUMN, 6, b"a")],
        14,
        {b"a": b"new"},
        False,
    ),
    "delete of one version of a family": (
        [put(5), put(6, b"6"), marker(DELETE_FAMILY_VERSION, 6)],
        12,
        {b"a": b"v"},
        False,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    """Cells and markers of one row result in what HBase would read, fenced by the newest timestamp."""
    cells, version, alive, deleted = CASES[name]
    assert collapse(cells, b"d") == [RowChange(row=b"row", version=version, cells=alive, deleted=deleted)]


def test_rows_are_kept_apart_and_other_families_left_out() -> None:
    """There is one change per row, in the order of first appearance. HBase's own markers (METAFAMILY) are not rows."""
    cells = [
        put(5)._replace(row=b"2"),
        Cell(b"region", b"METAFAMILY", b"HBASE::REGION_EVENT", 9, PUT, b"open"),
        put(6)._replace(row=b"1"),
        put(7)._replace(row=b"2"),
    ]
    assert [(change.row, change.version) for change in collapse(cells, b"d")] == [(b"2", 14), (b"1", 12)]
