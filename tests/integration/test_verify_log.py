"""`verify` of the log stage on real MySQL and Kafka: it finds planted faults with their values and nothing else;
traffic alone raises no alarm.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # not in its __all__
from typer.testing import CliRunner

from cdc.model.naming import positions_topic, schemas_topic
from cdc.process.file_topology import load_topology
from tailorbird.cli.app import app
from tailorbird.verify.findings import Verdict
from tailorbird.verify.log.run_topics import verify_log
from tests.integration.conftest import servers
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.kafka("mysql-shop")]
ROWS = 4000


@contextmanager
def traffic(captured: Any, name: str, pause: float = 0.003) -> Iterator[None]:
    """Change both tables until the block ends: a few hundred times a second, or less often."""
    done = threading.Event()

    def run() -> None:
        with captured.connection() as connected, connected.cursor() as cursor:
            number = 0
            while not done.wait(pause):
                number += 1
                cursor.execute("UPDATE t SET n = n + 1 WHERE id = %s", (number * 37 % ROWS + 5,))
                cursor.execute("INSERT INTO k VALUES (%s, 'new', %s)", (f"{name} {number}", number))
                if number % 3 == 0:
                    cursor.execute("DELETE FROM k WHERE code = %s", (f"{name} {number - 1}",))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def verdicts(file: Path) -> dict[str, Verdict]:
    """Return verify's results by table."""
    return {found.table.rpartition(".")[2]: found for found in verify_log(load_topology(str(file)))}


def reported(verdict: Verdict) -> list[tuple[Any, ...]]:
    """Return kind, key and differing values of its findings, in order."""
    return sorted((one.kind, *one.key.values(), dict(one.columns)) for one in verdict.findings)


def test_faults_are_found_and_traffic_causes_none(
    capture: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Updates, inserts and deletes that were not logged, a flipped digit, an altered and a dropped record: each is
    reported with its key and both values. Rows that change during the run are no faults.
    """
    monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path))
    captured = capture("t", "k")
    captured.sql(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR(40), amount DECIMAL(12,2), at DATETIME(3), f FLOAT,"
        " n INT)",
        "CREATE TABLE k (code VARCHAR(40) PRIMARY KEY, what VARCHAR(9), n INT)",
    )
    with captured.connection() as connected, connected.cursor() as cursor:
        cursor.execute("SET SESSION cte_max_recursion_depth = 10000")
        numbers = f"WITH RECURSIVE s (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < {ROWS}) SELECT"
        values = "i, CONCAT('näme ', i), i / 3, '2024-01-01' + INTERVAL i SECOND, i / 7, 0"
        cursor.execute(f"INSERT INTO t {numbers} {values} FROM s")
        cursor.execute(f"INSERT INTO k {numbers} CONCAT('k', i), 'old', i FROM s")
    process = captured.start()
    captured.streaming(process)
    with traffic(captured, "first"):
        found = verdicts(captured.file)
    assert {name: (one.outcome, one.findings, one.moving) for name, one in found.items()} == {
        "t": ("equal", (), 0), "k": ("equal", (), 0),
    }  # fmt: skip
    assert found["t"].rows == ROWS
    assert found["t"].columns == ("id", "name", "amount", "at", "n")
    with captured.connection() as connected, connected.cursor() as cursor:
        cursor.execute("SET sql_log_bin = 0")
        cursor.execute("UPDATE t SET name = 'other' WHERE id = 1")
        cursor.execute("UPDATE t SET amount = amount + 0.01 WHERE id = 2")
        cursor.execute("DELETE FROM t WHERE id = 3")
        cursor.execute("INSERT INTO t VALUES (-9, 'hidden', 1, NULL, NULL, 1)")
        cursor.execute("DELETE FROM k WHERE code = 'k1'")
        cursor.execute("INSERT INTO k VALUES ('k 1', 'hidden', 1)")
    with traffic(captured, "second"):
        found = verdicts(captured.file)
    assert reported(found["t"]) == [
        ("different", 1, {"name": ("other", "näme 1")}),
        ("different", 2, {"amount": ("0.68", "0.67")}),
        ("extra", 3, {}),
        ("missing", -9, {}),
    ]
    assert reported(found["k"]) == [("extra", "k1", {}), ("missing", "k 1", {})]
    assert {name: (one.outcome, one.differing) for name, one in found.items()} == {
        "t": ("different", 4), "k": ("different", 2),
    }  # fmt: skip
    assert all("offset" in one.position for one in found["t"].findings if one.kind != "missing")
    with traffic(captured, "third", 0.05):
        repaired(captured, 6)
    captured.caught_up()
    assert {name: one.outcome for name, one in verdicts(captured.file).items()} == {"t": "equal", "k": "equal"}
    names = [(one["op"], one["before"]["name"], one["after"]["name"]) for one in captured.events("t") if id_of(one) == 1
             and one["before"]]  # fmt: skip
    assert names == [("u", "näme 1", "other")]
    copy = copied(captured, tmp_path)
    found = verdicts(copy)
    assert reported(found["t"]) == [
        ("different", 10, {"amount": ("3.33", "3.34")}),
        ("missing", 11, {}),
    ]
    assert "not the last image of the row: 1 (" in found["t"].unknown[-1]
    assert "record" in found["t"].unknown[-1]


def verify(captured: Any, *options: str) -> tuple[int, list[dict[str, Any]]]:
    """Return the command's JSON output and its exit code."""
    done = CliRunner().invoke(app, ["verify", str(captured.file), "--stage", "log", "--json", *options])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()]


def id_of(event: dict[str, Any]) -> Any:
    """Return the key of an event of `t`."""
    return (event["after"] or event["before"])["id"]


def repaired(captured: Any, count: int) -> None:
    """Run a repair that must report so many repaired rows."""
    code, said = verify(captured, "--repair", "--yes")
    assert code == 0, [one for one in said if one["kind"] != "difference"]
    found = [one for one in said if one["kind"] == "verdict"]
    assert sum(one["differing"] for one in found) == count
    assert sum("repaired" in one.get("done", "") for one in said) == sum(one["differing"] > 0 for one in found)


def parents(captured: Any, rows: int) -> Any:
    """Create parents with three children each, which are deleted and changed with them without log events."""
    captured.sql(
        "CREATE TABLE p (id INT PRIMARY KEY)",
        "CREATE TABLE c (id INT PRIMARY KEY, p INT, n INT, FOREIGN KEY (p) REFERENCES p (id)"
        " ON DELETE CASCADE ON UPDATE CASCADE)",
    )
    with captured.connection() as connected, connected.cursor() as cursor:
        cursor.execute("SET SESSION cte_max_recursion_depth = 2000000")
        numbers = "WITH RECURSIVE s (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < %s) SELECT"
        cursor.execute(f"INSERT INTO p {numbers} i FROM s", (rows // 3,))
        cursor.execute(f"INSERT INTO c {numbers} i, 1 + i %% %s, 0 FROM s", (rows, rows // 3))
    process = captured.start()
    captured.streaming(process)
    return process


def cascaded(captured: Any, rows: int) -> None:
    """Cascaded changes are reported exactly, repaired as reported, then equal; later changes are found by their
    keys."""
    captured.sql("DELETE FROM p WHERE id IN (3, 7)", f"UPDATE p SET id = {rows} WHERE id = 5")
    captured.caught_up()
    code, said = verify(captured)
    third = rows // 3
    children = {at: [at - 1 + third * turn for turn in (0, 1, 2)] for at in (3, 5, 7)}
    assert code == 1
    assert sorted((one["key"]["id"], one["difference"], one["columns"]) for one in said[:-2] if "key" in one) == sorted(
        [(id_, "extra", {}) for at in (3, 7) for id_ in children[at]]
        + [(id_, "different", {"p": {"near": rows, "far": 5}}) for id_ in children[5]]
    )
    assert verify(captured, "--repair")[0] == 2  # there is no terminal to ask for confirmation
    code, said = verify(captured, "--repair", "--dry-run")
    assert (code, [one["done"] for one in said if "done" in one]) == (
        1, [f"would repair 9 rows of shop.{captured.name}.c: the capture reads them again and publishes what differs"],
    )  # fmt: skip
    repaired(captured, 9)
    captured.sql("UPDATE c SET n = n + 1 WHERE id = 1", "DELETE FROM c WHERE id = 2", "INSERT INTO c VALUES (0, 1, 1)")
    captured.caught_up()
    assert verify(captured)[0] == 0
    captured.sql("UPDATE c SET n = n + 1 WHERE id IN (1, 9)")
    hidden(captured, "UPDATE c SET n = 7 WHERE id = 9", "UPDATE c SET n = 7 WHERE id = 10")
    captured.caught_up()
    code, said = verify(captured, "--changed-since", "last")
    assert code == 1
    found = {one["table"].rpartition(".")[2]: one for one in said if one["kind"] == "verdict"}
    assert {name: (one["rows"], one["differing"]) for name, one in found.items()} == {"p": (0, 0), "c": (2, 1)}
    assert [one["key"] for one in said if one["kind"] == "difference"] == [{"id": 9}]


def hidden(captured: Any, *statements: str) -> None:
    """Change rows without log events."""
    with captured.connection() as connected, connected.cursor() as cursor:
        cursor.execute("SET sql_log_bin = 0")
        for statement in statements:
            cursor.execute(statement)


def test_a_cascade_is_named_and_repaired(
    capture: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server's log does not contain InnoDB's cascades: exactly those rows are reported, and the capture repairs
    them."""
    monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path))
    captured = capture("p", "c", extra=", cascades: ignore")
    parents(captured, 3000)
    cascaded(captured, 3000)


@pytest.mark.matrix
@pytest.mark.timeout(1500)
def test_a_cascade_among_a_million(
    capture: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same among a million rows."""
    monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path))
    captured = capture("p", "c", extra=", cascades: ignore")
    parents(captured, 999_999)
    cascaded(captured, 999_999)


def copied(captured: Any, folder: Path) -> Path:
    """Copy the topology's topics under another name; one record of `t` is altered by a digit, another is dropped,
    and the first record of a row claims to be an exact change of it."""
    name = f"{captured.name}_copy"
    names = {captured.topic(table): captured.topic(table).replace(captured.name, name, 1) for table in captured.tables}
    admin = AdminClient({"bootstrap.servers": servers()})
    topics = [*((topic, 2) for topic in names.values()), (schemas_topic(name), 1), (positions_topic(name), 1)]
    for made in admin.create_topics([NewTopic(topic, count, 1) for topic, count in topics]).values():
        made.result(30)
    producer, ends = Producer({"bootstrap.servers": servers()}), {topic: {"0": 0, "1": 0} for topic in names.values()}
    for topic, copy in names.items():
        for partition, key, value in captured.read(topic):
            envelope = json.loads(value) if value else {}
            after = envelope.get("after") or {}
            if after.get("id") == 11:
                continue
            if after.get("id") == 10:
                after["amount"] = "3.34"
                value = json.dumps(envelope).encode()
            if after.get("id") == 12 and envelope["op"] == "r":
                envelope |= {"op": "u", "before": after}
                envelope["source"]["exact"] = 1
                value = json.dumps(envelope).encode()
            producer.produce(copy, value, key, partition)
            ends[copy][str(partition)] += 1
    for _, key, value in captured.read(schemas_topic(captured.name), 1):
        producer.produce(schemas_topic(name), value, key)
    position = {**captured.position(), "end_offsets": ends}
    producer.produce(positions_topic(name), json.dumps(position).encode(), b"position")
    assert producer.flush(30) == 0
    file = folder / "copy.yml"
    text: str = captured.file.read_text()
    file.write_text(text.replace(f"name: {captured.name}", f"name: {name}", 1))
    return file


def test_a_capture_that_does_not_run_is_reported(
    capture: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes that have not reached the log are no difference: verify reports that it could not compare them, with the
    reason.
    """
    monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path))
    monkeypatch.setattr("tailorbird.verify.log.kafka_records._TIMEOUT", 0.3)
    captured = capture("t")
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
    process = captured.start()
    captured.streaming(process)
    process.terminate()
    captured.end_of(process)
    captured.sql("UPDATE t SET v = 2")
    (verdict,) = verdicts(captured.file).values()
    assert (verdict.outcome, verdict.differing) == ("could not tell", 0)
    assert "is the capture running?" in verdict.unknown[0]


def test_verify_reads_the_ledger_of_another_process(
    capture: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process keeps the ledger, and started before anything was captured: verify reads that ledger."""
    monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path))
    captured = capture("t")
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
    with ledger(captured) as kept:
        try:
            captured.streaming(captured.start())
            captured.sql("UPDATE t SET v = 2")
            wait_for(lambda: len(list(tmp_path.glob("ledger/*/*.sqlite"))) == 2, "the ledger does not begin", 60)
            wait_for(lambda: verdicts(captured.file)["t"].outcome == "equal", "verify does not agree", 30)
            assert kept.poll() is None
        finally:
            kept.kill()


@pytest.mark.matrix
@pytest.mark.timeout(1500)
def test_no_false_alarm_in_fifty_runs(
    capture: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few hundred changes per second, a ledger in a process of its own, captures and ledgers that are killed, an
    added column and truncated rows: verify never reports a difference, and hardly a row that changes at every look.
    """
    monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path))
    captured = capture("t", "k")
    captured.sql(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR(40), n INT)",
        "CREATE TABLE k (code VARCHAR(40) PRIMARY KEY, what VARCHAR(9), n INT)",
    )
    with captured.connection() as connected, connected.cursor() as cursor:
        cursor.execute("SET SESSION cte_max_recursion_depth = 100000")
        numbers = "WITH RECURSIVE s (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 50000) SELECT"
        cursor.execute(f"INSERT INTO t {numbers} i, CONCAT('näme ', i), 0 FROM s")
    process, kept = captured.start(), ledger(captured)
    captured.streaming(process)
    begun(captured, "begin")
    rows = moving = changed = 0
    unknown: list[tuple[int, tuple[str, ...]]] = []
    try:
        for number in range(50):
            if number % 10 == 5:
                process.kill()
                process = captured.start()
            if number % 10 == 8:
                kept.kill()
                kept.wait()
                kept = ledger(captured)
                begun(captured, f"l{number}")
            if number == 20:
                captured.sql("ALTER TABLE t ADD w INT DEFAULT 7")
            if number == 30:
                captured.sql("TRUNCATE TABLE k")
            before = changes(captured)
            with traffic(captured, f"a{number}"), traffic(captured, f"b{number}"):
                found = verdicts(captured.file)
            changed += changes(captured) - before
            assert [one.findings for one in found.values()] == [(), ()], number
            rows += sum(one.rows for one in found.values())
            moving += sum(one.moving for one in found.values())
            unknown += [(number, one.unknown) for one in found.values() if one.outcome == "could not tell"]
        print(f"{rows} rows compared, {moving} moving, {len(unknown)} not compared, {changed} changes")
    finally:
        kept.kill()
        kept.communicate()
    assert moving < rows / 1000
    assert len(unknown) <= 4, unknown
    captured.caught_up()
    assert {one.outcome for one in verdicts(captured.file).values()} == {"equal"}


def begun(captured: Any, name: str) -> None:
    """Wait until a new ledger has reached a position of its source, during traffic: until then verify says so."""
    with traffic(captured, name):
        wait_for(lambda: never_wrong(captured), "the ledger reports nothing", 60)


def never_wrong(captured: Any) -> bool:
    """Return whether verify can compare all tables; it must never report a difference."""
    found = verdicts(captured.file).values()
    assert [one.findings for one in found] == [(), ()]
    return all(one.outcome != "could not tell" for one in found)


def ledger(captured: Any) -> subprocess.Popen[str]:
    """Run a process that keeps the ledger."""
    command = [sys.executable, "-m", "tailorbird", "ledger", str(captured.file)]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL, text=True)


def changes(captured: Any) -> int:
    """Return the number of transactions that the server has committed."""
    return int(captured.sql("SELECT @@GLOBAL.gtid_executed")[0][0].rpartition("-")[2])
