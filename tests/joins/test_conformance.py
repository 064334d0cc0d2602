"""The kernel conforms to the specification: random joins through Spark with real state stores emit, batch by batch, the
messages of `joins.steps.state`."""

from __future__ import annotations

import json
import os
import random
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from cdc.model.brokers import Brokers
from cdc.model.errors import TopologyError
from joins.engine.causes import cause_of
from joins.engine.spark_kernel import kernel_flow
from joins.engine.spark_query import PHASE_ENDED
from joins.engine.spark_session import close_session, open_session
from joins.inspection.held import described, keys_of
from joins.inspection.spark_entries import entries
from joins.kernel.program import WEEK_MS, program_of
from joins.query.nodes import Node, Pair
from joins.query.plan import Plan
from joins.runtime.records import REFUSED, ROW_GONE, ROW_PUT, SINK, TRUNCATION_POINT, Message, load, trace_of, values_of
from tests.integration.conftest import servers
from tests.joins.altering import MERGED
from tests.joins.evaluator import Evaluator
from tests.joins.groupplans import GroupPlan, group_plans
from tests.joins.joincase import Case, events_of, log_of, read_case, started
from tests.joins.joinrandom import random_case
from tests.joins.overplans import over_plans
from tests.joins.pairrandom import random_pair_case
from tests.joins.queryrandom import random_query
from tests.joins.simulation import Logged, Simulation
from tests.joins.test_retractions import TOPIC, WITHOUT_PLACE, Alter, altered_moves, shorter
from tests.joins.topplans import top_plans

pytestmark = [pytest.mark.integration, pytest.mark.kafka, pytest.mark.timeout(900)]

SCHEMA = "topic string, partition int, offset long, key binary, value binary"
BATCHES = 3
JOINS, PAIRS, GROUPS = 2, 1, (0, 2, 5, 6, 9, 12)  # nine cases; `make matrix` has three hundred
FEW_STEPS, MOST_STEPS = 3, 12
OPERATOR = ("operatorId", "operatorProperties")
Batches = list[list[Logged]]
SafeOffsets = dict[str, dict[int, int]]
Found = list[tuple[bytes, int, bytes]]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    scratch = tmp_path_factory.mktemp("spark")
    # a hundred queries of few rows: the second compiler would cost more than it saves
    session = open_session("conformance", partitions=2, scratch=scratch, jvm="-XX:TieredStopAtLevel=1")
    yield session
    close_session(session)


def test_files_of_the_checkpoint_fork_no_process(spark: SparkSession, tmp_path: Path) -> None:
    """The JVM sets the same permissions as Hadoop does."""
    context: Any = spark.sparkContext
    jvm, settings = context._jvm, context._jsc.hadoopConfiguration()
    own, hadoops = jvm.org.apache.hadoop.fs.FileSystem.getLocal(settings), jvm.org.apache.hadoop.fs.RawLocalFileSystem()
    assert own.getClass().getName() == "tailorbird.kernel.LocalFiles"
    hadoops.initialize(jvm.java.net.URI("file:///"), settings)
    own.create(jvm.org.apache.hadoop.fs.Path(str(tmp_path / "own"))).close()
    hadoops.create(jvm.org.apache.hadoop.fs.Path(str(tmp_path / "hadoop"))).close()
    assert (tmp_path / "own").stat().st_mode == (tmp_path / "hadoop").stat().st_mode
    assert not list(tmp_path.glob(".*.crc"))


def test_settings_are_serialized_without_their_files(spark: SparkSession) -> None:
    """Spark serializes Hadoop's settings for each stateful step of each batch. All have their values."""
    session: Any = spark
    settings = session._jsparkSession.sessionState().newHadoopConf()
    default = session._jvm.org.apache.hadoop.conf.Configuration()
    assert default.getPropertySources("fs.defaultFS")
    assert not settings.getPropertySources("fs.defaultFS")
    assert settings.size() >= default.size() > 1000
    assert settings.get("fs.defaultFS") == default.get("fs.defaultFS")


def batches_of(case: Case, topics: Sequence[str], chance: random.Random, number: int) -> Batches:
    """Return the case's log in batches with uneven progress of the partitions."""
    ends: dict[tuple[str, int], int] = {}
    records = [one for events in events_of(case) for one in log_of(case, events, ends) if one.topic in topics]
    batches: Batches = [[] for _ in range(number)]
    partitions = sorted({(record.topic, record.partition) for record in records})
    for at in partitions:
        own = [record for record in records if (record.topic, record.partition) == at]
        cuts = sorted(chance.randint(0, len(own)) for _ in range(number - 1))
        for batch, start, end in zip(batches, [0, *cuts], [*cuts, len(own)], strict=True):
            batch += own[start:end]
    return batches


def specified(
    plan: Plan,
    settled: SafeOffsets,
    batches: Batches,
    ends: SafeOffsets | None = None,
    exact_from: Mapping[str, int] | None = None,
) -> list[Found]:
    """Return the messages of `joins.steps.route` and `joins.steps.state` per batch; DuckDB evaluates the filters."""
    evaluator, found = Evaluator(), []
    simulation = Simulation(plan, settled, evaluator, ends=ends, exact_from=exact_from)
    for batch in batches:
        states = simulation.states.copy()
        routed = simulation.routed(batch, states)
        found.append(_plain(simulation._steps(routed, states)))
        simulation.states = states
    evaluator.close()
    return found


def _plain(messages: Sequence[Message]) -> Found:
    assert all(message.k[0] == SINK for message in messages)
    rows = [(message.k, message.op, message.p) for message in messages]
    truncation_points = {
        row for row in rows if row[1] == TRUNCATION_POINT
    }  # each level of the kernel that reads a topic emits them
    return sorted([row for row in rows if row not in truncation_points] + list(truncation_points))


def run(
    spark: SparkSession,
    flow: Callable[[Callable[[tuple[str, ...]], DataFrame]], DataFrame],
    batches: Batches,
    folder: Path,
) -> list[Found]:
    """Run the batches through a query of Spark, each as a file."""
    log = folder / "log"
    log.mkdir(parents=True)
    for number, batch in enumerate(batches):
        columns = [[getattr(r, n) for r in batch] for n in ("topic", "partition", "offset", "key", "value")]
        types = [pa.string(), pa.int32(), pa.int64(), pa.binary(), pa.binary()]
        names = ["topic", "partition", "offset", "key", "value"]
        arrays = [pa.array(column, type_) for column, type_ in zip(columns, types, strict=True)]
        file = log / f"{number:03}.parquet"
        pq.write_table(pa.table(dict(zip(names, arrays, strict=True))), file)
        os.utime(file, (1_700_000_000 + number,) * 2)  # Spark reads files in the order of their times
    found: dict[int, Found] = {}

    def read(topics: tuple[str, ...]) -> DataFrame:
        stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(log))
        return stream.where(stream.topic.isin(*topics))

    def keep(rows: DataFrame, batch: int) -> None:
        found[batch] = _plain([load(bytes(row.k), bytes(row.m)) for row in rows.collect()])

    writer = flow(read).writeStream.option("checkpointLocation", str(folder / "checkpoint")).foreachBatch(keep)
    writer = writer.outputMode("append").trigger(availableNow=True)
    writer.start().awaitTermination()
    return [found[number] for number in range(len(batches))]


Read = Callable[[tuple[str, ...]], DataFrame]


def kernel(plan: Plan, settled: SafeOffsets, read: Read, ends: SafeOffsets | None = None) -> DataFrame:
    return kernel_flow(read, program_of(plan, settled, kafka=Brokers(servers()).java(), ends=ends), plan)


def publish(batches: Batches) -> None:
    """Publish the same log to Kafka, from which markers read again."""
    records = [record for batch in batches for record in batch]
    topics = sorted({record.topic for record in records})
    admin = AdminClient({"bootstrap.servers": servers()})
    for future in admin.create_topics([NewTopic(topic, 2, 1) for topic in topics]).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": servers(), "enable.idempotence": True})
    for record in records:
        producer.produce(record.topic, partition=record.partition, key=record.key, value=record.value)
    assert producer.flush(60) == 0


def conforms(spark: SparkSession, seed: int, folder: Path, make: Callable[[int], Case] = random_case) -> bool:
    """Return whether the case of a seed was compared; it is skipped if its plan has no stateful step."""
    case = make(seed)
    marked = any(step[0] in ("truncate", "snapshot") for step in case.history)
    if marked:
        case = replace(case, name=f"law_{uuid.uuid4().hex[:10]}")
    plan = case.plan()
    if not plan.folds:  # without a step the sink folds, not the engine
        return False
    chance = random.Random(seed)
    batches = batches_of(case, plan.topics, chance, BATCHES)
    if marked:
        publish(batches)
    settled = {topic: {p: chance.choice([0, 3, 1000]) for p in range(2)} for topic in plan.topics}
    expected = specified(plan, settled, batches)
    got = run(spark, partial(kernel, plan, settled), batches, folder)
    assert meant(got) == meant(expected), f"seed {seed}\n{case.text()}"
    return True


def compare(
    spark: SparkSession,
    seeds: Iterator[int],
    cases: int,
    folder: Path,
    make: Callable[[int], Case] = random_case,
) -> None:
    done = 0
    while done < cases:
        seed = next(seeds)
        done += conforms(spark, seed, folder / str(seed), make)


def test_kernel_says_what_the_specification_says(spark: SparkSession, tmp_path: Path) -> None:
    """Random joins: multi-way joins, chains, self-joins, inner and left, composite keys."""
    compare(spark, count(), JOINS, tmp_path)


def test_kernel_pairs_as_the_specification_does(spark: SparkSession, tmp_path: Path) -> None:
    """Random joins of many to many."""
    compare(spark, count(), PAIRS, tmp_path, random_pair_case)


@pytest.mark.matrix
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(1000, 5000, 1000))
def test_kernel_pairs_again_and_again(spark: SparkSession, first: int, tmp_path: Path) -> None:
    """Twenty-five more per part, a hundred in all, of three hundred."""
    compare(spark, iter(range(first, first + 1000)), 25, tmp_path, random_pair_case)


def starts_fast(seed: int, steps: int = MOST_STEPS) -> bool:
    """Return whether a random query compiles, and has few enough steps for a query of Spark that runs for seconds."""
    try:
        plan = random_query(seed).plan()
    except TopologyError:
        return False
    return sum(len(fragment.steps) + (fragment.group is not None) for fragment in plan.fragments) <= steps


def test_kernel_runs_nine_queries(spark: SparkSession, tmp_path: Path) -> None:
    """Random queries of all forms that have few steps. With the other random cases of this file there are twenty."""
    compare(spark, (seed for seed in count() if starts_fast(seed, FEW_STEPS)), 9, tmp_path, random_query)


@pytest.mark.matrix
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(1000, 13_000, 1000))
def test_kernel_runs_queries_of_all_forms(spark: SparkSession, first: int, tmp_path: Path) -> None:
    """Twenty-five random queries per part, three hundred in all."""
    compare(spark, filter(starts_fast, range(first, first + 1000)), 25, tmp_path, random_query)


def groups_conform(
    spark: SparkSession, seeds: Iterable[int], folder: Path, chosen: Sequence[GroupPlan] | None = None
) -> None:
    """Check plans of several fragments in turn, each over a random history: the messages are those of the
    specification."""
    plans = chosen or [*group_plans().values(), *top_plans().values()]
    for seed in seeds:
        group, chance = plans[seed % len(plans)], random.Random(seed)
        case = group.case(seed)
        # markers are handled by the router, independently of the steps after it
        case = replace(case, history=[step for step in case.history if step[0] not in ("truncate", "snapshot")])
        batches = batches_of(case, group.plan.topics, chance, BATCHES)
        settled = {topic: {p: chance.choice([0, 3, 1000]) for p in range(2)} for topic in group.plan.topics}
        got = run(spark, partial(kernel, group.plan, settled), batches, folder / str(seed))
        expected = specified(group.plan, settled, batches)
        assert meant(got) == meant(expected), f"{group.name}, seed {seed}\n{case.text()}"


def meant(batches: list[Found]) -> list[list[object]]:
    """Return rows by their values: a double that an engine parses and writes again may have another text."""
    return [
        [(k, op, p[:8], trace_of(p), values_of(p)) if op == ROW_PUT else (k, op, p) for k, op, p in found]
        for found in batches
    ]


def test_kernel_groups_as_the_specification_does(spark: SparkSession, tmp_path: Path) -> None:
    """Groups over tables, joins and groups; groups that are joined, and unions; the first rows of groups."""
    groups_conform(spark, GROUPS, tmp_path)


def test_kernel_computes_windows_as_the_specification_does(spark: SparkSession, tmp_path: Path) -> None:
    """Window functions over ordered partitions: all kinds in one plan, and frames."""
    groups_conform(spark, range(2), tmp_path, [*over_plans().values()])


@pytest.mark.matrix
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(1000, 5000, 1000))
def test_kernel_computes_windows_again_and_again(spark: SparkSession, first: int, tmp_path: Path) -> None:
    """Twenty-five more per part, a hundred in all, of joins and of groups, too."""
    groups_conform(spark, range(first, first + 25), tmp_path, [*over_plans().values()])


@pytest.mark.matrix
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(1000, 5000, 1000))
def test_kernel_groups_again_and_again(spark: SparkSession, first: int, tmp_path: Path) -> None:
    """Twenty-five more per part, a hundred in all, of three hundred."""
    groups_conform(spark, range(first, first + 25), tmp_path)


def passes_a_level(node: Node) -> bool:
    """Return whether rows of a branch pass a level of another branch that is two joins higher or more."""
    heights = [_height(lookup.child) for lookup in node.lookups]
    lower = any(1 <= height < max(heights) for height in heights)
    return lower or any(passes_a_level(lookup.child) for lookup in node.lookups)


def _height(node: Node) -> int:
    return 1 + max(_height(lookup.child) for lookup in node.lookups) if node.lookups else 0


def test_rows_pass_levels_that_are_not_theirs(spark: SparkSession, tmp_path: Path) -> None:
    """Branches whose heights differ by two: random joins of five tables and more."""
    seeds = (seed for seed in range(10**6) if passes_a_level(random_case(seed).plan().last.tree))
    compare(spark, seeds, 1, tmp_path)


def reads_merged(case: Case) -> bool:
    """Return whether a case reads a merged table whose markers concern only one of its databases."""
    words = [word[1] for word in case.history if word[0] in ("truncate", "snapshot")]
    return any(source.merged and f"{MERGED}.{source.table_id.table}" in words for source in case.plan().sources)


@pytest.mark.parametrize("delivery", ["exactly_once", pytest.param("at_least_once", marks=pytest.mark.matrix)])
def test_kernel_reads_merged_tables_as_the_specification_does(
    spark: SparkSession, delivery: str, tmp_path: Path
) -> None:
    """The database of each row comes from the record's key. A marker of one database leaves the rows of others."""
    seeds = (seed for seed in count() if (case := random_case(seed)).delivery == delivery and reads_merged(case))
    compare(spark, seeds, 2, tmp_path)


@pytest.mark.matrix
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(1000, 5000, 1000))
def test_kernel_says_it_again_and_again(spark: SparkSession, first: int, tmp_path: Path) -> None:
    """Twenty-five more per part, a hundred in all, of three hundred."""
    compare(spark, iter(range(first, first + 1000)), 25, tmp_path)


CASES = Path(__file__).parents[1] / "cases" / "joins"
ALTERED = [*sorted(CASES.glob("column-*.case")), CASES / "geometries-vectors-and-uuids.case"]
# the specification runs all of them: tests/laws/test_join.py
REPEATED = {"column-dropped-then-rebuilt", "column-renamed-then-rebuilt", "column-widened-while-running"}


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, id=p.stem, marks=pytest.mark.matrix if p.stem in REPEATED else ()) for p in ALTERED],
)
def test_kernel_reads_altered_tables_as_the_specification_does(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    """Columns added, dropped, renamed and retyped, before the query was compiled and while it runs; special types."""
    case = read_case(path)
    plan, at = case.plan(), dict[tuple[str, int], int]()
    batches, ends = [], dict[str, dict[int, int]]()
    for events in events_of(case):
        batches.append(log_of(case, events, at))
        ends = ends or started(at)
    settled = {topic: dict.fromkeys(range(2), 0) for topic in plan.topics}
    got = run(spark, partial(kernel, plan, settled, ends=ends), batches, tmp_path)
    assert got == specified(plan, settled, batches, ends)
    assert not any(op == REFUSED for found in got for _, op, _ in found)


def crowd(join: str, star: bool, *, facts_first: bool) -> Case:
    """Return a case with rows of one key: few, more, and finally none; their right side is deleted before or after."""
    many = range(1, 41)
    facts, right = [["delete", "shop.f", {"id": i}] for i in many], [["delete", "shop.d", {"id": 7}]]
    first, second = (facts, right) if facts_first else (right, facts)
    tables = {"shop.f": {"key": ["id"], "id": "int", "d": "int?", "e": "int?", "note": "varchar(60)?"}}
    for name in ("d", "e"):
        tables[f"shop.{name}"] = {"key": ["id"], "id": "int", "name": "varchar(20)?"}
    chosen, other = (", e.name AS of_e", "LEFT JOIN shop.e e ON e.id = f.e") if star else ("", "")
    return Case(
        tables=tables,
        query=f"SELECT f.id, f.note, d.name{chosen} FROM shop.f f {join} shop.d d ON d.id = f.d {other}",
        row_key=["id"],
        history=[
            *[["put", "shop.f", {"id": i, "d": 7, "e": None, "note": "n" * 50}] for i in many if i < 3],
            ["quiet"],
            ["put", "shop.d", {"id": 7, "name": "a"}],
            ["quiet"],
            *[["put", "shop.f", {"id": i, "d": 7, "e": 7, "note": "m" * 50}] for i in many if i > 1],
            ["put", "shop.d", {"id": 7, "name": "b"}],
            ["quiet"],
            *[["put", "shop.f", {"id": i, "d": 8, "e": None, "note": "o" * 50}] for i in many if i > 35],
            ["put", "shop.d", {"id": 7, "name": "c"}],
            ["quiet"],
            *first,
            ["quiet"],
            *second,
        ],
    )


@pytest.mark.parametrize(
    ("join", "star", "facts_first"),
    [
        ("LEFT JOIN", False, False),
        ("JOIN", True, True),
        *(pytest.param("JOIN", False, first, marks=pytest.mark.matrix) for first in (True, False)),
    ],
)
def test_a_key_goes_from_few_rows_to_many_and_to_none(
    spark: SparkSession, join: str, star: bool, facts_first: bool, tmp_path: Path
) -> None:
    """The kernel keeps few rows with their key and many separately: results are the same, and no state is left."""
    case = crowd(join, star, facts_first=facts_first)
    plan, ends = case.plan(), dict[tuple[str, int], int]()
    batches = [log_of(case, events, ends) for events in events_of(case)]
    settled = {topic: dict.fromkeys(range(2), 1000) for topic in plan.topics}
    got = run(spark, partial(kernel, plan, settled), batches, tmp_path)
    assert got == specified(plan, settled, batches)
    assert not any(op == REFUSED for found in got for _, op, _ in found)
    assert sum(op == ROW_PUT for _, op, _ in got[3]) == 40 - (join == "JOIN") * 5
    assert list(entries(spark, tmp_path / "checkpoint", None)) == []


@pytest.mark.parametrize("batches", [2, 3])
def test_rows_are_reported_wherever_they_lie(spark: SparkSession, batches: int, tmp_path: Path) -> None:
    """`tailorbird state inspect` shows a key's right side and rows, few with their key or many separately."""
    case = crowd("JOIN", False, facts_first=True)
    plan, ends = case.plan(), dict[tuple[str, int], int]()
    reported = [log_of(case, events, ends) for events in events_of(case)][:batches]
    run(
        spark,
        partial(kernel, plan, {topic: dict.fromkeys(range(2), 1000) for topic in plan.topics}),
        reported,
        tmp_path,
    )
    keys = keys_of(plan, "7")
    found = list(entries(spark, tmp_path / "checkpoint", keys))
    assert {variable for variable, *_ in found} == ({"key_v1"} if batches == 2 else {"key_v1", "rows_v1"})
    right, *rows = described(found, keys)
    assert (right.what, right.row) == ("right side", None)
    assert right.values is not None
    assert right.values[-1] == ("a" if batches == 2 else "b")
    assert {row.what for row in rows} == {"row"}
    assert sorted(int(str(row.row[0])) for row in rows if row.row is not None) == list(
        range(1, 3 if batches == 2 else 41)
    )
    assert all(row.values is not None and row.values[0] == row.row[0] for row in rows if row.row is not None)


def meeting(kind: str) -> Case:
    """Return rows of two tables at one key: few, then many, with others that never match, and finally none."""
    many = range(1, 31)
    a, b = ([["put", f"shop.{name}", {"id": i, "at": 7, "note": "n" * 50}] for i in many] for name in "ab")
    return Case(
        tables={f"shop.{name}": {"key": ["id"], "id": "int", "at": "int?", "note": "varchar(60)?"} for name in "ab"},
        query=f"SELECT a.id, b.id AS other, a.note, b.note AS theirs FROM shop.a a {kind} shop.b b ON b.at = a.at",
        row_key=["id", "other"],
        history=[
            a[0], b[0], ["put", "shop.a", {"id": 99, "at": None, "note": None}], ["quiet"],
            *a[1:], *b[1:], ["put", "shop.b", {"id": 99, "at": 8, "note": None}], ["quiet"],
            ["put", "shop.a", {"id": 3, "at": 7, "note": "m"}], ["put", "shop.b", {"id": 4, "at": 8, "note": "m"}],
            *[["delete", "shop.b", {"id": i}] for i in many if i > 20], ["quiet"],
            *[["delete", "shop.b", {"id": i}] for i in (*many, 99)], ["quiet"],
            *[["delete", "shop.a", {"id": i}] for i in (*many, 99)],
        ],
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["FULL JOIN", pytest.param("JOIN", marks=pytest.mark.matrix)])
def test_many_meet_many(spark: SparkSession, kind: str, tmp_path: Path) -> None:
    """Few rows are stored with their key and many separately, as `tailorbird state inspect` shows; no state is left."""
    case = meeting(kind)
    plan, ends = case.plan(), dict[tuple[str, int], int]()
    batches = [log_of(case, events, ends) for events in events_of(case)]
    settled = {topic: dict.fromkeys(range(2), 1000) for topic in plan.topics}
    got = run(spark, partial(kernel, plan, settled), batches, tmp_path / "whole")
    assert got == specified(plan, settled, batches)
    assert list(entries(spark, tmp_path / "whole" / "checkpoint", None)) == []
    for size, rows in ((1, [1]), (2, [*range(1, 31)])):
        run(spark, partial(kernel, plan, settled), batches[:size], tmp_path / str(size))
        keys = keys_of(plan, "7")
        found = [one for one in entries(spark, tmp_path / str(size) / "checkpoint", keys) if one[0] != "told_v1"]
        assert {one[0] for one in found} == ({"pair_v1"} if size == 1 else {"pair_v1", "left_v1", "right_v1"})
        held = [one for one in described(found, keys) if one.step == "pairs of a and b"]
        for side in ("left row", "right row"):
            ids = [one.row[0] for one in held if one.what == side and one.row is not None]
            assert sorted(map(int, map(str, ids))) == rows
        assert all(one.values is not None and one.values[1:] == [7, "n" * 50] for one in held)


def test_too_many_pairs_end_the_query(spark: SparkSession, tmp_path: Path) -> None:
    """The error contains the table, the key, the number of pairs, and the remedy."""
    case = meeting("JOIN")
    plan, ends = case.plan(), dict[tuple[str, int], int]()
    batches = [log_of(case, events, ends) for events in events_of(case)]
    parts = plan.fragments
    parts = tuple(replace(p, root=replace(p.root, most=899)) if isinstance(p.root, Pair) else p for p in parts)
    plan = replace(plan, fragments=parts)
    with pytest.raises(StreamingQueryException) as caught:
        run(spark, partial(kernel, plan, {}), batches, tmp_path)
    assert "table wide: 900 pairs of a and b at 7, more than 899: add an equality to ON" in cause_of(caught.value)


@pytest.mark.parametrize(("tombstone_ms", "back"), [(1, 1), (WEEK_MS, 0)])
def test_deleted_rows_are_remembered_for_a_time(
    spark: SparkSession, tombstone_ms: int, back: int, tmp_path: Path
) -> None:
    """In a log that repeats events, an old event of a deleted row is dropped until its tombstone expires."""
    case = Case(
        tables={"shop.t": {"key": ["id"], "id": "int", "n": "int?"}},
        query="SELECT a.id, b.n FROM shop.t a LEFT JOIN shop.t b ON b.id = a.n",
        row_key=["id"],
        delivery="at_least_once",
        history=[["put", "shop.t", {"id": 1, "n": 2}], ["quiet"], ["delete", "shop.t", {"id": 1}]],
    )
    ends: dict[tuple[str, int], int] = {}
    put, gone = (log_of(case, events, ends) for events in events_of(case))
    again = [replace(record, offset=9) for record in put]
    plan = case.plan()
    parts = program_of(plan, {}, kafka=Brokers(servers()).java(), tombstone_ms=tombstone_ms)
    found = run(spark, lambda read: kernel_flow(read, parts, plan), [put, gone, again], tmp_path)
    assert [len(batch) for batch in found] == [1, 1, back]


def hidden(query: str) -> Case:
    """Return hundreds of facts that stay closed while they change, and one that is opened, closed and deleted."""
    many = range(1, 301)
    last: list[Any] = ["put", "shop.f", {"id": 0, "d": 7, "e": None, "state": "closed", "note": '"\\'}]
    right = [["put", "shop.d", {"id": i, "name": f"n{i}", "kind": i % 2}] for i in range(10)]
    return Case(
        tables={
            "shop.f": {"key": ["id"], "id": "int", "d": "int", "e": "int?", "state": "varchar(9)?", "note": "text?"},
            "shop.d": {"key": ["id"], "id": "int", "name": "varchar(9)?", "kind": "int?"},
        },
        query=query,
        row_key=["id"],
        history=[
            *right,
            *[["put", "shop.f", {"id": i, "d": 7, "e": 6, "state": "closed", "note": "a"}] for i in many],
            ["quiet"],
            *[["put", "shop.f", {"id": i, "d": i % 9, "e": 7, "state": None, "note": "b"}] for i in many],
            last,
            ["quiet"],
            ["put", "shop.f", {**last[2], "state": "open"}],
            ["quiet"],
            last,
            ["quiet"],
            *[["delete", "shop.f", {"id": i}] for i in range(301)],
        ],
    )


HIDING = {
    "alone": "SELECT f.id, f.note FROM shop.f f WHERE f.state = 'open'",
    "join": "SELECT f.id, d.name FROM shop.f f JOIN shop.d d ON d.id = f.d WHERE f.state = 'open' AND d.kind = 1",
    "star": "SELECT f.id, d.name, e.name AS of_e FROM shop.f f JOIN shop.d d ON d.id = f.d"
    " LEFT JOIN shop.d e ON e.id = f.e WHERE nullif(f.state, 'x') = 'open'",
}


@pytest.mark.parametrize("name", ["alone", "star", pytest.param("join", marks=pytest.mark.matrix)])
def test_hidden_rows_cost_no_state_and_no_write(spark: SparkSession, name: str, tmp_path: Path) -> None:
    """A row that was never visible writes nothing, however often it changes; one that is hidden again is deleted
    once."""
    case = hidden(HIDING[name])
    plan, ends = case.plan(), dict[tuple[str, int], int]()
    batches = [log_of(case, events, ends) for events in events_of(case)]
    batches = [[one for one in batch if one.topic in plan.topics] for batch in batches]
    settled: SafeOffsets = {topic: dict.fromkeys(range(2), 0) for topic in plan.topics}
    got = run(spark, partial(kernel, plan, settled), batches, tmp_path)
    assert [[op for _, op, _ in found] for found in got] == [[], [], [ROW_PUT], [ROW_GONE], []]
    assert got == specified(plan, settled, batches)
    if plan.last.steps:
        shown = {"join": 5, "star": 20}
        assert held(spark, tmp_path / "checkpoint") == shown[name]  # only the right sides, of each lookup join


def held(spark: SparkSession, checkpoint: Path) -> int:
    """Count the entries in the stores of all steps."""
    session: Any = spark
    session._jsparkSession.streams()  # loads what the state data source needs and otherwise only a query would load
    found = 0
    for operator in spark.read.format("state-metadata").load(str(checkpoint)).select(*OPERATOR).distinct().collect():
        for variable in json.loads(operator.operatorProperties)["stateVariables"]:
            reader = spark.read.format("statestore").option("operatorId", operator.operatorId)
            found += reader.option("stateVarName", variable["stateName"]).load(str(checkpoint)).count()
    return found


@pytest.mark.parametrize("rows", [3, 300])
def test_groups_are_reported_by_what_they_keep(spark: SparkSession, rows: int, tmp_path: Path) -> None:
    """`tailorbird state inspect` shows a group's counts and sums, its values inline or in pages, and the last
    contribution of each row."""
    columns = {"id": "int", "kind": "varchar(9)", "price": "decimal(6,2)?", "weight": "double?", "note": "varchar(60)"}
    made = [
        {"id": i, "kind": "a", "price": "1.50", "weight": i / 4, "note": f"{i:03}" + "n" * 50}
        for i in range(1, 1 + rows)
    ]
    case = Case(
        tables={"shop.f": {"key": ["id"], **columns}},
        query="SELECT kind, count(*) AS c, sum(price) AS s, avg(weight) AS w, sum(DISTINCT weight) AS d, "
        "max(note) AS m, collect_list(note) AS l FROM shop.f GROUP BY kind",
        row_key=["kind"],
        history=[["put", "shop.f", row] for row in made],
    )
    plan, ends = case.plan(), dict[tuple[str, int], int]()
    (batch,) = (log_of(case, events, ends) for events in events_of(case))
    run(spark, partial(kernel, plan, {}), [batch], tmp_path)
    keys = keys_of(plan, '"a"')
    found = list(entries(spark, tmp_path / "checkpoint", keys))
    assert ("pages_v1" in {variable for variable, *_ in found}) is (rows == 300)
    weights = sum(range(1, 1 + rows)) / 4
    assert {held.what: held.values for held in described(found, keys)} == {
        "rows": [rows],
        "SUM(f.price)": [rows, f"{rows * 1.5:.2f}"],
        "AVG(f.weight)": [rows, weights],
        "SUM(DISTINCT f.weight)": [rows],
        "MAX(f.note), COLLECT_LIST(f.note)": [rows],
    }
    keys = keys_of(plan, "2")
    (row,) = described(entries(spark, tmp_path / "checkpoint", keys), keys)
    assert (row.step, row.what) == ("rows for the groups of f", "row")
    assert row.values == ["a", "1.50", 0.5, made[1]["note"]]


def test_the_end_of_an_exact_phase_ends_the_query_before_it_writes(spark: SparkSession, tmp_path: Path) -> None:
    """Changes of a phase are added up without a stored row. After the phase, only a run that stores rows is right."""
    rows: list[Any] = [{"id": i, "n": i % 3, "v": i} for i in range(6)]
    case = Case(
        tables={"shop.t": {"key": ["id"], "id": "int", "n": "int", "v": "int"}},
        query="SELECT a.n, sum(a.v) AS s FROM shop.t a WHERE a.v > 0 GROUP BY a.n",
        row_key=["n"],
        history=[
            *(["put", "shop.t", row] for row in rows),
            ["quiet"],
            *(["put", "shop.t", {**row, "v": row["v"] + 10}] for row in rows),
            ["quiet"],
            ["delete", "shop.t", {"id": 2}],
        ],
    )
    plan, ends = case.plan(), dict[tuple[str, int], int]()
    batches = [
        log_of(case, [replace(e, source=replace(e.source, exact=exact, inexact_after=ended)) for e in events], ends)
        for events, (exact, ended) in zip(events_of(case), [(0, 0), (6, 0), (0, 6)], strict=True)
    ]
    settled: dict[str, dict[int, int]] = {topic: {0: 0, 1: 0} for topic in plan.topics}
    expected = specified(plan, settled, batches[:2])
    assert meant(run(spark, partial(kernel, plan, settled), batches[:2], tmp_path / "phase")) == meant(expected)
    with pytest.raises(StreamingQueryException) as raised:
        run(spark, partial(kernel, plan, settled), batches, tmp_path / "ended")
    found = PHASE_ENDED.search(str(raised.value))
    assert found is not None, raised.value
    assert [found[1], found[2]] == [plan.topics[0], "6"]
    parts = program_of(plan, settled, exact_from={plan.topics[0]: 7})
    whole = specified(plan, settled, batches, exact_from={plan.topics[0]: 7})
    got = run(spark, lambda read: kernel_flow(read, parts, plan), batches, tmp_path / "again")
    assert meant(got) == meant(whole)
    assert meant(got)[:2] == meant(expected), "both ways have the same result"


@pytest.mark.parametrize(
    ("join", "star"), [("LEFT JOIN", False), ("JOIN", True), pytest.param("JOIN", False, marks=pytest.mark.matrix)]
)
def test_the_kernel_takes_back_what_rows_were(spark: SparkSession, join: str, star: bool, tmp_path: Path) -> None:
    """Few rows at a key and many, NULL, moves, and a right side that changes and vanishes. No state is left, and no
    change detector stores a row."""
    case = crowd(join, star, facts_first=False)
    more = " LEFT JOIN shop.e e ON e.id = f.e" if star else ""
    case = replace(
        case,
        query="SELECT coalesce(d.name, '-') AS name, count(*) AS c, max(f.note) AS m, sum(f.e) AS s "
        f"FROM shop.f f {join} shop.d d ON d.id = f.d{more} GROUP BY coalesce(d.name, '-')",
        row_key=["name"],
        history=[
            ["put", "shop.f", {"id": 99, "d": None, "e": None, "note": "null"}],
            *case.history[:-1],
            ["put", "shop.f", {"id": 99, "d": None, "e": None, "note": "still"}],
            case.history[-1],
            ["delete", "shop.f", {"id": 99}],
        ],
    )
    plan, ends = case.plan(), dict[tuple[str, int], int]()
    batches = [log_of(case, events, ends) for events in events_of(case)]
    settled = {topic: dict.fromkeys(range(2), 0) for topic in plan.topics}
    assert "ChangeDetector" not in program_of(plan, settled)[0].steps
    got = run(spark, partial(kernel, plan, settled), batches, tmp_path)
    assert meant(got) == meant(specified(plan, settled, batches))
    assert list(entries(spark, tmp_path / "checkpoint", None)) == []


@pytest.mark.parametrize(("number", "alter", "_dead_letters"), WITHOUT_PLACE)
def test_the_kernel_begins_again_with_change_detectors(
    spark: SparkSession, number: int, alter: Alter, _dead_letters: list[str], tmp_path: Path
) -> None:
    """A record of the facts that does not say where its row is ends the query before it writes; the next run is as
    specified."""
    case, ends = altered_moves(alter, []), dict[tuple[str, int], int]()
    plan = case.plan()
    (*_, records) = [log_of(case, events, ends) for events in events_of(case)]
    bad = [one for one in records if one.topic == TOPIC][number]
    batches = [[alter(one) if one is bad else one for one in records]]
    newer = {} if alter is shorter else started(ends)
    settled = {topic: dict.fromkeys(range(2), 0) for topic in plan.topics}
    with pytest.raises(StreamingQueryException) as raised:
        run(spark, partial(kernel, plan, settled, ends=newer), batches, tmp_path / "ended")
    found = PHASE_ENDED.search(str(raised.value))
    assert found is not None, raised.value
    assert [found[1], found[2]] == [TOPIC, "0"]
    parts = program_of(plan, settled, ends=newer, exact_from={TOPIC: 1})
    got = run(spark, lambda read: kernel_flow(read, parts, plan), batches, tmp_path / "again")
    expected = specified(plan, settled, batches, newer, exact_from={TOPIC: 1})
    # the reasons of dead letters differ
    rows, wanted = ([one for one in meant(some)[0] if one[1] != REFUSED] for some in (got, expected))  # type: ignore[index]
    assert rows == wanted
    assert len(rows) == 2
