"""Encode changes, schemas, checkpoints, dead letters and the quarantine as records of a topology's topics.

The topic's format (`cdc.formats.debezium_bytes`) writes a change as bytes around its images, without building the
envelope first. `Recorder.change` builds the envelope; a test compares both.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from cdc.formats.debezium import key_of, to_envelope
from cdc.formats.debezium_bytes import NULL, EnvelopeWriter
from cdc.model import naming
from cdc.model.errors import Fatal
from cdc.model.event import ChangeEvent, Position, SourceInfo
from cdc.model.filters import Unrepresentable
from cdc.model.history import Record as HistoryRecord
from cdc.model.schema import TableSchema
from ingest.events.log_events import RefusedImage, Row, RowsQuarantined
from ingest.records.capture_interfaces import EVERY_PARTITION, Checkpoint, Record
from ingest.records.refused import RefusedRows

FORMAT = 1
_dumps = orjson.dumps


def _text(value: object) -> str:
    return str(value)


def image_size(row: Row) -> int:
    """Return the bytes of a row image inside an envelope."""
    return len(_dumps(row))


class TableWriter:
    """Writes the records of one table under one schema, with changes in the `format` of its topic.

    `shape` removes and masks columns of an image, in place. `unrepresentable` and `refused` are those of its recorder.
    """

    def __init__(
        self,
        topology: str,
        schema: TableSchema,
        connector: str,
        shape: Callable[[Row], None] | None = None,
        *,
        unrepresentable: Unrepresentable = "null",
        refused: RefusedRows | None = None,
    ) -> None:
        self.schema, self.shape = schema, shape
        self.unrepresentable, self.refused = unrepresentable, refused or RefusedRows("")
        self.topic = naming.change_topic(topology, schema.table_id)
        self.key = _key_function(schema.primary_key)
        self.format = EnvelopeWriter(topology, schema.table_id, connector)

    def masks(self, column: str) -> bool:
        """Return whether only masks of a column's values are published."""
        masks: Callable[[str], bool] | None = getattr(self.shape, "masks", None)
        return masks is not None and masks(column)

    def shown_key(self, values: Mapping[str, Any]) -> bytes | None:
        """Return the key of a row that may be refused, or None if a key column is missing."""
        if not self.schema.primary_key or any(name not in values for name in self.schema.primary_key):
            return None
        return _dumps({name: values[name] for name in self.schema.primary_key}, default=_text)

    def truncated(self, value: bytes) -> Record:
        """Return a TRUNCATE marker, for every partition: all rows of smaller sequence are gone."""
        return Record(self.topic, naming.TRUNCATE_KEY, value, EVERY_PARTITION)

    def marker(self, position: Position, number: int, ts_ms: int) -> Record:
        """Return a snapshot's end marker: rows of smaller sequence that it did not contain are gone."""
        source = self.format.read(ts_ms, position)
        return self.truncated(self.format.alone(b"t", NULL, NULL, source, 0, number, ts_ms))


def _key_function(names: tuple[str, ...]) -> Callable[[Row], bytes]:
    if len(names) == 1:
        name, begins = names[0], b"{" + _dumps(names[0]) + b":"
        return lambda row: begins + _dumps(row[name]) + b"}"
    return lambda row: _dumps({name: row[name] for name in names})


class Recorder:
    """Writes the records of one topology other than changes. Calls `ensure_topic` with each change topic first.

    `unrepresentable` is the source's setting. `refused` records what could not be published unchanged.
    """

    def __init__(
        self,
        topology: str,
        connector: str = "mysql",
        ensure_topic: Callable[[str], None] = lambda name: None,
        unrepresentable: Unrepresentable = "null",
    ) -> None:
        self.topology, self.connector, self._ensure_topic = topology, connector, ensure_topic
        self.dead_letters = naming.dead_letter_topic(topology)
        self.quarantine = naming.quarantine_topic(topology)
        self.unrepresentable = unrepresentable
        self.refused = RefusedRows(self.dead_letters)

    def writer(self, schema: TableSchema, shape: Callable[[Row], None] | None = None) -> TableWriter:
        """Return the writer of a table's changes."""
        writer = TableWriter(
            self.topology, schema, self.connector, shape,
            unrepresentable=self.unrepresentable, refused=self.refused,
        )  # fmt: skip
        self._ensure_topic(writer.topic)
        return writer

    def change(self, event: ChangeEvent, schema: TableSchema) -> list[Record]:
        """Build the records of a change through its envelope.

        A tombstone follows a delete, so compaction drops the key.
        """
        row = event.before if event.after is None else event.after
        assert row is not None, "a row change has an image"
        topic = naming.change_topic(self.topology, schema.table_id)
        key = _dumps(key_of(schema, row))
        records = [Record(topic, key, _dumps(to_envelope(event, self.topology)))]
        return [*records, Record(topic, key, None)] if event.op == "d" else records

    def schema(self, schema: TableSchema) -> Record:
        """Return the record of a table's schema. Append it before the first row of its version."""
        self._ensure_topic(naming.change_topic(self.topology, schema.table_id))
        return Record(naming.schemas_topic(self.topology), str(schema.table_id).encode(), _dumps(schema.to_json()))

    def history(self, found: Iterable[HistoryRecord]) -> list[Record]:
        """Return records of the schema history."""
        topic = naming.history_topic(self.topology)
        return [Record(topic, key.encode(), None if value is None else _dumps(value)) for key, value in found]

    def dead_letter(self, image: RefusedImage, writer: TableWriter, info: SourceInfo, ts_ms: int) -> Record:
        """Return the dead-letter record of a refused row image: its place, its values as far as they can be shown, the
        reason.

        Its key settles it when the row is published later (`ingest.records.refused`).
        """
        self.refused.made()
        key = writer.shown_key(image.values)
        dead_letter_record = {
            "format": FORMAT,
            "stage": "capture",
            "table": str(info.table_id),
            "why": image.reason,
            "values": image.values,
            "topic": writer.topic,
            "key": None if key is None else key.decode(),
            "gtid": info.gtid,
            "file": info.file,
            "pos": info.pos,
            "row": info.row,
            "source_ts_ms": info.ts_ms,
            "ts_ms": ts_ms,
        }
        return Record(self.dead_letters, str(info.table_id).encode(), _dumps(dead_letter_record, default=_text))

    def unread(self, image: RefusedImage, writer: TableWriter, place: Position, ts_ms: int) -> Record:
        """Return the dead-letter record of a row that was read from its table, up to a position in the log."""
        info = SourceInfo(
            table_id=writer.schema.table_id, ts_ms=ts_ms, server_id=0, gtid=None, file=place.file, pos=place.pos, row=0,
            sequence=place.sequence, snapshot="true",
        )  # fmt: skip
        return self.dead_letter(image, writer, info, ts_ms)

    def kept(
        self, log_event: RowsQuarantined, position: Position, gtid: str, commit_ms: int, server_id: int, row: int
    ) -> Record:
        """Return the record of rows that cannot be decoded: the raw events, their place, and the reason."""
        return Record(
            self.quarantine,
            str(log_event.table).encode(),
            _dumps(
                {
                    "format": FORMAT,
                    "source": log_event.table.source,
                    "database": log_event.table.database,
                    "table": log_event.table.table,
                    "why": log_event.why,
                    "server": log_event.server,
                    "server_id": server_id,
                    "table_map": base64.b64encode(log_event.table_map).decode(),
                    "event": base64.b64encode(log_event.event).decode(),
                    "gtid": gtid,
                    "file": log_event.file,
                    "pos": log_event.pos,
                    "row": row,
                    "sequence": position.sequence,
                    "source_ts_ms": commit_ms,
                }
            ),
        )


def checkpoint_value(
    checkpoint: Checkpoint, source: str, end_offsets: dict[str, dict[int, int]], history: int = 0
) -> bytes:
    """Return the value of a record of `…positions`. `end_offsets`: topic → partition → offset after the checkpoint's
    records.

    `history` is the offset in `…history` from which on the whole schema history can be read.
    """
    position = checkpoint.position
    return _dumps(
        {
            "format": FORMAT,
            "source": source,
            "position": {
                "file": position.file,
                "pos": position.pos,
                "gtid_set": position.gtid_set,
                "row": position.row,
                "sequence": position.sequence,
            },
            "snapshot": checkpoint.snapshot,
            "ts_ms": checkpoint.ts_ms,
            **({"history": history} if history else {}),
            **({"open": checkpoint.open} if checkpoint.open else {}),
            **({"state": checkpoint.state} if checkpoint.state else {}),
            "end_offsets": {topic: {str(p): o for p, o in ends.items()} for topic, ends in end_offsets.items()},
        }
    )


def history_start(value: bytes | None) -> int:
    """Return the offset where the schema history starts, from the newest record of `…positions`."""
    return int(orjson.loads(value).get("history", 0)) if value is not None else 0


def read_checkpoint(value: bytes) -> tuple[Checkpoint, dict[str, dict[int, int]]]:
    """Decode a value of `checkpoint_value`. Raises Fatal for another format: a newer Tailorbird wrote it."""
    stored: dict[str, Any] = orjson.loads(value)
    if stored["format"] != FORMAT:
        raise Fatal(
            f"a position of format {stored['format']} is stored, this version reads format {FORMAT}",
            "run the version of Tailorbird that wrote it, or a newer one",
        )
    position = stored["position"]
    checkpoint = Checkpoint(
        position=Position(
            file=position["file"],
            pos=position["pos"],
            gtid_set=position["gtid_set"],
            row=position["row"],
            sequence=position["sequence"],
        ),
        snapshot=stored["snapshot"],
        ts_ms=stored["ts_ms"],
        open=stored.get("open"),
        state=stored.get("state", {}),
    )
    ends = {topic: {int(p): o for p, o in ends.items()} for topic, ends in stored["end_offsets"].items()}
    return checkpoint, ends
