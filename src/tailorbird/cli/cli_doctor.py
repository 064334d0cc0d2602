"""`tailorbird doctor`: check every server of a topology."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from cdc.model.errors import TailorbirdError
from tailorbird.operate.status.selection import MOST, ListChoice, cut

if TYPE_CHECKING:
    from cdc.model.schema import TableId, TableSchema
    from cdc.model.tls import PostgresServer
    from cdc.stored.lakehouse import IcebergCatalog
    from cdc.topology.topology import Source, Topology
    from tailorbird.operate.doctor.doctor import Checkup

_SIGNS = {"ok": "ok     ", "warning": "WARNING", "fault": "FAULT  "}


def doctor(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per finding and line.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for warnings too.")] = False,
    search: Annotated[str, typer.Option("--search", help="Only findings that contain all of these words.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="Findings of each source, the worst first.")] = MOST,
) -> None:
    """Check every server of a topology and print a remedy for each fault.

    Reads only. Of many findings of one source, the worst are first, and the others are counted. Exit code
    0: no faults; 1: a fault must be fixed; 2: the topology itself is invalid.

    Example: tailorbird doctor topologies/shop.yml
    """
    from cdc.process.file_topology import load_topology

    worst = {"ok": 0, "warning": 0, "fault": 0}

    def counted() -> Iterator[Checkup]:
        for finding in findings(load_topology(file)):
            worst[finding.status] += 1
            yield finding

    _print(counted(), ListChoice(search=search, limit=limit), as_json=as_json)
    if not as_json:
        typer.echo(f"{worst['fault']:,} faults, {worst['warning']:,} warnings, {worst['ok']:,} in order")
    if worst["fault"] or (strict and worst["warning"]):
        raise typer.Exit(1)


def _print(found: Iterable[Checkup], selection: ListChoice, *, as_json: bool) -> None:
    """Print findings as the servers answer: those of a source together, so that its faults are first."""
    for _, some in itertools.groupby(found, key=_group):
        shown = selection.matching(some, lambda one: f"{one.subject} {one.check} {one.status} {one.found}")
        if as_json:
            for one in shown:
                typer.echo(json.dumps(dataclasses.asdict(one)))
            continue
        worst_first = sorted(shown, key=lambda one: one.status != "fault") if len(shown) > selection.limit else shown
        for line in selection.lines(worst_first, _lines, lambda one: one.status, lambda one: one.status == "ok"):
            typer.echo(line)


def _group(one: Checkup) -> str:
    """Return what a finding is printed with: its source, or the kind of its subject."""
    kind, _, _ = one.subject.partition(" ")
    return one.subject if kind == "source" else kind


def _lines(one: Checkup) -> Iterator[str]:
    yield f"{_SIGNS[one.status]} {one.subject}: {one.check}: {cut(one.found)}"
    if one.remedy:
        yield f"        remedy: {cut(one.remedy)}"


def _stored_tables(server: PostgresServer) -> Checkup:
    """Check whether the server of tables with `sink: postgres` accepts its login, which may create what is missing."""
    from joins.stores.postgres.pg_relations import lacking
    from joins.stores.postgres.pg_server import ServerSession
    from tailorbird.operate.doctor.doctor import Checkup

    def finding(problem: str, remedy: str) -> Checkup:
        found = problem or f"{server.hostname}:{server.port}, schema {server.schema}"
        return Checkup(
            subject="postgres", check="reachable", status="fault" if problem else "ok", found=found, remedy=remedy
        )

    connection = ServerSession(server)
    try:
        statements = connection.transaction(lambda t: lacking(t, server.schema, server.username))
    except TailorbirdError as error:
        return finding(error.message, error.hint)
    finally:
        connection.close()
    return finding("it may not create its schemas" if statements else "", "; ".join(statements))


def _stored_files(catalog: IcebergCatalog) -> Checkup:
    """Check whether the catalog of tables with `sink: iceberg` can be opened, and files be written in its warehouse."""
    from cdc.model.extras import extras_named
    from tailorbird.operate.doctor.doctor import Checkup

    try:
        with extras_named("iceberg"):
            from joins.stores.iceberg.iceberg_server import check_warehouse

        check_warehouse(catalog)
    except TailorbirdError as error:
        return Checkup(
            subject="iceberg", check="reachable", status="fault", found=error.message, remedy=error.hint
        )  # fmt: skip
    found = f"{catalog.warehouse}, namespace {catalog.namespace}"
    return Checkup(subject="iceberg", check="reachable", status="ok", found=found, remedy="")


def findings(topology: Topology) -> Iterator[Checkup]:
    """Yield the findings one after the other, as the servers answer."""
    from tailorbird.operate.doctor.doctor import judge_queries, reached
    from tailorbird.operate.probes.hbase_probe import master_problem
    from tailorbird.operate.probes.kafka_probe import kafka_problem
    from tailorbird.operate.probes.opensearch_probe import opensearch_problem
    from tailorbird.operate.probes.solr_probe import solr_problem

    schemas: dict[TableId, TableSchema] = {}
    for source in topology.sources.values():
        yield from _source(topology.name, source, schemas)
    yield from judge_queries(topology, schemas)
    brokers = topology.log.brokers
    problem = kafka_problem(brokers)
    yield reached("log", str(brokers), problem, "start Kafka, or correct log.bootstrap_servers")
    if not problem:
        yield from _dead_letters(topology)
    if topology.only_captures:
        return
    if topology.postgres is not None:
        yield _stored_tables(topology.postgres)
    if topology.iceberg is not None:
        yield _stored_files(topology.iceberg)
    hbase = topology.hbase
    address = f"{hbase.thrift}, ZooKeeper {hbase.zookeeper}"
    problem = master_problem(zookeeper=hbase.zookeeper, thrift=hbase.thrift)
    yield reached("hbase", address, problem, "start HBase and its Thrift server, or correct hbase.*")
    kinds = {index.type for index in topology.indexes.values()}
    if kinds != {"opensearch"}:
        yield reached("solr", topology.solr.url, solr_problem(topology.solr.url), "start Solr, or correct solr.url")
    if "opensearch" in kinds:
        problem = opensearch_problem(topology.opensearch)
        yield reached("opensearch", topology.opensearch.url, problem, "start OpenSearch, or correct opensearch.*")


def _dead_letters(topology: Topology) -> Iterator[Checkup]:
    """Yield a warning for each table or index that lacks rows because of dead letters or quarantine."""
    from tailorbird.operate.doctor.doctor import Checkup
    from tailorbird.operate.status.dead_letters import DeadLetterList, waits
    from tailorbird.operate.status.kafka_captured import captured_positions
    from tailorbird.operate.status.kafka_dead_letters import DeadLetterReader
    from tailorbird.operate.status.quarantine import quarantined

    with DeadLetterReader(topology, DeadLetterList(topology.name, keep=0)) as reader:
        for one in [*quarantined(captured_positions(topology)), *reader.read().waiting]:
            found = f"{waits(one)}, so rows are missing; the last: {one.reason}"
            look = f"tailorbird dead-letters list {topology.file}"
            yield Checkup(subject=f"{one.stage} {one.of}", check="complete", status="warning", found=found, remedy=look)


def _source(topology: str, source: Source, schemas: dict[TableId, TableSchema]) -> Iterator[Checkup]:
    """Yield the findings of a source's server. Adds the schemas of its tables to `schemas`."""
    if source.type == "postgresql":
        yield from _postgres(topology, source, schemas)
    elif source.is_only_reported:
        yield from _topics(source, schemas)
    elif source.type == "sql":
        yield from _polled_by_url(source, schemas)
    else:
        yield from _mysql(source, schemas)


def _mysql(source: Source, schemas: dict[TableId, TableSchema]) -> Iterator[Checkup]:
    from tailorbird.operate.doctor.doctor import UnreachableServer, judge, published_schemas, reached
    from tailorbird.operate.doctor.mysql_doctor import replica_checkup, server_inspection

    subject = f"source {source.name}"
    address = f"{source.hostname}:{source.port}"
    inspection = server_inspection(source)
    if isinstance(inspection, UnreachableServer):
        remedy = (
            f"correct username or password; CREATE USER '{source.username}'@'%' if it is missing"
            if inspection.refused
            else "the server is not reachable: start it, open its port to this host, or correct hostname and port"
        )
        yield reached(subject, address, inspection.problem, remedy)
        return
    schemas.update(published_schemas(source, inspection.tables))
    yield reached(subject, address, "", "")
    yield from judge(source, inspection)
    if source.snapshot is not None:
        yield replica_checkup(source)


def _postgres(topology: str, source: Source, schemas: dict[TableId, TableSchema]) -> Iterator[Checkup]:
    from tailorbird.operate.doctor.doctor import UnreachableServer, published_schemas, reached
    from tailorbird.operate.doctor.pg_doctor import grants_of, postgres_inspection
    from tailorbird.operate.doctor.postgres import judge_postgres

    subject, address = f"source {source.name}", f"{source.hostname}:{source.port}/{source.dbname}"
    inspection = postgres_inspection(topology, source)
    if isinstance(inspection, UnreachableServer):
        remedy = (
            f'correct username, password or dbname, and pg_hba.conf; CREATE ROLE "{source.username}" if it is missing'
            if inspection.refused
            else "the server is not reachable: start it, open its port to this host, or correct hostname and port"
        )
        yield reached(subject, address, inspection.problem, remedy)
        return
    schemas.update(published_schemas(source, [one.table for one in inspection.tables]))
    yield reached(subject, address, "", "")
    yield from judge_postgres(source, inspection, grants_of(source))


def _topics(source: Source, schemas: dict[TableId, TableSchema]) -> Iterator[Checkup]:
    from cdc.model.errors import TailorbirdError
    from cdc.model.schema import TableId
    from ingest.sources import server_of
    from tailorbird.operate.doctor.doctor import Checkup

    subject = f"source {source.name}"
    try:
        tables = server_of("", source).seen().catalog.tables
    except TailorbirdError as error:
        hint = error.hint or "start its Kafka and its producer, or correct bootstrap_servers and topic"
        yield Checkup(subject=subject, check="topics", status="fault", found=error.message, remedy=hint)
        return
    for (database, name), table in tables.items():
        known = TableId(source=source.name, database=database, table=name)
        schemas[known] = table.schema(known, 1)
    shown = ", ".join(f"{database}.{name}" for database, name in tables)
    check = "topics" if source.mirror is not None else source.type
    yield Checkup(subject=subject, check=check, status="ok", found=f"{shown} can be read")


def _polled_by_url(source: Source, schemas: dict[TableId, TableSchema]) -> Iterator[Checkup]:
    from cdc.model.errors import TailorbirdError
    from cdc.model.extras import extras_named
    from tailorbird.operate.doctor.doctor import Checkup

    with extras_named("poll"):
        from ingest.poll.sql_reader import sql_reader

    assert source.poll is not None, "a source of type sql is polled"
    subject = f"source {source.name}"
    try:
        with sql_reader(source, source.poll) as reader:
            tables = reader.schemas({})
            schemas.update(tables)
    except TailorbirdError as error:
        yield Checkup(subject=subject, check="polling", status="fault", found=error.message, remedy=error.hint)
        return
    shown = ", ".join(str(table) for table in tables)
    yield Checkup(subject=subject, check="polling", status="ok", found=f"{shown} can be polled")
