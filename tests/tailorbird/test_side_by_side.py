"""Versions of a changed table: their numbers, the processes that run, and the plan."""

from __future__ import annotations

import json

import pytest

from cdc.topology.topology import Topology
from cdc.topology.versions import TableVersions, Versions, in_versions, load_versions
from joins.process.declared import declared, recorded, serving
from joins.process.renaming import renamed
from joins.select.compiler import compile_plan
from tailorbird.deploy.plan.planner import changes
from tailorbird.deploy.plan.side_by_side import VersionChoice, choose
from tests.support.planned import World
from tests.tailorbird.test_planning import FILE, SELECT, edited, read, steps, world_of

NOTE = edited((SELECT, "o.id, o.name, o.note, i.amount FROM"))
UPPER = edited((SELECT, "o.id, upper(o.name) AS name, i.amount FROM"))


def first(text: str = FILE) -> Versions:
    """Return the versions stored by a first apply of a file."""
    topology = read(text)
    return recorded(topology, Versions(), {}, list(topology.tables))


def chosen(text: str, versions: Versions, world: World) -> VersionChoice:
    return choose(read(text), versions, lambda one: changes(one, world.seen(one)))


def built(text: str, versions: Versions, world: World) -> Versions:
    """The versions once an apply has built, verified and moved to what it chose; the world has their states then."""
    choice, topology = chosen(text, versions, world), read(text)
    after = recorded(topology, versions, choice.numbers, list(topology.tables))
    made = World(in_versions(topology, after), world.schemas, world.servers)
    world.states |= {name: state for name, state in made.states.items() if name not in world.states}
    world.layouts |= {name: one for name, one in made.layouts.items() if name not in world.layouts}
    world.collections |= made.collections
    for name in choice.moving:
        one = after.tables[name]
        moved = TableVersions(serving=choice.numbers[name], tables=one.tables, indexes=one.indexes)
        after = after.with_table(name, moved)
    return after


def names(topology: Topology) -> tuple[list[str], list[str], list[str]]:
    return list(topology.tables), list(topology.indexes), [one.index for one in topology.dashboards.values()]


def test_what_is_noted_is_read_back_and_changes_nothing() -> None:
    """With one version per table, the running system matches the file, and the stored record is complete."""
    versions = first()
    assert load_versions(json.loads(json.dumps(versions.to_json()))) == versions
    assert in_versions(read(FILE), versions) == read(FILE)
    assert recorded(read(FILE), versions, serving(versions), ["wide", "sums"]) == versions
    with pytest.raises(ValueError, match="format 9"):
        load_versions({**versions.to_json(), "format": 9})


def test_a_changed_table_is_built_during_the_one_that_serves() -> None:
    """It gets the next number. A table that reads it without a change stays, and the old version is kept completely."""
    world, versions = world_of(), first()
    choice = chosen(NOTE, versions, world)
    assert (choice.numbers, choice.moving, choice.stuck) == ({"wide": 2, "sums": 1}, ("wide",), ())
    assert steps(list(choice.changes)) == [
        ("make", "table", "t:wide.v2"),
        ("make", "collection", "t_main.v2"),
        ("make", "peer", "t_main.v2_1"),
        ("build", "join", "wide.v2"),
        ("verify", "table", "wide.v2"),
        ("move", "index", "main"),
    ]
    (build,) = [one for one in choice.changes if one.action == "build"]
    assert build.why.startswith("alongside wide: note string is added")
    assert (build.records, build.by, build.by_hand) == (24_000, "apply", False)


def test_what_reads_a_changed_table_follows_it() -> None:
    """Both get a version, and the reader's query names the table's version; the old versions keep running."""
    world, versions = world_of(), first()
    choice = chosen(UPPER, versions, world)
    assert choice.moving == ("wide", "sums")
    after = recorded(read(UPPER), versions, choice.numbers, list(choice.moving))
    running = in_versions(read(UPPER), after)
    assert names(running) == (["wide", "wide.v2", "sums", "sums.v2"], ["main", "main.v2"], ["main"])
    assert "FROM wide w" in running.tables["sums"].query
    assert "FROM `wide.v2` w" in running.tables["sums.v2"].query
    assert running.tables["wide"].query == read(FILE).tables["wide"].query
    plans = {name: compile_plan(running, table, world.schemas) for name, table in running.tables.items()}
    assert plans["sums"].fingerprint() == world.states["sums"].fingerprint, "it continues"


def test_queries_see_the_version_that_serves() -> None:
    """Dashboards follow the swap. Then the system matches the file, and the plan shows the old version as kept."""
    world = world_of()
    versions = built(NOTE, first(), world)
    assert names(in_versions(read(NOTE), versions)) == (["wide", "wide.v2", "sums"], ["main", "main.v2"], ["main.v2"])
    choice = chosen(NOTE, versions, world)
    assert (steps(list(choice.changes)), choice.moving) == ([], ())
    kept = [one.name for one in choice.changes if "rollback" in one.why]
    assert kept == ["wide"]


def test_a_query_that_is_there_is_moved_to_and_not_built_again() -> None:
    """This holds after a rollback or an apply interrupted before the swap; a third query gets the third number."""
    world = world_of()
    versions = built(NOTE, first(), world)
    back = versions.with_table("wide", TableVersions(serving=1, tables=versions.tables["wide"].tables,
                                                     indexes=versions.tables["wide"].indexes))  # fmt: skip
    assert chosen(FILE, back, world).moving == (), "the file says what serves"
    again = chosen(NOTE, back, world)
    assert (again.numbers["wide"], again.moving) == (2, ("wide",))
    (build,) = [one for one in again.changes if one.action == "verify"]
    assert build.name == "wide.v2"
    third = chosen(edited((SELECT, "o.id, o.name, o.size, i.amount FROM")), versions, world)
    assert third.numbers["wide"] == 3


def test_a_table_of_other_salt_buckets_is_another_version() -> None:
    """A change that is impossible in place is built alongside too."""
    text = edited(("row_key: [id]", "row_key: [id]\n    salt_buckets: 3"))
    choice = chosen(text, first(), world_of())
    assert (choice.numbers["wide"], choice.stuck) == (2, ())
    assert "refuse" not in {one.action for one in choice.changes}


def test_a_lost_table_is_made_again_in_place() -> None:
    """HBase lost the table: nothing serves, so `apply` creates it empty and leaves its rebuild to the user. With
    another query at the same time, the table gets a new version.
    """
    world = world_of()
    del world.servers.specs["t:wide"]
    world.layouts.pop("wide")
    choice = chosen(FILE, first(), world)
    assert (choice.numbers["wide"], choice.moving, choice.stuck) == (1, (), ("wide",))
    assert steps(list(choice.changes))[0] == ("make", "table", "t:wide")
    (again,) = [one for one in choice.changes if one.action == "rebuild"]
    assert again.by == "tailorbird run t.yml --rebuild wide"
    assert "tailorbird index reindex t.yml" in again.meanwhile
    assert chosen(NOTE, first(), world).numbers["wide"] == 2


def test_what_can_not_be_built_during_is_left_to_people() -> None:
    """A topic has no alias, and the query of a table that no apply has stored is unknown."""
    world = world_of()
    choice = chosen(NOTE, Versions(), world)
    assert (choice.moving, choice.stuck) == ((), ("wide",))
    assert ("rebuild", "join", "wide") in steps(list(choice.changes))
    text = edited(("row_key: [name]", "row_key: [name]\n    sink: kafka"))
    assert chosen(text, first(), world_of()).stuck == ("sums",)
    refused = edited((SELECT, "o.id, o.name, o.note, i.amount FROM"),
                     ("row_key: [id]", "row_key: [id]\n    schema_change_behavior: exception"))  # fmt: skip
    assert chosen(refused, first(), world_of()).stuck == ("wide",)


def test_a_version_being_removed_does_not_run() -> None:
    """From the moment that it is noted, whatever else is cut off."""
    world = world_of()
    versions = built(NOTE, first(), world)
    one = versions.tables["wide"]
    gone = versions.with_table("wide", TableVersions(serving=2, tables=one.tables, indexes=one.indexes, retiring=(1,)))
    assert names(in_versions(read(NOTE), gone)) == (["wide.v2", "sums"], ["main.v2"], ["main.v2"])
    running = declared(read(NOTE), gone, serving(gone))
    assert "FROM `wide.v2` w" in running.tables["sums"].query


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("SELECT w.x FROM wide w", "SELECT w.x FROM `wide.v2` w"),
        ("SELECT wide.x FROM wide", "SELECT wide.x FROM `wide.v2` AS wide"),
        ("SELECT x FROM `wide`\nWHERE x > 1", "SELECT x FROM `wide.v2` AS wide\nWHERE x > 1"),
        ("SELECT a.x FROM s.wide a -- wide", "SELECT a.x FROM s.wide a -- wide"),
        ("WITH wide AS (SELECT a.x FROM s.a a) SELECT x FROM wide", None),
        ("SELECT a.x FROM s.a a WHERE EXISTS (SELECT 1 FROM wide b WHERE b.x = a.x)",
         "SELECT a.x FROM s.a a WHERE EXISTS (SELECT 1 FROM `wide.v2` b WHERE b.x = a.x)"),
        ("SELECT a.wide FROM s.a a", None),
        ("SELECT x, count(*) AS n FROM wide GROUP BY ROLLUP (x)",
         "SELECT x, count(*) AS n FROM `wide.v2` AS wide GROUP BY ROLLUP (x)"),
        ("SELECT w.x, sum(w.y) OVER () AS s FROM wide w", "SELECT w.x, sum(w.y) OVER () AS s FROM `wide.v2` w"),
        ("SELECT x FROM wide ORDER BY (SELECT max(x) FROM wide)",
         "SELECT x FROM `wide.v2` AS wide ORDER BY (SELECT max(x) FROM `wide.v2` AS wide)"),
        ("SELECT q.x FROM (WITH wide AS (SELECT x FROM s.a) SELECT x FROM wide) q JOIN wide w ON w.x = q.x",
         "SELECT q.x FROM (WITH wide AS (SELECT x FROM s.a) SELECT x FROM wide) q JOIN `wide.v2` w ON w.x = q.x"),
    ],
)  # fmt: skip
def test_a_query_names_a_version_and_is_else_as_it_was_written(query: str, wanted: str | None) -> None:
    """Neither a source's table of that name, nor a column, nor a name of WITH is touched."""
    assert renamed(query, {"wide": "wide.v2", "sums": "sums"}) == (wanted or query)
