"""`verify` of the log stage on real PostgreSQL and Kafka: it finds planted faults with their values and nothing else;
the capture repairs them; traffic alone raises no alarm.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cdc.process.file_topology import load_topology
from tailorbird.cli.app import app
from tailorbird.verify.findings import Verdict
from tailorbird.verify.log.run_topics import verify_log

# the short version is part of test_postgres_whole.py
pytestmark = [pytest.mark.integration, pytest.mark.kafka, pytest.mark.matrix]
ROWS = 3000


@contextmanager
def traffic(captured: Any, name: str) -> Iterator[None]:
    """Change both tables until the block ends, partly in transactions that overlap."""
    done = threading.Event()

    def run() -> None:
        with captured.connection() as one, captured.connection() as other:
            other.autocommit = False
            number = 0
            while not done.wait(0.003):
                number += 1
                other.execute("UPDATE t SET n = n + 1 WHERE id = %s", (number * 31 % 1000 + 2005,))
                one.execute("UPDATE t SET n = n + 1 WHERE id = %s", (number * 37 % 1500 + 20,))
                one.execute("INSERT INTO k VALUES (%s, 'new', %s)", (f"{name} {number}", number))
                if number % 3 == 0:
                    one.execute("DELETE FROM k WHERE code = %s", (f"{name} {number - 1}",))
                if number % 20 == 0:
                    other.commit()
            other.rollback()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def hidden(captured: Any, *statements: str) -> None:
    """Change rows without publishing them, in a transaction whose rows are not published.

    (The capture would re-read tables that are removed from the publication and added again.)
    """
    publication = f'"tailorbird_{captured.name}_shop"'
    with captured.connection() as connected:
        connected.autocommit = False
        connected.execute(f"ALTER PUBLICATION {publication} SET (publish = 'truncate')")
        for statement in statements:
            connected.execute(statement)
        connected.execute(f"ALTER PUBLICATION {publication} SET (publish = 'insert, update, delete, truncate')")
        connected.commit()


def verdicts(file: Path) -> dict[str, Verdict]:
    """Return verify's results by table."""
    return {found.table.rpartition(".")[2]: found for found in verify_log(load_topology(str(file)))}


def verify(captured: Any, *options: str) -> tuple[int, list[dict[str, Any]]]:
    """Return the command's JSON output and its exit code."""
    done = CliRunner().invoke(app, ["verify", str(captured.file), "--stage", "log", "--json", *options])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()]


def test_faults_are_found_and_repaired_and_traffic_causes_none(
    capture_postgres: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Updates, inserts and deletes that were not logged are reported with key and values, and the capture publishes
    them. Rows that change during the run are no faults. `--changed-since last` compares the changed rows alone.
    """
    monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path))
    captured = capture_postgres("t", "k")
    captured.sql(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT, amount NUMERIC(12,2), at TIMESTAMPTZ, f FLOAT8, n INT)",
        "CREATE TABLE k (code VARCHAR(40) PRIMARY KEY, what VARCHAR(9), n INT)",
        f"INSERT INTO t SELECT i, 'näme ' || i, i / 3.0, to_timestamp(i), i / 7.0, 0 FROM generate_series(1, {ROWS}) i",
        f"INSERT INTO k SELECT 'k' || i, 'old', i FROM generate_series(1, {ROWS}) i",
    )
    process = captured.start()
    captured.streaming(process)
    with traffic(captured, "first"):
        found = verdicts(captured.file)
    assert {name: (one.outcome, one.findings, one.moving) for name, one in found.items()} == {
        "t": ("equal", (), 0), "k": ("equal", (), 0),
    }  # fmt: skip
    assert found["t"].rows == ROWS
    assert found["t"].columns == ("id", "name", "amount", "at", "n")
    hidden(
        captured,
        "UPDATE t SET name = 'other' WHERE id = 1",
        "UPDATE t SET amount = amount + 0.01 WHERE id = 2",
        "DELETE FROM t WHERE id = 3",
        "INSERT INTO t VALUES (-9, 'hidden', 1, NULL, NULL, 1)",
        "DELETE FROM k WHERE code = 'k1'",
        "INSERT INTO k VALUES ('k 1', 'hidden', 1)",
    )
    with traffic(captured, "second"):
        found = verdicts(captured.file)
    assert sorted((one.kind, *one.key.values(), dict(one.columns)) for one in found["t"].findings) == [
        ("different", 1, {"name": ("other", "näme 1")}),
        ("different", 2, {"amount": ("0.68", "0.67")}),
        ("extra", 3, {}),
        ("missing", -9, {}),
    ]
    assert sorted((one.kind, *one.key.values()) for one in found["k"].findings) == [
        ("extra", "k1"), ("missing", "k 1"),
    ]  # fmt: skip
    with traffic(captured, "third"):
        code, said = verify(captured, "--repair", "--yes")
    assert code == 0, said
    assert sum(one["differing"] for one in said if one["kind"] == "verdict") == 6
    captured.caught_up()
    assert {name: one.outcome for name, one in verdicts(captured.file).items()} == {"t": "equal", "k": "equal"}
    captured.sql("UPDATE t SET n = n + 1 WHERE id IN (1, 9)")
    captured.caught_up()
    code, said = verify(captured, "--changed-since", "last")
    rows = {one["table"].rpartition(".")[2]: one["rows"] for one in said if one["kind"] == "verdict"}
    assert (code, rows) == (0, {"t": 2, "k": 0})
