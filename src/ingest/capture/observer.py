"""Interface through which a capture session reports to metrics, log lines and `/health`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cdc.model.event import Position
from cdc.model.schema import TableSchema
from ingest.records.capture_interfaces import Checkpoint


class Observer:
    """Receives the reports of a session. The base class ignores them."""

    def resumed(self, position: Position) -> None:
        """Report that the log is read from `position`; everything before is committed."""

    def committed(self, checkpoint: Checkpoint) -> None:
        """Report that everything up to the checkpoint is committed."""

    def phase(self, what: str, **details: object) -> None:
        """Report the begin of a phase, such as the snapshot or the reading of the log."""

    def left_out(self, schemas: Iterable[TableSchema]) -> None:
        """Report tables with columns that are left out because of their type, once per table."""
        for schema in schemas:
            names = [name for name, _ in schema.left_out]
            self.phase(
                "columns are left out: their types are not supported",
                table=str(schema.table_id),
                columns=", ".join(f"{name} {kind}" for name, kind in schema.left_out),
                remedy=f"`ignored_columns: [{', '.join(names)}]` of the table in `tables:` silences this",
            )

    def captured(self, changes: int) -> None:
        """Count committed changes."""

    def refused(self, images: int, quarantined: int) -> None:
        """Count row images that became dead letters, and events that were quarantined."""

    def unrepresentable(self, values: Mapping[tuple[str, str], int]) -> None:
        """Count values, by (table, column), that were published in another form."""

    def snapshot(self, rows: Mapping[str, int]) -> None:
        """Report the number of rows read so far of each table that was read since the last call."""

    def waits(self, tables: Mapping[str, str]) -> None:
        """Report all tables whose rows cannot be read for now, with the reason; empty if there is none."""

    def repaired(self, counts: Mapping[str, int], waiting: int) -> None:
        """Count repairs by kind, and repaired rows under `rows`. `waiting` is the number of pending repairs."""

    def lag(self, seconds: float) -> None:
        """Report how many seconds the last commit was later than its changes at the source; 0 when caught up."""
