"""A capture of PostgreSQL keeps MySQL's contract, on a real server and a log in memory."""

from __future__ import annotations

import json
import threading
import time
from random import Random
from typing import Any

import pytest

from cdc.model.errors import UsageError
from cdc.topology.reader import read_topology
from ingest.capture.groups import Limits
from ingest.postgres import pg_snapshot
from ingest.postgres.pg_connection import PgConnection, PgError, connected
from ingest.records.capture_interfaces import LogReplaced, PositionLost
from tests.support.pg_captured import Capture, KilledError, PgCaptured, Row, topology_text
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]
FULL = ", replica_identity: full"


def reported(event: Row) -> tuple[str, int, Any]:
    return event["op"], (event["after"] or event["before"])["id"], event["after"] and event["after"]["v"]


def in_server(captured: PgCaptured, columns: str = "id, v") -> dict[int, Any]:
    return {row[0]: row[1] for row in captured.sql(f"SELECT {columns} FROM t")}


def in_log(captured: PgCaptured) -> dict[int, Any]:
    return {row["id"]: row["v"] for row in captured.state("t").values()}


class Writer(threading.Thread):
    """Runs transactions of every kind: large ones, rolled back ones, several at a time."""

    def __init__(self, captured: PgCaptured, seed: int, keys: range) -> None:
        super().__init__(name="writer")
        self.captured, self.random, self.keys = captured, Random(seed), keys
        self.enough = threading.Event()
        self.failed: BaseException | None = None
        self.committed = 0

    def run(self) -> None:
        try:
            serial = self.keys.start * 1000
            with self.captured.connect(autocommit=False) as connection:
                while not self.enough.is_set():
                    for _ in range(self.random.choice((1, 1, 1, 5, 200))):
                        serial += 1
                        key, kind = self.random.choice(self.keys), self.random.random()
                        if kind < 0.5:
                            sql = "INSERT INTO t VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v"
                            connection.execute(sql, (key, serial))
                        elif kind < 0.7:
                            connection.execute("UPDATE t SET v = %s WHERE id = %s", (serial, key))
                        elif kind < 0.85:
                            connection.execute("DELETE FROM t WHERE id = %s", (key,))
                        else:
                            connection.execute(
                                "UPDATE t SET id = %s WHERE id = %s AND NOT EXISTS (SELECT FROM t WHERE id = %s)",
                                (key + 1 if key + 1 in self.keys else key, key, key + 1),
                            )
                    if self.random.random() < 0.1:
                        connection.rollback()
                    else:
                        connection.commit()
                        self.committed += 1
        except BaseException as error:  # checked in the test's own thread
            self.failed = error
            raise


@pytest.mark.parametrize("identity", ["default", "full"])
def test_a_snapshot_under_traffic_loses_and_repeats_nothing(capture: Capture, identity: str) -> None:
    """Rows read in chunks and rows from the log meet without a gap, while the process dies repeatedly."""
    captured = capture(extra=f", replica_identity: {identity}")
    captured.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v BIGINT)",
        f"ALTER TABLE t REPLICA IDENTITY {identity}",
        "INSERT INTO t SELECT g, g FROM generate_series(1, 30000) g",
    )
    writers = [Writer(captured, seed, range(seed * 10_000 + 1, seed * 10_000 + 10_000)) for seed in range(3)]
    for writer in writers:
        writer.start()
    try:
        for dies_at in (2, 3, 5, 8, 13):
            captured.start(dies_at=dies_at, limits=Limits(largest=50))
            assert isinstance(captured.ended(), KilledError)
        captured.start(limits=Limits(largest=50))
        time.sleep(1.0)
    finally:
        for writer in writers:
            writer.enough.set()
            writer.join()
    assert [writer.failed for writer in writers] == [None, None, None]
    assert sum(writer.committed for writer in writers) > 50
    captured.caught_up()
    captured.stop()
    assert in_log(captured) == in_server(captured)
    events = captured.events("t")
    numbers = [event["source"]["sequence"] for event in events]
    assert numbers == list(range(1, len(events) + 1))
    assert {event["op"] for event in events} == {"c", "u", "d"}
    if identity == "full":
        updates = [event for event in events if event["op"] == "u"]
        assert all(event["before"]["id"] == event["after"]["id"] for event in updates)


def test_each_change_is_published_once_and_in_order(capture: Capture) -> None:
    """Insert, update, delete and a changed key with the default identity: before images are the key, or none."""
    captured = capture()
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", "INSERT INTO t VALUES (1, 'old')")
    captured.start()
    captured.caught_up()
    captured.sql(
        "INSERT INTO t VALUES (2, 'a'), (3, NULL)",
        "UPDATE t SET v = 'b' WHERE id = 2",
        "UPDATE t SET id = 4 WHERE id = 2",
        "DELETE FROM t WHERE id = 3",
        "BEGIN; INSERT INTO t VALUES (9, 'never'); ROLLBACK",
    )
    captured.caught_up()
    captured.stop()
    events = captured.events("t")
    assert [(e["op"], e["before"], e["after"]) for e in events] == [
        ("c", None, {"id": 2, "v": "a"}),
        ("c", None, {"id": 3, "v": None}),
        ("u", None, {"id": 2, "v": "b"}),
        ("d", {"id": 2}, None),
        ("c", None, {"id": 4, "v": "b"}),
        ("d", {"id": 3}, None),
    ]
    assert [e["transaction"]["total_order"] for e in events] == [1, 2, 1, 1, 2, 1]
    assert [r.value for r in captured.records("t") if r.key == b'{"id":3}'][-1] is None


def test_full_identity_has_before_images(capture: Capture) -> None:
    """With REPLICA IDENTITY FULL every change has a before image, so joins need no state for it."""
    captured = capture(extra=FULL)
    captured.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", "ALTER TABLE t REPLICA IDENTITY FULL",
        "INSERT INTO t VALUES (1, 'old')",
    )  # fmt: skip
    captured.start()
    captured.caught_up()
    captured.sql("UPDATE t SET v = 'new'", "UPDATE t SET id = 2", "DELETE FROM t")
    captured.caught_up()
    captured.stop()
    assert [(e["op"], e["before"], e["after"]) for e in captured.events("t")] == [
        ("u", {"id": 1, "v": "old"}, {"id": 1, "v": "new"}),
        ("d", {"id": 1, "v": "new"}, None),
        ("c", None, {"id": 2, "v": "new"}),
        ("d", {"id": 2, "v": "new"}, None),
    ]
    assert not captured.topology.sources["shop"].needs_latest


def test_a_table_without_the_declared_identity_is_refused(capture: Capture) -> None:
    """Joins that rely on before images would silently be wrong."""
    captured = capture(extra=FULL)
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)")
    captured.start()
    failed = captured.ended()
    assert isinstance(failed, UsageError)
    assert 'ALTER TABLE "public"."t" REPLICA IDENTITY FULL' in failed.hint


def test_publishing_never_makes_updates_of_the_application_fail(capture: Capture) -> None:
    """A table without a replica identity is refused before it is published."""
    captured = capture()
    captured.sql("CREATE TABLE t (id INT, v TEXT)")
    captured.start()
    failed = captured.ended()
    assert isinstance(failed, UsageError)
    assert "no replica identity" in failed.message
    captured.sql("INSERT INTO t VALUES (1, 'a')", "UPDATE t SET v = 'b'")


@pytest.mark.parametrize("identity", ["default", "full"])
def test_large_values_that_an_update_leaves_alone_stay(capture: Capture, identity: str) -> None:
    """TOASTed values are in no message of such an update: they come from the old row, or the row is read again."""
    captured = capture(extra=f", replica_identity: {identity}")
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT, big TEXT)", f"ALTER TABLE t REPLICA IDENTITY {identity}")
    big = "".join(Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=20_000))
    captured.start()
    captured.caught_up()
    captured.sql("INSERT INTO t VALUES (%s, 1, %s)", values=(1, big))
    captured.sql("INSERT INTO t VALUES (%s, 1, %s)", values=(2, big[::-1]))
    captured.sql(
        "UPDATE t SET v = 2 WHERE id = 1", "UPDATE t SET id = 3 WHERE id = 2", "UPDATE t SET v = 3 WHERE id = 1"
    )
    captured.caught_up()
    captured.sql(
        "UPDATE t SET v = 4 WHERE id = 3", "UPDATE t SET big = 'small' WHERE id = 3", "DELETE FROM t WHERE id = 1"
    )
    captured.caught_up()
    captured.sql("INSERT INTO t VALUES (%s, 5, %s)", values=(5, big))
    captured.sql("UPDATE t SET v = 6 WHERE id = 5")
    captured.caught_up()
    captured.stop()
    assert {row["id"]: row for row in captured.state("t").values()} == {
        3: {"id": 3, "v": 4, "big": "small"},
        5: {"id": 5, "v": 6, "big": big},
    }
    if identity == "full":
        update = next(e for e in captured.events("t") if e["op"] == "u")
        assert update["before"]["big"] == update["after"]["big"] == big


def test_columns_are_added_and_dropped_in_mid_stream(capture: Capture) -> None:
    """Each row is published with the columns that it had, also in a transaction that alters its own table."""
    captured = capture()
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", "INSERT INTO t VALUES (1, 'a')")
    captured.start()
    captured.caught_up()
    captured.sql(
        "INSERT INTO t VALUES (2, 'b')",
        "ALTER TABLE t ADD COLUMN n INT DEFAULT 7",
        "INSERT INTO t VALUES (3, 'c', 3)",
    )
    captured.caught_up()  # only the catalogue knows what older rows have in a column, as long as the column exists
    captured.sql(
        "BEGIN; INSERT INTO t VALUES (4, 'd', 4); ALTER TABLE t ADD COLUMN m NUMERIC(8,3); "
        "INSERT INTO t VALUES (5, 'e', 5, 1.5); ALTER TABLE t DROP COLUMN n; "
        "INSERT INTO t VALUES (6, 'f', 2.5); COMMIT",
        "ALTER TABLE t ALTER COLUMN v TYPE VARCHAR(9)",
        "ALTER TABLE t RENAME COLUMN v TO w",
        "INSERT INTO t VALUES (7, 'g', NULL)",
    )
    captured.caught_up()
    captured.stop()
    assert [e["after"] for e in captured.events("t")] == [
        {"id": 2, "v": "b"},
        {"id": 3, "v": "c", "n": 3},
        {"id": 4, "v": "d", "n": 4},
        {"id": 5, "v": "e", "n": 5, "m": "1.500"},
        {"id": 6, "v": "f", "m": "2.500"},
        {"id": 7, "w": "g", "m": None},
    ]
    schemas = [
        json.loads(r.value) for r in captured.broker.records if r.topic == f"{captured.name}.schemas" and r.value
    ]
    assert [[c["name"] for c in schema["columns"]] for schema in schemas] == [
        ["id", "v"], ["id", "v", "n"], ["id", "v", "n", "m"], ["id", "v", "m"], ["id", "w", "m"],
    ]  # fmt: skip
    (added,) = [column for column in schemas[1]["columns"] if column["name"] == "n"]
    assert added["default"] == 7
    assert schemas[-1]["columns"][1]["column_type"] == "varchar(9)"


def test_a_table_may_be_altered_while_no_capture_runs(capture: Capture) -> None:
    """Rows before the change are published with their columns, the later ones with the new ones."""
    captured = capture()
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)")
    captured.start()
    captured.caught_up()
    captured.stop()
    captured.sql(
        "INSERT INTO t VALUES (1, 'a')", "ALTER TABLE t ADD COLUMN n INT", "ALTER TABLE t DROP COLUMN v",
        "INSERT INTO t VALUES (2, 2)",
    )  # fmt: skip
    captured.start()
    captured.caught_up()
    captured.stop()
    assert [e["after"] for e in captured.events("t")] == [{"id": 1, "v": "a"}, {"id": 2, "n": 2}]


def test_another_primary_key_names_rows_again(capture: Capture) -> None:
    """Rows after ALTER … PRIMARY KEY are published under the new key."""
    captured = capture()
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, k TEXT NOT NULL)", "INSERT INTO t VALUES (1, 'a')")
    captured.start()
    captured.caught_up()
    captured.sql(
        "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (k, id)", "INSERT INTO t VALUES (2, 'b')",
        "UPDATE t SET k = 'c' WHERE id = 2",
    )  # fmt: skip
    captured.caught_up()
    captured.stop()
    keys = [json.loads(r.key) for r in captured.records("t") if r.value and json.loads(r.value)["op"] not in ("r", "t")]
    assert keys == [{"k": "b", "id": 2}, {"k": "b", "id": 2}, {"k": "c", "id": 2}]


def test_truncate_ends_all_rows(capture: Capture) -> None:
    """TRUNCATE of several tables, also by CASCADE, in the middle of a transaction that continues."""
    captured = capture("[t, u]")
    captured.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", "CREATE TABLE u (id INT PRIMARY KEY, t INT REFERENCES t)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')", "INSERT INTO u VALUES (1, 1)",
    )  # fmt: skip
    captured.start()
    captured.caught_up()
    captured.sql("BEGIN; INSERT INTO t VALUES (3, 'c'); TRUNCATE t CASCADE; INSERT INTO t VALUES (4, 'd'); COMMIT")
    captured.caught_up()
    captured.stop()
    assert [e["op"] for e in captured.events("t")] == ["c", "t", "c"]
    assert list(captured.state("t").values()) == [{"id": 4, "v": "d"}]
    assert captured.state("u") == {}


def test_a_large_transaction_is_published_in_parts_and_resumed(capture: Capture) -> None:
    """It takes many commits; a process that dies in between resumes at the next row, after TRUNCATE and ALTER."""
    captured = capture()
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
    captured.start()
    captured.caught_up()
    captured.stop()
    with captured.connect(autocommit=False) as connection:
        connection.execute("INSERT INTO t SELECT g, g FROM generate_series(10, 3000) g")
        connection.execute("TRUNCATE t")
        connection.execute("INSERT INTO t SELECT g, g FROM generate_series(10, 6000) g")
        connection.execute("ALTER TABLE t ADD COLUMN n INT DEFAULT 1")
        connection.execute("UPDATE t SET v = -v")
        connection.commit()
    limits = Limits(largest=500)
    for dies_at in (2, 3, 5, 8, 9, 2, 2):
        captured.start(limits=limits, dies_at=dies_at)
        assert isinstance(captured.ended(), KilledError)
    captured.start(limits=limits)
    captured.caught_up()
    captured.stop()
    events = captured.events("t")
    assert len(events) == 2991 + 1 + 5991 + 5991
    assert [e["transaction"]["total_order"] for e in events] == list(range(1, len(events) + 1))
    assert {row["id"]: (row["v"], row["n"]) for row in captured.state("t").values()} == {
        key: (-key, 1) for key in range(10, 6001)
    }
    assert len(captured.broker.checkpoints) > 20


def test_a_dropped_slot_is_reported(capture: Capture) -> None:
    """With `position_lost: fail` the capture stops and reports it; nothing is skipped silently."""
    captured = capture(extra=", position_lost: fail")
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
    captured.start()
    captured.caught_up()
    captured.stop()
    wait_for(
        lambda: captured.sql("SELECT count(*) FROM pg_replication_slots WHERE active")[0][0] == 0, "it stays active"
    )
    captured.sql(f"SELECT pg_drop_replication_slot('{captured.slot()}')", "INSERT INTO t VALUES (2, 2)")
    captured.start()
    failed = captured.ended()
    assert isinstance(failed, PositionLost)
    assert f"the replication slot {captured.slot()} is gone" in failed.message
    assert "position_lost: resnapshot" in failed.hint


def test_a_slot_of_another_client_is_left_alone(capture: Capture) -> None:
    """A slot of that name with another plugin is neither read nor dropped."""
    captured = capture()
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    name = captured.slot()
    captured.sql(f"SELECT pg_create_logical_replication_slot('{name}', 'test_decoding')")
    captured.start()
    failed = captured.ended()
    assert isinstance(failed, UsageError)
    assert f"the replication slot {name} was made for test_decoding by another client" in failed.message
    assert captured.sql(f"SELECT plugin FROM pg_replication_slots WHERE slot_name = '{name}'") == [("test_decoding",)]
    captured.sql(f"SELECT pg_drop_replication_slot('{name}')")


def test_a_slot_that_another_client_advanced_is_reported(capture: Capture) -> None:
    """By default the capture stops: two captures of one slot would read all tables again and again."""
    captured = capture()
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
    captured.start()
    captured.caught_up()
    captured.stop()
    wait_for(
        lambda: captured.sql("SELECT count(*) FROM pg_replication_slots WHERE active")[0][0] == 0, "it stays active"
    )
    captured.sql("INSERT INTO t VALUES (2, 2)")
    captured.sql(f"SELECT pg_replication_slot_advance('{captured.slot()}', pg_current_wal_lsn())")
    captured.start()
    failed = captured.ended()
    assert isinstance(failed, LogReplaced)
    assert "stop other readers of the slot" in failed.hint


@pytest.mark.parametrize("how", ["dropped", "moved on"])
def test_a_lost_position_is_repaired(capture: Capture, how: str) -> None:
    """All tables are read again, and rows that were deleted in between are removed. A slot that another client has
    advanced needs `position_lost: resnapshot`. A listed table that does not exist is left out."""
    captured = capture(tables="[t, missing]", extra="" if how == "dropped" else ", position_lost: resnapshot")
    captured.sql("CREATE TABLE missing (id INT PRIMARY KEY)")
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    captured.start()
    captured.caught_up()
    captured.stop()
    wait_for(
        lambda: captured.sql("SELECT count(*) FROM pg_replication_slots WHERE active")[0][0] == 0, "it stays active"
    )
    captured.sql("DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (3, 3)", "DROP TABLE missing")
    if how == "dropped":
        captured.sql(f"SELECT pg_drop_replication_slot('{captured.slot()}')")
    else:
        captured.sql(f"SELECT pg_replication_slot_advance('{captured.slot()}', pg_current_wal_lsn())")
    captured.start()
    captured.caught_up()
    captured.sql("UPDATE t SET v = 4 WHERE id = 3")
    captured.caught_up()
    captured.stop()
    assert in_log(captured) == {2: 2, 3: 4}
    assert any(said.startswith("position lost") for said in captured.phases.said)


@pytest.mark.parametrize("policy", ["fail", "auto"])
def test_a_slot_that_lost_its_log_is_reported_or_recreated(capture: Capture, policy: str) -> None:
    """A server with max_slot_wal_keep_size does not fill its disk for a capture that is down for too long."""
    captured = capture(extra=f", position_lost: {policy}")
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
    captured.start()
    captured.caught_up()
    captured.stop()
    captured.sql("UPDATE t SET v = 2", "CREATE TABLE other (v TEXT)")
    status = f"SELECT wal_status FROM pg_replication_slots WHERE slot_name = '{captured.slot()}'"
    captured.sql("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", "SELECT pg_reload_conf()")
    try:
        for _ in range(20):
            captured.sql("INSERT INTO other SELECT repeat('x', 900) FROM generate_series(1, 20000)")
            captured.sql("SELECT pg_switch_wal()", "CHECKPOINT")
            if captured.sql(status)[0][0] == "lost":
                break
        assert captured.sql(status)[0][0] == "lost"
    finally:
        captured.sql("ALTER SYSTEM RESET max_slot_wal_keep_size", "SELECT pg_reload_conf()")
    captured.start()
    if policy == "fail":
        failed = captured.ended()
        assert isinstance(failed, PositionLost)
        assert "lost its log (max_slot_wal_keep_size, or another limit" in failed.message
        return
    captured.caught_up()
    captured.stop()
    assert in_log(captured) == {1: 2}


def test_only_committed_changes_are_confirmed(capture: Capture) -> None:
    """The server discards confirmed changes: a process that dies before its commit must receive all of them again."""
    captured = capture()
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    captured.start()
    captured.caught_up()
    captured.stop()
    for number in range(5):
        captured.sql(f"INSERT INTO t VALUES ({number}, {number})")
        captured.start(dies_at=1)
        assert isinstance(captured.ended(), KilledError)
    captured.start()
    captured.caught_up()
    captured.stop()
    assert [reported(event) for event in captured.events("t")] == [("c", number, number) for number in range(5)]


def test_an_idle_source_releases_the_log(capture: Capture) -> None:
    """The writes of other tables must not fill the server's disk while captured tables do not change."""
    captured = capture()
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE other (id INT, v TEXT)")
    captured.start()
    captured.caught_up()
    lag = (
        "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint, "
        "pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint "
        f"FROM pg_replication_slots WHERE slot_name = '{captured.slot()}'"
    )
    for _ in range(3):
        captured.sql("INSERT INTO other SELECT g, repeat('x', 500) FROM generate_series(1, 20000) g", "CHECKPOINT")
    wait_for(lambda: captured.sql(lag)[0][0] < 100_000, "the slot retains log that no capture needs", seconds=30)
    wait_for(lambda: captured.sql("CHECKPOINT", lag)[0][1] < 1_000_000, "the server keeps its log", seconds=60)
    captured.stop()
    assert captured.events("t") == []


def test_a_recreated_table_is_read_again(capture: Capture) -> None:
    """DROP and CREATE leave the new table outside the publication: it is published, and the old rows are deleted."""
    captured = capture()
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    captured.start()
    captured.caught_up()
    captured.sql(
        "BEGIN; DROP TABLE t; CREATE TABLE t (id INT PRIMARY KEY, v INT); INSERT INTO t VALUES (2, 20); COMMIT"
    )
    wait_for(lambda: in_log(captured) == {2: 20}, f"{in_log(captured)}", seconds=30)
    captured.sql("INSERT INTO t VALUES (3, 30)")
    captured.caught_up()
    captured.stop()
    assert in_log(captured) == {2: 20, 3: 30}


def capturing_one_of_two(capture: Capture) -> PgCaptured:
    """Return a stopped capture of table t, in a database that also has table u."""
    captured = capture()
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE u (id INT PRIMARY KEY, v INT)")
    captured.start()
    captured.caught_up()
    captured.stop()
    return captured


def start_with_both(captured: PgCaptured) -> None:
    text = topology_text(captured.server, captured.name, "[t, u]")
    captured.topology = read_topology(text, file="both.yml", environ={})
    captured.start()


def test_an_added_table_waits_for_open_transactions(capture: Capture) -> None:
    """A transaction that wrote to it before it was published is in no stream: the first chunk waits for its end."""
    captured = capturing_one_of_two(capture)
    with captured.connect(autocommit=False) as connection:
        connection.execute("INSERT INTO u VALUES (1, 1)")
        start_with_both(captured)
        time.sleep(1.0)
        assert captured.state("u") == {}
        connection.commit()
    captured.caught_up()
    captured.stop()
    assert list(captured.state("u").values()) == [{"id": 1, "v": 1}]


def test_a_prepared_transaction_that_delays_a_table_is_named(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no session that could be found; the rows of other tables flow meanwhile."""
    monkeypatch.setattr(pg_snapshot, "TIMEOUT", 0.5)
    captured = capturing_one_of_two(capture)
    with captured.connect(autocommit=False) as connection:
        connection.execute("INSERT INTO u VALUES (1, 1)")
        connection.execute("PREPARE TRANSACTION 'it''s held'")
    start_with_both(captured)
    named = "prepared transaction 'it''s held' of "
    wait_for(lambda: any(named in one for one in captured.retried), f"{captured.retried}", seconds=30)
    captured.sql("INSERT INTO t VALUES (1, 1)")
    wait_for(lambda: len(captured.state("t")) == 1, "other tables wait, too", seconds=30)
    captured.sql("COMMIT PREPARED 'it''s held'")
    captured.caught_up()
    captured.stop()
    assert list(captured.state("u").values()) == [{"id": 1, "v": 1}]


def test_keys_of_every_kind_are_walked(capture: Capture) -> None:
    """Chunks follow each other along keys of text, several columns, bytes and timestamps; without a key rows are read
    in one pass."""
    captured = capture("{t: {}, u: {message_key_columns: [k]}}")
    captured.sql(
        "CREATE TABLE t (k TEXT, b BYTEA, at TIMESTAMPTZ, f FLOAT8, id INT, PRIMARY KEY (k, b, at, f))",
        "INSERT INTO t SELECT chr(97 + g % 3), decode(lpad(to_hex(g % 7), 2, '0'), 'hex'), "
        "timestamptz '2020-01-01' + g * interval '1 second', g / 3.0, g FROM generate_series(1, 9000) g",
        "CREATE TABLE u (k INT, v TEXT)",
        "ALTER TABLE u REPLICA IDENTITY FULL",
        "INSERT INTO u SELECT g, g FROM generate_series(1, 9000) g",
    )
    captured.start()
    captured.caught_up()
    captured.stop()
    assert {row["id"] for row in captured.state("t").values()} == set(range(1, 9001))
    assert {row["k"] for row in captured.state("u").values()} == set(range(1, 9001))
    assert len(captured.records("t")) == len(captured.records("u")) == 9000


def test_partitions_are_published_as_their_table(capture: Capture) -> None:
    """A partitioned table is one table, whatever its partitions are called."""
    captured = capture()
    captured.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE high PARTITION OF t FOR VALUES FROM (10) TO (20)",
        "INSERT INTO t VALUES (1, 1), (11, 11)",
    )
    captured.start()
    captured.caught_up()
    captured.sql("UPDATE t SET id = 12 WHERE id = 1", "INSERT INTO t VALUES (2, 2)", "DELETE FROM t WHERE id = 11")
    captured.caught_up()
    captured.stop()
    assert in_log(captured) == in_server(captured) == {12: 1, 2: 2}


def test_a_missing_right_to_publish_is_reported_with_the_statement(capture: Capture) -> None:
    """The user of a capture seldom owns the tables: the error has the statement for the owner."""
    captured = capture()
    captured.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)", "REVOKE app FROM cdc", "GRANT SELECT ON t TO cdc",
    )  # fmt: skip
    try:
        captured.start()
        failed = captured.ended()
        assert isinstance(failed, UsageError)
        statement = failed.hint.removeprefix("as the owner of the tables: ")
        assert statement.startswith("CREATE PUBLICATION")
        captured.sql(statement)
        captured.start()
        captured.caught_up()
        captured.stop()
    finally:
        captured.sql("GRANT app TO cdc")


def test_an_unavailable_server_is_waited_for(capture: Capture) -> None:
    """A connection that ends in mid-stream is retried, and loses nothing."""
    captured = capture()
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    captured.start()
    captured.caught_up()
    captured.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'walsender' "
        f"AND datname = '{captured.name}'",
        "INSERT INTO t VALUES (1, 1)",
    )
    captured.caught_up()
    captured.stop()
    assert captured.retried
    assert [reported(event) for event in captured.events("t")] == [("c", 1, 1)]


def test_a_hanging_predecessor_is_disconnected(capture: Capture) -> None:
    """It is fenced by the log, but would keep the slot until its next commit."""
    captured = capture()
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    captured.start()
    captured.caught_up()
    captured.stop()
    with connected(captured.topology.sources["shop"], replication=True) as hung:
        options = f"proto_version '1', publication_names '\"{captured.slot()}\"'"
        take = f"START_REPLICATION SLOT {captured.slot()} LOGICAL 0/0 ({options})"
        wait_for(lambda: _begun(hung, take), "the slot stays taken", seconds=10)
        captured.sql("INSERT INTO t VALUES (1, 1)")
        captured.start()
        captured.caught_up()
        captured.stop()
    assert [reported(event) for event in captured.events("t")] == [("c", 1, 1)]


def _begun(connection: PgConnection, command: str) -> bool:
    try:
        connection.begin_copy(command)
    except PgError as error:
        if error.state != "55006":
            raise
        return False
    return True
