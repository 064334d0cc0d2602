"""A query and the schemas of its tables → a plan: a short list of frozen steps that says what happens, not how.

    Source → Project   one per table the query reads (a table that is read twice has two)
    KeyedJoin          one per LEFT JOIN, called a hop: the facts that point at a key meet that key's dimension row
    Assemble           the parts of one row, by row key: only whole rows leave
    Sink               the columns and key under which rows are stored

A star runs as a union of hops: every hop is fed by the fact itself, so no hop waits for another. The steps name their
inputs, so that aggregates, unions and chains of hops can be added as further kinds of step.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from cdc import naming
from cdc.errors import TopologyError
from cdc.layout import Layout, LayoutColumn
from cdc.schema import TableId, TableSchema
from cdc.topology import Table, Topology
from cdc.types import LogicalType
from joins.sql import Select, check_row_key_column, parse_query

STATE_FORMAT = 1  # of what `joins.state` keeps; a checkpoint of another format is refused
_INTEGERS = {"int8", "int16", "int32", "int64", "uint64"}
_INEXACT = {"float32", "float64", "json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The changes of one captured table."""

    id: str
    table_id: TableId
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The key and the used columns of a source's rows; an update that changes none of them ends here."""

    id: str
    source: Source
    key: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedJoin:
    """Hop number `hop`: facts whose `fact_column` holds a key meet the dimension row that has the key."""

    hop: int
    fact: Project
    fact_column: str
    dimension: Project


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One column of the result: column number `index` of the fact (`hop` None) or of a hop's dimension."""

    name: str
    type: LogicalType
    hop: int | None
    index: int
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Assemble:
    """Rows of the fact with the parts that its hops supply; `keys` = per hop, the index of its column in the fact."""

    fact: Project
    keys: tuple[int, ...]
    outputs: tuple[Output, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """The aggregated table that rows go to."""

    topology: str
    table: str
    row_key: tuple[str, ...]
    family: str
    salt_buckets: int

    @property
    def hbase_table(self) -> str:
        """Its name in HBase."""
        return naming.hbase_table(self.topology, self.table)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one query does; pure data, shipped to every worker."""

    projects: tuple[Project, ...]
    joins: tuple[KeyedJoin, ...]
    assemble: Assemble
    sink: Sink

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics to read, each once, sorted."""
        return tuple(sorted({project.source.topic for project in self.projects}))

    def layout(self, layout_id: int) -> Layout:
        """The layout of the rows that the plan writes, under an id."""
        columns = tuple(LayoutColumn(name=o.name, type=o.type, origin=o.origin) for o in self.assemble.outputs)
        sink = self.sink
        return Layout(
            topology=sink.topology,
            table=sink.table,
            id=layout_id,
            family=sink.family,
            columns=columns,
            row_key=sink.row_key,
            salt_buckets=sink.salt_buckets,
        )

    def fingerprint(self) -> str:
        """Names what the state depends on: a checkpoint made under another fingerprint can not be continued."""
        text = json.dumps([STATE_FORMAT, asdict(self)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def compile_plan(topology: Topology, table: Table, schemas: Mapping[TableId, TableSchema]) -> Plan:
    """The plan of a table's query; TopologyError for what the schemas show to be wrong.

    `schemas` holds every table of `parse_query(…).tables()`. Checked here: columns exist, each join follows the
    dimension's primary key (one column) with values that compare exactly, and `row_key` holds the fact's primary key,
    which makes it a key of the result, since a left join along a primary key keeps one row per fact.
    """
    return _Compiler(topology, table, parse_query(topology, table), schemas).compile()


class _Compiler:
    def __init__(
        self, topology: Topology, table: Table, select: Select, schemas: Mapping[TableId, TableSchema]
    ) -> None:
        self.topology, self.table, self.select = topology, table, select
        self.schemas = {alias: schemas[r.table_id] for alias, r in select.relations().items()}

    def error(self, line: int, what: str, expected: str) -> TopologyError:
        return self.topology.error(f"tables.{self.table.name}.query", what, expected, line_offset=line)

    def type_of(self, alias: str, column: str, line: int) -> LogicalType:
        found = self.schemas[alias].column(column)
        if found is None:
            known = ", ".join(c.name for c in self.schemas[alias].columns)
            raise self.error(line, f"unknown column {alias}.{column}", f"one of {known}")
        try:
            return found.type
        except ValueError as error:
            raise self.error(line, f"{alias}.{column}: {error}", "a column of another type") from error

    def compile(self) -> Plan:
        selected = self._expanded()
        fact_alias = self.select.fact.alias
        for join in self.select.joins:
            self._check_join(join.relation.alias, join.key, join.fact_column, join.line)
        self._check_row_key({name: (alias, column) for alias, column, name, _ in selected})
        hops = {join.relation.alias: hop for hop, join in enumerate(self.select.joins)}
        wanted: dict[str, list[str]] = {alias: list(schema.primary_key) for alias, schema in self.schemas.items()}
        wanted[fact_alias] += [join.fact_column for join in self.select.joins]
        for alias, column, _, _ in selected:
            wanted[alias].append(column)
        projects = {alias: self._project(alias, tuple(dict.fromkeys(columns))) for alias, columns in wanted.items()}
        fact = projects[fact_alias]
        outputs = tuple(
            Output(
                name=name,
                type=self.type_of(alias, column, line),
                hop=hops.get(alias),
                index=projects[alias].columns.index(column),
                origin=f"{projects[alias].source.table_id}.{column}",
            )
            for alias, column, name, line in selected
        )
        joins = tuple(
            KeyedJoin(hop=hop, fact=fact, fact_column=j.fact_column, dimension=projects[j.relation.alias])
            for hop, j in enumerate(self.select.joins)
        )
        keys = tuple(fact.columns.index(join.fact_column) for join in joins)
        sink = Sink(
            topology=self.topology.name,
            table=self.table.name,
            row_key=self.table.row_key,
            family=self.table.family,
            salt_buckets=self.table.salt_buckets,
        )
        assemble = Assemble(fact=fact, keys=keys, outputs=outputs)
        return Plan(projects=tuple(projects.values()), joins=joins, assemble=assemble, sink=sink)

    def _expanded(self) -> list[tuple[str, str, str, int]]:
        """(alias, column, name, line) of each column of the result, `alias.*` written out."""
        found: list[tuple[str, str, str, int]] = []
        for item in self.select.columns:
            if item.column is not None and item.name is not None:
                found.append((item.alias, item.column, item.name, item.line))
            else:
                found += [(item.alias, c.name, c.name, item.line) for c in self.schemas[item.alias].columns]
        seen: set[str] = set()
        for alias, column, name, line in found:
            if name in seen or name.startswith("_"):
                what = f"column {name} twice" if name in seen else f"column {name}, a reserved name"
                raise self.error(line, what, f"single columns, with {alias}.{column} AS another name")
            seen.add(name)
        return found

    def _project(self, alias: str, columns: tuple[str, ...]) -> Project:
        table_id, key = self.schemas[alias].table_id, self.schemas[alias].primary_key
        source = Source(
            id=f"source {table_id}", table_id=table_id, topic=naming.change_topic(self.topology.name, table_id)
        )
        return Project(id=f"project {alias}", source=source, key=key, columns=columns)

    def _check_join(self, alias: str, key: str, fact_column: str, line: int) -> None:
        primary = self.schemas[alias].primary_key
        fact = self.select.fact.alias
        if primary != (key,):
            if len(primary) != 1:
                what = f"{alias} has {'no' if not primary else 'a composite'} primary key"
                raise self.error(line, what, "a joined table whose primary key is one column")
            what = f"{alias}.{key} is not the primary key of {alias}"
            raise self.error(line, what, f"ON {alias}.{primary[0]} = {fact}.{fact_column}")
        left, right = self.type_of(fact, fact_column, line), self.type_of(alias, key, line)
        comparable = left == right or (left.kind in _INTEGERS and right.kind in _INTEGERS)
        if not comparable or left.kind in _INEXACT:
            what = f"{alias}.{key} ({right}) = {fact}.{fact_column} ({left})"
            raise self.error(line, what, "two columns of one exact type")

    def _check_row_key(self, outputs: Mapping[str, tuple[str, str]]) -> None:
        fact, path = self.select.fact.alias, f"tables.{self.table.name}.row_key"
        schema = self.schemas[fact]
        if not schema.primary_key:
            raise self.error(self.select.fact.line, f"{fact} has no primary key", "a table with a primary key")
        columns = set()
        for name in self.table.row_key:
            check_row_key_column(self.topology, self.table, name, outputs.get(name, (None,))[0], fact)
            column = schema.column(outputs[name][1])
            columns.add(outputs[name][1])
            if column is not None and column.nullable and column.name not in schema.primary_key:
                raise self.topology.error(path, f"column {name} may be NULL", "columns that are NOT NULL")
        if missing := [column for column in schema.primary_key if column not in columns]:
            what = f"no key of the result: {fact}.{missing[0]}, of the primary key, is not in it"
            raise self.topology.error(path, what, f"{', '.join(schema.primary_key)} of {fact} in query and row_key")
