"""Three journeys through the house, file by file. The tests below hold the maps to the land.

1. A row → Kafka (one-row transactions of a binlog; docs/adr/0026 has the general way, and why there are two)

    socket ─ binlog/transports/mysql_transport ─ blocks of packets in a buffer
       └ binlog/reading/whole          five events → one transaction; its CRC32s; the template
           └ binlog/rows/rows          the columns' bytes → canonical values, by a generated function
       └ binlog/reading/position       where we are, in GTIDs
       └ events/logged                  TransactionLogged(began, rows, ended), by whose table
       └ records/transactions          sequence, order, key, op; repair/repairing only where rows must be mended
           └ records/records           the envelope (cdc/formats/debezium_bytes writes its bytes)
       └ capture/follower              when to commit, chunks of snapshots in between
       └ log/kafka_log                 records and position in one transaction of Kafka

2. Kafka → HBase (the JVM's engine)

    run_join ─ select/compiler ─ query/plan     once, at the start: SELECT → plan
       └ kernel/program                    plan → a JSON program per level, its filters' SQL beside it
       └ engine/spark_kernel ═══ py4j ═══▶ Router.apply, Latest.apply, KeyedJoin.apply, Assemble.apply, and for what
                                           is grouped or read again Differ.apply, Combine.apply, Aggregate.apply,
                                           Project.apply; Timed.apply in front of Spark's own join
                                           of streams (engine/spark_by_time)
                                           What crosses, once a query: JSON programs as strings, handles of Datasets.
                                           No row ever does. State is RocksDB's, owned by the operators in the JVM.
      in the JVM, per batch, rows as (k, m) bytes (`joins.steps.records` is their specification):
       Kafka source → Router (Source, Envelope, Fit, Node) → KeyedJoin → Assemble → finish, in Spark's SQL
         → Differ → Combine → Aggregate → finish, where rows are grouped
       Kafka source → Timed (Envelope, Watermark), twice → Spark's join → on, where a query joins by time
       └ engine/spark_query ◀══ py4j callback ══ foreachBatch(handle of the rows, batch number), on the driver
           stamp bound ── stores/hbase_sink ── stores/hbase_table
           one Spark action: mapInArrow ══ Arrow batches of (k, m) to Python workers ══▶ stores/hbase_sink
             └ steps/records                (k, m) → RowPut, RowGone, RefusedRecord, Floor
             └ steps/sink                   → puts, deletes, dead letters
             └ stores/hbase_table           written under the batch's stamp
           ◀══ one report a partition, JSON in a binary column: counts and floors
           barriers ── steps/cuts ── stores/hbase_sink; then Spark commits offsets and state

3. HBase → Solr

    region server ═ HBase's RPC ═▶ peer/tcp_peer ─ peer/peer ─ peer/wire   edits of a batch, answered once Solr has them
       └ index/processor ─ index/collapse (one change a row) ─ index/mapping (cells → document, by the stored layout)
       └ solr/solr_collection                                                 posted, fenced by versions
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import pytest

from benchmarks.bench_loops import records_of, write_binlog
from joins.kernel.program import GROUPED, RENAMED, STEPS

SRC = Path(__file__).parents[1] / "src"
ROOTS = {1: SRC / "ingest", 2: SRC / "joins", 3: SRC / "indexer"}
CHANGES = 400


def journey(number: int) -> str:
    """The text of one of them."""
    return re.split(r"^\d\. ", __doc__ or "", flags=re.MULTILINE)[number]


@pytest.mark.parametrize("number", ROOTS)
def test_every_file_on_the_way_is_there(number: int) -> None:
    """What the map calls `room/file` is a module of that stage, or of `cdc` where it says so."""
    names = set(re.findall(r"\b[a-z]+(?:/[a-z]+)?/[a-z_]+\b", journey(number))) - {"docs/adr"}
    assert len(names) > 5
    roots = {name: SRC if name.startswith("cdc/") else ROOTS[number] for name in names}
    assert {name for name, root in roots.items() if not (root / f"{name}.py").exists()} == set()


def test_every_step_of_the_kernel_is_there() -> None:
    """The classes behind py4j are the ones that are called there."""
    named = set(re.findall(r"\b([A-Z]\w+)\.apply\b", journey(2)))
    called = {
        node.args[0].value
        for node in ast.walk(ast.parse((SRC / "joins/engine/spark_kernel.py").read_text()))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == "_step"
        and isinstance(node.args[0], ast.Constant)
    }
    assert named == called | {*STEPS.values(), *GROUPED, RENAMED}
    assert {name for name in named if not list((SRC / "joins/kernel").rglob(f"{name}.java"))} == set()


def test_a_row_meets_no_other_file(tmp_path: Path) -> None:
    """Of the files that a one-row transaction passes between the buffer and its record, none is missing on the map."""
    write_binlog(tmp_path / "binlog.000001", CHANGES)
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(ROOTS[1])):
            calls[str(Path(frame.f_code.co_filename).relative_to(ROOTS[1]).with_suffix(""))] += 1

    sys.setprofile(count)
    try:
        records_of(tmp_path / "binlog.000001")
    finally:
        sys.setprofile(None)
    passed = {name for name, number in calls.items() if number >= CHANGES / 2}
    assert len(passed) == 6
    assert {name for name in passed if name not in journey(1)} == set()
