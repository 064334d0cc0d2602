"""Interface through which a capture session reports to metrics, log lines and health."""

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
        """Report the begin of a phase, such as a snapshot or the stream."""

    def left_out(self, schemas: Iterable[TableSchema]) -> None:
        """Report tables with columns of unsupported types, once for each table."""
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
        """Count row images that became dead letters, and rows that were quarantined as raw events."""

    def unrepresentable(self, values: Mapping[tuple[str, str], int]) -> None:
        """Count values, by table and column, that were published in another form (`unrepresentable`)."""

    def snapshot(self, rows: Mapping[str, int]) -> None:
        """Report the rows read so far of each table whose snapshot runs."""

    def repaired(self, counts: Mapping[str, int], waiting: int) -> None:
        """Count changes missing from the log by kind, and repaired `rows`. `waiting` repairs are pending."""

    def lag(self, seconds: float) -> None:
        """Report the delay of the committed log after the source's commits; 0 when caught up."""
