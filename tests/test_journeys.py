"""The three data paths through the code, file by file. The tests below compare these maps with the sources.

1. A row → Kafka (one-row transactions of a binlog; docs/adr/0026 describes the general path, and why there are two)

    socket ─ binlog/transports/mysql_transport ─ blocks of packets in a buffer
       └ binlog/reading/whole          five events → one transaction; its CRC32s; the template
           └ binlog/rows/rows          the columns' bytes → canonical values, by a generated function
       └ binlog/reading/position       the current position, as GTIDs
       └ events/logged                  TransactionLogged(began, rows, ended), by table
       └ records/transactions          sequence, order, key, op; repair/repairing only if rows must be re-read
           └ records/records           the envelope (cdc/formats/debezium_bytes writes its bytes)
       └ capture/follower              when to commit, chunks of snapshots in between
       └ log/kafka_log                 records and position in one transaction of Kafka

2. Kafka → HBase (the JVM's engine)

    run_join ─ select/compiler ─ query/plan     once, at the start: SELECT → plan
       └ kernel/program                    plan → a JSON program per level, with its filters' SQL
       └ engine/spark_kernel ═══ py4j ═══▶ Router.apply, Latest.apply, KeyedJoin.apply, Assemble.apply, and for plans
                                           with groups or several readers ChangeDetector.apply, Combine.apply,
                                           Aggregate.apply, Project.apply; Timed.apply before Spark's own join
                                           of streams (engine/spark_by_time)
                                           Passed to the JVM once per query: JSON programs, Dataset handles.
                                           Rows never are. State is in RocksDB, owned by the operators in the JVM.
      in the JVM, per batch, rows as (k, m) bytes (`joins.steps.records` is their specification):
       Kafka source → Router (Source, Envelope, Fit, Node) → KeyedJoin → Assemble → finish, in Spark's SQL
         → ChangeDetector → Combine → Aggregate → finish, if rows are grouped
       Kafka source → Timed (Envelope, Watermark), twice → Spark's join → on, if a query joins by time
       └ engine/spark_query ◀══ py4j callback ══ foreachBatch(handle of the rows, batch number), on the driver
           timestamp bound ── stores/hbase_sink ── stores/hbase_table
           one Spark action: mapInArrow ══ Arrow batches of (k, m) to Python workers ══▶ stores/hbase_sink
             └ steps/records                (k, m) → RowPut, RowGone, RefusedRecord, TruncationPoint
             └ steps/sink                   → puts, deletes, dead letters
             └ stores/hbase_table           written under the batch's timestamp
           ◀══ one report per partition, JSON in a binary column: counts and floors
           barriers ── steps/cuts ── stores/hbase_sink; then Spark commits offsets and state

3. HBase → Solr

    region server ═ HBase's RPC ═▶ peer/tcp_peer ─ peer/peer ─ peer/wire   edits of a batch, answered once Solr has them
       └ index/processor ─ index/collapse (one change per row) ─ index/mapping (cells → document, by the stored layout)
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
    """Return the text of one data path."""
    return re.split(r"^\d\. ", __doc__ or "", flags=re.MULTILINE)[number]


@pytest.mark.parametrize("number", ROOTS)
def test_every_file_of_the_map_exists(number: int) -> None:
    """Each `folder/file` on the map is a module of that stage, or of `cdc` if the map says so."""
    names = set(re.findall(r"\b[a-z]+(?:/[a-z]+)?/[a-z_]+\b", journey(number))) - {"docs/adr"}
    assert len(names) > 5
    roots = {name: SRC if name.startswith("cdc/") else ROOTS[number] for name in names}
    assert {name for name, root in roots.items() if not (root / f"{name}.py").exists()} == set()


def test_every_step_of_the_kernel_is_on_the_map() -> None:
    """The map names exactly the Java classes that the engine calls through py4j."""
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


def test_a_row_passes_no_other_file(tmp_path: Path) -> None:
    """The map has every file that a one-row transaction passes between the buffer and its record."""
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
