"""`tailorbird wait` without servers: the record for a goal, the barriers that cover it, and refused goals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdc.model.errors import UsageError
from cdc.model.event import Position
from cdc.topology.reader import read_topology
from cdc.topology.topology import SourceType, Topology
from tailorbird.operate.status.captured_position import CapturedPosition
from tailorbird.operate.wait.goal import Goal, binlog_source, goal_of, lacking, logged, shows, targets

UUID = "4b5c2c6e-0000-4000-8000-000000000001"


def captured(last: int, offset: int = 0, **more: Any) -> CapturedPosition:
    return CapturedPosition(
        **{"gtid_set": f"{UUID}:1-{last}", "sequence": last, "snapshot": "done", "offset": offset, **more}
    )


def offset_of(record: CapturedPosition | None) -> int | None:
    return None if record is None else record.offset


def goal(last: int) -> Goal:
    return Goal(source="shop", position=Position(file="", pos=0, gtid_set=f"{UUID}:1-{last}", sequence=0))


@pytest.mark.parametrize(
    ("known", "reached"),
    [
        (captured(9), None),
        (captured(10), 0),
        (captured(11, offset=4), 4),
        (captured(11, snapshot="running"), None),
        (captured(11, whole=False), None),
        (CapturedPosition(gtid_set="", sequence=5, snapshot="done"), None),
        (CapturedPosition(gtid_set="0-1-900", sequence=5, snapshot="done"), None),
    ],
)
def test_what_stands_for_a_goal(known: CapturedPosition, reached: int | None) -> None:
    """A record covers a goal if the capture has read all of its transactions to the end."""
    assert offset_of(logged(goal(10), [known])) == reached


@pytest.mark.parametrize(("file", "pos", "reached"), [("b.000002", 9, 7), ("b.000003", 4, 7), ("b.000002", 8, None)])
def test_a_goal_without_gtids(file: str, pos: int, reached: int | None) -> None:
    """Without GTIDs, positions are compared by file and offset."""
    wanted = Goal(source="shop", position=Position(file="b.000002", pos=9, gtid_set="", sequence=0))
    known = CapturedPosition(gtid_set="", sequence=1, snapshot="done", file=file, pos=pos, offset=7)
    assert offset_of(logged(wanted, [known])) == reached


def test_mariadb_positions() -> None:
    """Every domain's position counts."""
    wanted = Goal(source="shop", position=Position(file="", pos=0, gtid_set="0-1-5,1-1-2", sequence=0))
    for text, reached in {"0-1-5,1-1-2": 3, "0-2-6,1-1-3": 3, "0-1-9": None, "0-1-9,1-1-1": None}.items():
        known = CapturedPosition(gtid_set=text, sequence=1, snapshot="done", offset=3)
        assert offset_of(logged(wanted, [known])) == reached, text


def test_the_oldest_record_stands_for_a_goal_since_which_all_do() -> None:
    """A source that was reset publishes its changes again, so barriers will report the later record."""
    assert logged(goal(10), []) is None
    reported = [captured(12, 0), captured(9, 1), captured(10, 2), captured(11, 3, whole=False), captured(12, 4)]
    reported += [captured(12, 5), captured(14, 6)]
    assert [offset_of(logged(goal(10), reported[:n])) for n in range(1, 8)] == [0, None, 2, None, 4, 4, 4]


def test_what_reports_nothing_shows_nothing() -> None:
    """An index before its first cut, and one whose barrier knows only other sources."""
    assert not shows({}, goal(1), captured(1))
    assert not shows({"crm": {"offset": 9}}, goal(1), captured(1))
    assert shows({"shop": {"offset": 9, "gtid_set": f"{UUID}:1-1"}}, goal(1), captured(1, offset=9))


def test_a_source_that_was_set_back_shows_nothing_that_it_has_yet_to_report_again() -> None:
    """Barriers of a later record count if they cover the goal's position; without GTIDs, by sequence number."""
    back = {"offset": 12, "sequence": 5, "gtid_set": f"{UUID}:1-4", "file": "binlog.000001", "pos": 4}
    there = {"offset": 13, "sequence": 9, "gtid_set": f"{UUID}:1-11", "file": "binlog.000001", "pos": 11}
    record = captured(9, offset=9)
    assert [shows({"shop": one}, goal(9), record) for one in (back, there)] == [False, True]
    by_place = Goal(source="shop", position=Position(file="binlog.000001", pos=9, gtid_set="", sequence=0))
    assert [shows({"shop": one}, by_place, record) for one in (back, there)] == [False, True]
    assert not shows({"shop": {**there, "gtid_set": ""}}, goal(9), record)


@pytest.fixture
def topology() -> Topology:
    source = "type: mysql, hostname: h, username: u, password: p"
    text = f"""name: t
sources:
  shop: {{{source}, database: shop, tables: [orders], server_id: 1}}
  crm: {{{source}, database: crm, tables: [customers], server_id: 2}}
  slow: {{{source}, database: slow, tables: [t], capture: poll}}
log: {{bootstrap_servers: 'h:1'}}
hbase: {{thrift: 'h:1', zookeeper: 'h:1'}}
solr: {{url: 'http://h:1/solr'}}
tables:
  wide:
    query: SELECT o.id, c.name FROM shop.orders o LEFT JOIN crm.customers c ON c.id = o.customer_id
    row_key: [id]
  grouped: {{query: 'SELECT name, count(*) AS n FROM wide GROUP BY name', row_key: [name]}}
  people: {{query: 'SELECT c.id, c.name FROM crm.customers c', row_key: [id]}}
  sent: {{query: 'SELECT o.id FROM shop.orders o', row_key: [id], sink: kafka}}
indexes:
  wide: {{table: wide}}
  people: {{table: people}}
"""
    return read_topology(text, file="t.yml", environ={})


def test_which_tables_and_indexes_are_waited_for(topology: Topology) -> None:
    """The targets are tables over the source, directly or through other tables; a topic has no barriers to wait for."""
    assert targets(topology, "shop", "log", None) == ()
    assert targets(topology, "shop", "table", None) == ("grouped", "wide")
    assert targets(topology, "crm", "table", None) == ("grouped", "people", "wide")
    assert targets(topology, "crm", "index", None) == ("people", "wide")
    assert targets(topology, "crm", "index", "people") == ("people",)
    for source, until, table, said in [
        ("shop", "index", "people", "shows rows of shop in table people"),
        ("shop", "table", "sent", "shows rows of shop in table sent"),
        ("shop", "table", "none", "no table none; --table wide | grouped"),
    ]:
        with pytest.raises(UsageError, match=said.replace("|", r"\|")):
            targets(topology, source, until, table)  # type: ignore[arg-type]  # a parametrised literal


@pytest.mark.parametrize(
    ("source", "gtid_set", "said"),
    [
        ("none", f"{UUID}:1", "no source none; --source shop | crm | slow"),
        ("slow", f"{UUID}:1", "source slow is polled"),
        ("shop", "", "'' is not a GTID set: it is empty; SELECT @@gtid_executed"),
        ("shop", "nonsense", "'nonsense' is not a GTID set"),
        ("shop", f"{UUID}:0", "not an interval"),
    ],
)
def test_goals_that_can_not_be_waited_for(topology: Topology, source: str, gtid_set: str, said: str) -> None:
    """Each in one line, with the remedy."""
    with pytest.raises(UsageError) as error:
        goal_of(topology, source, gtid_set)
    assert said in str(error.value)


@pytest.mark.parametrize("kind", ["syslog", "maxscale"])
def test_a_source_whose_end_is_unknown_is_not_waited_for(topology: Topology, kind: SourceType) -> None:
    """Capture does not know what was sent to it, so an answer would say nothing."""
    heard = replace(topology.sources["crm"], name="heard", type=kind)
    with pytest.raises(UsageError, match=f"source heard is of type {kind}: capture does not know what was sent"):
        binlog_source(replace(topology, sources={"heard": heard}), "heard")


def test_what_is_said_when_the_time_is_over() -> None:
    """The stage that lacks it, and why where that is known."""
    assert "table wide does not contain all of shop" in str(lacking(goal(5), "table", 3, ["wide"], captured(9)))
    assert "after 3 s the log does not" in str(lacking(goal(5), "index", 3, (), captured(2)))
    assert "during a snapshot of its tables" in str(lacking(goal(5), "log", 3, (), captured(9, whole=False)))
