"""Row images on their way into records: masked, measured, judged; and the records of a snapshot's rows. Pure."""

from __future__ import annotations

from collections.abc import Callable

import orjson

from cdc.formats.debezium_bytes import NULL
from cdc.words.event import Position
from ingest.facts.facts import Image, RefusedImage, Row, RowsLogged
from ingest.records.records import Recorder, TableWriter, image_size
from ingest.records.seams import Record

# Bytes of a row image as JSON: an envelope holds two, and Kafka's records end at `kafka_topics.MAX_MESSAGE`.
MAX_IMAGE = 7_500_000
_dumps = orjson.dumps


def snapshot_records(
    recorder: Recorder, writer: TableWriter, images: list[Image], low: Position, now_ms: int
) -> list[Record]:
    """Records of rows that a snapshot read; they carry the low watermark's sequence, so every logged change wins."""
    source = writer.format.read(now_ms, low)
    records: list[Record] = []
    if writer.shape:
        for image in images:
            writer.shape(image.values if isinstance(image, RefusedImage) else image)
    for image in map(tellable, images):
        if isinstance(image, RefusedImage):
            records.append(recorder.unread(image, writer.schema.table_id, low, now_ms))
        else:
            value = writer.format.alone(b"r", NULL, _dumps(image), source, 0, low.sequence, now_ms)
            records.append(Record(writer.topic, writer.key(image), value))
    return records


def shaped(shape: Callable[[Row], None], fact: RowsLogged) -> None:
    """Take away and mask columns of all images, before anything else sees them."""
    for change in fact.rows:
        for image in change if fact.operation == "update" else (change,):
            if image is None:  # it was not logged
                continue
            shape(image.values if isinstance(image, RefusedImage) else image)


def tellable(image: Image) -> Image:
    """The image, or its refusal when no record can hold it; its size alone decides, as before and as after image."""
    if isinstance(image, RefusedImage):
        return image
    size = image_size(image)
    if size < MAX_IMAGE:
        return image
    shown = {name: value[:200] if isinstance(value, str) else value for name, value in image.items()}
    return RefusedImage(values=shown, why=f"the row takes {size} bytes, a record holds {MAX_IMAGE}")


def events(
    writer: TableWriter, before: Row | None, after: Row | None, *, untold: bool = False
) -> list[tuple[bytes, Row | None, Row | None]]:
    """The events of one changed row; none when both of its images are refused. `untold`: it was there before, though
    the log does not tell it."""
    if before is None:
        return [] if after is None else [(b"u" if untold else b"c", None, after)]
    if after is None:
        return [(b"d", before, None)]
    if writer.key(before) != writer.key(after):
        return [(b"d", before, None), (b"c", None, after)]
    return [(b"u", before, after)]
