"""Read the rows of a joined table in Iceberg that readers see, with the columns that they do not see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyiceberg.expressions import In, Reference
from pyiceberg.expressions.literals import literal

from cdc.model.errors import Skippable
from cdc.model.types import Canonical
from cdc.stored.layout import Layout
from joins.stores.iceberg.arrow_rows import KEY, from_cell, plain_column
from joins.stores.iceberg.iceberg_files import ALL, read_files
from joins.stores.iceberg.iceberg_table import IcebergTable


def visible_rows(table: IcebergTable, keys: Sequence[bytes] | None = None) -> tuple[Layout, pa.Table]:
    """Return the rows, all or those with some row keys, of one state of the table between two batches.

    The data files are those of the table that readers use, if it shows this version. Raises Skippable before the first
    complete result, and if another program has rewritten files, which then lack row keys."""

    def read() -> tuple[Layout, pa.Table]:
        runs, shown = table.runs(), table.shown()
        complete = [one for one in runs if one.state.complete]
        if not complete:
            raise Skippable(f"table {table.name} has no complete result yet")
        run, files = complete[-1], complete[-1].table
        if shown is not None and (same := [one for one in complete if one.number == shown[1].number]):
            run, files = same[0], shown[0]
        where = ALL if keys is None else In(term=Reference(KEY), values={literal(key) for key in keys})
        tasks, own = list(files.scan().plan_files()), f"{run.table.location()}/"
        if not all(task.file.file_path.startswith(own) for task in tasks):
            what = f"another program has rewritten files of {'.'.join(files.name())} in {table.where}"
            raise Skippable(what, "the next commit of the join replaces them")
        return run.layout, read_files(run.table, tasks, run.layout, where)

    return table.call(read)


def decoded(layout: Layout, rows: pa.Table) -> Iterator[Mapping[str, Canonical]]:
    """Yield the canonical values of rows, by column."""
    names = [column.name for column in layout.columns]
    cells = [plain_column(rows[column.name], column.type) for column in layout.columns]
    readers = [from_cell(column.type) for column in layout.columns]
    for row in zip(*cells, strict=True):
        yield {name: None if cell is None else read(cell) for name, cell, read in zip(names, row, readers, strict=True)}
