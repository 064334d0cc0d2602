"""`tailorbird tail`: show the changes of one table as they are committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cdc.model.errors import UsageError
from cdc.model.event import ChangeEvent
from cdc.model.schema import TableId, TableSchema
from cdc.topology.topology import Topology
from ingest.changes.feed_interfaces import ChangeTables, ahead
from ingest.changes.kafka_changes import KafkaChanges


def table_meant(topology: Topology, name: str) -> TableId:
    """Return the captured table that `table`, `database.table` or `source.table` means.

    Raises UsageError if it is not exactly one."""
    meant = topology.tables_meant(name)
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise UsageError(f"{name}: several sources have it", " | ".join(f"{one.source}.{one.table}" for one in meant))
    raise UsageError(f"{topology.file}: no source captures {name}", "use SOURCE.TABLE or SOURCE.DATABASE.TABLE")


def tail(
    topology: Topology, name: str, *, beginning: bool, stopped: Callable[[], bool]
) -> Iterator[tuple[ChangeEvent, TableSchema]]:
    """Yield committed changes of a table with their schemas until `stopped` returns True.

    `beginning`: start with the oldest retained change, rather than with the next one. Raises Retriable while Kafka is
    unavailable.
    """
    table = table_meant(topology, name)
    log = KafkaChanges(topology, (table.source,))
    try:
        log.begin()
        if table not in log.tables():
            raise UsageError(f"nothing was captured of {table}", f"tailorbird capture {topology.file}")
        yield from changes_of(log, table, beginning=beginning, stopped=stopped, follow=log.follow)
    finally:
        log.close()


def changes_of(
    log: ChangeTables, table: TableId, *, beginning: bool, stopped: Callable[[], bool], follow: Callable[[float], bool]
) -> Iterator[tuple[ChangeEvent, TableSchema]]:
    """Yield committed changes of a table with their schemas until `stopped`, from any implementation of ChangeTables.

    `follow(seconds)` waits for new commits.
    """
    at = log.begins(table) if beginning else log.released(table)
    while not stopped():
        ends = log.released(table)
        if not ahead(at, ends):
            follow(0.2)
            continue
        batch = log.read(table, at, ends)
        versions = log.schemas(table)
        for change in batch.changes:
            yield change.event, versions.at(change.event.source.sequence)
        at = batch.next
