"""Signals to a running capture: Debezium's formats; signals for other tables are refused."""

from __future__ import annotations

import pytest

from cdc.model.filters import TableRule
from cdc.model.schema import Column, TableId
from cdc.topology.topology import Source, SourceType
from ingest.capture.checked_signals import CheckedSignals
from ingest.capture.observer import Observer
from ingest.capture.signals import Signal, repair_value, signal_of, signal_value
from ingest.ddl.dialect import dialect_of
from ingest.events.tables import Tables
from ingest.records.records import Recorder
from ingest.records.snapshots import REPAIRS_ONLY, Snapshots
from ingest.repair.repairs import OpenRepairs, name_of


def number() -> int:
    return 7


def known() -> tuple[Tables, Snapshots]:
    tables = Tables("s", ["d"], lambda database, table: (database, table) == ("d", "t"), dialect_of("mysql"))
    return tables, Snapshots(Recorder("top"), tables, {})


def test_a_snapshot_is_begun_filtered_and_stopped() -> None:
    """execute-snapshot with its additional condition, as Debezium writes it; stop-snapshot ends it."""
    tables, snapshots = known()
    signal = signal_of(signal_value("execute-snapshot", ("d.t",), "id > 5"))
    assert signal.execute(snapshots, tables, number) == ""
    assert snapshots.state == {"d.t": {"rows": 0, "whole": True, "where": "id > 5", "marker": REPAIRS_ONLY}}
    assert signal_of(signal_value("stop-snapshot", ("d.t",))).execute(snapshots, tables, number) == ""
    assert snapshots.state == {}


def test_only_a_snapshot_that_a_signal_limits_is_given_up() -> None:
    """Its condition may be one that the server refuses. The table keeps all rows that it had; other snapshots are
    necessary, so capture tries them again."""
    tables, snapshots = known()
    table = tables.named("d.t")
    Signal(type="execute-snapshot", tables=("d.t",)).execute(snapshots, tables, number)
    assert not snapshots.give_up(table)
    assert snapshots.state
    snapshots.gone(table)
    signal_of(signal_value("execute-snapshot", ("d.t",), "nothing = 5")).execute(snapshots, tables, number)
    assert snapshots.give_up(table)
    assert (snapshots.state, snapshots.partial) == ({}, set())
    assert snapshots.take_moved()


def test_a_snapshot_of_all_rows_ends_with_a_marker_of_its_start() -> None:
    """Rows that it does not see are deleted at its end; a condition that arrives while it runs does not limit it."""
    tables, snapshots = known()
    assert Signal(type="execute-snapshot", tables=("d.t",)).execute(snapshots, tables, number) == ""
    assert snapshots.state == {"d.t": {"rows": 0, "whole": True, "marker": 7}}
    signal_of(signal_value("execute-snapshot", ("d.t",), "id > 5")).execute(snapshots, tables, number)
    assert snapshots.state == {"d.t": {"rows": 0, "whole": True, "marker": 7}}


def test_other_signals_are_refused_with_the_reason() -> None:
    """Nothing is ignored silently: an unknown type and a table that is not captured are named."""
    tables, snapshots = known()
    assert "d.x is not captured" in Signal(type="execute-snapshot", tables=("d.x",)).execute(snapshots, tables, number)
    assert "none of" in Signal(type="log").execute(snapshots, tables, number)
    assert snapshots.state == {}


def test_pause_and_resume() -> None:
    """A paused snapshot reads nothing more, and keeps its position."""
    tables, snapshots = known()
    Signal(type="pause-snapshot").execute(snapshots, tables, number)
    assert snapshots.paused
    Signal(type="resume-snapshot").execute(snapshots, tables, number)
    assert not snapshots.paused


def test_a_schema_signal_needs_a_table_and_columns() -> None:
    """schema-set requires one table and its columns."""
    columns = [{"name": "id", "column_type": "int", "nullable": False, "charset": None}]
    data = {"data-collections": ["d.t"], "columns": columns, "primary-key": ["id"]}
    event = signal_of({"type": "schema-set", "data": data}).described(known()[0])
    assert (str(event.table), event.columns[0].column_type, event.primary_key) == ("s.d.t", "int", ("id",))
    with pytest.raises(ValueError, match="columns"):
        signal_of({"type": "schema-set", "data": {"data-collections": ["d.t"]}})


@pytest.mark.parametrize(("database", "table"), [("shop", "b.c"), ("a.b", "c"), ("a.b", "c.d"), (".a", "b.")])
def test_a_name_may_contain_a_dot(database: str, table: str) -> None:
    """MySQL allows it: signals, and the stored progress, refer to the captured table."""
    tables = Tables("s", [database], lambda *name: name == (database, table), dialect_of("mysql"))
    wanted, text = TableId(source="s", database=database, table=table), f"{database}.{table}"
    snapshots = Snapshots(Recorder("top"), tables, {})
    assert Signal(type="execute-snapshot", tables=(text,)).execute(snapshots, tables, number) == ""
    assert snapshots.state == {wanted.name: {"rows": 0, "whole": True, "marker": 7}}
    again = Snapshots(Recorder("top"), tables, snapshots.state)
    assert again._table(text) == again._table(wanted.name) == wanted
    described = Signal(type="schema-set", tables=(text,), columns=(Column(name="id", column_type="int"),))
    assert described.described(tables).table == wanted
    repairs = OpenRepairs(Recorder("top"), tables, again, {})
    assert repairs._id(name_of(wanted)) == wanted


def test_the_name_of_an_uncaptured_table_is_split_at_its_first_dot() -> None:
    """This reads what a former run has stored of a table that has been left out since."""
    tables, _ = known()
    assert tables.named("x.y.z") == TableId(source="s", database="x", table="y.z")
    assert tables.named("x") == TableId(source="s", database="", table="x")


def test_rows_are_named_by_their_keys() -> None:
    """mend-rows requires one table and keys; they are repaired like rows that the log contains in part."""
    signal = signal_of(repair_value("d.t", [{"id": 1}, {"id": 2}]))
    assert (signal.type, signal.tables, signal.keys) == ("mend-rows", ("d.t",), ({"id": 1}, {"id": 2}))
    for data in ({"data-collections": ["d.t"]}, {"data-collections": ["d.t"], "keys": ["1"]}):
        with pytest.raises(ValueError, match="keys"):
            signal_of({"type": "mend-rows", "data": data})
    tables, snapshots = known()
    repairs = OpenRepairs(Recorder("top"), tables, snapshots, {})
    assert "not captured" in repairs.request_rows(TableId(source="s", database="d", table="x"), signal.keys)


class SentSignals(Observer):
    """Signals that were sent before, and the refusals that a capture reports."""

    def __init__(self, *signals: Signal) -> None:
        self.signals, self.refusals = list(signals), list[object]()

    def read(self, start: int | None) -> tuple[list[Signal], int | None]:
        return self.signals, 3

    def close(self) -> None:
        self.signals = []

    def phase(self, what: str, **details: object) -> None:
        self.refusals.append(details["refused"])


RULES = {
    "people": TableRule(ignored_columns=("pin",), masks={"mail": "redact"}),
    "Mixed": TableRule(ignored_columns=("Pin",), exact_case=True),
}


def checked(kind: SourceType, *signals: Signal) -> tuple[list[Signal], list[object]]:
    """Return the signals that reach a capture, and the reasons of the others."""
    rules = {TableId(source="s", database="d", table=name): rule for name, rule in RULES.items()}
    source = Source(
        name="s", type=kind, hostname="", port=0, username="", password="", database="d", tables=(), server_id=1,
        snapshot_mode="initial", rules=rules, url="oracle+oracledb://db/x" if kind == "sql" else "",
    )  # fmt: skip
    sent = SentSignals(*signals)
    found, following = CheckedSignals(signals=sent, source=source, observer=sent).read(1)
    assert following == 3, "a refused signal is not read again"
    return found, sent.refusals


@pytest.mark.parametrize(
    ("kind", "table", "where", "why"),
    [
        ("mysql", "d.other", "0) UNION SELECT user, authentication_string FROM mysql.user -- ", "is not a condition"),
        ("mysql", "d.other", "id = (SELECT max(id) FROM mysql.user)", "must not contain"),
        ("mysql", "d.other", "SLEEP(10)", "must not contain"),
        ("mysql", "d.people", "pin LIKE '12%'", "must not use column pin"),
        ("mysql", "d.people", "pİn LIKE '12%'", "must not use column pİn"),
        ("mariadb", "d.people", "MAIL = 'a@x'", "must not use column MAIL"),
        ("postgresql", "d.other", "id = 1); SELECT pg_sleep(9) -- ", "is not a condition"),
        ("postgresql", "d.other", "pg_read_file('/etc/passwd') IS NULL", "must not contain"),
        ("postgresql", "d.people", "PIN = '1'", "must not use column PIN"),
        ("postgresql", "d.Mixed", "\"Pin\" = '1'", "must not use column Pin"),
        ("sql", "d.Mixed", "PIN = '1'", "must not use column PIN"),
        ("sql", "d.other", "id = (SELECT max(id) FROM users)", "must not contain"),
    ],
)
def test_a_condition_that_could_reveal_hidden_data_is_refused(
    kind: SourceType, table: str, where: str, why: str
) -> None:
    """A client that may write to Kafka cannot read other tables, call functions, or compare hidden columns."""
    found, refusals = checked(kind, signal_of(signal_value("execute-snapshot", (table,), where)))
    assert found == []
    assert len(refusals) == 1
    assert why in str(refusals[0])


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        ("mysql", "`a b` = 'x' AND id IN (1, 2)"),
        ("mysql", "(k = x'00ff') OR (k = x'01')"),
        ("postgresql", '"a b" = \'x\\y\' AND "Id" > 5'),
        ("postgresql", "Pin = 1"),
        ("sql", "\"a b\" = 'x' AND id > 5"),
    ],
)
def test_a_condition_of_columns_and_constants_reaches_the_capture(kind: SourceType, where: str) -> None:
    """A replay of dead letters sends such conditions. PostgreSQL looks up `Pin` as `pin`, which is another column."""
    found, refusals = checked(kind, signal_of(signal_value("execute-snapshot", ("d.Mixed",), where)))
    assert refusals == []
    assert found[0].filters == {"d.Mixed": where}
