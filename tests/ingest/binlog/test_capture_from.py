"""A capture that begins at a position from before it existed: its rows are those that the statements wrote."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cdc.model.errors import UsageError
from tests.ingest.binlog.binlog_servers import Server
from tests.support.captured_memory import MemoryCapture

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
FLAVOURS = ["mysql80", *(pytest.param(name, marks=pytest.mark.matrix) for name in ("maria10", "mysql9", "maria11"))]
TABLES = ("plain", "named", "unnamed", "fresh", "gone")
OLD = [
    "CREATE TABLE plain (id INT PRIMARY KEY, v VARCHAR(9))",
    "CREATE TABLE named (id INT PRIMARY KEY, name VARCHAR(9), n INT UNSIGNED)",
    "CREATE TABLE unnamed (id INT PRIMARY KEY, a INT, b INT)",
    "CREATE TABLE gone (id INT PRIMARY KEY, v ENUM('x','y'))",
    "INSERT INTO plain VALUES (1, 'old'), (2, 'old')",
    "FLUSH BINARY LOGS",
    "INSERT INTO named VALUES (1, 'old', 1)",
]
# the statements after the position, and the change of each: (table, operation, row before, row after)
SINCE: list[tuple[str, list[tuple[str, str, Any, Any]]]] = [
    ("INSERT INTO plain VALUES (3, 'c')", [("plain", "c", None, {"id": 3, "v": "c"})]),
    ("UPDATE plain SET v = 'u' WHERE id = 1", [("plain", "u", {"id": 1, "v": "old"}, {"id": 1, "v": "u"})]),
    ("FLUSH BINARY LOGS", []),
    ("SET GLOBAL binlog_row_metadata = 'FULL'", []),
    (
        "UPDATE named SET n = 4294967295",
        [("named", "u", {"id": 1, "name": "old", "n": 1}, {"id": 1, "name": "old", "n": 4294967295})],
    ),
    ("ALTER TABLE named CHANGE name title VARCHAR(20), ADD extra INT AFTER id", []),
    (
        "INSERT INTO named VALUES (2, 7, 't', 5)",
        [("named", "c", None, {"extra": 7, "id": 2, "title": "t", "n": 5})],
    ),
    ("INSERT INTO gone VALUES (1, 'y')", [("gone", "c", None, {"id": 1, "v": "y"})]),
    ("DROP TABLE gone", [("gone", "t", None, None)]),
    ("SET GLOBAL binlog_row_metadata = DEFAULT", []),
    ("INSERT INTO unnamed VALUES (1, 10, 20)", []),  # not decodable: its columns changed places later
    ("ALTER TABLE unnamed CHANGE a c INT", []),
    ("ALTER TABLE unnamed CHANGE b a INT", []),
    ("ALTER TABLE unnamed CHANGE c b INT", []),
    ("CREATE TABLE fresh (id INT PRIMARY KEY, v ENUM('x','y') CHARACTER SET latin1)", []),
    ("INSERT INTO fresh VALUES (1, 'y')", [("fresh", "c", None, {"id": 1, "v": "y"})]),
    ("ALTER TABLE fresh ADD w INT", []),
    ("INSERT INTO fresh VALUES (2, 'x', 3)", [("fresh", "c", None, {"id": 2, "v": "x", "w": 3})]),
    ("DELETE FROM plain WHERE id = 2", [("plain", "d", {"id": 2, "v": "old"}, None)]),
]


@dataclass
class History:
    """A database whose statements ran before any capture; `places` names one position in three ways."""

    server: Server
    folder: Path
    database: str
    places: dict[str, str] = field(default_factory=dict)
    changes: list[tuple[str, str, Any, Any]] = field(default_factory=lambda: [c for _, found in SINCE for c in found])

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        with self.server.session(database=self.database) as connected, connected.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def write(self) -> None:
        """Run all statements, and note the position between the old ones and those since."""
        self.run(*OLD)
        time.sleep(1.1)  # MariaDB logs times in whole seconds
        file, pos, *_ = self.run("SHOW BINARY LOGS")[-1]
        variable = "gtid_binlog_pos" if self.server.maria else "gtid_executed"
        ((gtids,),) = self.run(f"SELECT @@GLOBAL.{variable}")
        now = datetime.now(UTC).isoformat()
        self.places = {"gtid": str(gtids).replace("\n", ""), "position": f"{file}:{pos}", "time": now}
        time.sleep(1.1)
        for statement, _ in SINCE:
            self.run(statement)

    @contextmanager
    def captured(self, begin: str, extra: str = "") -> Iterator[MemoryCapture]:
        """Capture from a position until the end of the block."""
        capture = MemoryCapture(self.server, self.folder, self.database, TABLES, begin=begin, extra=extra)
        try:
            yield capture
        finally:
            capture.stop()


@pytest.fixture(scope="module", params=FLAVOURS)
def history(servers: Any, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> History:
    made = History(servers(request.param), tmp_path_factory.mktemp("from"), "earlier")
    with made.server.session() as connected, connected.cursor() as cursor:
        cursor.execute("CREATE DATABASE earlier")
    made.write()
    return made


def logged(capture: MemoryCapture, table: str) -> list[tuple[str, str, Any, Any]]:
    """Return the changes of a table that the log contained; snapshots have `r` and truncations for their ends."""
    changes = [(table, one["op"], one["before"], one["after"]) for one in capture.events(table)]
    return [change for change in changes if change[1] != "r" and (change[1] != "t" or table == "gone")]


@pytest.mark.parametrize("place", ["gtid", "position", "time"])
def test_the_rows_since_a_position_are_those_of_the_statements(history: History, place: str) -> None:
    """From a GTID, a file and position, and a time: every change has the columns of its moment, once and in order, also
    if the capture is killed meanwhile. A table whose columns nothing states is reported, and read by a snapshot."""
    with history.captured(history.places[place]) as capture:
        if place == "gtid":
            capture.kill(12)
        capture.start()
        capture.caught_up()
        expected = {table: [c for c in history.changes if c[0] == table] for table in TABLES}
        assert {table: logged(capture, table) for table in TABLES} == expected
        history.run(
            "UPDATE unnamed SET a = a + 1", f"INSERT INTO plain VALUES ({(new := 100 + len(history.changes))}, 'n')"
        )
        history.changes.append(("plain", "c", None, {"id": new, "v": "n"}))
        capture.caught_up()
        for table in ("plain", "named", "unnamed", "fresh"):
            assert capture.rows(table) == capture.held(table), table
        assert logged(capture, "unnamed")[-1][3] == capture.held("unnamed")[1]
        skipped = {details["table"]: details["why"] for what, details in capture.phases.said if "skipped" in what}
    assert list(skipped) == ["earlier.unnamed"]
    assert "its columns before" in str(skipped["earlier.unnamed"])
    assert capture.kills == (place == "gtid")


def test_without_snapshots_only_the_log_is_published(history: History) -> None:
    """`snapshot_mode: never` publishes the changes since then, and reads only the table that it cannot decode."""
    with history.captured(history.places["position"], ", snapshot_mode: never") as capture:
        capture.start()
        capture.caught_up()
        read = {table for table in TABLES if any(one["op"] == "r" for one in capture.events(table))}
        assert "unnamed" in read
        assert "plain" not in read  # the others may be read again after their ALTER TABLE
        assert logged(capture, "named") == [c for c in history.changes if c[0] == "named"]


@pytest.mark.parametrize(
    ("begin", "why"),
    [
        ("mysql-bin.999999:4", "has no binary log"),
        ("yesterday", "is not a position"),
        ("other", "another kind of server"),
    ],
)
def test_a_position_that_does_not_exist_is_refused(history: History, begin: str, why: str) -> None:
    """A wrong position ends the start with its reason, and nothing is written."""
    if begin == "other":
        begin = "1e4be0df-e594-11f1-ae82-02fc00000001:1-2" if history.server.maria else "0-1-2"
    with history.captured(begin) as capture:
        with pytest.raises(UsageError, match=why):
            capture._session(capture.source()).run()
        assert not capture.broker.records


def test_a_position_inside_a_transaction_is_refused(history: History) -> None:
    """The error names the next position at which a transaction begins."""
    file, _, pos = history.places["position"].rpartition(":")
    with (
        history.captured(f"{file}:{int(pos) + 30}") as capture,
        pytest.raises(UsageError, match="inside a trans") as error,
    ):
        capture._session(capture.source()).run()
    assert f"{file}:" in error.value.hint
