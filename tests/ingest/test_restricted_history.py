"""A history that was stored before the host's policy restricted it: the next start stores it again without the rest."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import orjson

from cdc.model.event import Position
from cdc.model.filters import TableRule
from cdc.model.naming import history_topic, schemas_topic
from cdc.model.schema import TableId
from ingest.capture.commits import Commits
from ingest.capture.marks import Marks
from ingest.capture.observer import Observer
from ingest.ddl.catalog import Catalog, ColumnDefinition, Key, TableDefinition
from ingest.ddl.dialect import dialect_of
from ingest.events.log_events import StatementLogged
from ingest.events.restricted import Restriction
from ingest.events.tables import Tables
from ingest.log.memory_log import Broker, MemoryLog
from ingest.records.capture_interfaces import Checkpoint
from ingest.records.records import Recorder
from ingest.records.snapshots import Snapshots
from ingest.repair.rounds import RepairRunner

START = Position(file="f", pos=4, gtid_set="", sequence=0)
RULES = {"open": TableRule(ignored_columns=("mail",))}
RESTRICTION = Restriction(
    source="s", databases=frozenset({"d"}), rule=lambda table: RULES.get(table.table) if table.database == "d" else None
)


def tables(restriction: Restriction | None) -> Tables:
    dialect = dialect_of("mysql")
    rules = {TableId(source="s", database="d", table=name): rule for name, rule in RULES.items()}
    captured = {("d", "open")}
    return Tables(
        "s", ["d"], lambda *name: name in captured, dialect, "utf8mb4", rules.get, restriction=restriction
    )  # fmt: skip


def definition() -> TableDefinition:
    columns = (
        ColumnDefinition(name="id", column_type="int", nullable=False, charset=None),
        ColumnDefinition(name="mail", column_type="varchar(50)", nullable=False, charset="utf8mb4", default="a@secret"),
    )
    return TableDefinition(columns=columns, keys=(Key(name="PRIMARY", kind="primary", columns=("id",)),))


def written() -> Broker:
    """Return a log whose history was written without a restriction."""
    broker, known = Broker(), tables(None)
    log, recorder = MemoryLog(broker, schemas_topic("top"), history_topic("top")), Recorder("top")
    log.recover()
    shown = {("d", name): definition() for name in ("open", "private")}
    log.extend(recorder.history(known.begin(Catalog(databases={"d": "utf8mb4"}, tables=shown)).history))
    for sequence, sql in enumerate(("ALTER TABLE open ADD v INT COMMENT 'of ann@secret'", "DROP TABLE private"), 1):
        change = known.statement(StatementLogged("d", sql, 1, 0), replace(START, pos=9, sequence=sequence))
        log.extend(recorder.history(change.history))
    log.commit(Checkpoint(position=replace(START, pos=9, sequence=2), snapshot="done", ts_ms=1))
    return broker


def started(broker: Broker, restriction: Restriction | None) -> list[str]:
    """Tidy the history as a start does, and return what was logged."""
    said: list[str] = []
    observer = Observer()
    observer.phase = lambda what, **_: said.append(what)  # type: ignore[method-assign]
    log, recorder = MemoryLog(broker, schemas_topic("top"), history_topic("top")), Recorder("top")
    known = tables(restriction)
    recovered = log.recover()
    assert recovered.checkpoint is not None
    known.restore(recovered.history, recovered.checkpoint.position)
    source = SimpleNamespace(holds=lambda position: True, release=lambda position: None)
    parts: Any = SimpleNamespace(source=source, log=log, recorder=recorder, observer=observer, clock=lambda: 1.0)
    commits, repairs = Commits(parts, Marks()), RepairRunner(recorder, known, Snapshots(recorder, known, {}), {})
    commits.marks.restore("s", recovered.history)
    commits.tidy(recovered.checkpoint, recovered.history, known, repairs)
    return said


def stored(broker: Broker) -> bytes:
    """Return the history that a start reads."""
    return orjson.dumps(MemoryLog(broker, schemas_topic("top"), history_topic("top")).history())


def test_a_start_under_a_policy_removes_what_must_not_leave() -> None:
    """Statements, defaults and labels of hidden columns, and other tables; the next start changes nothing."""
    broker = written()
    assert started(broker, None) == []
    assert b"secret" in stored(broker)
    assert b"private" in stored(broker)
    assert started(broker, RESTRICTION) == ["history rewritten"]
    assert b"secret" not in stored(broker)
    newest = {record.key: record.value for record in broker.records if record.topic == history_topic("top")}
    assert not [key for key, value in newest.items() if value is not None and (b"private" in key or b"secret" in value)]
    assert started(broker, RESTRICTION) == []
    known = tables(RESTRICTION)
    known.restore(orjson.loads(stored(broker)), broker.checkpoints[-1].position)
    assert [column.name for column in known.schema(TableId(source="s", database="d", table="open")).columns] == [
        "id",
        "v",
    ]
