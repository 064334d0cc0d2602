"""`verify` of the table and the index stage over a whole pipeline: many runs during traffic and kills without an alarm;
faults among very many rows; a bug in the engine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing

import happybase
import pytest
import requests

from cdc.stored.cells import RowCodec, document_id
from indexer.table.hbase_layouts import StoredLayouts
from joins.stores.hbase_table import joined_table
from tailorbird.cli.cli_demo_steps import counts, wait_until_quiet
from tailorbird.devtools.demo.shop import SCHEMAS, ShopStatement, ShopTransaction
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.verify import settling as settling_module
from tailorbird.verify.findings import Verdict
from tailorbird.verify.index.run_index_stage import verify_indexes
from tailorbird.verify.request import SilentTerminal, StageResult, parse_request
from tailorbird.verify.table.run_table_stage import verify_tables
from tests.integration.test_thread import RunningPipeline, a_thread
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.matrix, pytest.mark.timeout(7200)]

# rows of the joined table, whose size stays the same
MANY = int(os.environ.get("TAILORBIRD_VERIFY_ROWS", "200000"))
RUNS = int(os.environ.get("TAILORBIRD_VERIFY_RUNS", "50"))
STARTS = 1200  # seconds: until a first batch of so many rows is written


@pytest.fixture(scope="module")
def wide(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPipeline]:
    """A pipeline with databases of its own: those of other tests are dropped before it, its own after it."""
    with a_thread(stack, tmp_path_factory.mktemp("wide"), orders=MANY, again=True, most=MANY) as made:
        wait_for(lambda: counts(made.pipeline)["joined"] > 0, "no row was joined", STARTS)
        wait_until_quiet(made.topology, made.shop, made.pipeline, lambda why: None)
        yield made
        for database in SCHEMAS:
            execute(made, f"DROP DATABASE {database}", server=database)


@pytest.fixture(autouse=True)
def settling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings for a busy machine, with yes as the answer to every question."""
    monkeypatch.setattr(settling_module, "STANDSTILL", 300.0)
    monkeypatch.setattr(SilentTerminal, "ask", lambda *_: True)


def execute(thread: RunningPipeline, sql: str, *values: object, server: str = "shop") -> None:
    """Run a statement at a source."""
    statement = ShopStatement(server="crm" if server == "crm" else "shop", sql=sql, values=values)
    thread.shop.apply(ShopTransaction(kind="order changed", statement=statement))


def verified(thread: RunningPipeline, *stages: str, repair: bool = False, dry_run: bool = False) -> list[StageResult]:
    """Run `verify` of the joined table and its index within this process; return its results."""
    which = list(stages) or ["table", "index"]
    asked = parse_request(thread.topology, which, ["orders_wide"], repair=repair, dry_run=dry_run)
    found: list[StageResult] = []
    if "table" in asked.stages:
        found += verify_tables(asked, SilentTerminal())
    if "index" in asked.stages:
        found += verify_indexes(asked, SilentTerminal())
    return found


def committed(thread: RunningPipeline) -> int:
    """Return the number of transactions that both servers have committed, each of one change here."""
    return sum(int(span.rpartition("-")[2]) for span in thread.shop.executed().values())


def reported(verdict: Verdict) -> dict[object, tuple[str, dict[str, object]]]:
    """Return the findings by key."""
    return {f.key["id"]: (f.kind, {**f.columns}) for f in verdict.findings}


def test_no_false_alarm_during_traffic_and_deaths(wide: RunningPipeline) -> None:
    """300 changes per second, while joins and indexer are killed in turns: verify never reports a difference, and
    hardly a row that changes at every look.
    """
    rows = moving = unknown = 0
    began, before = time.monotonic(), committed(wide)
    with wide.live_traffic(rate=330.0) as more:
        for number in range(RUNS):
            killed = {2: "joins", 5: "index orders", 8: "capture shop"}.get(number % 10)
            if killed:
                wide.pipeline.kill(killed)
                more(100)
                wide.pipeline.start_part(killed)
            for verdict in (one.verdict for one in verified(wide)):
                assert (verdict.findings, verdict.differing) == ((), 0), number
                rows, moving = rows + verdict.rows, moving + verdict.moving
                unknown += len(verdict.unknown) > 0
                print(number, verdict.stage, verdict.rows, verdict.moving, verdict.unknown, f"{verdict.seconds:.1f} s")
        seconds = time.monotonic() - began
    rate = (committed(wide) - before) / seconds
    print(f"{rows} rows compared, {moving} moving, {unknown} not compared, {rate:.0f} changes/s,"
          f"{seconds:.0f} s")  # fmt: skip
    assert rate >= 300
    assert moving < rows / 1000
    assert unknown <= RUNS // 10
    wait_until_quiet(wide.topology, wide.shop, wide.pipeline, lambda why: None)
    assert {one.verdict.outcome for one in verified(wide)} == {"equal"}


def test_faults_among_many_rows_are_found_exactly_and_repaired(wide: RunningPipeline) -> None:
    """Rows are changed, deleted and added in HBase, documents in Solr: no other row is reported."""
    topology, table = wide.topology, wide.topology.tables["orders_wide"]
    layout = StoredLayouts(topology.hbase.thrift, topology=topology.name, table=table.name).newest()
    assert layout is not None
    codec = RowCodec(layout)
    found = wide.shop._rows("SELECT id, amount, quantity FROM shop.orders ORDER BY id DESC LIMIT 6")
    (one, amount, _), (two, *_), (three, _, quantity), (four, *_), *_ = found
    # as new as the newest possible write of the join (rows of a batch: its timestamp + 1); the index stage does not
    # report newer cells until the join continues
    added, host, now = 10**14, topology.hbase.thrift.rpartition(":"), joined_table(topology, table).last_timestamp() + 1
    with closing(happybase.Connection(host[0], int(host[2]), timeout=30_000)) as connection:
        rows = connection.table(f"{topology.name}:orders_wide")
        cells = {q.partition(b":")[2]: v for q, v in rows.row(codec.row_key({"id": one})).items()}
        values = codec.row(cells).values
        for planted in ({**values, "amount": "0.01"}, {**values, "id": added}):
            put = {b"d:" + q: value for q, value in codec.cells(planted, batch=1, ts_ms=1).items()}
            rows.put(codec.row_key(planted), put, timestamp=now, wal=False)
        with rows.batch(timestamp=now, wal=False) as batch:
            batch.delete(codec.row_key({"id": two}))
    index = f"{topology.solr.url}/{topology.indexes['orders'].collection}"
    ids = {key: document_id(codec.row_key({"id": key})) for key in (one, two, three, four, added + 1)}
    asked = {"q": f"_id:{ids[three]}", "fl": "*"}
    document = requests.get(f"{index}/select", params=asked, timeout=30).json()["response"]["docs"][0]
    document = {name: value for name, value in document.items() if not name.startswith("_v")}
    update = f"{index}/update?commit=true&update.chain=conditional"
    for posted in (
        [{**document, "quantity": quantity + 1}],
        {"delete": {"id": ids[four]}},
        [{**document, "_id": ids[added + 1], "id": added + 1}],
    ):
        requests.post(update, json=posted, timeout=30).raise_for_status()
    began = time.monotonic()
    of_table, of_index = verified(wide)
    took = [f"{one.verdict.stage} {one.verdict.seconds:.1f} s" for one in (of_table, of_index)]
    print(f"{of_table.verdict.rows} rows:", *took, f"in all {time.monotonic() - began:.1f} s")
    assert reported(of_table.verdict) == {
        one: ("different", {"amount": (str(amount), "0.01")}), two: ("missing", {}), added: ("extra", {}),
    }  # fmt: skip
    shown = reported(of_index.verdict)
    assert shown.pop(one)[1]["amount"] == ("0.01", str(amount))  # with its version
    assert shown == {
        two: ("extra", {}), added: ("missing", {}), three: ("different", {"quantity": (quantity, quantity + 1)}),
        four: ("missing", {}), added + 1: ("extra", {}),
    }  # fmt: skip
    assert all("stamp" in f.position and " at " in f.position for f in of_table.verdict.findings if f.kind != "missing")
    (would,) = verified(wide, "table", repair=True, dry_run=True)
    assert would.repair == (
        "would read rows of shop.shop.orders again, so that the join writes 2 rows again, and then delete those of"
        " 1 row of HBase that the join has not written again"
    )
    began = time.monotonic()
    repaired = verified(wide, repair=True)
    print([said.repair for said in repaired], f"{time.monotonic() - began:.1f} s")
    assert [(said.last.outcome, bool(said.repair)) for said in repaired] == [("equal", True)] * 2
    assert {said.verdict.outcome for said in verified(wide)} == {"equal"}


def test_a_bug_in_the_engine_is_found_and_not_covered_up(wide: RunningPipeline) -> None:
    """Rows that it wrote are reported, by column and both values. A repair makes it write them again: still wrong,
    which is reported with the remedy. With a correct engine the same repair corrects them.
    """
    found = wide.shop._rows("SELECT id, quantity FROM shop.orders WHERE id % 10 IN (6, 7) ORDER BY id LIMIT 8")
    expected = {key: ("different", {"quantity": (many, many + 1)}) for key, many in found if key % 10 == 7}
    wide.pipeline.kill("joins")
    tables = [word for table in wide.topology.tables for word in ("--table", table)]
    command = (sys.executable, "-m", "tests.support.wrong_join", wide.topology.file, *tables)
    with subprocess.Popen(command, env=wide.pipeline.environ, stderr=subprocess.DEVNULL) as joins:
        try:
            for key, _ in found:
                execute(wide, "UPDATE shop.orders SET revision = revision + 1 WHERE id = %s", key)
            [said] = verified(wide, "table")
            assert (reported(said.verdict), said.verdict.unknown) == (expected, ())
            [said] = verified(wide, "table", repair=True)
            many = len(expected)
            assert said.repair.startswith(f"{many} written again; {many} rows still differ: the join's state ")
            assert "--rebuild orders_wide` rebuilds the table" in said.repair
            assert said.last.outcome == "different"
        finally:
            joins.kill()
    wide.pipeline.start_part("joins")
    [said] = verified(wide, "table", repair=True)
    assert (said.repair, said.last.outcome) == (f"{len(expected)} written again", "equal")
    assert {said.verdict.outcome for said in verified(wide)} == {"equal"}
