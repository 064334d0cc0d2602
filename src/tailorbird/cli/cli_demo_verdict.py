"""Verify the demo at its end: compare every table in HBase and Solr with its query over the databases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cdc.model.errors import Skippable
from cdc.model.schema import TableId
from cdc.model.types import LogicalType
from cdc.topology.topology import Index, Table, Topology
from indexer.index.mapping import indexed_row
from indexer.table.hbase_layouts import StoredLayouts
from indexer.table.hbase_rows import scan_rows
from tailorbird.devtools.demo.run_demo_index import shown_documents
from tailorbird.verify.compare import Difference, Key, Row, compare, keyed
from tailorbird.verify.findings import Verdict
from tailorbird.verify.index.run_index_stage import verify_indexes
from tailorbird.verify.mysql_tables import SourceTable, read_tables
from tailorbird.verify.pg_tables import read_postgres
from tailorbird.verify.request import SilentTerminal, parse_request
from tailorbird.verify.sql_oracle import answer
from tailorbird.verify.table.run_table_stage import verify_tables
from tailorbird.verify.verdict_text import finding_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The differences of a table in HBase, and of its indexes in Solr, from the answer of the databases.

    `rows` is the number of rows of that answer."""

    rows: int
    hbase: Difference
    solr: Difference

    @property
    def equal(self) -> bool:
        """Return whether HBase and Solr equal the databases, and there is at least one row."""
        return self.rows > 0 and self.hbase.none and self.solr.none

    def counts(self) -> dict[str, Any]:
        """Return the figures for JSON."""
        return {"rows": self.rows, "hbase": self.hbase.counts(), "solr": self.solr.counts()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The comparison of each table in HBase by name (`found`), and the lines to print."""

    found: Mapping[str, Comparison]
    lines: tuple[str, ...]


def proved(topology: Topology, known: Mapping[TableId, SourceTable] | None = None) -> Proof:
    """Run `verify` for every table and index.

    If `verify` cannot compare something, `verdicts` compares all tables instead, which needs an idle pipeline. With
    `known` tables (see `verdicts`), `verify` is skipped."""
    if known:
        found = verdicts(topology, known)
        reported = [f"{name} {'equal' if one.equal else 'DIFFERENT'}: {one.rows:,} rows" for name, one in found.items()]
        return Proof(found=found, lines=tuple(f"compared while idle: {line}" for line in reported))
    request, terminal = parse_request(topology, None, None), SilentTerminal()
    results = [*verify_tables(request, terminal), *verify_indexes(request, terminal)]
    found = dict[str, Comparison]()
    lines: list[str] = []
    unknown = [reason for one in results for reason in one.verdict.unknown]
    if unknown:
        line = f"verify is incomplete: {unknown[0]}; compared while idle instead"
        return Proof(found=verdicts(topology), lines=(line,))
    for name in request.tables:
        table, *indexes = [one.verdict for one in results if one.verdict.table == name]
        solr = sum(map(_difference, indexes), Difference())
        found[name] = Comparison(rows=table.rows, hbase=_difference(table), solr=solr)
        took = sum(one.seconds for one in (table, *indexes))
        outcome = "equal" if table.outcome == "equal" and solr.none else "DIFFERENT"
        lines.append(f"verify: {name} {outcome} at {table.cut}: {table.rows:,} rows, {took:.1f} s")
    return Proof(found=found, lines=tuple(lines))


def _difference(verdict: Verdict) -> Difference:
    kinds = Counter(finding.kind for finding in verdict.findings)
    return Difference(
        missing=kinds["missing"],
        extra=kinds["extra"],
        different=kinds["different"] + verdict.differing - len(verdict.findings) + verdict.moving,
        examples=tuple(" ".join(finding_lines(finding)) for finding in verdict.findings[:5]),
    )


def verdicts(topology: Topology, known: Mapping[TableId, SourceTable] | None = None) -> dict[str, Comparison]:
    """Compare each table in HBase, by name, with the answer of its query over the databases.

    The databases are read once for all tables. `known` has the expected rows of source tables that come from a Kafka
    topic."""
    sources: dict[TableId, SourceTable] = dict(known or {})
    for source in topology.sources.values():
        if source.type == "postgresql":
            sources |= read_postgres(source)
        elif not source.is_only_reported:
            sources |= read_tables(source)
    return {
        name: _compared(topology, table, sources) for name, table in topology.tables.items() if table.sink == "hbase"
    }


def _compared(topology: Topology, table: Table, sources: Mapping[TableId, SourceTable]) -> Comparison:
    found = answer(topology, table, sources)
    if found.unknown:
        raise Skippable(
            f"{table.name}: not compared: {dict(found.unknown)}", "use a query whose columns can all be compared"
        )
    expected = keyed(found.rows, table.row_key)
    stored: list[Row] = [row.values for row in scan_rows(topology, table).values()]
    layout = StoredLayouts(topology.hbase.thrift, topology=topology.name, table=table.name).newest()
    types = {column.name: column.type for column in layout.columns} if layout else {}
    indexes = [index for index in topology.indexes.values() if index.table == table.name]
    return Comparison(
        rows=len(expected),
        hbase=compare(expected, keyed(stored, table.row_key)),
        solr=sum((_shown(topology, table, index, types, expected) for index in indexes), Difference()),
    )


def _shown(
    topology: Topology, table: Table, index: Index, types: Mapping[str, LogicalType], expected: Mapping[Key, Row]
) -> Difference:
    """Compare an index with the documents that are expected for the rows."""
    columns = [*next(iter(expected.values()), types)]
    documents = shown_documents(topology, index)
    shown: list[Row] = [{name: document.get(name) for name in columns} for document in documents]
    indexed = keyed([indexed_row(types, row) for row in expected.values()], table.row_key)
    return compare(indexed, keyed(shown, table.row_key))
