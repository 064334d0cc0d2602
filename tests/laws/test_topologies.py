"""Any topology is refused with its line, or everything that reads it without a server works.

A later refusal would occur in a process that fails repeatedly, long after `validate` accepted the topology.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, event, given, settings

from cdc.model import naming
from cdc.model.errors import TopologyError
from cdc.model.schema import Column, TableId, TableSchema
from cdc.topology.reader import read_topology
from cdc.topology.topology import Index, Topology
from indexer.foreign.mapping import ForeignMapper
from indexer.index.mapping import Field, Mapper
from indexer.run_indexer import choose_index
from ingest.log.kafka_topics import source_topics
from ingest.poll.ddl import dialect_of, remedy
from joins.query.describe import json_of_plan, text_of_plan
from joins.query.drawing import svg_of_plan
from joins.query.plan import Plan
from joins.select.compiler import compile_plan
from joins.select.parser import tables_of
from tailorbird.deploy.plan.plan_text import lines_of, reported
from tailorbird.deploy.plan.planner import changes
from tailorbird.deploy.plan.seen import SeenTopology
from tailorbird.operate.doctor.doctor import grants
from tailorbird.operate.doctor.validate import judged, validate
from tailorbird.operate.pipeline.proc_pipeline import parts
from tailorbird.operate.status.index_status import index_statuses
from tailorbird.operate.status.part_status import parts_of
from tailorbird.provision.apply import apply
from tailorbird.provision.plan import foreseen, plan
from tailorbird.provision.stores import FamilySpec, Stores, TableSpec
from tailorbird.web.dashboard.panels.facets import facets_params
from tailorbird.web.dashboard.panels.fitting import fit
from tailorbird.web.dashboard.panels.rows import asked_of, page_params
from tailorbird.web.dashboard.panels.state import Selection
from tailorbird.web.dashboard.time import Span
from tailorbird.web.dashboard.view import IndexField, choose_dashboards
from tests.laws.topologies import topologies
from tests.support.planned import World
from tests.tailorbird.test_apply import Servers, stores

TYPES = {"id": "int", "name": "varchar(9)", "at": "datetime(3)", "amount": "int"}


def schemas_of(topology: Topology) -> dict[TableId, TableSchema]:
    """Return what capture would publish for the tables that queries read."""
    columns = tuple(Column(name=name, column_type=kind, nullable=name != "id") for name, kind in TYPES.items())
    return {
        table: TableSchema(table_id=table, version=1, columns=columns, primary_key=("id",))
        for joined in topology.tables.values()
        for table in tables_of(topology, joined)
    }


def planned(topology: Topology) -> dict[str, Plan]:
    """Return the plans of the tables that fit their sources' columns; the others are refused with their own
    messages."""
    schemas, found = schemas_of(topology), dict[str, Plan]()
    for name, table in topology.tables.items():
        try:
            found[name] = compile_plan(topology, table, schemas)
        except TopologyError as error:
            check_refusal(error)
            continue
        assert text_of_plan(found[name])
        json.dumps(json_of_plan(found[name]))
        assert svg_of_plan(found[name]).startswith("<svg")
    if len(found) == len(topology.tables):
        judged(topology, schemas)
    return found


def check_refusal(error: TopologyError) -> None:
    """Check that a refusal names the file, one of its lines, and the expected form."""
    assert re.match(r"t\.yml:[1-9]\d*: .+: .+, expected .", str(error), re.DOTALL), str(error)


def fields_of(topology: Topology, index: Index, plans: dict[str, Plan]) -> tuple[Field, ...]:
    """Return the fields of an index's documents."""
    foreign = topology.foreign_tables.get(index.table)
    if foreign is not None:
        return ForeignMapper(foreign, index.search).fields
    return Mapper(plans[index.table].layout(1), index.search).fields if index.table in plans else ()


def check_names(topology: Topology) -> None:
    """Check that every name shared by two stages or two tables is unique."""
    topics = [topic for source in topology.sources.values() for topic in source_topics(topology, source).changes]
    upserts = [naming.upsert_topic(topology.name, t.name) for t in topology.tables.values() if t.sink == "kafka"]
    every = [*naming.control_topics(topology.name), *topics, *upserts]
    assert len({topic.replace(".", "_") for topic in every}) == len(every), every
    assert all(re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", topic) for topic in every), every


def check_apply(topology: Topology) -> None:
    """`apply` creates everything, each item once, and changes nothing the second time."""
    servers = Servers()
    family = FamilySpec(name="d", replicated=False)
    for foreign in topology.foreign_tables.values():
        servers.specs[foreign.table] = TableSpec(name=foreign.table, family=family, splits=())

    def outcomes() -> list[str]:
        stores = Stores(
            tables=servers,
            peers=servers,
            collections=lambda _: servers,
            names=servers,
            backfills=servers,
            cluster_key=str,
        )
        made = apply(topology, plan(topology, stores), stores)
        return [outcome.done for outcome in made]

    outcomes()
    assert len(set(servers.made)) == len(servers.made), servers.made
    assert set(outcomes()) <= {"kept"}


def check_plan(topology: Topology, plans: dict[str, Plan]) -> None:
    """A plan of a new topology creates everything and refuses nothing; one of an unchanged topology is empty."""
    servers = Servers()
    family = FamilySpec(name="d", replicated=True)
    for foreign in topology.foreign_tables.values():
        servers.specs[foreign.table] = TableSpec(name=foreign.table, family=family, splits=())
    first = changes(topology, SeenTopology(steps=foreseen(topology, stores(servers))))
    assert not [one for one in first if one.by_hand], first
    if len(plans) == len(topology.tables):
        world = World(topology, schemas_of(topology), servers)
        left = [one for one in changes(topology, world.seen(topology)) if one.action != "keep"]
        assert not left, left
    assert len(list(lines_of(first))) > len(first)
    assert json.dumps([reported(one) for one in first])


def check_pages(topology: Topology, plans: dict[str, Plan]) -> None:
    """Check every page's query; errors that only the index's fields reveal are refused with their line."""
    for name in topology.dashboards:
        (dashboard,) = choose_dashboards(topology, name)
        fields = {
            field.name: IndexField(
                name=field.name, type=field.type, counted=field.type not in ("stored", "words"), many=field.many
            )
            for field in fields_of(topology, topology.indexes[dashboard.index], plans)
        }
        if all(field.startswith("_") for field in fields):
            continue
        try:
            board = fit(topology, dashboard, fields)
        except TopologyError as error:
            check_refusal(error)
            continue
        for chosen in (Selection(words="a b"), Selection(picks=dict.fromkeys(dashboard.facets, frozenset({None})))):
            for span in (None, Span(start=0, end=1000)):
                assert facets_params(board, chosen, span)["q"] == "*:*"
                assert page_params(board, asked_of(board, {}), chosen, span)["q"] == "*:*"


def check_everything(topology: Topology) -> None:
    """Run everything that reads a topology and needs no server."""
    plans = planned(topology)
    check_names(topology)
    check_apply(topology)
    check_plan(topology, plans)
    check_pages(topology, plans)
    found = parts(topology, home=Path("home"), page_port=1)
    assert len({part.name for part in found}) == len({part.log for part in found}) == len(found)
    pages = [f"dashboard {name}" for name in topology.dashboards][:1]
    assert [name for part in found for name in part.serves] == [*parts_of(topology), *pages]
    assert ("checks" in {part.name for part in found}) == bool(topology.checks)
    assert ("ledger" in {part.name for part in found}) == any(one.covers("log") for one in topology.checks.values())
    assert sum(part.stage == "join" for part in found) <= (1 if topology.joins.isolation == "shared" else 99)
    for source in topology.sources.values():
        assert all(statement.startswith("GRANT ") for statement in grants(source))
        assert dialect_of(source)
        for table in source.tables if source.poll else ():
            assert remedy(source, table, source.poll)  # type: ignore[arg-type]  # it is polled
    for name in topology.indexes:
        assert choose_index(topology, name).name == name
    index_statuses(
        topology, {}, generation=lambda _: 1, announced=lambda _: [], collections=lambda _, live: (live,),
        visible_ms=lambda _: None, missing=lambda _: None, now_ms=0,
    )  # fmt: skip


SOURCES = {
    "log": "type: mysql, server_id: 1, hostname: h, username: u, password: p",
    "accept": "type: mysql, server_id: 1, hostname: h, username: u, password: p, filter_policy: accept",
    "poll": "type: mariadb, capture: poll, cursor: at, hostname: h, username: u, password: p",
    "sql": "type: sql, capture: poll, cursor: at, url: 'sqlite:///x'",
}
JOINED = """
name: t
sources: {s: {database: d, tables: {a: {message_key_columns: [id]}}, SOURCE}}
tables: {wide: {query: 'SELECT a.id, a.name, a.at FROM s.a a', row_key: [id], sink: SINK}}
"""
FOREIGN = """
foreign_tables:
  theirs: {table: x, fields: {id: {source: row, type: string}, name: {source: "d:n", type: string}}}
"""
INDEX, PAGE = "indexes: {i: {table: TABLE, search: [name]}}\n", "dashboards: {p: {index: i, facets: [name]}}\n"


@pytest.mark.parametrize("page", ["", PAGE], ids=["no page", "page"])
@pytest.mark.parametrize("index", ["", "wide", "theirs"], ids=["no index", "joined", "foreign"])
@pytest.mark.parametrize("sink", ["hbase", "kafka"])
@pytest.mark.parametrize("source", SOURCES)
def test_every_kind_goes_with_every_other(source: str, sink: str, index: str, page: str) -> None:
    """Only an index needs a table in HBase, and a page an index."""
    text = JOINED.replace("SOURCE", SOURCES[source]).replace("SINK", sink) + FOREIGN
    text += INDEX.replace("TABLE", index) * bool(index) + page
    if (page and not index) or (index == "wide" and sink == "kafka"):
        with pytest.raises(
            TopologyError, match=r"t\.yml:\d+: (dashboards\.p\.index: unknown|indexes\.i\.table: table) "
        ):
            read_topology(text, file="t.yml", environ={})
        return
    topology = read_topology(text, file="t.yml", environ={})
    assert validate(topology) == {"wide": ["id", "name", "at"]}
    check_everything(topology)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(topologies())
def test_a_topology_is_refused_at_its_line_or_works(said: dict[str, Any]) -> None:
    """No exception but the one that names the line and the remedy, from `validate` to the last reader."""
    try:
        topology = read_topology(yaml.safe_dump(said, sort_keys=False), file="t.yml", environ={})
        validate(topology)
    except TopologyError as error:
        check_refusal(error)
        event("refused")
        return
    event("works")
    check_everything(topology)
