"""A joined table in Iceberg, with a local catalog and without servers: one driver, whole batches, swaps, old files."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from cdc.model.brokers import Brokers
from cdc.model.errors import Fatal, Skippable, UsageError
from cdc.model.types import Canonical, parse_type
from cdc.stored.cells import Barrier, RowCodec
from cdc.stored.lakehouse import IcebergCatalog
from cdc.stored.layout import Layout, LayoutColumn
from joins.runtime.records import RowPut
from joins.stores.iceberg import iceberg_sink, iceberg_visible
from joins.stores.iceberg.arrow_rows import RowCells, columns_of, staged_table
from joins.stores.iceberg.iceberg_runs import load_state, shown_table
from joins.stores.iceberg.iceberg_server import check_warehouse, write_staged
from joins.stores.iceberg.iceberg_table import IcebergTable, OwnedRun
from joins.stores.iceberg.iceberg_visible import decoded, visible_rows
from joins.stores.sink_interfaces import Cut, Run

LAYOUT = Layout(
    topology="t", table="wide", id=1, family="d", row_key=("id",), salt_buckets=3,
    columns=(
        LayoutColumn(name="id", type=parse_type("int32"), origin=""),
        LayoutColumn(name="note", type=parse_type("string"), origin=""),
    ),
)  # fmt: skip
OTHER = replace(
    LAYOUT,
    columns=(
        LAYOUT.columns[0],
        LayoutColumn(name="amount", type=parse_type("list<decimal(6,2)>"), origin=""),
        LayoutColumn(name="note", type=parse_type("int64"), origin=""),
    ),
)


class Driver:
    """Writes batches as a join's driver does. `rows` of a batch are values, or only an id for a delete."""

    def __init__(self, where: IcebergCatalog, name: str, layout: Layout, run: str, committed: int = -1) -> None:
        self.table, self.layout = IcebergTable(where, name), layout
        self.table.settle_layout(layout, "evolve")
        self.run = self.table.open_run(run, committed, layout)

    def stage(self, batch: int, *rows: tuple[Canonical, ...]) -> str:
        convert, folder = RowCells(self.layout), f"{self.run.staging}/{batch}-{time.monotonic_ns()}"
        names = [column.name for column in self.layout.columns]
        cells = [
            convert.row(dict(zip(names, row, strict=False)), RowPut(list(row), 9, b"t") if len(row) > 1 else None)
            for row in rows
        ]
        write_staged(self.table.where.for_tasks, folder, staged_table(self.layout, cells))
        return folder

    def write(self, batch: int, *rows: tuple[Canonical, ...], complete: bool = False) -> int:
        folder, barrier = self.stage(batch, *rows), None if batch == 0 and not complete else barrier_of(batch)
        return self.table.commit_batch(self.run, folder, batch, 100 * batch + 100, barrier, complete=complete)


def barrier_of(batch: int, sequence: int = 0) -> Barrier:
    return Barrier(
        bucket=0, buckets=1, batch=batch, timestamp=100 * batch + 150, positions={"shop": {"sequence": sequence}}
    )


@pytest.fixture
def where(tmp_path: Path) -> IcebergCatalog:
    return IcebergCatalog(
        uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"{tmp_path}/warehouse", namespace="shop", interval=0, retain=3600
    )


def shown(where: IcebergCatalog, name: str = "wide") -> Table:
    table = shown_table(IcebergTable(where, name).catalog, where, name)
    assert table is not None
    return table


def seen(where: IcebergCatalog) -> list[tuple[Any, ...]]:
    """Return what DuckDB reads in the table that readers use."""
    with duckdb.connect() as connected:
        connected.register("wide", shown(where).scan().to_arrow())
        return connected.execute("SELECT * FROM wide ORDER BY id").fetchall()


def test_readers_see_whole_batches_of_a_complete_run(where: IcebergCatalog) -> None:
    """Nothing is seen before the run is complete; then each batch is one snapshot with its barrier, a repeated one
    changes nothing, and only files of touched buckets are replaced.
    """
    driver = Driver(where, "wide", LAYOUT, "first")
    driver.write(0, *((n, f"n{n}") for n in range(30)))
    assert shown_table(driver.table.catalog, where, "wide") is None
    assert driver.table.reached() == {}
    driver.write(1, (3,), (5, "B"), (5,), complete=True)
    files = {task.file.file_path for task in shown(where).scan().plan_files()}
    assert len(files) == LAYOUT.salt_buckets
    assert len(seen(where)) == 29
    assert seen(where)[3:5] == [(4, "n4"), (5, "B")]
    driver.write(2, (4, "C"))
    assert len({task.file.file_path for task in shown(where).scan().plan_files()} - files) == 1
    before = len(shown(where).snapshots())
    again = Driver(where, "wide", LAYOUT, "first", committed=1)  # killed before Spark's commit
    again.write(2, (4, "C"))
    assert seen(where)[3] == (4, "C")
    state = load_state(shown(where))
    assert state is not None
    assert (state.batch, state.barrier) == (2, barrier_of(2))
    assert len(shown(where).snapshots()) <= before + 1, "at most the new owner"
    assert again.table.publish(again.run, barrier_of(2, sequence=7))
    assert again.table.reached() == {"shop": {"sequence": 7}}
    assert not again.table.publish(again.run, barrier_of(1))


@pytest.mark.matrix
def test_a_driver_was_killed_between_its_two_commits(where: IcebergCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are stored, and readers do not see them yet: the repeated batch shows them."""
    driver = Driver(where, "wide", LAYOUT, "first")
    driver.write(0, (1, "a"), complete=True)
    with monkeypatch.context() as killed:
        killed.setattr(IcebergTable, "_show", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            driver.write(1, (2, "b"))
    assert seen(where) == [(1, "a")]
    assert driver.table.barrier() == barrier_of(0), "positions are those of what readers see"
    Driver(where, "wide", LAYOUT, "first", committed=0).write(1, (2, "b"))
    assert seen(where) == [(1, "a"), (2, "b")]


def test_two_drivers_do_not_mix(where: IcebergCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The former owner ends at its next commit, also in the middle of one: a commit needs the snapshot that it read."""
    former = Driver(where, "wide", LAYOUT, "first")
    former.write(0, (1, "a"), complete=True)
    later = list[Driver]()

    def overtaken(table: IcebergTable, known: OwnedRun) -> Any:
        run = mine(table, known)
        if not later:
            later.append(Driver(where, "wide", LAYOUT, "first", committed=0))
        return run

    mine = IcebergTable._mine
    monkeypatch.setattr(IcebergTable, "_mine", overtaken)
    with pytest.raises(Fatal, match="another process writes table wide"):
        former.write(1, (1, "zombie"))
    later[0].write(1, (1, "b"))
    assert seen(where) == [(1, "b")]
    with pytest.raises(Fatal):
        former.table.publish(former.run, barrier_of(1))
    rebuilt = Driver(where, "wide", LAYOUT, "second")
    with pytest.raises(Fatal):
        later[0].write(2, (1, "zombie"))
    rebuilt.write(0, (1, "c"), complete=True)
    assert seen(where) == [(1, "c")]


@pytest.mark.matrix
def test_another_process_commits_in_between(where: IcebergCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repair deletes a row while a batch is merged: the batch is merged again, and both are seen."""
    driver = Driver(where, "wide", LAYOUT, "first")
    driver.write(0, *((n, "a") for n in range(9)), complete=True)
    key, tries, store = RowCodec(LAYOUT).row_key({"id": 4}), list[int](), IcebergTable._store

    def disturbed(table: IcebergTable, *given: Any) -> None:
        tries.append(1)
        if len(tries) == 1:
            IcebergTable(where, "wide").delete_rows({key: 10**6})
        store(table, *given)

    monkeypatch.setattr(IcebergTable, "_store", disturbed)
    driver.write(1, *((n, "b") for n in range(9) if n != 4))
    assert len(tries) == 3, "the repair, and the batch twice"
    assert seen(where) == [(n, "b") for n in range(9) if n != 4]
    driver.table.delete_rows({RowCodec(LAYOUT).row_key({"id": 5}): 200})
    assert len(seen(where)) == 8, "the row was written at 200, so it is not older"


@pytest.mark.matrix
def test_two_versions_become_visible_at_the_same_time(where: IcebergCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two versions find that readers have no table yet. One creates it first; the other finds it and continues."""
    former, later = Driver(where, "wide", LAYOUT, "first"), Driver(where, "wide.v2", LAYOUT, "second")
    original, looks = IcebergTable._shown, list[int]()

    def overtaken(table: IcebergTable) -> Any:
        found = original(table)
        if table is later.table and found is None:
            looks.append(1)
            former.write(0, (1, "a"), complete=True)
        return found

    folder = later.stage(0, (1, "b"))
    monkeypatch.setattr(IcebergTable, "_shown", overtaken)
    later.table.commit_batch(later.run, folder, 0, 100, None, complete=True)
    assert looks == [1]
    assert seen(where) == [(1, "a")]
    later.table.show()
    assert seen(where) == [(1, "b")]


@pytest.mark.parametrize("at", ["catalog", pytest.param("files", marks=pytest.mark.matrix)])
def test_a_run_is_removed_while_another_process_reads_it(
    where: IcebergCatalog, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """A rebuild removes the former run at any moment: after a reader has found it in the catalog, or has read its
    metadata. The reader sees the new rows, and no error about a missing file.
    """
    Driver(where, "wide", OTHER, "shown").write(0, (1, [], 7), complete=True)
    old = Driver(where, "wide.v2", LAYOUT, "former")
    old.write(0, (1, "a"), complete=True)
    rebuilt, reader = Driver(where, "wide.v2", LAYOUT, "rebuilt"), IcebergTable(where, "wide.v2")
    reader.check("t.yml")
    moments = {"catalog": (SqlCatalog, "_convert_orm_to_iceberg"), "files": (iceberg_visible, "read_files")}
    (owner, name), removed = moments[at], list[int]()
    original = getattr(owner, name)

    def disturbed(*given: Any) -> Any:
        if not removed:
            removed.append(1)
            with monkeypatch.context() as undisturbed:
                undisturbed.setattr(owner, name, original)
                rebuilt.write(0, (1, "b"), complete=True)
        return original(*given)

    monkeypatch.setattr(owner, name, disturbed)
    layout, rows = visible_rows(reader)
    assert list(decoded(layout, rows)) == [{"id": 1, "note": "b"}]
    assert removed
    monkeypatch.undo()
    for file in Path(where.warehouse).rglob("*.parquet"):
        file.unlink()
    with pytest.raises(Fatal, match="a file is missing"):
        visible_rows(reader)


def test_versions_swap_with_other_columns_and_back(where: IcebergCatalog) -> None:
    """Readers see one version at a time, whole, with its columns; both follow; dropped ones leave no rows."""
    old = Driver(where, "wide", LAYOUT, "first")
    old.write(0, (1, "a"), complete=True)
    new = Driver(where, "wide.v2", OTHER, "second")
    with pytest.raises(UsageError, match="no complete result"):
        new.table.show()
    new.write(0, (1, ["1.50"], 7), complete=True)
    assert seen(where) == [(1, "a")]
    layout, rows = visible_rows(new.table)
    assert list(decoded(layout, rows)) == [{"id": 1, "amount": ["1.50"], "note": 7}]
    snapshots = len(shown(where).snapshots())
    new.table.show()
    assert len(shown(where).snapshots()) == snapshots + 1
    assert [str(one) for one in seen(where)[0]] == ["1", "[Decimal('1.50')]", "7"]
    old.write(1, (2, "b"))
    new.write(1, (2, [], 8))
    assert [row[2] for row in seen(where)] == [7, 8]
    former = shown(where).scan(snapshot_id=shown(where).snapshots()[0].snapshot_id).to_arrow().to_pylist()
    assert former == [{"id": 1, "note": "a"}], "a former snapshot keeps its columns"
    old.table.show()
    assert seen(where) == [(1, "a"), (2, "b")]
    new.table.drop()
    assert new.table.runs() == []
    assert seen(where) == [(1, "a"), (2, "b")]
    old.table.drop()
    assert shown_table(old.table.catalog, where, "wide") is None


def test_old_files_are_deleted_and_needed_ones_are_not(where: IcebergCatalog, tmp_path: Path) -> None:
    """Each file in the warehouse is used by a snapshot or is metadata; readers of a former snapshot had their time."""
    driver = Driver(where, "wide", LAYOUT, "first")
    driver.write(0, *((n, "a") for n in range(9)), complete=True)
    for batch in range(1, 6):
        driver.write(batch, (batch, "b"))
    kept = len(list(tmp_path.rglob("*.parquet")))
    assert driver.table.expire(0) == 0
    assert len(list(tmp_path.rglob("*.parquet"))) == kept
    rebuilt = Driver(where, "wide", LAYOUT, "second")
    rebuilt.write(0, *((n, "c") for n in range(9)), complete=True)
    assert [run.run for run in rebuilt.table.runs()] == ["second"]
    assert rebuilt.table.expire(time.time_ns() // 1_000_000 + 1000) > 0
    assert len(list(tmp_path.rglob("*.parquet"))) == LAYOUT.salt_buckets
    assert seen(where) == [(n, "c") for n in range(9)]
    assert not list(tmp_path.rglob("*.arrow"))


def test_old_snapshots_of_a_table_without_changes_expire(
    where: IcebergCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only positions are stored, because the changes of the sources are those of other tables. Still, snapshots do not
    accumulate, neither of the stored rows nor of the table that readers use.
    """
    seconds = count(0, 11)
    monkeypatch.setattr(iceberg_sink, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    where = replace(where, retain=0)
    table = IcebergTable(where, "wide")
    sink = iceberg_sink.IcebergSink(
        table, Brokers("localhost:1"), Run(id="first", first_timestamp=1, committed=-1),
        lambda: time.time_ns() // 1_000_000 + 1000, table.settle_layout(LAYOUT, "evolve"),
    )  # fmt: skip
    sink.begin(0)
    sink.sweep()
    for sequence in range(4):
        cut = Cut(batch=0, positions={"shop": {"sequence": sequence}}, ends=(), incomplete=0)
        assert sink.follow(cut, committed=0)
    assert table.reached() == {"shop": {"sequence": 3}}
    (run,) = table.runs()
    assert max(len(one.snapshots()) for one in (run.table, shown(where))) < 5


@pytest.mark.matrix
def test_another_program_compacts_the_table_of_readers(where: IcebergCatalog) -> None:
    """Its files lack row keys: `verify` and `explain` report that. The next commit replaces the files."""
    driver = Driver(where, "wide", LAYOUT, "first")
    driver.write(0, *((n, "a") for n in range(9)), complete=True)
    compacted = shown(where)
    compacted.overwrite(compacted.scan().to_arrow())
    for keys in (None, [RowCodec(LAYOUT).row_key({"id": 2})]):
        with pytest.raises(Skippable, match=r"another program has rewritten files of shop\.wide"):
            visible_rows(driver.table, keys)
    driver.write(1, (9, "b"))
    assert len(visible_rows(driver.table)[1]) == len(seen(where)) == 10


def test_other_tables_and_names_are_refused(where: IcebergCatalog) -> None:
    """A table of another program is not overwritten, lost rows are not ignored, and bad names name their remedy."""
    catalog = IcebergTable(where, "wide").catalog
    catalog.create_table(("shop", "wide"), shown_columns())
    with pytest.raises(UsageError, match="is not of"):
        IcebergTable(where, "wide").check("t.yml")
    with pytest.raises(UsageError, match="lacks the rows of other up to batch 3"):
        Driver(where, "other", LAYOUT, "lost", committed=3)
    for name in ("_key", "a.b", "NOTE"):
        column = LayoutColumn(name=name, type=parse_type("int8"), origin="")
        with pytest.raises(UsageError, match="give it another name in the query"):
            columns_of(replace(LAYOUT, columns=(*LAYOUT.columns, column)))
    with pytest.raises(UsageError, match=r"iceberg\.uri: "):
        IcebergTable(replace(where, uri="nonsense"), "wide").check("t.yml")
    secret = replace(where, uri="postgresql+psycopg://u:s3cret@h/d", properties=(("s3.secret", "s3cret"),))
    assert "s3cret" not in f"{secret} {secret!r}"


def shown_columns() -> Any:
    from joins.stores.iceberg.iceberg_schema import columns_schema

    return columns_schema(LAYOUT, [])


def test_values_survive(where: IcebergCatalog) -> None:
    """Each cell is read back as it was written, also NULL."""
    driver = Driver(where, "wide", LAYOUT, "first")
    rows: list[Mapping[str, Canonical]] = [{"id": 1, "note": None}, {"id": 2, "note": "\0é\U0001f600"}]
    driver.write(0, *((row["id"], row["note"]) for row in rows), complete=True)
    layout, found = visible_rows(driver.table)
    assert sorted(decoded(layout, found), key=lambda row: str(row["id"])) == rows
    _, one = visible_rows(driver.table, [RowCodec(LAYOUT).row_key({"id": 2})])
    assert len(one) == 1


def test_a_catalog_or_warehouse_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """`doctor` checks both. Each error has its own remedy, and no message has the catalog's password."""

    def catalog(uri: str = f"sqlite:///{tmp_path}/catalog.db", warehouse: str = f"{tmp_path}/files") -> IcebergCatalog:
        return IcebergCatalog(uri=uri, warehouse=warehouse, namespace="t", interval=0, retain=60)

    check_warehouse(catalog())
    assert [path for path in (tmp_path / "files").rglob("*") if path.is_file()] == []
    (tmp_path / "file").write_text("")
    for wrong, remedy in (
        (catalog(warehouse=f"{tmp_path}/file/files"), "create the folder"),
        (catalog(uri="sesame"), "docs/iceberg.md"),
        (catalog(uri="nothing+here://u:sesame@h/d"), "docs/iceberg.md"),
    ):
        with pytest.raises(UsageError) as refused:
            check_warehouse(wrong)
        assert remedy in refused.value.hint, refused.value
        assert "sesame" not in str(refused.value)
