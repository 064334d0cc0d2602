"""Changes, schemas, checkpoints, dead letters and the quarantine as records of the log's topics; pure, per topology.

Changes are written as bytes around their images by the format of their topic (`cdc.formats.debezium_bytes`), without
building the envelope first; `Recorder.change` writes them the plain way, and a test compares the two.
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
from ingest.records.refused import Refused

FORMAT = 1
_dumps = orjson.dumps


def _text(value: object) -> str:
    return str(value)


def image_size(row: Row) -> int:
    """Bytes of a row image inside an envelope."""
    return len(_dumps(row))


class TableWriter:
    """Writes the records of one table under one schema, changes in the `format` of its topic. `shape` takes away and
    masks columns of an image, in place; `unrepresentable` and `refused` are those of its recorder.
    """

    def __init__(
        self,
        topology: str,
        schema: TableSchema,
        connector: str,
        shape: Callable[[Row], None] | None = None,
        *,
        unrepresentable: Unrepresentable = "null",
        refused: Refused | None = None,
    ) -> None:
        self.schema, self.shape = schema, shape
        self.unrepresentable, self.refused = unrepresentable, refused or Refused("")
        self.topic = naming.change_topic(topology, schema.table_id)
        self.key = _key_function(schema.primary_key)
        self.format = EnvelopeWriter(topology, schema.table_id, connector)

    def masks(self, column: str) -> bool:
        """Whether only a mask of a column's values leaves."""
        masks: Callable[[str], bool] | None = getattr(self.shape, "masks", None)
        return masks is not None and masks(column)

    def shown_key(self, values: Mapping[str, Any]) -> bytes | None:
        """The key of a row that may be refused; None where it is not told."""
        if not self.schema.primary_key or any(name not in values for name in self.schema.primary_key):
            return None
        return _dumps({name: values[name] for name in self.schema.primary_key}, default=_text)

    def truncated(self, value: bytes) -> Record:
        """The marker that all rows of smaller sequence are gone; it goes to every partition under a reserved key."""
        return Record(self.topic, naming.TRUNCATE_KEY, value, EVERY_PARTITION)

    def marker(self, position: Position, number: int, ts_ms: int) -> Record:
        """The marker that ends a snapshot: rows of smaller sequence that it did not see again are gone."""
        source = self.format.read(ts_ms, position)
        return self.truncated(self.format.alone(b"t", NULL, NULL, source, 0, number, ts_ms))


def _key_function(names: tuple[str, ...]) -> Callable[[Row], bytes]:
    if len(names) == 1:
        name, begins = names[0], b"{" + _dumps(names[0]) + b":"
        return lambda row: begins + _dumps(row[name]) + b"}"
    return lambda row: _dumps({name: row[name] for name in names})


class Recorder:
    """Writes the records of one topology that are not changes; `ensure_topic` is told of each change topic first.

    `unrepresentable` is the source's setting; `refused` remembers what could not be published as it is.
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
        self.refused = Refused(self.dead_letters)

    def writer(self, schema: TableSchema, shape: Callable[[Row], None] | None = None) -> TableWriter:
        """The writer of a table's changes."""
        writer = TableWriter(
            self.topology, schema, self.connector, shape,
            unrepresentable=self.unrepresentable, refused=self.refused,
        )  # fmt: skip
        self._ensure_topic(writer.topic)
        return writer

    def change(self, event: ChangeEvent, schema: TableSchema) -> list[Record]:
        """The records of a change, the plain way; a delete is followed by a tombstone, so that the key is forgotten."""
        row = event.before if event.after is None else event.after
        assert row is not None, "a row change has an image"
        topic = naming.change_topic(self.topology, schema.table_id)
        key = _dumps(key_of(schema, row))
        records = [Record(topic, key, _dumps(to_envelope(event, self.topology)))]
        return [*records, Record(topic, key, None)] if event.op == "d" else records

    def schema(self, schema: TableSchema) -> Record:
        """The record of a table's schema, to be appended before the first row of its version."""
        self._ensure_topic(naming.change_topic(self.topology, schema.table_id))
        return Record(naming.schemas_topic(self.topology), str(schema.table_id).encode(), _dumps(schema.to_json()))

    def history(self, found: Iterable[HistoryRecord]) -> list[Record]:
        """Records of the schema history."""
        topic = naming.history_topic(self.topology)
        return [Record(topic, key.encode(), None if value is None else _dumps(value)) for key, value in found]

    def dead_letter(self, image: RefusedImage, writer: TableWriter, info: SourceInfo, ts_ms: int) -> Record:
        """The dead-letter record of a refused row image: where it stood, its values as far as they can be shown, why.

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
        """The same of a row that was read beside the log, up to a place in it."""
        info = SourceInfo(
            table_id=writer.schema.table_id, ts_ms=ts_ms, server_id=0, gtid=None, file=place.file, pos=place.pos, row=0,
            sequence=place.sequence, snapshot="true",
        )  # fmt: skip
        return self.dead_letter(image, writer, info, ts_ms)

    def kept(
        self, log_event: RowsQuarantined, position: Position, gtid: str, commit_ms: int, server_id: int, row: int
    ) -> Record:
        """The record of rows that cannot be decoded: the raw events, where they stood, and why."""
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
    """Value of a record of `…positions`; `end_offsets`: topic → partition → offset behind the checkpoint's records.

    `history` is the offset in `…history` from which on all of the schema history is told.
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
    """Where the schema history is read from, as the newest record of `…positions` says."""
    return int(orjson.loads(value).get("history", 0)) if value is not None else 0


def read_checkpoint(value: bytes) -> tuple[Checkpoint, dict[str, dict[int, int]]]:
    """Inverse of `checkpoint_value`; Fatal for another format: a newer Tailorbird wrote it."""
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
