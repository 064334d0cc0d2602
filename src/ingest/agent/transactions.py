"""Facts → records: numbers every change, pairs it with its source transaction, and keeps the position; pure.

Rules, each defended by a law: sequence numbers grow by one per change and never repeat; a transaction that was cut off
moves nothing; a row whose key changed is deleted under the old key and created under the new one; a quarantined image
counts as no row, so that nothing stale stays downstream.
"""

from __future__ import annotations

from dataclasses import replace

from cdc.errors import Fatal
from cdc.event import ChangeEvent, Op, Position, Row, SourceInfo, Transaction
from cdc.schema import TableId, TableSchema
from ingest.agent.facts import (
    CaughtUp,
    Change,
    Fact,
    Image,
    Refused,
    RowsLogged,
    SchemaChanged,
    TransactionBegan,
    TransactionEnded,
)
from ingest.agent.gtids import GtidSet
from ingest.agent.records import Recorder, image_size
from ingest.agent.seams import Checkpoint, Record

# Bytes of a row image as JSON: an envelope holds two, and Kafka's records end at `kafka_topics.MAX_MESSAGE`.
MAX_IMAGE = 7_500_000
_SURELY_SMALL = MAX_IMAGE // 6 - 1000  # characters: none takes more than six bytes in JSON


class Transactions:
    """Turns the facts of one stream into records, from a position on.

    Feed every fact to `records`, append what it returns, and commit with `checkpoint` only where `whole` is true.
    A new stream (after a lost connection) needs a new instance, started from what the log says is committed.
    """

    def __init__(self, recorder: Recorder, start: Checkpoint) -> None:
        self._recorder = recorder
        self._start = start
        self._gtids = GtidSet(start.position.gtid_set)
        self._file, self._pos = start.position.file, start.position.pos
        self._sequence = start.position.sequence
        self._ts_ms = start.ts_ms
        self._open: TransactionBegan | None = None
        self._row = self._total = 0
        self._touched = False
        self._orders: dict[TableId, int] = {}
        self.changes = 0
        self.quarantined = 0
        self.moved = False

    @property
    def whole(self) -> bool:
        """Whether everything fed so far belongs to transactions that ended."""
        return self._open is None

    @property
    def clean(self) -> bool:
        """Whether no record was made for a transaction that has not ended."""
        return self._open is None or not self._touched

    def checkpoint(self) -> Checkpoint:
        """How far the stream has been read; call it only while `clean`. Resets `moved`."""
        assert self.clean, "a checkpoint inside a transaction would lose its rest"
        self.moved = False
        position = Position(file=self._file, pos=self._pos, gtid_set=str(self._gtids), sequence=self._sequence)
        return replace(self._start, position=position, ts_ms=self._ts_ms)

    def records(self, fact: Fact, now_ms: int) -> list[Record]:
        """Records to append because of a fact; `now_ms` becomes the events' time of publication."""
        match fact:
            case RowsLogged():
                self._touched = True
                return [record for change in fact.changes for record in self._change(fact, change, now_ms)]
            case TransactionBegan():
                if fact.gtid in self._gtids:
                    raise Fatal(f"the source sent transaction {fact.gtid} again", "report it with the log file")
                self._open, self._row, self._total = fact, 0, 0
                self._touched = False
                self._orders.clear()
            case TransactionEnded():
                assert self._open is not None, "a transaction ends that never began"
                self._gtids.add(self._open.gtid)
                self._file, self._pos = fact.file, fact.pos
                self._open, self.moved = None, True
            case SchemaChanged():
                self._touched = True
                return [self._recorder.schema(fact.schema)]
            case CaughtUp():
                pass
        return []

    def _change(self, fact: RowsLogged, change: Change, now_ms: int) -> list[Record]:
        assert self._open is not None, "rows outside a transaction"
        before, after = (None if image is None else tellable(image) for image in change)
        records: list[Record] = []
        for image in (before, after):
            if isinstance(image, Refused):
                self.quarantined += 1
                records.append(self._recorder.dead_letter(image, self._info(fact), now_ms))
        for op, old, new in _events(fact.schema, _told(before), _told(after)):
            self._sequence += 1
            self.changes += 1
            self._ts_ms = self._open.commit_us // 1000
            order = self._orders.get(fact.schema.table_id, 0) + 1
            self._orders[fact.schema.table_id] = order
            self._total += 1
            event = ChangeEvent(
                op=op,
                before=old,
                after=new,
                source=self._info(fact),
                ts_ms=now_ms,
                transaction=Transaction(id=self._open.gtid, total_order=self._total, data_collection_order=order),
            )
            records += self._recorder.change(event, fact.schema)
        self._row += 1
        return records

    def _info(self, fact: RowsLogged) -> SourceInfo:
        assert self._open is not None, "rows outside a transaction"
        return SourceInfo(
            table_id=fact.schema.table_id,
            ts_ms=self._open.commit_us // 1000,
            server_id=self._open.server_id,
            gtid=self._open.gtid,
            file=fact.file,
            pos=fact.pos,
            row=self._row,
            sequence=self._sequence,
        )


def snapshot_records(
    recorder: Recorder, schema: TableSchema, images: list[Image], low: Position, now_ms: int
) -> list[Record]:
    """Records of rows that a snapshot read; they carry the low watermark's sequence, so every logged change wins."""
    records: list[Record] = []
    info = SourceInfo(
        table_id=schema.table_id,
        ts_ms=now_ms,
        server_id=0,
        gtid=None,
        file=low.file,
        pos=low.pos,
        row=0,
        sequence=low.sequence,
        snapshot="true",
    )
    for image in map(tellable, images):
        if isinstance(image, Refused):
            records.append(recorder.dead_letter(image, info, now_ms))
        else:
            event = ChangeEvent(op="r", before=None, after=image, source=info, ts_ms=now_ms)
            records += recorder.change(event, schema)
    return records


def tellable(image: Image) -> Image:
    """The image, or its refusal when no record can hold it; its size alone decides, as before and as after image."""
    if isinstance(image, Refused):
        return image
    if sum(len(value) for value in image.values() if isinstance(value, str)) < _SURELY_SMALL:
        return image
    size = image_size(image)
    if size < MAX_IMAGE:
        return image
    shown = {name: value[:200] if isinstance(value, str) else value for name, value in image.items()}
    return Refused(values=shown, why=f"the row takes {size} bytes, a record holds {MAX_IMAGE}")


def _told(image: Image | None) -> Row | None:
    return None if isinstance(image, Refused) else image


def _events(schema: TableSchema, before: Row | None, after: Row | None) -> list[tuple[Op, Row | None, Row | None]]:
    """The events of one changed row; none when both of its images are quarantined."""
    if before is None:
        return [] if after is None else [("c", None, after)]
    if after is None:
        return [("d", before, None)]
    if any(before[name] != after[name] for name in schema.primary_key):
        return [("d", before, None), ("c", None, after)]
    return [("u", before, after)]
