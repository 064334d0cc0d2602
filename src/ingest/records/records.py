"""Encode changes, schemas, checkpoints, dead letters and quarantined events as records of a topology's topics.

Nearly all changes are written by `TableWriter.format`, directly as bytes. `Recorder.change` builds the envelope as a
dict; a test compares both.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import orjson

from cdc.formats.debezium import key_of, to_envelope
from cdc.formats.debezium_bytes import NULL, EnvelopeWriter, flags_of
from cdc.model import naming
from cdc.model.errors import Fatal
from cdc.model.event import ChangeEvent, Position, SourceInfo
from cdc.model.filters import Unrepresentable
from cdc.model.history import Record as HistoryRecord
from cdc.model.schema import TableId, TableSchema
from cdc.packed import unpacked
from cdc.persistent import PersistentMap
from ingest.events.log_events import RefusedImage, Row, RowsQuarantined
from ingest.records.capture_interfaces import EVERY_PARTITION, Checkpoint, Record
from ingest.records.exact_phases import ExactPhases
from ingest.records.refused import RefusedRows
from ingest.records.truncation_points import TruncationPoints

FORMAT = 1
_dumps = orjson.dumps


def _text(value: object) -> str:
    return str(value)


def image_size(row: Row) -> int:
    """Return the size of a row image in bytes, as JSON in an envelope."""
    return len(_dumps(row))


class TableWriter:
    """Writes the records of one table under one schema.

    `format` writes changes as envelopes. `shape` removes and masks columns of an image, in place. `unrepresentable` and
    `refused` are as in `Recorder`.
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
        phases: ExactPhases | None = None,
        truncation_points: TruncationPoints | None = None,
    ) -> None:
        self.schema, self.shape, self._phases = schema, shape, phases or ExactPhases()
        self._truncation_points = truncation_points or TruncationPoints()
        self.unrepresentable, self.refused = unrepresentable, refused or RefusedRows("")
        self.topic = naming.change_topic(topology, schema.table_id)
        self.key = _key_function(schema.primary_key)
        self.format = EnvelopeWriter(topology, schema.table_id, connector)
        self._one_row = self.format.one_row

    def logged(
        self, ts_ms: int, server_id: int, gtid: bytes, file: bytes, pos: int, *, partial: bool, exact: bool
    ) -> bytes:
        """Return the source block of an event of the log (`EnvelopeWriter.logged`).

        `exact`: these are ordinary changes with complete images. Other records end the table's exact phase."""
        table, phases = self.schema.table_id, self._phases
        number = phases.open.get(table) if exact else None
        marked = phases.begun or (not exact and phases.any_complete)
        phase = (number, 0) if number else phases.mark(table, exact=exact) if marked else (0, 0)
        return self.format.logged(ts_ms, server_id, gtid, file, pos, partial=partial, phase=phase)

    def one_row(
        self, op: bytes, before: bytes, after: bytes, ts_ms: int, server_id: int, gtid: bytes, file: bytes, pos: int,
        sequence: int, now_ms: int, name: bytes, *, partial: bool,
    ) -> bytes:  # fmt: skip
        """Return the envelope of the only change of a transaction (`EnvelopeWriter.one_row`), with complete images."""
        phase, phases = (0, 0), self._phases
        if phases.begun:
            number = phases.open.get(self.schema.table_id)
            phase = (number, 0) if number else phases.mark(self.schema.table_id, exact=True)
        flags = flags_of(partial, phase) if partial or phases.begun else b""
        return self._one_row(op, before, after, ts_ms, server_id, gtid, file, pos, flags, sequence, now_ms, name)

    def read(self, ts_ms: int, position: Position, *, partial: bool = False) -> bytes:
        """Return the source block of rows that were read, or of a marker. It ends the table's exact phase."""
        phase = self._phases.mark(self.schema.table_id, exact=False)
        return self.format.read(ts_ms, position, partial=partial, phase=phase)

    def masks(self, column: str) -> bool:
        """Return whether a column is masked, so that its real values must not be published."""
        masks: Callable[[str], bool] | None = getattr(self.shape, "masks", None)
        return masks is not None and masks(column)

    def shown_key(self, values: Mapping[str, Any]) -> bytes | None:
        """Return the record key of a row, even of a refused one; None if the table has no key or `values` lacks a key
        column."""
        if not self.schema.primary_key or any(name not in values for name in self.schema.primary_key):
            return None
        return _dumps({name: values[name] for name in self.schema.primary_key}, default=_text)

    def truncated(self, value: bytes, number: int) -> Record:
        """Return a record that is written to every partition. Its envelope `value` has op `t`: rows whose newest record
        has a smaller sequence number than `number`, its own, no longer exist."""
        self._truncation_points.raised(self.schema.table_id.name, number)
        return Record(self.topic, naming.TRUNCATE_KEY, value, EVERY_PARTITION)

    def marker(self, position: Position, number: int, ts_ms: int) -> Record:
        """Return the record that ends a repeated snapshot: rows that it did not contain, of smaller sequence numbers,
        are gone.

        `position` is where the snapshot's last chunk was requested, `number` the marker's sequence number, unless the
        table's last marker has a greater one (`TruncationPoints`).
        """
        source = self.read(ts_ms, position)
        number = self._truncation_points.raised(self.schema.table_id.name, number)
        return self.truncated(self.format.alone(b"t", NULL, NULL, source, 0, number, ts_ms), number)


def _key_function(names: tuple[str, ...]) -> Callable[[Row], bytes]:
    if len(names) == 1:
        name, begins = names[0], b"{" + _dumps(names[0]) + b":"
        return lambda row: begins + _dumps(row[name]) + b"}"
    return lambda row: _dumps({name: row[name] for name in names})


class Recorder:
    """Builds all records of one topology that are not changes, and creates the writers of tables.

    Calls `ensure_topic` before the first record of a change topic. `unrepresentable` is the source's setting. `refused`
    tracks rows and values that could not be published unchanged, `phases` the exact phases of tables, and
    `truncation_points` the numbers of their markers. `published` is the last schema of each table that has a topic,
    also of those that are left out by now.
    """

    def __init__(
        self,
        topology: str,
        connector: str = "mysql",
        ensure_topic: Callable[[str], None] = lambda name: None,
        unrepresentable: Unrepresentable = "null",
        phases: ExactPhases | None = None,
    ) -> None:
        self.phases, self.truncation_points = phases or ExactPhases(), TruncationPoints()
        self.topology, self.connector, self._ensure_topic = topology, connector, ensure_topic
        self.dead_letters = naming.dead_letter_topic(topology)
        self.quarantine = naming.quarantine_topic(topology)
        self.unrepresentable = unrepresentable
        self.refused = RefusedRows(self.dead_letters)
        self.published: dict[TableId, TableSchema] = {}

    def writer(self, schema: TableSchema, shape: Callable[[Row], None] | None = None) -> TableWriter:
        """Return the writer of a table's changes; `shape` removes and masks columns."""
        writer = TableWriter(
            self.topology, schema, self.connector, shape,
            unrepresentable=self.unrepresentable, refused=self.refused, phases=self.phases,
            truncation_points=self.truncation_points,
        )  # fmt: skip
        self._ensure_topic(writer.topic)
        return writer

    def change(self, event: ChangeEvent, schema: TableSchema) -> list[Record]:
        """Return the records of one change. A delete is followed by a tombstone, so that compaction drops the key."""
        row = event.before if event.after is None else event.after
        assert row is not None, "a row change has an image"
        topic = naming.change_topic(self.topology, schema.table_id)
        key = _dumps(key_of(schema, row))
        records = [Record(topic, key, _dumps(to_envelope(event, self.topology)))]
        return [*records, Record(topic, key, None)] if event.op == "d" else records

    def schema(self, schema: TableSchema) -> Record:
        """Return the record with a table's schema. It must be appended before the first row with that schema."""
        self._ensure_topic(naming.change_topic(self.topology, schema.table_id))
        self.published[schema.table_id] = schema
        return Record(naming.schemas_topic(self.topology), str(schema.table_id).encode(), _dumps(schema.to_json()))

    def history(self, found: Iterable[HistoryRecord]) -> Iterator[Record]:
        """Yield the Kafka records for records of the schema history."""
        topic = naming.history_topic(self.topology)
        for key, value in found:
            yield Record(topic, key.encode(), None if value is None else _dumps(unpacked(value)))

    def dead_letter(self, image: RefusedImage, writer: TableWriter, info: SourceInfo, ts_ms: int) -> Record:
        """Return the dead-letter record of a row image that cannot be published: its position, publishable values and
        the reason.

        A later change of the same key settles it (`ingest.records.refused`).
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
        """Return the dead-letter record of a row that a SELECT returned, valid at a position of the log."""
        info = SourceInfo(
            table_id=writer.schema.table_id, ts_ms=ts_ms, server_id=0, gtid=None, file=place.file, pos=place.pos, row=0,
            sequence=place.sequence, snapshot="true",
        )  # fmt: skip
        return self.dead_letter(image, writer, info, ts_ms)

    def kept(
        self, log_event: RowsQuarantined, position: Position, gtid: str, commit_ms: int, server_id: int, row: int
    ) -> Record:
        """Return the quarantine record of an event whose rows cannot be decoded: its raw bytes, position and the
        reason.

        `row` is the number of the event's first row in its transaction.
        """
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
    checkpoint: Checkpoint,
    source: str,
    end_offsets: Mapping[str, Mapping[int, int]],
    history: int = 0,
    more: Mapping[str, Any] | None = None,
) -> bytes:
    """Return the value of a record of the topic `…positions`.

    `end_offsets` maps topic → partition → offset after the records of the checkpoint. `history` is the offset in
    `…history` from which on the whole schema history can be read. `more` are further fields.
    """
    position, state = checkpoint.position, dict(checkpoint.state)
    if "partial" in state:
        state["partial"] = sorted(state["partial"])
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
            **({"state": state} if state else {}),
            "end_offsets": {topic: {str(p): o for p, o in ends.items()} for topic, ends in end_offsets.items()},
            **(more or {}),
        },
        default=_plain,
    )


def _plain(value: object) -> dict[str, Any]:
    if isinstance(value, PersistentMap):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON")


def history_start(stored: Mapping[str, Any] | None) -> int:
    """Return the offset in `…history` at which to start reading; `stored` is the newest record of `…positions`, or
    None."""
    return int(stored.get("history", 0)) if stored is not None else 0


def read_checkpoint(value: bytes) -> tuple[Checkpoint, dict[str, dict[int, int]]]:
    """Decode a value of `checkpoint_value`; otherwise as `checkpoint_from`."""
    return checkpoint_from(orjson.loads(value))


def checkpoint_from(stored: Mapping[str, Any]) -> tuple[Checkpoint, dict[str, dict[int, int]]]:
    """Return checkpoint and end offsets of a whole position record. Raises Fatal for a format of a newer version, and
    an error of `MALFORMED` for a record that is no position."""
    number = stored["format"]
    if type(number) is int and number > FORMAT:
        raise Fatal(
            f"a position of format {number} is stored, this version reads format {FORMAT}",
            "run the version of Tailorbird that wrote it, or a newer one",
        )
    if number != FORMAT:
        raise ValueError(f"a position of format {number!r:.20}")
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
