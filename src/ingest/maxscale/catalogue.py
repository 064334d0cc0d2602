"""Find the tables that clients request, and answer their queries about transactions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import orjson

from cdc.formats.maxscale import TransactionNumber, number_of
from cdc.model.event import ChangeEvent
from cdc.model.schema import TableId
from ingest.changes.feed_interfaces import ChangeTables, ahead
from ingest.changes.merging import Offsets
from ingest.maxscale.conversation import Form
from ingest.maxscale.delivery import FORMS, Gate, Piece

_NO_TRANSACTION = TransactionNumber(0, 0, 0)
_VERSION = re.compile(r"(.+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class TableRequest:
    """A requested table, and the version of its schema from which on rows are sent."""

    table: TableId
    version: int = 0


class NoData(Exception):
    """Raised instead of data; the text is the error answer for the client."""


def find_table(log: ChangeTables, name: str) -> TableRequest:
    """Return the table for `database.table` or `database.table.version`. Raises NoData with MaxScale's message."""
    by_name = {f"{table.database}.{table.table}": table for table in log.tables()}
    if name in by_name:
        return TableRequest(by_name[name])
    if (match := _VERSION.fullmatch(name)) and match[1] in by_name:
        found = TableRequest(by_name[match[1]], int(match[2]))
        if found.version <= log.schemas(found.table).found[-1][1].version:
            return found
    raise NoData(f"ERR NO-FILE File '{name}' not found.\n")


def ambiguous(tables: tuple[TableId, ...]) -> list[str]:
    """Return the names `database.table` that exist in several sources."""
    names = [f"{table.database}.{table.table}" for table in tables]
    return sorted({name for name in names if names.count(name) > 1})


def begin_of(log: ChangeTables, table: TableId, gate: Gate) -> Offsets:
    """Return the offsets at which a client's stream begins. Raises NoData if compaction may have removed needed
    changes."""
    if gate.since is None:
        return log.begins(table)
    found = log.before(table, gate.reached)
    if found is not None:
        return found
    # if the requested transaction is the last one, no later changes can be missing
    ends = log.released(table)
    batch = log.newest(table, ends)
    numbers = [number_of(change.event) for change in batch.changes]
    same = [
        number for number in numbers if (number.domain, number.sequence) == (gate.since.domain, gate.since.sequence)
    ]
    if same and numbers[-1] == same[-1] and numbers[0] != same[0]:
        starts = dict(ends)
        for change in reversed(batch.changes):
            starts[change.partition] = min(starts[change.partition], change.offset)
        return starts
    raise NoData(f"ERR NO-GTID GTID '{gate.since}' not found.\n")


def columns_alone(log: ChangeTables, found: TableRequest, form: Form, gate: Gate, at: Piece) -> Piece:
    """Return the newest columns of a table, for a client that has read to the end of the log without receiving a row.

    MaxScale sends them before it searches the first row, also if there will be none, as after a GTID of another domain.
    """
    schema = log.schemas(found.table).found[-1][1]
    return at._replace(data=FORMS[form](schema).header(gate.since or _NO_TRANSACTION), version=schema.version)


@dataclass(slots=True)
class TransactionAnswer:
    """Answer about a transaction: its number, number of changes, commit time and tables."""

    number: TransactionNumber
    events: int = 0
    ts_ms: int = 0
    tables: set[str] = field(default_factory=set)

    def take(self, event: ChangeEvent) -> None:
        """Add a change of the transaction."""
        self.events = max(self.events + 1, event.transaction.total_order if event.transaction is not None else 0)
        self.ts_ms = max(self.ts_ms, event.source.ts_ms)
        self.tables.add(f"{event.source.table_id.database}.{event.source.table_id.table}")

    def line(self) -> bytes:
        """Return the answer as a line in MaxScale's format."""
        answer = {
            "GTID": str(self.number),
            "events": self.events,
            "timestamp": self.ts_ms // 1000,
            "tables": sorted(self.tables),
        }
        return orjson.dumps(answer, option=orjson.OPT_APPEND_NEWLINE)


def last_transaction(log: ChangeTables) -> bytes:
    """Return the answer about the newest transaction of all tables. Raises NoData if nothing was committed yet."""
    found: TransactionAnswer | None = None
    newest = (0, 0)
    for event in (change for table in log.tables() for change in _newest(log, table)):
        number, age = number_of(event), (event.source.ts_ms, event.source.sequence)
        if found is None or (number != found.number and age > newest):
            found = TransactionAnswer(number)
        if number == found.number:
            found.take(event)
            newest = max(newest, age)
    if found is None:
        raise NoData("ERR NO-GTID There is no transaction.\n")
    return found.line()


def _newest(log: ChangeTables, table: TableId) -> Iterator[ChangeEvent]:
    return (change.event for change in log.newest(table, log.released(table)).changes)


def transaction_of(log: ChangeTables, since: TransactionNumber) -> bytes:
    """Return the answer about one transaction. Raises NoData if no table contains it, or compaction may have removed a
    part."""
    found, gate = TransactionAnswer(since), Gate(since)
    for table in log.tables():
        ends = log.released(table)
        starts = log.before(table, gate.reached)
        if starts is None:
            continue
        for event in _of(log, table, starts, ends, since):
            found.take(event)
    if not found.events:
        raise NoData(f"ERR NO-GTID GTID '{since}' not found.\n")
    return found.line()


def _of(
    log: ChangeTables, table: TableId, starts: Offsets, ends: Offsets, since: TransactionNumber
) -> Iterator[ChangeEvent]:
    """Yield a table's changes in one transaction. Sequence numbers grow, except for snapshot rows."""
    while ahead(starts, ends):
        batch = log.read(table, starts, ends)
        for change in batch.changes:
            number = number_of(change.event)
            if number[::2] == since[::2] and (since.server_id in (0, number.server_id)):
                yield change.event
            elif number.domain == since.domain and number.sequence > since.sequence and change.event.op != "r":
                return
        starts = batch.next
