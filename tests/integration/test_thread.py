"""The whole pipeline on real servers: whatever dies, HBase and Solr end equal to the sources.

One pipeline runs through all steps, as in production, and has two tables: a joined one, and groups of that one. Live
traffic continues while a process or a server is killed, then it stops. Every change must become visible. The topology's
own queries over the source databases are compared with HBase and Solr, row by row and field by field.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import happybase
import pymysql
import pytest
import requests

from cdc.process.file_running import running
from cdc.process.file_topology import load_topology
from cdc.stored.cells import RowCodec
from cdc.topology.topology import Topology
from indexer.index.collapse import RowChange
from indexer.solr.solr_rows import all_documents
from indexer.table.hbase_layouts import StoredLayouts
from indexer.table.hbase_scan import TableScan
from tailorbird.cli.change.cli_apply import provision
from tailorbird.cli.cli_demo_steps import counts, traffic, wait_until_quiet
from tailorbird.cli.cli_demo_verdict import verdicts
from tailorbird.client import Client
from tailorbird.devtools.demo.mysql_demo import MySqlShop
from tailorbird.devtools.demo.shop import SCHEMAS, Server, Shop, ShopStatement, ShopTransaction
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.devtools.stack.settings import LOAD_LOGIN
from tailorbird.operate.pipeline.proc_pipeline import Pipeline
from tailorbird.operate.wait.run_wait import Waiter
from tailorbird.verify import settling
from tailorbird.verify.explain.explanation_text import lines_of
from tailorbird.verify.explain.run_explain import Explainer
from tailorbird.verify.index import run_index_stage
from tailorbird.verify.index.run_index_stage import verify_indexes
from tailorbird.verify.request import SilentTerminal, StageResult, parse_request
from tailorbird.verify.table import run_table_stage
from tailorbird.verify.table.run_table_stage import verify_tables
from tests.support.api_process import api_process
from tests.support.collector import Collector, collector, plain
from tests.support.commands import objects, tailorbird
from tests.support.lineage_receiver import LineageReceiver, lineage_receiver
from tests.support.mcp_client import McpClient
from tests.support.ports import free_port
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(2400)]

ROOT = Path(__file__).parents[2]
REVENUE = ROOT / "topologies" / "revenue.yml"
RATE = 60.0
QUIET = 15.0  # changes per second, if they must only be distinguished from planted faults


class RunningPipeline:
    """A running pipeline over a small shop, and helpers for the steps."""

    def __init__(
        self,
        stack: Stack,
        topology: Topology,
        pipeline: Pipeline,
        shop: MySqlShop,
        generator: Shop,
        page: str,
        traces: Collector,
        lineage: LineageReceiver,
    ) -> None:
        self.stack, self.topology, self.pipeline, self.shop, self.generator = stack, topology, pipeline, shop, generator
        self.page, self.traces, self.lineage = page, traces, lineage

    @contextmanager
    def live_traffic(self, rate: float = RATE) -> Iterator[Callable[[int], None]]:
        """Make changes while the block runs; yield a function that waits for a number of further changes."""
        stop, done, failed = threading.Event(), [0], list[BaseException]()

        def write() -> None:
            try:
                for change in traffic(self.generator, rate=rate, until=stop.is_set):
                    self.shop.apply(change)
                    done[0] += 1
            except BaseException as error:  # raised again in the test's thread, below
                failed.append(error)
                raise

        def more(changes: int) -> None:
            wanted = done[0] + changes
            wait_for(lambda: done[0] >= wanted or bool(failed), "the traffic stands still", 120)
            assert not failed

        writer = threading.Thread(target=write, name="traffic")
        writer.start()
        try:
            yield more
        finally:
            stop.set()
            writer.join()

    def status(self) -> tuple[dict[str, Any], int]:
        """Return the parts that `tailorbird status --json` reports, and its exit code."""
        done = tailorbird("status", self.topology.file, "--json", environ=self.pipeline.environ)
        reported = [json.loads(line) for line in done.stdout.splitlines()]
        assert "Traceback" not in done.stderr
        names = {one["part"] if one["kind"] == "process" else f"index {one['index']}, served": one for one in reported}
        return names, done.returncode

    def must_be_equal(self) -> None:
        """Check that every committed change is visible, and that HBase and Solr equal the sources."""
        wait_until_quiet(self.topology, self.shop, self.pipeline, lambda why: None)
        tables = verdicts(self.topology)
        assert tables["orders_wide"].rows > 1_000
        assert tables["revenue"].rows > 60
        for name, found in tables.items():
            assert found.hbase.none, (name, found.hbase.examples)
            assert found.solr.none, (name, found.solr.examples)


@contextmanager
def a_thread(
    stack: Stack, folder: Path, *, orders: int, again: bool = False, most: int | None = None
) -> Iterator[RunningPipeline]:
    """Run a pipeline over a shop of `most` orders at the end, from its databases to its page; `again` drops what they
    had.
    """
    file = folder / "thread.yml"
    text = REVENUE.read_text().replace("name: revenue\n", f"name: thread_{time.time_ns()}\n")
    # one partition each: batches cost less CPU; two partitions: test_alive.py
    file.write_text(re.sub(r"( +)row_key: .*\n", r"\g<0>\1state_partitions: 1\n", text))
    topology = load_topology(str(file))
    generator = Shop(random=Random(11), most=most)
    shop = MySqlShop(topology.sources, user=LOAD_LOGIN.user, password=LOAD_LOGIN.password)
    for server in SCHEMAS if again else ():
        gone = ShopStatement(server=server, sql=f"DROP DATABASE IF EXISTS {server}", values=())
        shop.apply(ShopTransaction(kind="order removed", statement=gone))
    shop.prepare()
    shop.load(
        generator.catalogue(
            customers=max(200, orders // 10),
            products=max(100, orders // 20),
            orders=orders,
            now_ms=int(time.time() * 1000),
        ),
        lambda rows: None,
    )
    assert len(list(provision(topology))) >= 4
    page = free_port()
    with ExitStack() as opened:
        traces, lineage = opened.enter_context(collector()), opened.enter_context(lineage_receiver())
        environ = {**traces.environ(), **lineage.environ()}
        pipeline = opened.enter_context(Pipeline(topology, home=folder, page_port=page, environ=environ))
        pipeline.start()
        yield RunningPipeline(stack, topology, pipeline, shop, generator, f"http://127.0.0.1:{page}", traces, lineage)
    shop.close()


@pytest.fixture(scope="module")
def thread(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPipeline]:
    with a_thread(stack, tmp_path_factory.mktemp("thread"), orders=1_500) as made:
        yield made


def test_a_snapshot_arrives(thread: RunningPipeline) -> None:
    """Rows from before the capture's start are captured, joined and indexed."""
    # on a busy machine the first batch of two queries takes longer than the limit for a standstill
    wait_for(lambda: counts(thread.pipeline)["joined"] > 0, "no row was joined", 400)
    thread.must_be_equal()
    assert counts(thread.pipeline)["captured"] >= 1_800


def test_lineage_leads_from_fields_of_an_index_to_columns_of_the_databases(thread: RunningPipeline) -> None:
    """The datasets of each job are those of the next one, by namespace and name, and so are their columns. No event has
    a value of a row, such as an email address.
    """
    name, lineage = thread.topology.name, thread.lineage
    jobs = [f"{name}.{job}" for job in ("capture.shop", "join.orders_wide", "index.orders")]
    wait_for(lambda: all(len(lineage.origins(job)) for job in jobs), "the columns of a job are not known", 120)
    wait_for(lambda: all(any(found.values()) for found in lineage.origins(jobs[2]).values()), "no field is known", 60)
    assert all(lineage.steps(job)[0] == "START" for job in jobs)
    sides = [
        {(one["namespace"], one["name"]) for event in lineage.of(job) for one in event[side]}
        for job, side in zip(jobs, ("outputs", "inputs", "inputs"), strict=True)
    ]
    assert sides[0] & sides[1]
    assert sides[2] == {(one["namespace"], one["name"]) for event in lineage.of(jobs[1]) for one in event["outputs"]}

    def origins(job: str, dataset: str, field: str) -> set[tuple[str, str]]:
        return {(of, column) for of, column, _ in lineage.origins(job)[dataset][field]}

    [indexed] = lineage.origins(jobs[2])
    [(table, column)] = origins(jobs[2], indexed, "id")
    assert (table, column) == (f"{name}:orders_wide", "id")
    [(topic, column)] = origins(jobs[1], table, column)
    assert (topic, column) == (f"{name}.shop.shop.orders", "id")
    assert origins(jobs[0], topic, column) == {("shop.orders", "id")}
    assert "@" not in "".join(lineage.texts)


def test_a_plan_shows_what_runs_and_what_a_change_costs(thread: RunningPipeline) -> None:
    """While the topology runs unchanged, `plan` has nothing to do. For a changed file it lists, in order: the join that
    restarts (but not the groups that do not read it), its index, the number of rows in HBase, and the effect of the
    log.
    """

    def planned(*words: str) -> tuple[list[dict[str, Any]], int]:
        done = tailorbird(*words, "--json", environ=thread.pipeline.environ)
        assert done.stderr == ""
        reported = [json.loads(line) for line in done.stdout.splitlines()]
        return [one for one in reported if one["action"] != "keep"], done.returncode

    assert planned("plan", thread.topology.file) == ([], 0)
    file = Path(thread.topology.file).with_name("changed.yml")
    file.write_text(Path(thread.topology.file).read_text().replace("o.note,", "upper(o.note) AS note,"))
    found, code = planned("apply", str(file), "--dry-run")
    assert [(one["action"], one["kind"], one["name"]) for one in found] == [
        ("rebuild", "join", "orders_wide"),
        ("follow", "index", "orders"),
    ]
    assert (code, found[0]["by"]) == (1, f"tailorbird run {file} --rebuild orders_wide")
    assert found[0]["rows"] == found[1]["rows"] > 1_000
    assert found[0]["records"] > found[0]["rows"]
    assert 0 < found[0]["seconds"] < 3_600


def test_a_write_is_read_after_its_wait(thread: RunningPipeline) -> None:
    """The class, the command and the page of `wait`: a query after it shows an earlier commit in all rows that it
    changes, during other traffic. A position that is not reached ends the wait in time.
    """
    source = thread.topology.sources["shop"]
    index = f"{thread.topology.solr.url}/{thread.topology.indexes['orders'].collection}/select"
    asked = {"q": "product_id:1 AND _kind:row", "fl": "product", "rows": "1000"}

    def shown() -> set[str]:
        documents = requests.get(index, params=asked, timeout=10).json()["response"]["docs"]
        return {document["product"] for document in documents}

    with (
        pymysql.connect(
            host=source.hostname, port=source.port, user=LOAD_LOGIN.user, password=LOAD_LOGIN.password, autocommit=True
        ) as connection,
        connection.cursor() as cursor,
        thread.live_traffic(QUIET),
        Waiter(thread.topology) as waiter,
    ):
        cursor.execute("UPDATE shop.products SET title = 'by class' WHERE id = 1")
        waiter.wait(waiter.now("shop"), table="orders_wide", timeout=120)
        assert shown() == {"by class"}
        cursor.execute("UPDATE shop.products SET title = 'by command' WHERE id = 1")
        words = ("wait", thread.topology.file, "--source", "shop", "--now", "--json")
        done = tailorbird(*words, environ=thread.pipeline.environ)
        assert (done.returncode, done.stderr, shown()) == (0, "", {"by command"})
        cursor.execute("UPDATE shop.products SET title = 'by page' WHERE id = 1")
        found = requests.get(f"{thread.page}/wait?source=shop&timeout=60", timeout=120)
        assert (found.status_code, found.json()["reached"], shown()) == (200, True, {"by page"})
    server = json.loads(done.stdout)["gtid_set"].split(":")[0]
    late = requests.get(f"{thread.page}/wait?source=shop&gtid={server}:1-99999999&timeout=0.2", timeout=60)
    assert (late.status_code, late.json()["reached"]) == (504, False)


def test_a_trace_of_one_change_shows_every_stage_with_its_time(thread: RunningPipeline) -> None:
    """From COMMIT at the database to the query of Solr, in one trace that five processes send without an agreement.

    Each span's parent is the stage before. No attribute of any span contains a value of a row."""
    source, hidden = thread.topology.sources["shop"], "a value that no span may contain"
    topic = thread.topology.routing.topic(f"{thread.topology.name}.shop.shop.products")
    with (
        pymysql.connect(
            host=source.hostname, port=source.port, user=LOAD_LOGIN.user, password=LOAD_LOGIN.password, autocommit=True
        ) as connection,
        connection.cursor() as cursor,
        Waiter(thread.topology) as waiter,
    ):
        cursor.execute("UPDATE shop.products SET title = 'an earlier change' WHERE id = 1")
        waiter.wait(waiter.now("shop"), timeout=120)
        low = waiter.now("shop").position
        before = time.time_ns()
        cursor.execute("UPDATE shop.products SET title = %s WHERE id = 1", (hidden,))
        committed = time.time_ns()
        waiter.wait(waiter.now("shop"), timeout=120)
        visible = time.time_ns()

    def started() -> list[Any]:
        found = [(span, plain(span.attributes)) for _, span in thread.traces.spans if span.name == "capture"]
        of_topic = [(span, known) for span, known in found if known["messaging.destination.name"] == topic]
        commit = "tailorbird.commit.file", "tailorbird.commit.pos"
        return [span for span, known in of_topic if tuple(known[one] for one in commit) > (low.file, low.pos)]

    stages = ["capture", "join orders_wide", "sink orders_wide", "index orders", "visible orders"]
    wait_for(lambda: len(started()) == 1, "the change has no trace", 30)
    trace = int.from_bytes(started()[0].trace_id)
    wait_for(lambda: set(stages) <= thread.traces.trace(trace).keys(), "a stage is missing", 30)
    spans = [thread.traces.trace(trace)[stage] for stage in stages]
    parents = [span.parent_span_id for span in spans]
    assert parents == [b"", *(span.span_id for span in spans[:-1])]
    times = [(span.start_time_unix_nano, span.end_time_unix_nano) for span in spans]
    assert all(began <= ended for began, ended in times), times
    assert times == sorted(times), times
    slack = 1_000_000_000  # the binary log of some servers has whole seconds, and clocks of milliseconds
    assert before - slack <= times[0][0] <= committed + slack
    assert committed < times[0][1] < times[-1][1] < visible + slack, (committed, times, visible)
    assert all(hidden not in str(span) for _, span in thread.traces.spans)
    metrics = thread.traces.metrics
    assert metrics["tailorbird_captured_changes"][("source", "shop"),] > 0
    assert metrics["tailorbird_joined_rows"][("table", "orders_wide"),] > 1_000
    assert metrics["tailorbird_indexed_documents"][("index", "orders"),] > 1_000


def test_the_board_and_the_alerts_name_what_is_scraped(thread: RunningPipeline) -> None:
    """Each metric of captures, joins and indexers that the board and the rules name is served by one of them."""
    ports = [one.port for one in running(thread.topology.name, Path(thread.pipeline.environ["TAILORBIRD_HOME"]))]
    scraped = "".join(requests.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text for port in ports if port)
    served = set(re.findall(r"^# TYPE (\w+) ", scraped, re.MULTILINE))
    named = "".join(
        (ROOT / file).read_text() for file in ("examples/grafana.json", "deploy/prometheus/tailorbird.rules.yml")
    )
    wanted = set(re.findall(r"\b(?:tailorbird|debezium_metrics|kafka_connect)_\w+", named))
    # of processes and sources that do not run here, and names of rules
    others = tuple(f"tailorbird_{one}_" for one in ("check", "ledger", "poll", "slot", "webhook"))
    assert {one for one in wanted if not one.startswith(others)} - served == set()
    assert len(wanted & served) > 15


# faults that the index stage alone finds: test_verify_index.py
@pytest.mark.parametrize("by_index", [False, pytest.param(True, marks=pytest.mark.matrix)])
def test_verify_names_and_repairs_rows_that_are_wrong_during_live_traffic(
    thread: RunningPipeline, monkeypatch: pytest.MonkeyPatch, by_index: bool
) -> None:
    """Rows are changed, deleted and added directly in HBase, without replication. `verify` reports them, by column and
    both values, and no others, while orders change. The join writes them again, and the index follows.
    """
    for stage in (run_index_stage, run_table_stage):
        monkeypatch.setattr(stage, "_BETWEEN_LOOKS", 0.3)
    monkeypatch.setattr(settling, "STANDSTILL", 200.0)  # on a busy machine
    monkeypatch.setattr(SilentTerminal, "ask", lambda *_: True)
    other_shop = MySqlShop(thread.topology.sources, user=LOAD_LOGIN.user, password=LOAD_LOGIN.password)
    table, thrift, changed = thread.topology.tables["orders_wide"], thread.topology.hbase.thrift, 10**13 + 10 * by_index
    removed, added = changed + 1, changed + 2
    layout = StoredLayouts(thrift, topology=thread.topology.name, table=table.name).newest()
    assert layout is not None
    codec = RowCodec(layout)

    def stored(order: int) -> list[RowChange]:
        return TableScan(thread.topology, table).rows([codec.row_key({"id": order})])

    def plant() -> None:
        host, _, port = thrift.rpartition(":")
        known, now = codec.row(stored(changed)[0].cells), time.time_ns() // 1_000_000
        with closing(happybase.Connection(host, int(port), timeout=30_000)) as connection:
            rows = connection.table(f"{thread.topology.name}:orders_wide")
            for values in ({**known.values, "status": "paid"}, {**known.values, "id": added}):
                cells = codec.cells(values, batch=1, ts_ms=1)
                rows.put(codec.row_key(values), {b"d:" + q: v for q, v in cells.items()}, timestamp=now, wal=False)
            with rows.batch(timestamp=now, wal=False) as batch:
                batch.delete(codec.row_key({"id": removed}))

    def index() -> StageResult:
        asked = parse_request(thread.topology, None, ["orders_wide"])
        return next(verify_indexes(asked, SilentTerminal()))

    def findings(said: StageResult) -> list[tuple[object, ...]]:
        found = sorted(said.verdict.findings, key=lambda one: str(one.key))
        return [(*one.key.values(), one.kind, one.columns.get("status")) for one in found]

    columns = "id, status, quantity, amount, created_at, revision"
    with thread.live_traffic(QUIET) as more, closing(other_shop):
        for order in (changed, removed):
            sql = f"INSERT INTO shop.orders ({columns}) VALUES (%s, 'new', 1, 9.99, '2026-11-23', 1)"
            statement = ShopStatement(server="shop", sql=sql, values=(order,))
            other_shop.apply(ShopTransaction(kind="order placed", statement=statement))
        wait_for(lambda: stored(removed) != [], "the orders are not joined", 400)
        plant()
        if by_index:
            reported = index()
            assert (reported.verdict.unknown, reported.verdict.moving) == ((), 0)
            assert findings(reported) == [
                (changed, "different", ("paid", "new")), (removed, "extra", None), (added, "missing", None),
            ]  # fmt: skip
        done = next(verify_tables(parse_request(thread.topology, None, ["orders_wide"], repair=True), SilentTerminal()))
        assert (done.verdict.unknown, done.verdict.moving) == ((), 0)
        assert findings(done) == [
            (changed, "different", ("new", "paid")), (removed, "missing", None), (added, "extra", None),
        ]  # fmt: skip
        assert (done.repair, done.last.outcome) == ("1 removed; 2 written again", "equal"), done
        more(10)
        reported = index()
        assert (reported.last.outcome, reported.verdict.rows > 1_000) == ("equal", True)


@pytest.mark.parametrize("changes", [20, pytest.param(200, marks=pytest.mark.matrix)])
def test_explain_names_the_event_that_made_each_cell(thread: RunningPipeline, changes: int) -> None:
    """Random changes with known GTIDs: for every cell of the rows that they touch, explain names the event that made
    its value, by the server's GTID and binlog position. Other cells name none of these events.
    """
    servers = {
        name: pymysql.connect(
            host=one.hostname, port=one.port, user=LOAD_LOGIN.user, password=LOAD_LOGIN.password, autocommit=True
        )
        for name, one in thread.topology.sources.items()
    }

    def asked(server: str, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with servers[server].cursor() as cursor:
            cursor.execute(sql, values)
            return list(cursor.fetchall())

    def executed(server: str) -> str:
        return str(asked(server, "SELECT @@global.gtid_executed")[0][0])

    with ExitStack() as stack:
        for connection in servers.values():
            stack.enter_context(closing(connection))
        waiter = stack.enter_context(Waiter(thread.topology))
        explainer = stack.enter_context(Explainer(thread.topology, "orders_wide"))
        chance, expected = Random(changes), dict[tuple[str, int], str]()
        orders = asked("shop", "SELECT id, customer_id, product_id FROM shop.orders WHERE customer_id IS NOT NULL "
                       "AND product_id IS NOT NULL ORDER BY id DESC LIMIT 300")  # fmt: skip
        touched = set[int]()
        for number in range(changes):
            order, customer, product = chance.choice(orders)
            server, table, column, key = chance.choice([
                ("shop", "orders", "note", order), ("shop", "orders", "quantity", order),
                ("shop", "products", "title", product), ("crm", "customers", "name", customer),
            ])  # fmt: skip
            before = executed(server)
            value = number if column == "quantity" else f"{number} of {changes}"
            asked(server, f"UPDATE {server}.{table} SET {column} = %s WHERE id = %s", value, key)
            gtid = asked(server, "SELECT gtid_subtract(@@global.gtid_executed, %s)", before)[0][0]
            if gtid:  # otherwise the row no longer exists, or had this value already
                expected[f"{server}.{server}.{table}", key] = gtid
            touched.add(order)
        for source in thread.topology.sources:
            waiter.wait(waiter.now(source), until="table", table="orders_wide", timeout=120)
        cells, seen = 0, dict[tuple[str, int], Mapping[str, Any]]()
        for order in sorted(touched):
            found = explainer.explain({"id": order})
            assert found is not None
            assert (found.reported, found.differs) == (True, False), list(lines_of(found))
            assert explainer.explain_at(found.row.row_key) == found  # as the page of its document requests it
            events = {event.node: event for event in found.events}
            for cell in found.cells:
                for event in (events[node] for node in cell.events):
                    assert event.source is not None
                    assert event.key is not None
                    row = (event.table, int(str(event.key["id"])))
                    made = expected.get(row)
                    assert event.source["gtid"] == made if made else event.source["gtid"] not in expected.values()
                    if made:
                        seen[row] = event.source
                    cells += cell.agrees is True
        for (table, _), reported in seen.items():  # the servers' own binlogs
            sql = f"SHOW BINLOG EVENTS IN %s FROM {reported['pos']} LIMIT 3"
            kinds = [str(line[2]) for line in asked(table.partition(".")[0], sql, reported["file"])]
            assert any(kind.lower().startswith(("table_map", "update_rows")) for kind in kinds), (reported, kinds)
    assert seen.keys() == expected.keys()
    assert cells > 10 * len(touched)


def test_an_mcp_client_searches_and_explains_rows(thread: RunningPipeline) -> None:
    """A session over a subprocess: rows with the positions up to which they are complete, the events of a row, and no
    column that the dashboard does not show. What is refused leaves the session as it was.
    """
    wait_until_quiet(thread.topology, thread.shop, thread.pipeline, lambda why: None)
    with McpClient(thread.topology.file, "--dashboard", "sales", environ=thread.pipeline.environ) as client:
        (table,) = client.call("tables")["tables"]
        shown = [column["name"] for column in table["columns"]]
        assert shown == list(thread.topology.dashboards["sales"].columns)
        assert "email" not in shown
        assert "unknown column email" in client.refused("search", dashboard="sales", columns=["email"])
        found = client.call("search", dashboard="sales", filters=["id <= 20"], sort="-id", limit=3)
        assert [row["values"]["id"] for row in found["rows"]] == [20, 19, 18]
        assert {*found["complete_up_to"]["sources"]} == {"shop", "crm"}
        assert found["verification"]["verdict"] in ("unknown", "equal")
        explained = client.call("explain", dashboard="sales", key=found["rows"][0]["key"])
        cells = {cell["name"]: cell for cell in explained["cells"]}
        assert {*cells} <= {*shown}
        assert {event["table"] for event in explained["events"]} <= {"shop.shop.orders", "crm.crm.customers",
                                                                    "shop.shop.products"}  # fmt: skip
        assert cells["quantity"]["events"]
        assert client.call("cut", dashboard="sales")["timestamp_ms"] > 0
        assert client.request("no/method")["error"]["code"] == -32601


@pytest.mark.matrix  # every request over a script instead of servers: tests/tailorbird/api
def test_the_api_answers_like_the_command_line(thread: RunningPipeline) -> None:
    """Over the API, commands print what they print here, with the same exit codes."""
    thread.must_be_equal()
    file, name, source = thread.topology.file, thread.topology.name, thread.topology.sources["shop"]
    with api_process(file, thread.pipeline.environ) as remote:
        client = Client(remote["TAILORBIRD_API"], token=remote["TAILORBIRD_API_TOKEN"])
        id_ = client.search(name, "sales", sort="id", limit=1).rows[0]["values"]["id"]
        for command, *rest in (["plan"], ["dead-letters list"], ["explain", "orders_wide", str(id_)]):
            here = tailorbird(*command.split(), file, *rest, environ=thread.pipeline.environ)
            there = tailorbird(*command.split(), name, *rest, environ=remote)
            assert (there.returncode, there.stdout) == (here.returncode, here.stdout), there.stderr
        code, formats, why = objects("upgrade", file, "--check", environ=thread.pipeline.environ)
        assert code == 0, (formats, why)
        assert {one["name"] for one in formats} >= {"positions", "schema history", "checkpoints", "layouts"}
        status = client.status(name)
        assert (status.exit_code, {one["kind"] for one in status.entries}) == (0, {"process", "index"}), status
        events = f"topologies/{name}/dashboards/sales/events"
        first = next(client.events(events))
        assert first.kind == "cut"
        with (
            pymysql.connect(
                host=source.hostname,
                port=source.port,
                user=LOAD_LOGIN.user,
                password=LOAD_LOGIN.password,
                autocommit=True,
            ) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("UPDATE shop.products SET title = 'by event' WHERE id = 1")
        assert tailorbird("wait", name, "--source", "shop", "--now", environ=remote).returncode == 0
        changed = next(one for one in client.events(events, first.id) if one.kind == "rows")
        assert {row["values"]["product"] for row in changed.data["rows"]} == {"by event"}, changed
        outcome = client.run(name, "verify", stage=["index"])
        verdicts_ = [one["outcome"] for one in outcome.entries if one["kind"] == "verdict"]
        assert (outcome.exit_code, set(verdicts_)) == (0, {"equal"}), outcome.lines


def test_status_names_the_process_that_does_not_progress(thread: RunningPipeline) -> None:
    """While all parts progress it exits with 0, and reports them complete after any idle time. A process of each kind
    stopped by a signal, and a killed one: it exits with 1 and names the remedy. All resume where they were.
    """
    thread.must_be_equal()  # the writes of earlier tests have arrived
    found, code = thread.status()
    assert code == 0, found
    assert {one["state"] for one in found.values()} == {"moving", "serving"}
    assert (found["index orders, served"]["missing_changes"], found["index orders, served"]["behind"]) == (0, 0.0)

    pids = {
        name: found[name]["pid"] for name in ("capture shop", "join orders_wide", "index orders", "dashboard orders")
    }
    for pid in pids.values():
        os.kill(pid, signal.SIGSTOP)
    found, code = thread.status()
    for pid in pids.values():
        os.kill(pid, signal.SIGCONT)
    reported = {name: (found[name]["state"], found[name]["remedy"]) for name in pids}
    assert (code, reported) == (1, {name: ("stopped", f"kill -CONT {pid}") for name, pid in pids.items()})
    assert found["capture crm"]["state"] == "moving"
    thread.pipeline.kill("capture crm")
    found, code = thread.status()
    thread.pipeline.start_part("capture crm")
    assert (code, found["capture crm"]["state"]) == (1, "down")
    assert "was killed" in found["capture crm"]["reason"]
    wait_for(lambda: thread.status()[1] == 0, "it does not move again", 120)


@pytest.mark.matrix  # groups through kill -9: tests/joins/test_conformance.py, tests/laws/test_groups.py
def test_a_group_empties_and_reappears_around_a_killed_join(thread: RunningPipeline) -> None:
    """Kill -9 of the joins' process during live traffic: a group whose last order is deleted at that time disappears,
    and reappears with its next orders. Orders without a country form a group as well.
    """
    other_shop = MySqlShop(thread.topology.sources, user=LOAD_LOGIN.user, password=LOAD_LOGIN.password)

    def orders_of(country: str | None) -> list[tuple[int, list[str]]]:
        groups = all_documents(thread.topology.solr.url, thread.topology.indexes["revenue"].collection)
        return [(one["orders"], one["statuses"]) for one in groups if one.get("country") == country]

    def execute(server: Server, sql: str, *values: object) -> None:
        other_shop.apply(
            ShopTransaction(kind="order changed", statement=ShopStatement(server=server, sql=sql, values=values))
        )

    def place(order: int, status: str) -> None:
        columns = "id, customer_id, product_id, status, quantity, amount, created_at, revision"
        sql = f"INSERT INTO shop.orders ({columns}) VALUES (%s, 777777, 1, %s, 1, 9.99, '2026-11-23', 1)"
        execute("shop", sql, 10**12 + order, status)

    with thread.live_traffic() as more, closing(other_shop):
        execute("crm", "INSERT INTO crm.customers VALUES (777777, 'the only one', 'ZZ', NULL)")
        place(1, "new")
        wait_for(lambda: orders_of("ZZ") == [(1, ["new"])], "the group does not come", 120)
        thread.pipeline.kill("joins")
        execute("shop", "DELETE FROM shop.orders WHERE customer_id = 777777")
        more(60)
        thread.pipeline.start_part("joins")
        wait_for(lambda: orders_of("ZZ") == [], "the group does not go", 240)
        place(2, "paid")
        place(3, "new")
        wait_for(lambda: orders_of("ZZ") == [(2, ["new", "paid"])], "the group does not reappear", 120)
        more(30)
    thread.must_be_equal()
    assert sum(orders for orders, _ in orders_of(None)) > 20


@pytest.mark.matrix  # same as tests/integration/test_join.py for the join alone
def test_join_killed_between_write_and_commit(thread: RunningPipeline) -> None:
    """HBase holds a batch that Spark did not commit: the replay writes identical cells."""
    name = "joins"
    thread.pipeline.kill(name)
    with thread.live_traffic() as more:
        more(100)
        tables = [word for table in thread.topology.tables for word in ("--table", table)]
        dying = (sys.executable, "-m", "tests.support.dying_join", "2", thread.topology.file, *tables)
        died = subprocess.run(dying, env=thread.pipeline.environ, timeout=120, capture_output=True, text=True)
        assert died.returncode == -signal.SIGKILL, died.stderr
        more(50)
        thread.pipeline.start_part(name)
        more(50)
    thread.must_be_equal()


def test_live_changes_arrive_while_captures_and_the_indexer_are_killed(thread: RunningPipeline) -> None:
    """Inserts, updates, deletes, foreign-key moves and renames on both servers arrive while they happen. After kill -9
    a capture resumes from the position that was committed with its rows, and HBase resends what the indexer did not
    acknowledge.
    """
    with thread.live_traffic() as more:
        for name in (*(f"capture {source}" for source in thread.topology.sources), "index orders"):
            more(60)
            thread.pipeline.kill(name)
            more(60)
            thread.pipeline.start_part(name)
        more(60)
    thread.must_be_equal()


@pytest.mark.matrix  # same as tests/integration/test_index.py, but with a join
def test_solr_unavailable(thread: RunningPipeline) -> None:
    """Solr is down for 20 s: HBase keeps the backlog, and the index catches up by itself."""
    with thread.live_traffic() as more:
        more(60)
        thread.stack.kill("solr")
        unavailable = time.monotonic()
        more(120)
        wait_for(lambda: time.monotonic() - unavailable >= 20, "time stands still", 30)
        thread.stack.start("solr")
        more(30)
    thread.must_be_equal()
