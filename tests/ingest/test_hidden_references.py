"""Changes of a parent whose referenced columns are hidden: their values must not enter the checkpoint."""

from __future__ import annotations

from cdc.model.filters import TableRule
from cdc.model.schema import TableId
from ingest.ddl.catalog import Catalog, ColumnDefinition, Key, TableDefinition
from ingest.ddl.dialect import dialect_of
from ingest.events.foreign_keys import ForeignKey, ForeignKeys
from ingest.events.log_events import RowsLogged
from ingest.events.tables import Tables
from ingest.records.records import Recorder
from ingest.records.snapshots import Snapshots
from ingest.repair.rounds import RepairRunner

PARENT, BY_ID, BY_SECRET = (TableId(source="s", database="d", table=name) for name in ("p", "by_id", "by_secret"))
KEYS = ForeignKeys(
    ForeignKey(child, ("p",), PARENT, (column,), "CASCADE", "CASCADE")
    for child, column in ((BY_ID, "id"), (BY_SECRET, "secret"))
)


class CountedTables(Tables):
    """Tables that count how often they are asked for hidden columns."""

    asked = 0

    def hides(self, table: TableId, *columns: str) -> bool:
        self.asked += 1
        return super().hides(table, *columns)


def tables() -> CountedTables:
    rules = {PARENT: TableRule(ignored_columns=("secret",))}
    found = CountedTables("s", ["d"], lambda database, table: database == "d", dialect_of("mysql"), rule_of=rules.get)
    columns = tuple(
        ColumnDefinition(name=name, column_type="int", nullable=False, charset=None) for name in ("id", "secret", "p")
    )
    table = TableDefinition(columns=columns, keys=(Key(name="PRIMARY", kind="primary", columns=("id",)),))
    found.begin(Catalog(databases={"d": "utf8mb4"}, tables={("d", each.table): table for each in KEYS.below([PARENT])}))
    return found


def test_children_by_hidden_columns_are_read_again() -> None:
    """The other children are found by the parent's values. What is hidden is asked only when foreign keys change."""
    found = tables()
    snapshots = Snapshots(Recorder("top"), found, {})
    repairs = RepairRunner(Recorder("top"), found, snapshots, {})
    repairs.set_foreign_keys(KEYS, exactly=True)
    asked = found.asked
    for number in range(3):
        row = {"id": number, "secret": 100 + number, "p": 0}
        repairs.follow(RowsLogged(PARENT, "delete", (row,), True, "f1", 4))
    assert list(snapshots.state) == [BY_SECRET.name]
    assert [list(repair.lost) for table, repair in repairs.repairs.items() if table == BY_ID] == [
        [(("p",), (number,), None) for number in range(3)]
    ]
    assert BY_SECRET not in repairs.repairs
    assert found.asked == asked
    repairs.set_foreign_keys(ForeignKeys(), exactly=True)
    repairs.set_foreign_keys(KEYS, exactly=True)
    assert found.asked > asked
