"""Live source servers in memory: transactions commit while capture reads them, at every step of the reader.

A server has tables, a log of transactions, and may lose the beginning of its log. The test that runs it decides what
happens between two calls of the reader (`step`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

from cdc.model.errors import Fatal, Retriable
from cdc.model.event import Position
from cdc.model.naming import history_topic, schemas_topic
from cdc.model.schema import TableId
from cdc.model.types import Canonical
from ingest.ddl.catalog import Catalog
from ingest.ddl.dialect import dialect_of
from ingest.ddl.statements import apply
from ingest.events.foreign_keys import ForeignKey, ForeignKeys
from ingest.events.log_events import (
    CaughtUp,
    LogEvent,
    RowsLogged,
    RowsNotLogged,
    RowsPartial,
    StatementLogged,
    TransactionBegan,
    TransactionEnded,
    TransactionLogged,
)
from ingest.events.tables import Tables
from ingest.log.memory_log import Broker, MemoryLog
from ingest.records.capture_interfaces import Checkpoint, PositionLost, Record, ServerTables, Stream
from ingest.records.chunk_requests import Chunk, ChunkRequest

UUID = "1e4be0df-e594-11f1-ae82-02fc00000001"
DIALECT = dialect_of("mysql")
Row = dict[str, Canonical]
Key = tuple[Canonical, ...]


def numbers(checkpoint: Checkpoint) -> int:
    """Count the transactions that a checkpoint covers."""
    covered = checkpoint.position.gtid_set
    return int(covered.rpartition("-")[2].rpartition(":")[2]) if covered else 0


def gtid_set(number: int) -> str:
    """Return the set of the first `number` transactions."""
    return f"{UUID}:1-{number}" if number else ""


@dataclass
class Server:
    """One source with one database of the same name. `purged` transactions cannot be read any more.

    With `places`, a table exists in each of `databases`: a column of its key, which the tables do not have, is the
    database of each row. `rows` has them together.
    """

    name: str
    chance: Random
    step: Callable[[Server], None]
    keys: dict[str, tuple[str, ...]]  # table → its key's columns
    rows: dict[str, dict[Key, Row]] = field(default_factory=dict)
    log: list[list[LogEvent]] = field(default_factory=list)
    purged: int = 0
    catalog: Catalog = field(default_factory=Catalog)
    foreign: list[ForeignKey] = field(default_factory=list)
    unknown: float = 0.0  # the share of transactions logged partially, or as a statement
    places: dict[str, str] = field(default_factory=dict)  # table → the column that is the database
    databases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.databases = self.databases or (self.name,)
        self.catalog = Catalog(databases=dict.fromkeys(self.databases, "utf8mb4"))

    # -- changes

    def execute(self, *statements: str, databases: Iterable[str] = ()) -> None:
        """Execute statements on whole tables in each of the databases (none: all), each as a transaction of its own."""
        for database in databases or self.databases:
            for sql in statements:
                self.catalog = apply(self.catalog, sql, database=database, dialect=DIALECT).catalog
                self.log.append([StatementLogged(database, sql, 1, 0)])

    def empty(self, table: str, databases: Iterable[str]) -> None:
        """Delete the rows of a table in these databases."""
        self.rows[table] = {
            key: row for key, row in self.rows[table].items() if self.place(table, row).database not in databases
        }

    def place(self, table: str, row: Row) -> TableId:
        """Return the table that a row is in."""
        database = str(row[self.places[table]]) if table in self.places else self.name
        return TableId(source=self.name, database=database, table=table)

    def stored(self, table: str, row: Row | None) -> Row | None:
        """Return the columns that the table itself has."""
        hidden = self.places.get(table)
        return row if row is None or hidden is None else {n: value for n, value in row.items() if n != hidden}

    def content(self, table: TableId) -> dict[Key, Row]:
        """Return the rows of one table, without the column that is its database. Raises KeyError without a table."""
        rows = self.rows[table.table]
        if table.table not in self.places:
            return rows
        here = {key: row for key, row in rows.items() if key[-1] == table.database}
        return {key[:-1]: row for key, kept in here.items() if (row := self.stored(table.table, kept)) is not None}

    def change(self, changes: Iterable[tuple[str, Row | None, Row | None]]) -> None:
        """Commit row changes (table, row before, row after); a change without effect is not logged."""
        facts: list[LogEvent] = []
        number = len(self.log) + 1
        how = self.chance.choice(["minimal", "minimal", "statement"]) if self.chance.random() < self.unknown else "full"
        for table, before, after in changes:
            if before is not None:  # its current values: another change of the transaction may have cascaded to it
                before = self.rows[table].get(self.key(table, before))
            elif after is not None:
                before = self.rows[table].get(self.key(table, after))
            if before == after:
                continue
            self._set(table, before, after)
            places = [self.place(table, row) for row in (before, after) if row is not None]
            if len(set(places)) == 2:  # of a merged table: it moves to another database
                facts += self._logged(places[0], before, None, number, how)
                facts += self._logged(places[1], None, after, number, how)
            else:
                facts += self._logged(places[0], before, after, number, how)
            at = TableId(source=self.name, database=self.name, table=table)
            self._cascade(at, before, after)
        if facts:
            self.log.append(facts)

    def _logged(self, at: TableId, before: Row | None, after: Row | None, number: int, how: str) -> Iterator[LogEvent]:
        """Yield what the log has of one change of a table."""
        before, after = self.stored(at.table, before), self.stored(at.table, after)
        if how == "statement":
            names = None if self.chance.random() < 0.2 else ((at.database, at.table),)
            yield RowsNotLogged(names, "a statement")
        elif how == "minimal":
            yield self._minimal(at, before, after, number)
        elif before is not None and after is not None:
            yield RowsLogged(at, "update", [(before, after)], True, "f", number)
        else:
            operation, image = ("insert", after) if before is None else ("delete", before)
            yield RowsLogged(at, operation, [image], True, "f", number)  # type: ignore[arg-type]

    def _set(self, table: str, before: Row | None, after: Row | None) -> None:
        rows = self.rows[table]
        if before is not None:
            del rows[self.key(table, before)]
        if after is not None:
            rows[self.key(table, after)] = after

    def _minimal(self, at: TableId, before: Row | None, after: Row | None, number: int) -> LogEvent:
        """Return the event of `binlog_row_image = MINIMAL`: the key before, the assigned columns after."""
        name = {} if before is None else {column: before[column] for column in self.key_of(at.table)}
        if before is None or after is None:
            operation, image = ("insert", after) if before is None else ("delete", name)
            return RowsPartial(at, operation, [image], "f", number)  # type: ignore[arg-type]
        reported = {column: value for column, value in after.items() if before[column] != value}
        return RowsPartial(at, "update", [(name, reported)], "f", number)

    def _cascade(self, parent: TableId, before: Row | None, after: Row | None) -> None:
        """Apply foreign keys to the children, which the log does not contain."""
        for one in self.foreign:
            if one.parent != parent or before is None:
                continue
            old, new = before[one.referenced[0]], None if after is None else after[one.referenced[0]]
            if old == new:
                continue
            child, column = one.child.table, one.columns[0]
            for row in [row for row in self.rows[child].values() if row[column] == old]:
                rule = one.on_delete if after is None else one.on_update
                if rule == "NO ACTION":
                    continue
                gone = after is None and rule == "CASCADE"
                changed = None if gone else {**row, column: new if rule == "CASCADE" else None}
                self._set(child, row, changed)
                self._cascade(one.child, row, changed)

    def key(self, table: str, row: Row) -> Key:
        """Return the key of a row."""
        return tuple(row[name] for name in self.keys[table])

    def key_of(self, table: str) -> tuple[str, ...]:
        """Return the columns of the key that the table itself has."""
        return tuple(name for name in self.keys[table] if name != self.places.get(table))

    # -- ingest.records.capture_interfaces.SourceServer

    def head(self) -> Position:
        self.step(self)
        number = len(self.log)
        return Position(file="f", pos=number, gtid_set=gtid_set(number), sequence=0)

    def seen(self) -> ServerTables:
        return ServerTables(catalog=self.catalog, dialect=DIALECT)

    def release(self, position: Position) -> None:
        pass

    def foreign_keys(self) -> ForeignKeys:
        return ForeignKeys(self.foreign)

    def holds(self, position: Position) -> bool:
        return position.pos >= self.purged

    @contextmanager
    def chunks(self) -> Iterator[Chunks]:
        yield Chunks(self)

    @contextmanager
    def stream(self, checkpoint: Checkpoint, tables: Tables, *, busy: bool) -> Iterator[Stream]:
        if numbers(checkpoint) < self.purged:
            raise PositionLost("the server has purged its log", "read all again")
        yield Reading(self, tables, numbers(checkpoint))


@dataclass
class Chunks:
    """Reads a few rows at a time, at any moment between the request and its delivery. Divides tables into ranges."""

    server: Server
    asked: list[ChunkRequest] = field(default_factory=list)
    read: list[Chunk] = field(default_factory=list)

    def request(self, request: ChunkRequest) -> None:
        self.asked.append(request)

    def ready(self) -> list[Chunk]:
        server = self.server
        for request in self.asked[:]:
            if server.chance.random() < 0.6:
                server.step(server)
                self.asked.remove(request)
                self.read.append(self._chunk(request))
        found = [chunk for chunk in self.read if server.chance.random() < 0.7]
        self.read = [chunk for chunk in self.read if chunk not in found]
        return found

    def _chunk(self, request: ChunkRequest) -> Chunk:
        server, table = self.server, request.schema.table_id
        assert len(server.log) >= request.position.pos
        if table.table not in server.rows or table.database not in server.databases:
            raise Fatal(f"no table {table}", "")
        rows = server.content(table)
        if request.keys:
            names = server.key_of(table.table)
            asked = [tuple(key[name] for name in names) for key in request.keys]
            found = [dict(rows[key]) for key in asked if key in rows]
            server.step(server)
            number = len(server.log)
            high = Position(file="f", pos=number, gtid_set=gtid_set(number), sequence=0)
            return Chunk(request=request, images=found, after=None, last=None, high=high)
        size = server.chance.randint(1, 3)
        last = tuple(request.last) if request.last else max(rows, default=None)
        after = tuple(request.after) if request.after else None
        rest = sorted(key for key in rows if (after is None or key > after) and last is not None and key <= last)
        images = [dict(rows[key]) for key in rest[:size]]
        beyond = [key for key in rest[size:] if key != last]
        wanted = min(len(beyond), request.divide - 1)
        cuts = sorted(server.chance.sample(beyond, server.chance.randint(0, wanted))) if wanted > 0 else []
        server.step(server)  # the server continues between the SELECT and the query of its position
        number = len(server.log)
        return Chunk(
            request=request,
            images=images,
            after=list(rest[size - 1]) if len(rest) >= size else None,
            last=None if last is None else list(last),
            cuts=tuple(map(list, cuts)),
            high=Position(file="f", pos=number, gtid_set=gtid_set(number), sequence=0),
        )


@dataclass
class Reading:
    """A reader of the log: transactions after the first `number` of them."""

    server: Server
    tables: Tables
    number: int

    @property
    def gtid_set(self) -> str:
        return gtid_set(self.number)

    @property
    def place(self) -> tuple[str, int]:
        return "f", self.number

    @property
    def state(self) -> dict[str, object]:
        return {}

    def reached(self, position: Position) -> bool:
        return self.number >= position.pos

    def __iter__(self) -> Iterator[LogEvent]:
        server = self.server
        while True:
            server.step(server)
            if self.number < server.purged:
                raise Retriable("the connection is lost")
            if self.number >= len(server.log):
                yield CaughtUp()
                continue
            number = self.number + 1
            facts = [fact for fact in server.log[number - 1] if self._wanted(fact)]
            began = TransactionBegan(f"{UUID}:{number}", number * 1_000_000, 1, "f", number)
            ended = TransactionEnded("f", number)
            if len(facts) == 1 and isinstance(facts[0], RowsLogged) and server.chance.random() < 0.5:
                self.number = number
                yield TransactionLogged(began, facts[0], ended)
                continue
            yield began
            for fact in facts:
                server.step(server)
                yield fact
            self.number = number
            yield ended

    def _wanted(self, fact: LogEvent) -> bool:
        return not isinstance(fact, RowsLogged | RowsPartial) or self.tables.captured(
            fact.table.database, fact.table.table
        )


class Dying(MemoryLog):
    """A log whose process dies now and then: before a commit, or after it but before the answer."""

    def __init__(self, topology: str, broker: Broker, dies: Callable[[], bool]) -> None:
        super().__init__(broker, schemas_topic(topology), history_topic(topology))
        self.dies = dies

    def append(self, record: Record) -> None:
        super().append(record)
        if self.dies():
            raise Retriable("killed while appending")

    def commit(self, checkpoint: Checkpoint) -> None:
        if self.dies():
            raise Retriable("killed before the commit")
        super().commit(checkpoint)
        if self.dies():
            raise Retriable("killed before the commit was known")
