"""Change events, schemas, checkpoints and quarantined rows as records of the log's topics; pure, per topology."""

from __future__ import annotations

from typing import Any

import orjson

from cdc import naming
from cdc.envelope import key_of, to_envelope
from cdc.errors import Fatal
from cdc.event import ChangeEvent, Position, Row, SourceInfo
from cdc.schema import TableSchema
from ingest.agent.facts import Refused
from ingest.agent.seams import Checkpoint, Record

FORMAT = 1


def _text(value: object) -> str:
    return str(value)


def image_size(row: Row) -> int:
    """Bytes of a row image inside an envelope."""
    return len(orjson.dumps(row))


class Recorder:
    """Writes the records of one topology."""

    def __init__(self, topology: str) -> None:
        self.topology = topology
        self.dead_letters = naming.dead_letter_topic(topology)

    def change(self, event: ChangeEvent, schema: TableSchema) -> list[Record]:
        """The record of a change; a delete is followed by a tombstone, so that compaction forgets the key."""
        row = event.before if event.after is None else event.after
        assert row is not None, "a row change has an image"
        topic = naming.change_topic(self.topology, schema.table_id)
        key = orjson.dumps(key_of(schema, row))
        records = [Record(topic=topic, key=key, value=orjson.dumps(to_envelope(event, self.topology)))]
        if event.op == "d":
            records.append(Record(topic=topic, key=key, value=None))
        return records

    def schema(self, schema: TableSchema) -> Record:
        """The record of a table's schema, to be appended before the first row of its version."""
        return Record(
            topic=naming.schemas_topic(self.topology),
            key=str(schema.table_id).encode(),
            value=orjson.dumps(schema.to_json()),
        )

    def dead_letter(self, image: Refused, info: SourceInfo, ts_ms: int) -> Record:
        """The record of a quarantined row image: where it stood, its values as far as they can be shown, and why."""
        letter = {
            "format": FORMAT,
            "stage": "capture",
            "table": str(info.table_id),
            "why": image.why,
            "values": image.values,
            "gtid": info.gtid,
            "file": info.file,
            "pos": info.pos,
            "row": info.row,
            "source_ts_ms": info.ts_ms,
            "ts_ms": ts_ms,
        }
        return Record(
            topic=self.dead_letters,
            key=str(info.table_id).encode(),
            value=orjson.dumps(letter, default=_text),
        )


def checkpoint_value(checkpoint: Checkpoint, source: str, end_offsets: dict[str, dict[int, int]]) -> bytes:
    """Value of a record of `…positions`; `end_offsets`: topic → partition → offset behind the checkpoint's records."""
    position = checkpoint.position
    return orjson.dumps(
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
            **({"state": dict(checkpoint.state)} if checkpoint.state else {}),
            "end_offsets": {topic: {str(p): o for p, o in ends.items()} for topic, ends in end_offsets.items()},
        }
    )


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
        state=stored.get("state", {}),
    )
    ends = {topic: {int(p): o for p, o in ends.items()} for topic, ends in stored["end_offsets"].items()}
    return checkpoint, ends
