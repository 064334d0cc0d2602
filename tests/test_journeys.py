"""The three data paths and `tailorbird verify` through the code, file by file. The tests compare these maps with the
sources.

1. A row → Kafka (one-row transactions of a binlog; docs/adr/0026 describes the general path, and why there are two)

    socket ─ binlog/transports/mysql_transport ─ blocks of packets in a buffer
       └ binlog/reading/whole          five events → one transaction; its CRC32s; the template
           └ binlog/rows/rows          the columns' bytes → canonical values, by a generated function
       └ binlog/reading/position       the current position, as GTIDs
       └ events/logged                  TransactionLogged(began, rows, ended), by table
       └ records/transactions          sequence, order, key, op; repair/repairing only if rows must be re-read
           └ records/records           the envelope of each row
               └ cdc/formats/debezium_bytes    its bytes
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
      in the JVM, per batch, rows as (k, m) bytes (`joins.runtime.records` is their specification):
       Kafka source → Router (Source, Envelope, Fit, Node) → KeyedJoin → Assemble → finish, in Spark's SQL
         → ChangeDetector → Combine → Aggregate → finish, if rows are grouped
       Kafka source → Timed (Envelope, Watermark), twice → Spark's join → on, if a query joins by time
       └ engine/spark_query ◀══ py4j callback ══ foreachBatch(handle of the rows, batch number), on the driver
           timestamp bound ── stores/hbase_sink ── stores/hbase_table
           one Spark action: mapInArrow ══ Arrow batches of (k, m) to Python workers ══▶ stores/hbase_sink
             └ runtime/records              (k, m) → RowPut, RowGone, RefusedRecord, TruncationPoint
             └ runtime/sink                 → puts, deletes, dead letters
             └ stores/hbase_table           written under the batch's timestamp
           ◀══ one report per partition, JSON in a binary column: counts and floors
           barriers ── runtime/cuts ── stores/hbase_sink; then Spark commits offsets and state

3. HBase → Solr or OpenSearch

    region server ═ HBase's RPC ═▶ peer/tcp_peer ─ peer/peer ─ peer/wire   edits of a batch, answered once Solr has them
       └ index/processor ─ index/collapse (one change per row) ─ index/mapping (cells → document, by the stored layout)
       └ solr/solr_collection or opensearch/opensearch_collection             posted, fenced by versions

4. `tailorbird verify`, in the order of the calls (a call through a protocol or a callable is not followed)

    cli/verify/cli_verify ─ verify/request (with verify/log/load): the topology is resolved once ─ verify/run_stages
       └ verify/log/run_log_stage ─ operate/probes/kafka_probe ─ verify/log/run_topics          the log
           └ verify/log/file_progress
           └ verify/log/run_topic ─ verify/log/topic_comparison
               └ verify/positions, verify/log/kafka_changed_keys, verify/log/kafka_records      which rows; the readers
               └ verify/log/log_stage ─ verify/log/spans                                        the comparison
           └ verify/log/run_log_repair ─ verify/log/kafka_repair ─ verify/settling
       └ verify/table/run_table_stage                                                           the table
           └ verify/table/kept_rows, verify/verdict_text, verify/table/source_query             both ends
               └ verify/table/hbase_stored_rows, verify/table/pg_stored_rows,
                 verify/table/iceberg_stored_rows
           └ verify/table/table_stage ─ verify/compare, verify/rounds                           the comparison
           └ verify/table/run_table_repair ─ operate/status/kafka_dead_letters
               └ verify/table/kafka_reread, verify/table/table_repair
       └ verify/index/run_index_stage                                                           the index
           └ verify/index/solr_documents, verify/index/opensearch_documents                     the far ends
           └ verify/index/hbase_row_documents                                                   the near end
           └ verify/index/index_stage ─ verify/merging                                          the comparison
           └ verify/index/routine_stage ─ verify/index/index_leaves, verify/index/zk_identity   only what changed
               └ verify/index/file_leaves                                                       kept until then
           └ verify/index/run_index_repair ─ verify/index/index_repair
       └ cli/verify/cli_verify ─ verify/verdict_text, verify/findings, operate/status/selection  printed
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
from tests.call_path import call_path, returns

SRC = Path(__file__).parents[1] / "src"
ROOTS = {1: SRC / "ingest", 2: SRC / "joins", 3: SRC / "indexer", 4: SRC / "tailorbird"}
MOST_RETURNS = 10  # of `tailorbird verify`
CHANGES = 400


def journey(number: int) -> str:
    """Return the text of one data path."""
    return re.split(r"^\d\. ", __doc__ or "", flags=re.MULTILINE)[number]


def files(number: int) -> set[str]:
    """Return the files that a map names, below the folder of its stage."""
    return set(re.findall(r"\b[a-z]+(?:/[a-z]+)?/[a-z_]+\b", journey(number))) - {"docs/adr"}


@pytest.mark.parametrize("number", ROOTS)
def test_every_file_of_the_map_exists(number: int) -> None:
    """Each `folder/file` on the map is a module of that stage, or of `cdc` if the map says so."""
    names = files(number)
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
    """The map has every file of all packages that a one-row transaction passes between the buffer and its record."""
    write_binlog(tmp_path / "binlog.000001", CHANGES)
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(f"{SRC}/"):
            calls[str(Path(frame.f_code.co_filename).relative_to(SRC).with_suffix(""))] += 1

    sys.setprofile(count)
    try:
        records_of(tmp_path / "binlog.000001")
    finally:
        sys.setprofile(None)
    passed = {name.removeprefix("ingest/") for name, number in calls.items() if number >= CHANGES / 2}
    assert len(passed) == 7
    assert passed - files(1) == set()


def test_verify_takes_a_straight_path() -> None:
    """`tailorbird verify`, followed through its own code, moves back into a file that it has left at most ten times.

    The path has each function of `tailorbird` once, at its first call, in the order in which the calls are written,
    with all branches of all three stages. Calls into other packages are left out: maps 1 to 3 describe those. So are
    calls that the program resolves as it runs. A return is a move into a file that the path had left before.
    Counted in this way, version 0.1 had 61 stays in 31 files, thus 30 returns.
    """
    path = [place.file.removeprefix("tailorbird/") for place in call_path("tailorbird.cli.verify.cli_verify", "verify")
            if place.file.startswith("tailorbird/")]  # fmt: skip
    assert set(path) == files(4)
    assert returns(path) <= MOST_RETURNS


def test_returns_are_counted() -> None:
    """Stays in one file count once, and each later move back into it counts as a return."""
    assert [returns(path) for path in ("", "a", "aab", "aba", "abab", "abcba")] == [0, 0, 0, 1, 2, 2]
