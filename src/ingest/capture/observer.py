"""What a session of capture reports as it goes: the seam to metrics, log lines and health."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cdc.model.event import Position
from cdc.model.schema import TableSchema
from ingest.records.capture_interfaces import Checkpoint


class Observer:
    """What a session reports as it goes; the base class ignores it."""

    def resumed(self, position: Position) -> None:
        """The log is read from here; what is before is committed."""

    def committed(self, checkpoint: Checkpoint) -> None:
        """So far the log holds everything."""

    def phase(self, what: str, **details: object) -> None:
        """The session begins something: a snapshot, the stream."""

    def left_out(self, schemas: Iterable[TableSchema]) -> None:
        """Columns of these tables are not captured, since their types are not; it is told once for each table."""
        for schema in schemas:
            names = [name for name, _ in schema.left_out]
            self.phase(
                "columns are left out: their types are not captured",
                table=str(schema.table_id),
                columns=", ".join(f"{name} {kind}" for name, kind in schema.left_out),
                remedy=f"`ignored_columns: [{', '.join(names)}]` of the table in `tables:` silences this",
            )

    def captured(self, changes: int) -> None:
        """So many changes were committed."""

    def refused(self, images: int, quarantined: int) -> None:
        """So many row images became dead letters, so many rows went to the quarantine as raw events."""

    def unrepresentable(self, values: Mapping[tuple[str, str], int]) -> None:
        """So many more values, by table and column, were published in another form (`unrepresentable`)."""

    def snapshot(self, rows: Mapping[str, int]) -> None:
        """So many rows were read of each table whose snapshot is under way."""

    def repaired(self, counts: Mapping[str, int], waiting: int) -> None:
        """So many more changes were not told by the log, by their kind, and so many `rows` mended; how many wait."""

    def lag(self, seconds: float) -> None:
        """How far behind the source's commits the committed log is; 0 when caught up."""
