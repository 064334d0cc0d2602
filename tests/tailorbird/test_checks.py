"""Scheduled checks: when each runs, which results remain, and how they are reported."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.model.errors import TopologyError
from cdc.process.kafka_foreign import tolerated
from cdc.topology.reader import read_topology
from cdc.topology.topology import Check, Topology
from tailorbird.verify.checks.check_status import check_statuses, page_text, status_lines
from tailorbird.verify.checks.http_metrics import DIFFERING, OUTCOME, CheckMetrics
from tailorbird.verify.checks.runs import CheckResult, CheckRun, ended, run_of, shortened
from tailorbird.verify.checks.schedule import AGAIN, NEVER, due_ms, next_check, overdue_ms, turn_of
from tailorbird.verify.findings import INCOMPLETE, Outcome

NOW = 1_800_000_000_000
SHOP = """
name: t
sources: {shop: {type: mysql, hostname: h, username: u, password: p, database: shop, tables: [orders], server_id: 1}}
tables: {orders_wide: {query: SELECT o.id FROM shop.orders o, row_key: [id]}}
indexes: {main: {table: orders_wide}}
"""
OUTCOMES: tuple[Outcome, ...] = ("equal", "different", INCOMPLETE)


def checked(
    outcome: Outcome = "equal", *, table: str = "orders_wide", stage: str = "index", **more: Any
) -> CheckResult:
    differing = int(outcome == "different")
    unknown = ("a server was unavailable",) if outcome == INCOMPLETE else ()
    values = {"rows": 12_345, "moving": 0, "cut": "stamp 7", "at_ms": NOW, "seconds": 1.5, **more}
    return CheckResult(stage=stage, table=table, outcome=outcome, differing=differing, unknown=unknown, **values)


def run(*found: CheckResult, check: str = "hourly", began_ms: int = NOW, error: str = "") -> CheckRun:
    return ended(check, None, found, began_ms=began_ms, now_ms=began_ms + 1000, turn=0, error=error)


def checks_of(text: str) -> Topology:
    return read_topology(f"{SHOP}checks: {text}\n", file="t.yml", environ={})


# Which runs when

LENGTHS = st.lists(st.tuples(st.integers(1, 500), st.integers(1, 200)), min_size=1, max_size=5)


@given(LENGTHS, st.lists(st.booleans(), min_size=1, max_size=20), st.integers(30, 120))
def test_each_check_has_its_turn(lengths: list[tuple[int, int]], unavailable: list[bool], runs: int) -> None:
    """With random schedules and unavailable servers, no check starts early or waits longer than one run of each."""
    checks = {f"c{i}": Check(name=f"c{i}", every=float(every)) for i, (every, _) in enumerate(lengths)}
    takes = {f"c{i}": 1000 * seconds for i, (_, seconds) in enumerate(lengths)}
    now, last = NOW, dict[str, CheckRun]()
    for number in range(runs):
        found = next_check(checks, last, now)
        if found is None:
            now = min(due_ms(check, last.get(name)) for name, check in checks.items())
            found = next_check(checks, last, now)
        assert found is not None
        due = due_ms(found, last.get(found.name))
        assert now >= due
        others = sum(taken for name, taken in takes.items() if name != found.name)
        assert now - max(due, NOW) <= others
        outcome: Outcome = INCOMPLETE if unavailable[number % len(unavailable)] else "equal"
        begun, now = now, now + takes[found.name]
        last[found.name] = ended(
            found.name, None, [checked(outcome)], began_ms=begun, now_ms=now, turn=0, error=""
        )  # fmt: skip
        if outcome == INCOMPLETE:
            assert due_ms(found, last[found.name]) <= now + 1000 * AGAIN


@given(st.integers(1, 12), st.lists(st.sampled_from(OUTCOMES), max_size=40))
def test_a_sample_comes_round(parts: int, outcomes: list[Outcome]) -> None:
    """Parts follow one another, each again until it is found equal: so many equal runs have compared all."""
    check, seen = Check(name="c", every=1.0, sample=parts), list[int]()
    last: CheckRun | None = None
    for outcome in outcomes + [OUTCOMES[0]] * parts:
        turn = turn_of(check, last)
        last = ended("c", last, [checked(outcome)], began_ms=NOW, now_ms=NOW, turn=turn, error="")
        if outcome == "equal":
            seen.append(turn)
    assert set(seen[-parts:]) == set(range(parts))
    assert all((b - a) % parts == 1 % parts for a, b in pairwise(seen))


def test_a_run_of_the_future_and_a_late_one() -> None:
    """Another machine's clock stops no check; one that should have run long ago is overdue, one just late is not."""
    check = Check(name="hourly", every=3600.0)
    assert next_check({"hourly": check}, {"hourly": run(began_ms=NOW + 10**9)}, NOW) == check
    assert next_check({"hourly": check}, {"hourly": run(checked(), began_ms=NOW - 3_599_000)}, NOW) is None
    assert overdue_ms(check, None, NOW) == 0
    assert overdue_ms(check, run(began_ms=NOW - 7_100_000), NOW) == 0
    assert overdue_ms(check, run(began_ms=NOW - 7_300_000), NOW) == 3_700_000


def test_what_can_never_be_compared_is_checked_once_per_topology() -> None:
    """A process that runs checks reads the topology at its start. What the data prevents is checked at the interval."""
    check = Check(name="hourly", every=86_400.0)
    never = run(checked(INCOMPLETE, until="topology"), checked(INCOMPLETE, until="topology", table="b"))
    assert due_ms(check, never, started_ms=NOW) == NEVER
    assert next_check({"hourly": check}, {"hourly": never}, NOW + 10**12, NOW) is None
    assert next_check({"hourly": check}, {"hourly": never}, NOW + 10**6, NOW + 10**6) == check
    assert overdue_ms(check, never, NOW + 10**12) == 0
    data = run(checked(INCOMPLETE, until="change"), checked(INCOMPLETE, until="topology"))
    assert due_ms(check, data, started_ms=NOW) == NOW + 86_400_000
    unavailable = run(checked(INCOMPLETE), checked(INCOMPLETE, until="topology"))
    assert due_ms(check, unavailable, started_ms=NOW) == NOW + 1000 + 300_000
    broken = run(checked(INCOMPLETE, until="topology"), error="Kafka is unavailable")
    assert due_ms(check, broken, started_ms=NOW) == NOW + 1000 + 300_000


def test_status_shows_why_a_check_does_not_run_again() -> None:
    """Its records are read back; those without such a result have no new key, which an earlier version rejects."""
    never = run(checked(INCOMPLETE, until="topology"))
    assert run_of(json.loads(json.dumps(never.to_json()))) == never
    assert "until" not in run(checked()).to_json()["checked"][0]
    (status,) = check_statuses(checks_of("{hourly: {every: 1h}}"), {"hourly": never}, NOW + 180_000)
    assert (status.state, status.overdue, status.well) == ("unknown", False, True)
    assert status_lines(status) == [
        "unknown    check hourly: index orders_wide: not compared: a server was unavailable; 3 min ago",
        "           it does not run again until the topology changes",
    ]


# Results that remain

TABLES = ("a", "b")
STEPS = st.lists(
    st.tuples(st.dictionaries(st.sampled_from(TABLES), st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=2)),
              st.booleans()),
    max_size=12,
)  # fmt: skip


@given(STEPS)
def test_a_difference_stays_reported_until_it_is_looked_at(steps: list[tuple[dict[str, list[Outcome]], bool]]) -> None:
    """A table that differed stays different until a run decides otherwise or no longer covers it.

    Runs are random, over tables with one or two indexes, and some end early. An incomplete run never reports equality.
    """
    last: CheckRun | None = None
    differs: dict[str, bool] = defaultdict(bool)
    for number, (found, broken) in enumerate(steps):
        some = [checked(outcome, table=table) for table, outcomes in found.items() for outcome in outcomes]
        error = "HBase is unavailable" if broken else ""
        last = ended("c", last, some, began_ms=NOW + number, now_ms=NOW + number, turn=0, error=error)
        for table in TABLES:
            outcomes = found.get(table, [])
            if "different" in outcomes:
                differs[table] = True
            elif (outcomes and set(outcomes) == {"equal"}) or (not outcomes and not broken):
                differs[table] = False
        assert {one.table for one in last.checked if one.outcome == "different"} == {t for t in TABLES if differs[t]}
        unknown = broken or any(INCOMPLETE in outcomes for outcomes in found.values()) or not found
        expected = "different" if any(differs.values()) else INCOMPLETE if unknown else "equal"
        assert last.outcome == expected
        assert (last.equal_ms == NOW + number) == (expected == "equal")
        assert run_of(json.loads(json.dumps(last.to_json()))) == last


def test_records_that_are_none_of_ours() -> None:
    """Invalid records are ignored and stop no process."""
    for text in (b"", b"7", b"[]", b"{}", b'{"format": 2}', b'{"format": 1, "checked": [{}]}', b"\xff"):
        assert tolerated("t.checks", 1, text, run_of) is None
    long = shortened({"columns": {"note": {"near": "x" * 10**6, "far": None}}, "key": {"id": 7}})
    assert len(json.dumps(long)) < 400
    assert long["key"] == {"id": 7}


# How results are reported


def test_status_says_how_checks_stand() -> None:
    """The states are: equal, different with a command, incomplete with a reason, overdue, and not run yet."""
    topology = checks_of("{hourly: {every: 1h, stage: index}, daily: {every: 1d}, never: {every: 1h, stage: log}}")
    finding = {"key": {"id": 7}, "difference": "missing"}
    found = {
        "hourly": run(checked(), began_ms=NOW - 180_000),
        "daily": run(
            checked("different", stage="table", findings=(finding,)),
            checked(INCOMPLETE),
            check="daily",
            error="Solr is unavailable",
        ),
        "gone": run(checked("different"), check="gone"),
    }
    hourly, daily, never = check_statuses(topology, found, NOW + 180_000)
    assert [one.well for one in (hourly, daily, never)] == [True, False, True]
    assert status_lines(hourly) == ["equal      check hourly: index orders_wide: equal, 12,345 rows, 3 min ago"]
    assert status_lines(daily) == [
        "DIFFERENT  check daily: table orders_wide: 1 row differs of 12,345, the first: id=7 missing, 3 min ago",
        "           index orders_wide: not compared: a server was unavailable; 3 min ago",
        "           not compared: Solr is unavailable",
        f"           tailorbird verify {topology.file} --stage table --table orders_wide",
    ]
    assert status_lines(never) == ["waiting    check never: it has not run yet"]
    (late, *_) = check_statuses(topology, found, NOW + 3 * 3_600_000)
    assert (late.state, late.well) == ("overdue", False)
    assert "overdue: it should run every 60 min, and last began 3 h ago" in status_lines(late)[1]
    assert json.loads(json.dumps(daily.to_json()))["checked"][0]["findings"] == [finding]
    assert json.loads(json.dumps(never.to_json()))["checked"] is None


def test_the_page_says_what_concerns_its_tables() -> None:
    """The text is small if all is equal, an alarm if any stage of its tables differs, and ignores other tables."""
    topology = checks_of("{hourly: {every: 1h}}")
    tables = {("index", "orders_wide"), ("table", "orders_wide"), ("log", "shop.shop.orders")}

    def text(*found: CheckResult, after: int = 180_000) -> tuple[str, str]:
        statuses = check_statuses(topology, {"hourly": run(*found)}, NOW + after)
        reported = page_text(statuses, tables, topology.file, NOW + after)
        return reported.quiet, reported.alarm

    assert text() == text(checked(table="other")) == ("", "")
    assert text(checked()) == ("verified 3 min ago: equal, 12,345 rows", "")
    assert text(checked(), after=10**8)[0].endswith("12,345 rows, overdue")
    assert text(checked(INCOMPLETE)) == ("verified 3 min ago: comparison incomplete, see `tailorbird status`", "")
    quiet, alarm = text(checked(), checked("different", stage="log", table="shop.shop.orders", at_ms=NOW - 1))
    assert quiet == "verified 3 min ago: equal, 12,345 rows"
    look = f"tailorbird verify {topology.file} --stage log --table shop.shop.orders"
    assert alarm == f"Some of this data is wrong: 1 row differs, found 3 min ago. See: {look}"


def test_metrics_are_of_the_last_run() -> None:
    """A table with two indexes has the sum and the worse outcome. A table that a check no longer covers is removed."""
    metrics = CheckMetrics()
    metrics.ran(run(checked("different"), checked(), checked(table="other"), check="metrics"))
    labels = ("metrics", "index", "orders_wide")
    assert DIFFERING.labels(*labels)._value.get() == 1
    assert [OUTCOME.labels(*labels, one)._value.get() for one in OUTCOMES] == [0, 1, 0]
    metrics.ran(run(checked(), check="metrics"))
    assert DIFFERING.labels(*labels)._value.get() == 0
    samples = [sample for metric in DIFFERING.collect() for sample in metric.samples]
    shown = {sample.labels["table"] for sample in samples if sample.labels["check"] == "metrics"}
    assert shown == {"orders_wide"}


# How it is written


def test_checks_are_read() -> None:
    """All keys, and what is left out."""
    topology = checks_of(
        "{a: {every: 90s}, b: {every: 1d, stage: index, tables: [orders_wide], sample: 1/64},"
        " c: {every: 1h, stage: index, changed_since: last}}"
    )
    assert list(topology.checks.values()) == [
        Check(name="a", every=90.0),
        Check(name="b", every=86_400.0, stage="index", tables=("orders_wide",), sample=64),
        Check(name="c", every=3600.0, stage="index", changed=True),
    ]
    assert topology.keeps_ledger
    assert not replace(topology, checks={"b": topology.checks["b"]}).keeps_ledger


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "checks: nothing in it"),
        ("{a: {}}", "checks.a: key every is missing"),
        ("{a: {every: 0s}}", "checks.a.every: 0s, expected 1s at least"),
        ("{a: {every: 1h, stage: far}}", "checks.a.stage: 'far', expected one of log, table, index"),
        ("{a: {every: 1h, sample: 64}}", "checks.a.sample: '64', expected a part such as 1/64"),
        ("{a: {every: 1h, changed_since: last}}", "checks.a.changed_since: the table stage, which compares all rows"),
        ("{a: {every: 1h, stage: index, changed_since: 1h}}", "checks.a.changed_since: '1h', expected one of last"),
        (
            "{a: {every: 1h, stage: index, sample: 1/2, changed_since: last}}",
            "checks.a.sample: a sample of what changed, expected either `sample` or `changed_since`",
        ),
        ("{a: {every: 1h, stage: log, sample: 1/64}}", "checks.a.sample: a sample of stage log, which compares all"),
        ("{a: {every: 1h, tables: []}}", "checks.a.tables: an empty list"),
        ("{a: {every: 1h, tables: [none]}}", "checks.a.tables[0]: no table none to compare, expected orders_wide"),
        ("{a: {every: 1h, stage: index, tables: [orders]}}", "checks.a.tables[0]: no table orders to compare"),
        ("{a: {every: 1h, when: noon}}", "checks.a.when: unknown key when"),
    ],
)
def test_what_is_no_check_is_refused(text: str, said: str) -> None:
    """Line, path, what, and what was expected."""
    with pytest.raises(TopologyError) as failed:
        checks_of(text)
    assert str(failed.value).startswith("t.yml:6: ")
    assert said in str(failed.value)
