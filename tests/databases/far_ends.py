"""The far ends of a captured database: a copy of each table in HBase and in Solr, compared with the server's rows."""

from __future__ import annotations

import base64
import json
import math
import os
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cdc.model.errors import TailorbirdError
from cdc.model.geometry import ewkt_of, number
from cdc.model.types import SPATIAL, LogicalType
from cdc.process.file_topology import load_topology
from cdc.stored.cells import document_id
from cdc.topology.topology import Topology
from indexer.index.mapping import indexed_row
from indexer.solr.solr_rows import all_documents
from indexer.table.hbase_layouts import StoredLayouts
from indexer.table.hbase_rows import scan_rows
from tailorbird.operate.pipeline.proc_pipeline import Pipeline
from tailorbird.operate.status.kafka_dead_letters import newest_schemas
from tests.databases.running import Database
from tests.databases.shown import Cell, OddValue, ShownColumn, ShownTable, differences
from tests.support.commands import objects, verified

SERVERS = """log: {{bootstrap_servers: '127.0.0.1:{TAILORBIRD_PORT_KAFKA}', topics: {topics}}}
hbase: {{thrift: '127.0.0.1:{TAILORBIRD_PORT_THRIFT}', zookeeper: '127.0.0.1:{TAILORBIRD_PORT_ZOOKEEPER}'}}
solr: {{url: 'http://127.0.0.1:{TAILORBIRD_PORT_SOLR}/solr'}}
"""


def declared(
    database: Database, name: str, tables: Iterable[str], file: Path, queries: str = "", topics: str = "per_table"
) -> FarEnds:
    """Write a topology with a copy and an index of each of these tables, and create what it needs in HBase and Solr.

    `queries` declares more tables. Nothing is started."""
    servers = SERVERS.format(**os.environ, topics=topics)
    text, shown = database.topology_text(servers, name), database.shown()
    copies = {f"t{number}": table for number, table in enumerate(tables)}
    schema = "public" if "postgresql" in text else database.name
    text = text.partition("  w: {query:")[0]
    for copy, table in copies.items():
        names = ".".join("`" + one.replace("`", "``") + "`" for one in ("s", schema, table))
        entry = {"query": f"SELECT t.* FROM {names} t", "row_key": shown[table].key}
        text += f"  {copy}: {json.dumps(entry, ensure_ascii=False)}\n"
    indexes = "".join(f"  {copy}: {{table: {copy}, commit_within: 200ms}}\n" for copy in copies)
    file.write_text(f"{text}{queries}indexes:\n{indexes}")
    code, _, errors = objects("apply", str(file))
    assert code == 0, errors
    topology = load_topology(str(file))
    return FarEnds(database, topology, copies, Pipeline(topology, home=file.parent))


@dataclass
class FarEnds:
    """The joins and indexes of a topology that `declared` wrote. As a context manager it stops them at the end."""

    database: Database
    topology: Topology
    copies: Mapping[str, str]  # joined table → table of the server
    pipeline: Pipeline

    def __enter__(self) -> FarEnds:
        return self

    def __exit__(self, *_: object) -> None:
        self.pipeline.stop()

    def run(self, *words: str) -> tuple[int, list[dict[str, Any]], str]:
        """Run a command of Tailorbird with --json; return its exit code, the objects, and its errors."""
        return objects(*words, environ=self.pipeline.environ)

    def must_equal(self, seconds: float) -> int:
        """Wait until HBase and Solr have the server's rows of every table; return the number of rows."""
        deadline = time.monotonic() + seconds
        while True:
            self.pipeline.check()
            assert not self.pipeline.down, self.pipeline.down
            try:
                rows, wrong = self.compared()
            except TailorbirdError as error:  # nothing is written yet
                rows, wrong = 0, [str(error)]
            if not wrong:
                return rows
            assert time.monotonic() < deadline, "\n".join([f"{len(wrong)} differences", *wrong[:12], self._logs()])
            time.sleep(3)

    def compared(self) -> tuple[int, list[str]]:
        """Return the number of rows, and the differences of both ends from the server's rows."""
        shown, wrong, rows = self.database.shown(), list[str](), 0
        schemas = {one.table: schema for one, schema in newest_schemas(self.topology).items()}
        for copy, table in self.copies.items():
            left = [name for name, _ in schemas[table].left_out] if table in schemas else []
            wrong += [f"{copy}: {one}" for one in self._differences(copy, shown[table], left)]
            rows += len(shown[table].rows)
        return rows, wrong

    def _differences(self, copy: str, table: ShownTable, left: Collection[str]) -> Iterable[str]:
        layout = StoredLayouts(self.topology.hbase.thrift, topology=self.topology.name, table=copy).newest()
        if layout is None:
            yield "the join has not started"
            return
        types = {column.name: column.type for column in layout.columns}
        stored = scan_rows(self.topology, self.topology.tables[copy])
        virtual = [column.name for column in table.columns if column.column_type == "v"]
        rows = [row.values for row in stored.values()]
        yield from differences(
            _as_text(table), rows, types, {*left, *virtual}, lambda column, value: self._cell(types, column, value),
            refused=self.database.refuses,
        )  # fmt: skip
        collection = self.topology.indexes[copy].collection
        documents = {one["_id"]: one for one in all_documents(self.topology.solr.url, collection)}
        for key, row in stored.items():
            found = documents.pop(document_id(key), {})
            want = {name: value for name, value in indexed_row(types, row.values).items() if value is not None}
            got = {name: found[name] for name in types if name in found}
            if repr(sorted(want.items())) != repr(sorted(got.items())):
                yield f"Solr has {str(got)[:400]}, and not {str(want)[:400]}"
        yield from (f"Solr has {one}, and HBase does not" for one in [*documents.values()][:2])

    def _cell(self, types: Mapping[str, LogicalType], column: ShownColumn, value: Any) -> Cell:
        """Convert a stored value to the form in which the server's values are compared."""
        if value is None or types[column.name].kind in SPATIAL:
            found: Cell = value
            return found
        if isinstance(value, float) and not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return self.database.canonical(column, value)

    def _logs(self) -> str:
        parts = [part for part in self.pipeline.parts if part.stage in ("join", "capture") and part.log.exists()]
        return "\n".join(f"{part.name}: {part.log.read_text(errors='replace')[-3000:]}" for part in parts)

    def must_be_proved(self, seconds: float = 600) -> None:
        """No stage of `verify` ever reports a difference, and all are compared once the tables are complete."""
        deadline = time.monotonic() + seconds
        while True:
            found = verified(self.topology.file, environ=self.pipeline.environ)
            assert {place: one for place, one in found.items() if one["outcome"] == "different"} == {}
            unknown = {place: one["unknown"] for place, one in found.items() if not one["outcome"].startswith("equal")}
            if not unknown:
                break
            assert time.monotonic() < deadline, unknown
        assert {stage for (stage, _), one in found.items() if one["outcome"] == "equal"} == {"log", "table", "index"}

    def must_raise_no_alarm(self, seconds: float = 600) -> None:
        """No stage of `verify` ever reports a difference, and each compares at least nine of ten tables.

        A table with a row that was refused is not compared: the row is a dead-letter record."""
        deadline = time.monotonic() + seconds
        while True:
            found = verified(self.topology.file, environ=self.pipeline.environ)
            assert {place: one for place, one in found.items() if one["outcome"] == "different"} == {}
            places = {stage: [one for (at, _), one in found.items() if at == stage] for stage, _ in found}
            assert set(places) == {"log", "table", "index"}
            if all(sum(one["outcome"].startswith("equal") for one in of) >= 0.9 * len(of) for of in places.values()):
                return
            unknown = {place: one["unknown"] for place, one in found.items() if not one["outcome"].startswith("equal")}
            assert time.monotonic() < deadline, unknown

    def must_repair_nothing(self) -> None:
        """A repair finds nothing to do, and all rows stay."""
        code, said, errors = self.run("verify", self.topology.file, "--repair", "--yes")
        assert code in (0, 3), errors
        assert not [one for one in said if one["kind"] == "repair"]
        assert self.compared()[1] == []

    def must_build_alongside(self, copy: str) -> None:
        """The query of a copy changes: without running processes `apply` says what to start and ends; with them it
        builds the new version alongside the old one, proves it, and queries see it."""
        file, index = Path(self.topology.file), self.topology.indexes[copy]
        self.pipeline.stop()
        lines = file.read_text().splitlines()
        (at,) = (number for number, line in enumerate(lines) if line.startswith(f'  {copy}: {{"query"'))
        lines[at] = lines[at].replace(' t"', ' t WHERE t.id <> 2"')
        file.write_text("\n".join(lines) + "\n")
        code, _, errors = self.run("apply", str(file), "--timeout", "2")
        assert (code, f"start `tailorbird run {file}` and apply again" in errors) == (1, True), errors
        self.pipeline = Pipeline(load_topology(str(file)), home=file.parent)
        self.pipeline.start()
        code, _, errors = self.run("apply", str(file))
        assert (code, f"queries see {copy}.v2" in errors) == (0, True), errors
        seen = {one["id"] for one in all_documents(self.topology.solr.url, index.collection)}
        assert seen == {row["id"] for row in self.database.shown()[self.copies[copy]].rows} - {2}
        self.must_be_proved()

    def must_report(self, wanted: set[tuple[str, str]], seconds: float = 120) -> None:
        """Wait until `status` names exactly these as incomplete: (stage, table or index)."""
        deadline = time.monotonic() + seconds
        while True:
            _, said, _ = self.run("status", self.topology.file)
            found = {(one["stage"], one["of"]): one["reason"] for one in said if one["kind"] == "incomplete"}
            if set(found) == wanted:
                return
            assert time.monotonic() < deadline, f"{found}, and not {wanted}"
            time.sleep(3)


def _as_text(table: ShownTable) -> ShownTable:
    """Return a table with its geometries as EWKT, the form that joins store."""
    return replace(table, rows=[{name: _ewkt(cell) for name, cell in row.items()} for row in table.rows])


def _ewkt(cell: Cell) -> Cell:
    if isinstance(cell, OddValue) or not isinstance(cell, tuple) or cell[0] not in ("geometry", "point"):
        return cell
    first, second = cell[1].split(" ")
    if cell[0] == "point":
        return f"POINT({number(float(first))} {number(float(second))})"
    return ewkt_of({"srid": int(first), "wkb": base64.b64encode(bytes.fromhex(second)).decode()})
