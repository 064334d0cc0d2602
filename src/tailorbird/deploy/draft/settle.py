"""Compile the query of each drafted table, and simplify it until it compiles. So the written topology is valid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cdc.model.errors import TopologyError
from cdc.model.schema import TableId, TableSchema
from cdc.topology.reader import read_topology
from cdc.topology.topology import Table, Topology
from joins.query.loose_keys import loose_keys
from joins.select.compiler import compile_plan
from tailorbird.deploy.draft.draft import Draft, DraftFields, DraftTable
from tailorbird.deploy.draft.fields import fields_of
from tailorbird.deploy.draft.write import topology_text
from tailorbird.operate.doctor.validate import judged, validate


def settled(draft: Draft, file: str) -> tuple[Draft, str]:
    """Return the draft without the parts that do not compile, and the text of its topology.

    `file` is the file name in messages. Raises TopologyError if no table remains, or if no table causes the error."""
    kept: list[DraftTable] = []
    lost: list[str] = []
    last: TopologyError | None = None
    for table in draft.tables:
        try:
            kept.append(_simplified(draft, table, file))
        except TopologyError as error:
            lost.append(f"{table.name} is omitted: {error.what}, expected {error.expected}")
            last = error
    if last is not None and not kept:
        raise last
    draft = _without_idle_sources(replace(draft, tables=tuple(kept), notes=(*draft.notes, *lost)))
    text = text_of(draft)
    checked(draft, text, file)
    return draft, text


def _without_idle_sources(draft: Draft) -> Draft:
    """Remove sources that no joined table reads, with a note."""
    idle = [source for source in draft.sources if not any(draft.captured(source))]
    notes = [f"{each.server.database} is omitted: no joined table reads any of its tables" for each in idle]
    used = tuple(source for source in draft.sources if source not in idle)
    return replace(draft, sources=used, notes=(*draft.notes, *notes))


def text_of(draft: Draft) -> str:
    """Return the text of a draft's topology."""
    fields: dict[str, DraftFields] = {table.name: fields_of(table) for table in draft.tables}
    return topology_text(draft, fields)


def checked(draft: Draft, text: str, file: str) -> Topology:
    """Parse a topology text and compile its queries with the draft's schemas. Raises TopologyError if it is invalid."""
    environ = {source.server.password_env: "-" for source in draft.sources}
    topology = read_topology(text, file=file, environ=environ)
    validate(topology)
    judged(topology, schemas_of(draft))
    return topology


def schemas_of(draft: Draft) -> Mapping[TableId, TableSchema]:
    """Return the schemas that capture would publish for the drafted tables."""
    return {
        table.table_id: table.published(source.hidden(table))
        for source in draft.sources
        for table in draft.captured(source)
    }


def _simplified(draft: Draft, table: DraftTable, file: str) -> DraftTable:
    """Remove joins, then columns, until the table compiles. Raises TopologyError if it never does."""
    key = set(table.row_key)
    while True:
        alone = _without_idle_sources(replace(draft, tables=(table,)))
        try:
            topology = checked(alone, text_of(alone), file)
            return replace(table, warnings=_warnings(topology, topology.tables[table.name], schemas_of(alone)))
        except TopologyError as error:
            spare = [column.output for column in table.columns if column.output not in key]
            if len(table.joins) > 1:
                join = _blamed(table, error)
                table = table.without_join(join, f"the join of {join}: {error.what}")
            elif spare:
                table = table.without_column(spare[-1], f"{spare[-1]}: {error.what}")
            else:
                raise


def _warnings(topology: Topology, table: Table, schemas: Mapping[TableId, TableSchema]) -> tuple[str, ...]:
    """Return warnings about text join columns whose collation at the source treats different texts as equal."""
    keys = [key for key in loose_keys(compile_plan(topology, table, schemas), schemas) if key.other]
    if not keys:
        return ()
    named = ", ".join(f"{key.table_id.table}.{key.column} ({key.collation})" for key in keys)
    return (f"joins compare text by its bytes, unlike the collation at the source: {named}; docs/queries.md",)


def _blamed(table: DraftTable, error: TopologyError) -> str:
    """Return the alias of the join to remove: the one that the error message names, or else the last one."""
    words = set(error.what.replace(".", " ").replace("`", " ").split())
    return next((j.alias for j in reversed(table.joins[1:]) if j.alias in words), table.joins[-1].alias)
