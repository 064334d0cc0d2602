"""`tailorbird plan` shows the right steps for every kind of change, in order, with their cost."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from cdc.model.schema import Column, TableId, TableSchema
from cdc.topology.reader import read_topology
from cdc.topology.topology import Topology
from joins.select.compiler import compile_plan
from joins.select.parser import tables_of
from tailorbird.deploy.plan.change import Change
from tailorbird.deploy.plan.plan_text import lines_of, reported, time_reported
from tailorbird.deploy.plan.planner import changes
from tailorbird.deploy.plan.seen import RowCount, SeenTopology
from tailorbird.provision.apply import apply
from tailorbird.provision.plan import foreseen, plan
from tests.support.planned import RECORDS, ROWS, World
from tests.tailorbird.test_apply import Servers, stores

FILE = """
name: t
sources:
  s: {type: mysql, hostname: h, username: u, password: p, database: d, tables: [orders, items], server_id: 1}
tables:
  wide:
    query: SELECT o.id, o.name, i.amount FROM s.orders o LEFT JOIN s.items i ON i.id = o.item
    row_key: [id]
  sums:
    query: SELECT w.name, COUNT(*) AS n FROM wide w GROUP BY w.name
    row_key: [name]
indexes:
  main: {table: wide, search: [name]}
dashboards:
  page: {index: main, facets: [name]}
"""
COLUMNS = {
    "orders": {"id": "int", "name": "varchar(9)", "item": "int", "note": "varchar(9)", "size": "int"},
    "items": {"id": "int", "amount": "int"},
    "shops": {"id": "int", "city": "varchar(9)"},
}


def read(text: str) -> Topology:
    return read_topology(text, file="t.yml", environ={})


def schema(table: TableId, columns: Mapping[str, str]) -> TableSchema:
    found = tuple(
        Column(name=name, column_type=kind, nullable=name not in ("id", "name")) for name, kind in columns.items()
    )
    return TableSchema(table_id=table, version=1, columns=found, primary_key=("id",))


def world_of(text: str = FILE) -> World:
    """The topology of a file, applied and joined."""
    ids = {name: TableId(source="s", database="d", table=name) for name in ("orders", "items")}
    return World(read(text), {table: schema(table, COLUMNS[name]) for name, table in ids.items()})


def planned(world: World, text: str) -> list[Change]:
    topology = read(text)
    before = json.dumps([sorted(world.servers.specs), sorted(world.servers.collections), world.servers.made])
    found = changes(topology, world.seen(topology))
    assert json.dumps([sorted(world.servers.specs), sorted(world.servers.collections), world.servers.made]) == before
    return found


def steps(found: list[Change]) -> list[tuple[str, str, str]]:
    """Return the action, kind and name of every step except `keep`."""
    return [(one.action, one.kind, one.name) for one in found if one.action != "keep"]


def edited(*edits: tuple[str, str]) -> str:
    text = FILE
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return text


SELECT = "o.id, o.name, i.amount FROM"
REBUILT = ("rebuild", "join", "wide")
SUMS = ("rebuild", "join", "sums")
FOLLOWS = ("follow", "index", "main")
SHOPS = (
    "tables: [orders, items]",
    "tables: [orders, items, shops]",
)

# what is changed in the file → every step that it asks for, in its order
CASES: dict[str, tuple[str, list[tuple[str, str, str]]]] = {
    "nothing": (FILE, []),
    "a facet": (edited(("facets: [name]", "facets: [amount]")), []),
    "an alias and a comment": (
        edited(
            ("FROM s.orders o", "FROM s.orders ord"),
            ("o.id, o.name", "ord.id, /* who */ ord.name"),
            ("i.id = o.item", "i.id = ord.item"),
        ),
        [],
    ),
    "a column of the SELECT": (edited((SELECT, "o.id, o.name, o.note, i.amount FROM")), [REBUILT, FOLLOWS]),
    "a column less": (
        edited((SELECT, "o.id, o.name FROM"), ("LEFT JOIN s.items i ON i.id = o.item", "")),
        [REBUILT, SUMS, FOLLOWS],
    ),
    "an expression": (edited(("o.name,", "upper(o.name) AS name,")), [REBUILT, SUMS, FOLLOWS]),
    "the type of a column": (
        edited(("i.amount FROM", "CAST(i.amount AS STRING) AS amount FROM")),
        [REBUILT, FOLLOWS, ("reindex", "index", "main")],
    ),
    "a filter": (edited(("i.id = o.item", "i.id = o.item\n      WHERE o.size > 3")), [REBUILT, SUMS, FOLLOWS]),
    "a column is searched": (
        edited(("search: [name]", "search: [name, amount]")),
        [("reindex", "index", "main")],
    ),
    "shards of an index": (edited(("search: [name]}", "search: [name], shards: 8}")), [("reindex", "index", "main")]),
    "another row key": (edited(("row_key: [id]", "row_key: [id, name]")), [REBUILT, FOLLOWS]),
    "state_partitions": (edited(("row_key: [id]", "row_key: [id]\n    state_partitions: 3")), [REBUILT, FOLLOWS]),
    "salt_buckets": (
        edited(("row_key: [id]", "row_key: [id]\n    salt_buckets: 3")),
        [("refuse", "table", "t:wide")],
    ),
    "the family": (edited(("row_key: [id]", "row_key: [id]\n    family: x")), [("refuse", "table", "t:wide")]),
    "columns may not change": (
        edited((SELECT, "o.id, o.name, o.note, i.amount FROM"),
               ("row_key: [id]", "row_key: [id]\n    schema_change_behavior: exception")),
        [("refuse", "join", "wide")],
    ),
    "a column that is not there": (
        edited((SELECT, "o.id, o.nmae, i.amount FROM")),
        [("refuse", "join", "wide"), ("refuse", "join", "sums")],
    ),
    "a new table with an index": (
        edited(("indexes:\n", "  copy: {query: 'SELECT o.id FROM s.orders o', row_key: [id]}\nindexes:\n"
                              "  copies: {table: copy}\n")),
        [("make", "table", "t:copy"), ("make", "collection", "t_copies"), ("make", "peer", "t_copies_1"),
         ("join", "join", "copy")],
    ),
    "a new index over rows": (
        edited(("indexes:\n", "indexes:\n  second: {table: wide}\n")),
        [("make", "collection", "t_second"), ("make", "peer", "t_second_1"), ("fill", "index", "second")],
    ),
    "an index of another table": (edited(("main: {table: wide, search: [name]}", "main: {table: sums}")),
                                  [("refuse", "peer", "t_main_1")]),
    "another collection": (
        edited(("search: [name]}", "search: [name], collection: other}")),
        [("make", "collection", "other"), ("fill", "index", "main")],
    ),
    "an index goes": (
        FILE.partition("indexes:")[0],
        [("leave", "peer", "t_main_1")],
    ),
    "a table goes": (
        edited((FILE[FILE.index("  sums:") : FILE.index("indexes:")], "")),
        [("leave", "table", "t:sums"), ("leave", "join", "sums")],
    ),
    "a source lists one table more": (edited(SHOPS), [("read", "source", "s.d.shops")]),
    "a table of the source is joined, too": (
        edited(SHOPS, (SELECT, "o.id, o.name, x.city, i.amount FROM"),
               ("i.id = o.item", "i.id = o.item LEFT JOIN s.shops x ON x.id = o.size")),
        [("read", "source", "s.d.shops"), REBUILT, SUMS, FOLLOWS],
    ),
    "a source": (
        edited(("tables:\n  wide", "  z: {type: mysql, hostname: z, username: u, password: p, database: d, "
                                   "tables: [a], server_id: 2}\ntables:\n  wide")),
        [("read", "source", "z")],
    ),
    "partitions of the log": (
        edited(("tables:\n  wide", "log: {partitions: 4}\ntables:\n  wide")),
        [("refuse", "topic", "t.s.d.orders"), ("refuse", "topic", "t.s.d.items")],
    ),
    "tables share topics": (
        edited(("tables:\n  wide", "log: {topics: per_database}\ntables:\n  wide")),
        [("read", "source", "s.d.orders"), ("read", "source", "s.d.items"), REBUILT, SUMS, FOLLOWS,
         ("leave", "topic", "t.s.d.items"), ("leave", "topic", "t.s.d.orders")],
    ),
    "rows go to a topic": (
        edited(("row_key: [name]", "row_key: [name]\n    sink: kafka")),
        [SUMS, ("leave", "table", "t:sums")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_every_kind_of_change_has_its_steps(case: str) -> None:
    """Neither a step too few, which would leave stale rows, nor one too many, which would cost hours for nothing."""
    text, wanted = CASES[case]
    assert steps(planned(world_of(), text)) == wanted


def test_a_change_of_the_topics_is_explained() -> None:
    """The plan names the former setting, and the topic into which the rows are read."""
    found = planned(world_of(), edited(("tables:\n  wide", "log: {topics: per_source}\ntables:\n  wide")))
    why = {one.name: one.why for one in found}
    assert why["s.d.orders"] == (
        "log.topics was per_table when its rows were read: they are read again, into topic t.s.all_tables, "
        "when the capture restarts"
    )
    assert (
        why["wide"] == "log.topics was per_table when its state was built; first s.d.items, s.d.orders must be captured"
    )


def test_a_topology_that_never_ran_is_made_and_read() -> None:
    """The first plan of all: everything that `apply` makes, then captures, then joins, in this order."""
    topology, servers = read(FILE), Servers()
    found = changes(topology, SeenTopology(steps=foreseen(topology, stores(servers))))
    assert steps(found) == [
        ("make", "namespace", "t"),
        ("make", "table", "t:layouts"),
        ("make", "table", "t:wide"),
        ("make", "table", "t:sums"),
        ("make", "collection", "t_main"),
        ("make", "peer", "t_main_1"),
        ("read", "source", "s"),
        ("join", "join", "wide"),
        ("join", "join", "sums"),
    ]
    assert not any(one.by_hand for one in found)
    assert "s.d.items, s.d.orders" in found[-3].why, "what it waits for"


def changed(world: World, how: Callable[[World], None]) -> World:
    how(world)
    return world


def without_table(world: World) -> None:
    del world.servers.specs["t:wide"]
    world.servers.rows.discard("t:wide")


def without_state(world: World) -> None:
    del world.states["wide"]


def under_way(world: World) -> None:
    world.states["wide"] = replace(world.states["wide"], complete=False)


def altered(world: World) -> None:
    table = TableId(source="s", database="d", table="items")
    world.schemas[table] = schema(table, {"id": "int", "amount": "decimal(10,2)"})


def other_column(world: World) -> None:
    table = TableId(source="s", database="d", table="items")
    world.schemas[table] = schema(table, {"id": "int", "amount": "int", "nobody_asks": "int"})


def of_the_python_engine(world: World) -> None:
    world.states["wide"] = replace(world.states["wide"], engine="python")


def disabled(world: World) -> None:
    peers = world.servers.known_peers
    peers["t_main_1"] = dataclasses.replace(peers["t_main_1"], enabled=False)


def peer_gone(world: World) -> None:
    list(apply(read(FILE), plan(read(FILE), stores(world.servers)), stores(world.servers)))  # which notes that it was
    world.servers.known_peers.clear()


def by_agents(world: World) -> None:
    world.fleet = frozenset({"s"})
    world.partitions["t.s.d.former"] = 2  # which the fleet may write
    del world.partitions["t.s.d.items"]


def stray_topic(world: World) -> None:
    world.partitions["t.s.d.former"] = 2


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        (without_table, [("make", "table", "t:wide"), REBUILT, FOLLOWS]),
        (without_state, [("join", "join", "wide")]),
        (under_way, [("join", "join", "wide")]),
        (altered, [REBUILT, FOLLOWS, ("reindex", "index", "main")]),
        (other_column, []),
        (of_the_python_engine, [REBUILT, FOLLOWS]),
        (disabled, [("refuse", "peer", "t_main_1")]),
        (peer_gone, [("make", "peer", "t_main_2"), ("fill", "index", "main")]),
        (by_agents, [("read", "source", "s.d.items"), ("join", "join", "wide"), ("join", "join", "sums")]),
        (stray_topic, [("leave", "topic", "t.s.d.former")]),
    ],
)
def test_what_became_of_the_servers_is_reported_as_well(
    how: Callable[[World], None], wanted: list[tuple[str, str, str]]
) -> None:
    """The file is unchanged, but the system is not: a dropped table, a lost state, an ALTER, a removed peer."""
    assert steps(planned(changed(world_of(), how), FILE)) == wanted


def test_a_step_says_what_it_costs_why_and_by_what() -> None:
    """A step has its log records at this machine's rate, its rows, what readers see until it is done, and the command.

    It is printed as text and as plain JSON values.
    """
    found = planned(world_of(), edited((SELECT, "o.id, o.name, o.note, i.amount FROM")))
    (again,) = [one for one in found if one.action == "rebuild"]
    assert (again.records, again.rows, again.seconds) == (RECORDS, RowCount(rows=ROWS), 60.0)
    assert again.why.startswith("note string is added; its state")
    assert again.by == "tailorbird run t.yml --rebuild wide"
    lines = list(lines_of(found))
    place = next(n for n, line in enumerate(lines) if line.startswith("rebuild"))
    assert lines[place + 1].startswith(
        "         reads 24,000 changes of the log, writes 5,200 rows, about a minute; its"
    )
    assert lines[place + 2].strip() == again.by
    assert lines[-1] == "11 steps: 1 by `apply` and `run`, 1 by hand, 0 left over, 9 unchanged"
    value = json.loads(json.dumps(reported(again)))
    assert (value["action"], value["by_hand"], value["rows"], value["rows_whole"]) == ("rebuild", True, ROWS, True)


def test_a_table_that_the_fleet_was_not_reported_is_reported_by_hand() -> None:
    """An agent captures what the gateway commands, whatever the file lists."""
    (read_again,) = [one for one in planned(changed(world_of(), by_agents), FILE) if one.action == "read"]
    assert (read_again.by, read_again.by_hand) == ("tailorbird fleet sync start s items", True)


def test_rates_of_others_serve_where_this_machine_has_none() -> None:
    """A state without large batches, and incomplete row counts, are marked as such."""
    world = world_of()
    world.states["wide"] = replace(world.states["wide"], rate=None)
    (again,) = [one for one in planned(world, CASES["a filter"][0]) if one.name == "wide" and one.action == "rebuild"]
    assert again.seconds == 3.0
    lines = list(lines_of([replace(again, rows=RowCount(rows=50_000, whole=False))]))
    assert "writes more than 50,000 rows, less than a minute" in lines[1]
    assert [time_reported(seconds) for seconds in (59, 61, 150, 7_000, 8_000)] == [
        "less than a minute", "about a minute", "about 2 minutes", "about 117 minutes", "about 2 hours",
    ]  # fmt: skip


def test_the_state_of_another_version_is_named() -> None:
    """After a downgrade, the reason is the format of the state, not the file."""
    text = edited(("COUNT(*) AS n", "COUNT(w.amount) AS n"))
    world = world_of(text)
    world.states["sums"] = replace(world.states["sums"], fingerprint="of 9.9", format=9)
    (again,) = [one for one in planned(world, text) if one.action == "rebuild"]
    assert again.name == "sums"
    assert again.why.endswith("or by another version (format 9, not 6)")


def test_the_state_of_an_earlier_version_continues() -> None:
    """An upgrade alone rebuilds no table: its join uses the form of the state that is there."""
    text = edited(("COUNT(*) AS n", "COUNT(w.amount) AS n"))
    world = world_of(text)
    topology = read(text)
    former = compile_plan(topology, topology.tables["sums"], world.schemas).in_format(5).fingerprint()
    assert former != world.states["sums"].fingerprint
    world.states["sums"] = replace(world.states["sums"], fingerprint=former, format=5)
    steps = {one.name: one for one in planned(world, text) if one.kind == "join"}
    assert {one.action for one in steps.values()} == {"keep"}
    assert steps["sums"].why.endswith(
        "it has format 5 of an earlier version, and would be smaller after `tailorbird run t.yml --rebuild sums`"
    )
    assert "format" not in steps["wide"].why


def test_what_is_made_by_apply_is_what_the_plan_said() -> None:
    """The planned steps are exactly those of the following apply."""
    world, text = world_of(), CASES["a new table with an index"][0]
    topology = read(text)
    said = {(one.kind, one.name) for one in planned(world, text) if one.by == "apply"}
    outcomes = list(apply(topology, plan(topology, stores(world.servers)), stores(world.servers)))
    assert {(one.kind, one.name) for one in outcomes if one.done == "made"} == said
    assert tables_of(topology, topology.tables["copy"]) <= set(world.schemas)
