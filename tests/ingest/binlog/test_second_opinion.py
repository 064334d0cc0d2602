"""`binlog compare`: differences between two decoders are found, and nothing that must stay hidden is printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ingest.binlog.format.codes import ColumnType as T
from ingest.binlog.format.columns import LoggedColumn
from ingest.binlog.format.flavour import EnumIndex
from ingest.binlog.format.tablemap import TableMap
from ingest.binlog.json.jsonb import JSON_NULL
from ingest.binlog.reading.events import RawEvent
from ingest.binlog.reading.position import BinlogPosition
from ingest.binlog.reading.second_opinion import DecoderComparison, DecoderDifference, OtherRows, same
from ingest.binlog.reading.stream import RowBatch
from ingest.binlog.rows.rows import TableDecoder
from ingest.binlog.transports.mysql_second_opinion import other_rows
from ingest.binlog.transports.uri import ServerAddress
from tailorbird.cli.app import app
from tailorbird.cli.capture.cli_binlog_compare import tables_filter
from tests.ingest.binlog.binlog_servers import Server
from tests.ingest.binlog.type_cases import cases_of
from tests.ingest.binlog.type_matrix import prepare, run

# mysql-replication itself connects with an old name of an argument
pytestmark = pytest.mark.filterwarnings("ignore:'db' is deprecated:DeprecationWarning")
# What mysql-replication 1.0.17 decodes wrongly, or not at all. `run` shows that our values are the server's.
WRONG_THERE = (
    *(f"t_time_{digits}" for digits in range(1, 7)),
    *(f"t_{kind}_{charset}" for kind in ("char", "varchar", "text") for charset in
      ("utf16", "utf32", "cp866", "koi8u", "greek", "euckr")),
    "t_enum_latin1", "t_enum_ucs2", "t_set_latin1", "t_json_opaque", "t_vector",
    *(f"t_{kind}_compressed" for kind in ("varchar", "text", "blob")),
)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "ours", "theirs", "other"),
    [
        (T.LONG, 7, 7, 8),
        (T.DOUBLE, 1.5, 1.5, 1.25),
        (T.NEWDECIMAL, "-0.10", Decimal("-0.1"), Decimal("0.1")),
        (T.DATE, "2024-02-29", date(2024, 2, 29), date(2024, 2, 28)),
        (T.DATETIME2, "2024-02-29 12:00:00.5", datetime(2024, 2, 29, 12, 0, 0, 500_000), datetime(2024, 2, 29, 12)),
        (T.TIME2, "-01:00:00.5", -timedelta(hours=1, seconds=0.5), timedelta(hours=-1, seconds=0.5)),
        (T.BIT, 5, "0101", "0100"),
        (T.SET, "a,b", {"b", "a"}, {"a"}),
        (T.JSON, {"a": [1, JSON_NULL]}, {b"a": [1, None]}, {b"a": [1]}),
        (T.STRING, b"\x01\x00\x00", b"\x01", b"\x02"),
        (T.VARCHAR, "é", "é", "e"),
        (T.VARCHAR, "", "", None),
        (T.LONG, None, None, 0),
    ],
)
def test_values_are_compared_by_their_meaning(kind: T, ours: Any, theirs: Any, other: Any) -> None:
    """Both decoders return other Python types; what is different is a difference."""
    column = LoggedColumn(index=0, name="c", type=kind)
    assert same(column, ours, theirs) == "same"
    assert same(column, ours, other) == "different"


@pytest.mark.parametrize(
    ("kind", "ours", "theirs"),
    [
        (T.DATE, "2024-00-10", None), (T.DATETIME2, "0000-00-00 00:00:00", None), (T.YEAR, 0, 1900),
        (T.TIMESTAMP2, "0000-00-00 00:00:00", datetime(1970, 1, 1)), (T.SET, "", None), (T.JSON, JSON_NULL, None),
        (T.ENUM, EnumIndex(1), "a"), (T.GEOMETRY, b"x", b"y"), (T.STRING, "ä", b"\xe4"),
    ],
)  # fmt: skip
def test_values_that_the_other_decoder_lacks_are_not_compared(kind: T, ours: Any, theirs: Any) -> None:
    """They are counted, so that nobody takes them for equal."""
    assert same(LoggedColumn(index=0, name="c", type=kind), ours, theirs) == "unknown"


def batch(end: int, *rows: Any, operation: Any = "insert") -> RowBatch:
    columns = tuple(LoggedColumn(index=at, name=name, type=T.LONG, named=True) for at, name in enumerate(("id", "pin")))
    decoder = TableDecoder(TableMap(table_id=1, database="d", table="t", columns=columns))
    return RowBatch(operation, decoder, list(rows), RawEvent(30, b"", "binlog.000009", end - 10, end))


def other(end: int, *rows: tuple[dict[str, Any], ...], failed: str = "", file: str = "binlog.000009") -> OtherRows:
    return OtherRows(file=file, end=end, table="d.t", rows=rows, failed=failed)


def found(ours: list[RowBatch], theirs: list[OtherRows], *, filtered: bool = False) -> list[DecoderDifference]:
    comparison = DecoderComparison(hides=lambda table, column: (table, column) == ("d.t", "pin"), filtered=filtered)
    differences = list(comparison.compare(iter(ours), iter(theirs)))
    assert comparison.counts["differences"] == len(differences)
    return differences


def test_events_are_paired_by_their_place() -> None:
    """An event that one decoder lacks is reported, and the next ones are compared with their own counterparts."""
    row = {"id": 1, "pin": 2}
    ours = [batch(end, row) for end in (100, 200, 300)]
    assert found(ours, [other(end, (row,)) for end in (100, 200, 300)]) == []
    (one,) = found(ours, [other(100, (row,)), other(300, (row,))])
    assert (one.kind, one.place) == ("missing", "binlog.000009:190")
    (one,) = found(ours[:2], [other(end, (row,)) for end in (100, 150, 200)])
    assert (one.kind, one.place) == ("extra", "binlog.000009, end 150")
    (one,) = found(ours[:1], [other(100, failed="mysql-replication raised KeyError")])
    assert (one.kind, one.theirs) == ("failed", "mysql-replication raised KeyError")
    (one,) = found(ours[:1], [other(100, (row,), (row,))])
    assert (one.kind, one.ours, one.theirs) == ("rows", "d.t: 1", "d.t: 2")
    (one,) = found(ours[:1], [other(100, (row,)), other(50, (row,), file="binlog.0000010")])
    assert one.kind == "extra", "the next file comes after the older one"


def test_an_unreadable_event_of_an_unknown_table_is_no_difference_if_tables_are_chosen() -> None:
    """It may be of a table that was not asked for. If it is of a chosen one, that table's rows are missing."""
    row = {"id": 1, "pin": 2}
    unknown = OtherRows(file="binlog.000009", end=100, table="", failed="mysql-replication raised KeyError")
    ours, theirs = [batch(100, row), batch(200, row)], [unknown, other(100, (row,)), unknown, other(200, (row,))]
    assert {one.kind for one in found(ours, theirs)} == {"failed", "extra"}
    assert found(ours, theirs, filtered=True) == []
    (one,) = found(ours, theirs[:3], filtered=True)
    assert (one.kind, one.table, one.place) == ("missing", "d.t", "binlog.000009:190")


@pytest.mark.parametrize(
    ("tables", "inside", "outside"),
    [
        ("Shop.Orders,crm.leads", {"schemas": ["SHOP", "crm"], "tables": ["orders", "LEADS"]},
         {"schemas": ["other"], "tables": ["users"]}),
        ("shop.orders,crm.*", {"schemas": ["shop", "CRM"]}, {"schemas": ["other"]}),
        ("", {}, {}),
    ],
)  # fmt: skip
def test_the_other_decoder_does_not_read_what_nobody_asked_for(
    monkeypatch: pytest.MonkeyPatch, tables: str, inside: dict[str, list[str]], outside: dict[str, list[str]]
) -> None:
    """It receives the names in any case. What fails before its table is known has no table."""
    given = dict[str, Any]()

    class Stream:
        log_file, log_pos = "binlog.000009", 100

        def __init__(self, login: Any, **settings: Any) -> None:
            given.update(settings)
            self.events = iter([KeyError(246), None])

        def fetchone(self) -> None:
            if (event := next(self.events)) is not None:
                raise event

        def close(self) -> None:
            given["closed"] = True

    monkeypatch.setattr("pymysqlreplication.BinLogStreamReader", Stream)
    begin = BinlogPosition(file="binlog.000009", position=4)
    (one,) = other_rows(ServerAddress(host="h", user="u", password="p"), begin, begin, tables_filter(tables))
    assert (one.table, one.failed, given["closed"]) == ("", "mysql-replication raised KeyError", True)
    assert {name for name in given if name.startswith("only_")} == {"only_events", *(f"only_{kind}" for kind in inside)}
    for kind, names in inside.items():
        assert all(name in given[f"only_{kind}"] for name in names)
    for kind, names in outside.items():
        assert not any(name in given[f"only_{kind}"] for name in names)


def test_values_of_hidden_columns_are_not_shown() -> None:
    """The difference is reported with row and column; of both images of an update."""
    before, after = {"id": 1, "pin": 4711}, {"id": 2, "pin": 4712}
    differences = found(
        [batch(100, (before, after), operation="update")], [other(100, ({"id": 1, "pin": 9}, {"id": 3, "pin": 4712}))]
    )
    assert [(one.row, one.column, one.ours, one.theirs) for one in differences] == [
        (0, "pin", "(hidden)", "(hidden)"), (0, "id", "2", "3"),
    ]  # fmt: skip
    assert "4711" not in repr(differences)


def compared(*words: str) -> tuple[int, list[str], str]:
    done = CliRunner().invoke(app, ["binlog", "compare", *words])
    return done.exit_code, done.stdout.splitlines(), f"{done.output}{done.exception}"


def check_types(server: Server) -> None:
    """Insert, update and delete values of all types; both decoders agree, except for the other's known faults."""
    cases = cases_of(server.flavour)
    with server.session() as session, session.cursor() as cursor:
        cursor.execute("SET GLOBAL binlog_row_metadata = FULL")
        cursor.execute("DROP DATABASE IF EXISTS compared")
        cursor.execute("FLUSH BINARY LOGS")
    with server.session() as session, session.cursor() as cursor:
        cursor.execute("SHOW BINARY LOGS")
        start = f"{cursor.fetchall()[-1][0]}:4"
    prepare(server, cases, "compared")
    assert run(server, cases, "compared", "FULL", schema=True) == []
    code, lines, output = compared(server.uri, "--from", start, "--tables", "compared.*", "--json")
    assert (code, bool(lines)) == (1, True), output
    *differences, counts = map(json.loads, lines)
    tables = {one["table"].removeprefix("compared.").removesuffix("_all") for one in differences}
    assert tables - {""} <= set(WRONG_THERE), sorted(tables - set(WRONG_THERE))
    assert "t_time_3" in tables, "its known fault was not found"
    assert counts["values"] > 10_000
    assert not {"LONG", "LONGLONG", "NEWDECIMAL", "TIME2", "DOUBLE"} & set(counts["not_compared"])


@pytest.mark.matrix
@pytest.mark.integration
@pytest.mark.timeout(900)
@pytest.mark.parametrize("flavour", ["mysql80", "mysql9", "maria10", "maria11"])
def test_two_decoders_agree_on_a_real_server(servers: Callable[[str], Server], flavour: str) -> None:
    """A second opinion about every type: what both know is equal on MySQL and MariaDB."""
    check_types(servers(flavour))


@pytest.mark.matrix
@pytest.mark.integration
@pytest.mark.timeout(300)
@pytest.mark.parametrize("flavour", ["mysql80", "maria11"])
def test_the_source_of_a_topology_is_compared(servers: Callable[[str], Server], flavour: str, tmp_path: Path) -> None:
    """Captured tables only, without differences exit code 0; a masked column with a difference has no values."""
    server = servers(flavour)
    with server.session() as session, session.cursor() as cursor:
        cursor.execute("SET GLOBAL binlog_row_metadata = FULL")
        cursor.execute("DROP DATABASE IF EXISTS own")
        cursor.execute("CREATE DATABASE own")
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("CREATE TABLE own.t (id INT PRIMARY KEY, pin TIME(3), v TEXT)")
        cursor.execute("CREATE TABLE own.other (id INT PRIMARY KEY, pin TIME(3))")
        cursor.execute("INSERT INTO own.t VALUES (1, '10:00:00.5', 'a'), (2, NULL, 'b')")
        cursor.execute("UPDATE own.t SET v = 'c'")
        cursor.execute("INSERT INTO own.other VALUES (1, '-10:00:00.5')")
        cursor.execute("SHOW BINARY LOGS")
        start = f"{cursor.fetchall()[-1][0]}:4"
    file = tmp_path / "own.yml"
    file.write_text(
        f"name: own\nsources:\n  s: {{type: {'mariadb' if server.maria else 'mysql'}, hostname: 127.0.0.1, "
        f"port: {server.port}, username: cdc, password: cdc, server_id: 99, database: own, "
        "tables: {t: {mask: {pin: redact}}}}\nlog: {bootstrap_servers: '127.0.0.1:1'}\n"
    )
    code, lines, output = compared(str(file), "--from", start)
    assert (code, lines) == (0, ["2 events, 4 rows, 18 values, 0 differences"]), output
    with server.session() as session, session.cursor() as cursor:
        cursor.execute("INSERT INTO own.t VALUES (3, '-11:22:33.25', 'd')")
    code, lines, output = compared(str(file), "--from", start, "--json")
    (difference, _) = map(json.loads, lines)
    assert (code, difference["column"], difference["ours"], difference["theirs"]) == (1, "pin", "(hidden)", "(hidden)")
    assert "11:22:3" not in output
    with server.session() as session, session.cursor() as cursor:
        cursor.execute("SET GLOBAL binlog_row_metadata = MINIMAL")
    code, _, output = compared(server.uri)
    assert code != 0
    assert "binlog_row_metadata is MINIMAL" in output
