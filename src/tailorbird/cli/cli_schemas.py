"""Read the schemas of a topology's tables from their servers, for `validate` and `explain-plan`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cdc.model.schema import TableId, TableSchema
    from cdc.topology.topology import Source, Topology
    from tailorbird.operate.doctor.doctor import Checkup


@dataclass(slots=True, kw_only=True)
class ServerSchemas:
    """The schemas that capture would publish.

    `faults` are tables that capture would refuse. `unchecked` are reasons why tables could not be read."""

    schemas: dict[TableId, TableSchema] = field(default_factory=dict)
    faults: list[Checkup] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)


def ask_servers(topology: Topology, tables: Iterable[TableId]) -> ServerSchemas:
    """Read the schemas of tables from their servers. An unavailable server becomes an entry of `unchecked`."""
    asked, wanted = ServerSchemas(), set(tables)
    for source in topology.sources.values():
        own = tuple(sorted(table for table in wanted if table.source == source.name))
        if own and source.type == "sql":
            _ask_by_url(source, own, asked)
        elif own and source.type == "postgresql":
            _ask_postgres(topology.name, replace(source, tables=own), asked)
        elif own and source.is_only_reported:
            _ask_topics(source, own, asked)
        elif own:
            _ask(replace(source, tables=own), asked)
    return asked


def _ask(source: Source, asked: ServerSchemas) -> None:
    from tailorbird.operate.doctor.doctor import UnreachableServer, judge_table, published_schemas
    from tailorbird.operate.doctor.mysql_doctor import server_inspection

    facts = server_inspection(source)
    if isinstance(facts, UnreachableServer):
        asked.unchecked.append(f"source {source.name} at {source.hostname}:{source.port}: {facts.problem}")
        return
    for table in facts.tables:
        if table.readable is not None:
            why = "there is no such table" if table.absent else table.readable
            asked.unchecked.append(f"source {source.name}: {table.name}: {why}")
        asked.faults += [one for one in judge_table(f"source {source.name}", source, table) if one.status == "fault"]
    asked.schemas |= published_schemas(source, facts.tables)


def _ask_postgres(topology: str, source: Source, asked: ServerSchemas) -> None:
    from tailorbird.operate.doctor.doctor import Checkup, UnreachableServer, published_schemas
    from tailorbird.operate.doctor.pg_doctor import postgres_inspection

    facts = postgres_inspection(topology, source)
    if isinstance(facts, UnreachableServer):
        asked.unchecked.append(f"source {source.name} at {source.hostname}:{source.port}: {facts.problem}")
        return
    for one in facts.tables:
        if one.table.readable is not None:
            asked.unchecked.append(f"source {source.name}: {one.table.name}: {one.table.readable}")
        elif one.refused is not None:
            found, remedy = one.refused
            subject = f"source {source.name}"
            fault = Checkup(subject=subject, check=one.table.name, status="fault", found=found, remedy=remedy)
            asked.faults.append(fault)
    asked.schemas |= published_schemas(source, [one.table for one in facts.tables])


def _ask_topics(source: Source, tables: tuple[TableId, ...], asked: ServerSchemas) -> None:
    from cdc.model.errors import TailorbirdError
    from ingest.sources import server_of

    try:
        catalog = server_of("", source).seen().catalog
    except TailorbirdError as error:
        asked.unchecked.append(str(error))
        return
    for table in tables:
        found = catalog.tables.get((table.database, table.table))
        if found is not None:
            asked.schemas[table] = found.schema(table, 1)


def _ask_by_url(source: Source, tables: tuple[TableId, ...], asked: ServerSchemas) -> None:
    from cdc.model.errors import TailorbirdError
    from cdc.model.extras import extras_named

    with extras_named("poll"):
        from ingest.poll.sql_reader import sql_reader

    assert source.poll is not None, "a source of type sql is polled"
    try:
        with sql_reader(source, source.poll) as reader:
            found = reader.schemas({})
    except TailorbirdError as error:
        asked.unchecked.append(str(error))
        return
    asked.schemas |= {table: schema for table, schema in found.items() if table in tables}
