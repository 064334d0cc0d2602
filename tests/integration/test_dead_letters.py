"""`tailorbird dead-letters` while a capture runs: list a refused row, read it again, settle it."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from cdc.model.naming import dead_letter_topic
from cdc.process.file_topology import load_topology
from joins.runtime.records import RefusedRecord
from joins.runtime.sink import dead_letter
from joins.stores.kafka_log import resolve_dead_letters, send_dead_letters
from tailorbird.operate.status.dead_letters import DeadLetterList
from tailorbird.operate.status.kafka_dead_letters import DeadLetterReader, dead_letters_watched
from tests.support.commands import tailorbird

if TYPE_CHECKING:
    from tests.integration.conftest import CapturedDatabase

pytestmark = pytest.mark.integration


def reported(captured: CapturedDatabase, *words: str, code: int = 0) -> list[Any]:
    """Return the objects that `tailorbird dead-letters` prints."""
    ran = tailorbird("dead-letters", words[0], str(captured.file), *words[1:], "--json")
    assert ran.returncode == code, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def refuse(captured: CapturedDatabase, number: int) -> None:
    """Insert a row with an invalid date, which a strict session would refuse."""
    with captured.connection() as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        cursor.execute(f"INSERT INTO t VALUES ({number}, '0000-00-00')")


def assert_incomplete(captured: CapturedDatabase) -> None:
    """`status` names the incomplete table and the command that shows why, although all processes run; so does
    `doctor`."""
    ran = tailorbird("status", str(captured.file))
    assert f"INCOMPLETE table shop.{captured.name}.t (so do wide): 2 dead letters" in ran.stdout
    assert f"tailorbird dead-letters list {captured.file}" in ran.stdout
    assert ran.returncode == 1
    ran = tailorbird("status", str(captured.file), "--json")
    (one,) = (reported for line in ran.stdout.splitlines() if (reported := json.loads(line))["kind"] == "incomplete")
    assert (one["stage"], one["dead_letters"], one["tables"]) == ("capture", 2, ["wide"])
    ran = tailorbird("doctor", str(captured.file))
    assert f"WARNING capture shop.{captured.name}.t: complete: 2 dead letters" in ran.stdout


def test_a_refused_row_is_listed_and_settled_by_a_later_change(capture: Callable[..., Any]) -> None:
    """Two rows are refused and become dead letters. A corrected row settles its record by itself, also after a restart;
    the other fails again on retry. When that row is deleted no record is open and `status` reports no fault.
    """
    captured = capture("t", extra=", unrepresentable: dead_letter")
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, born DATE)")
    process = captured.start()
    captured.streaming(process)
    assert reported(captured, "list") == []
    for number in (1, 2):
        refuse(captured, number)
    captured.caught_up()
    dead_letters = {json.loads(one["key"])["id"]: one for one in reported(captured, "list")}
    assert sorted(dead_letters) == [1, 2]
    assert {one["of"] for one in dead_letters.values()} == {f"shop.{captured.name}.t"}
    assert all("born" in one["reason"] and "dead-letters replay" in one["remedy"] for one in dead_letters.values())

    assert_incomplete(captured)

    process.kill()
    process.wait()
    captured.sql("UPDATE t SET born = '2024-02-29' WHERE id = 1")
    captured.start()
    captured.caught_up()
    (other,) = reported(captured, "list")
    assert json.loads(other["key"])["id"] == 2
    (settled,) = reported(captured, "list", "--settled")
    assert (settled["id"], settled["settled"]) == (dead_letters[1]["id"], "a later change")
    assert [(one["op"], one["after"]) for one in captured.events("t")] == [("c", {"id": 1, "born": "2024-02-29Z"})]

    (done,) = reported(captured, "replay", "--all")
    assert (done["rows"], done["settled"]) == (1, [other["id"]])
    topology = load_topology(str(captured.file))
    watch = dead_letters_watched(topology, every=0.2)
    captured.wait_for(lambda: sum(one.dead_letters for one in watch.last() or ()) == 1, "it is not refused again")
    assert [one["id"] for one in reported(captured, "list")] == [other["id"]]
    assert reported(captured, "replay", dead_letters[1]["id"]) == [{"settled": []}]

    refuse(captured, 3)
    captured.caught_up()
    with DeadLetterReader(topology, DeadLetterList(topology.name)) as reader:
        (third, _) = reader.read().dead_letters
        assert reported(captured, "resolve", third.id) == [{"settled": [third.id]}]
        assert len(reader.read().dead_letters) == 1
        captured.sql("DELETE FROM t")
        captured.caught_up()
        assert reader.read().dead_letters == []
    assert reported(captured, "list") == []
    assert "INCOMPLETE" not in tailorbird("status", str(captured.file)).stdout


def test_a_hidden_column_causes_no_refusal_and_no_leak(capture: Callable[..., Any]) -> None:
    """A value that no type can represent is published as NULL and counted. In an ignored column it is not counted, in a
    masked one the mask is published; no record, log line or dead letter contains a hidden value.
    """
    captured = capture("t", extra=", unrepresentable: dead_letter")
    text = captured.file.read_text().replace(
        "tables: [t]", "tables: {t: {ignored_columns: [secret], mask: {m: redact}}}"
    )
    captured.file.write_text(text)
    table = "CREATE TABLE t (id INT PRIMARY KEY, secret DATE, m DATETIME, born DATE)"
    rows = (
        "(1, '2017-00-13', '2018-00-14 01:02:03', '2024-01-01'), (2, '2017-00-13', '2018-00-14 01:02:03', '2019-00-15')"
    )
    captured.sql(table)
    with captured.connection() as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        cursor.execute(f"INSERT INTO t VALUES {rows}")
        process = captured.start()
        captured.streaming(process)
        cursor.execute("UPDATE t SET id = id + 10")
    captured.caught_up()
    shown = {(one["op"], one["after"]["id"]): one["after"] for one in captured.events("t") if one["after"]}
    assert shown == {
        ("r", 1): {"id": 1, "m": "***", "born": "2024-01-01Z"},
        ("c", 11): {"id": 11, "m": "***", "born": "2024-01-01Z"},
    }  # fmt: skip
    dead_letters = [value for _, _, value in captured.read(f"{captured.name}.deadletters", 2)]
    assert all(json.loads(one)["why"].startswith("column born: 2019-00-15") for one in dead_letters[:1])
    process.terminate()
    _, said = process.communicate(timeout=30)
    everything = b"".join(dead_letters) + said.encode()
    assert not any(hidden in everything for hidden in (b"2017-00-13", b"2018-00-14"))


def test_a_table_whose_columns_were_not_known_recovers_by_itself(capture: Callable[..., Any]) -> None:
    """Rows whose columns are unknown are kept as raw events until the server shows the table again. Then the table is
    read again with a marker, equals the server's, and no record stays open.
    """
    captured = capture("t")
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    process = captured.start()
    captured.streaming(process)
    captured.sql_anywhere("SET GLOBAL binlog_row_metadata = MINIMAL")
    process.send_signal(signal.SIGSTOP)  # until the server no longer shows the columns
    try:
        with captured.connection() as connection, connection.cursor() as cursor:
            cursor.execute("SET sql_log_bin = 0")
            cursor.execute("ALTER TABLE t ADD secretly INT DEFAULT 7")
            cursor.execute("SET sql_log_bin = 1")
            cursor.execute("INSERT INTO t (id) VALUES (1), (2)")
            cursor.execute("INSERT INTO t (id) VALUES (3)")
            cursor.execute("SET sql_log_bin = 0")
            cursor.execute("ALTER TABLE t DROP secretly")
    finally:
        process.send_signal(signal.SIGCONT)
        captured.sql_anywhere("SET GLOBAL binlog_row_metadata = FULL")
    captured.caught_up()

    def healed() -> bool:
        rows = {one["after"]["id"] for one in captured.events("t") if one["after"] and one["op"] in ("r", "c")}
        return rows == {1, 2, 3} and reported(captured, "list") == []

    captured.wait_for(healed, "the table stays in quarantine")
    assert "t" in {one["op"] for one in captured.events("t")}
    assert process.poll() is None


def test_a_rebuild_settles_the_dead_letters_of_a_join(capture: Callable[..., Any]) -> None:
    """Its dead letters are settled; without a dead-letter topic there is nothing to settle, and no topic is created."""
    captured = capture("t")
    topology = load_topology(str(captured.file))
    brokers, topic = topology.log.brokers, dead_letter_topic(topology.name)
    resolve_dead_letters(brokers, topology.name, ["wide"])
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    captured.streaming(captured.start())
    assert reported(captured, "list", "--settled") == []
    refused = RefusedRecord(f"{topology.name}.shop.{topology.name}.t", 0, 7, "not an envelope", None, "AA==")
    send_dead_letters(brokers, topic, [dead_letter(refused, "wide", 1), dead_letter(refused, "other", 1)])
    assert sorted(one["of"] for one in reported(captured, "list")) == ["other", "wide"]
    resolve_dead_letters(brokers, topology.name, ["wide"])
    assert [one["of"] for one in reported(captured, "list")] == ["other"]
    assert [one["settled"] for one in reported(captured, "list", "--settled")] == ["rebuilt"]


def test_a_topology_without_dead_letters_has_none(capture: Callable[..., Any]) -> None:
    """No dead letters are listed before any topic exists."""
    assert reported(capture("t"), "list") == []
