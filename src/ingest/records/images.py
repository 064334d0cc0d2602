"""Row images on their way into records: masked, measured, judged; and the records of a snapshot's rows. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import orjson

from cdc.formats.debezium_bytes import NULL
from cdc.model.event import Position
from ingest.events.log_events import Image, RefusedImage, Row, RowsLogged
from ingest.events.stand_in import replaced
from ingest.records.capture_interfaces import Record
from ingest.records.records import Recorder, TableWriter, image_size

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
    for image in (tellable(represented(image, writer)) for image in images):
        if isinstance(image, RefusedImage):
            records.append(recorder.unread(image, writer, low, now_ms))
        else:
            value = writer.format.alone(b"r", NULL, _dumps(image), source, 0, low.sequence, now_ms)
            records.append(Record(writer.topic, writer.key(image), value))
    return records


def shaped(shape: Callable[[Row], None], event: RowsLogged) -> None:
    """Take away and mask columns of all images, before anything else sees them."""
    for change in event.rows:
        for image in change if event.operation == "update" else (change,):
            if image is None:  # it was not logged
                continue
            shape(image.values if isinstance(image, RefusedImage) else image)


def represented(image: Image, writer: TableWriter, *, counted: bool = True) -> Image:
    """An image, shaped already, as the source's `unrepresentable` wants it; refused where no row can be published.

    Columns that do not leave decide nothing, and are in no refusal; of masked ones the mask of the server's text is
    published. A value of the key is never replaced: rows would be taken for one another. `counted` is False for images
    that are not the newest.
    """
    if not isinstance(image, RefusedImage):
        return image
    reported = image.values
    columns = {name: why for name, why in image.columns.items() if name in reported and not writer.masks(name)}
    if image.why:
        return _withheld(replace(image, columns=columns), writer) if writer.shape else image
    if not columns:
        return reported
    if writer.unrepresentable == "dead_letter" or not columns.keys().isdisjoint(writer.schema.primary_key):
        return RefusedImage(values=reported, columns=columns)
    if counted:
        table = writer.schema.table_id
        for name in columns:
            writer.refused.count(f"{table.database}.{table.table}", name)
    return replaced(reported, columns, writer.schema, writer.unrepresentable)


def _withheld(image: RefusedImage, writer: TableWriter) -> RefusedImage:
    """A row that is refused as a whole, without what may hold a column that does not leave."""
    if image.values.keys() <= {column.name for column in writer.schema.columns}:
        return image
    why = "it is no row; its content is withheld, since columns of its table are ignored or masked"
    return RefusedImage(values={}, why=why)


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
    writer: TableWriter, before: Row | None, after: Row | None, *, unknown: bool = False
) -> list[tuple[bytes, Row | None, Row | None]]:
    """The events of one changed row; none when both of its images are refused. `unknown`: it was there before, though
    the log does not tell it."""
    if before is None:
        return [] if after is None else [(b"u" if unknown else b"c", None, after)]
    if after is None:
        return [(b"d", before, None)]
    if writer.key(before) != writer.key(after):
        return [(b"d", before, None), (b"c", None, after)]
    return [(b"u", before, after)]


class CheckedImages(NamedTuple):
    """A change's images as they are published: `refused` is the new one where it is not, `unknown` whether the log does
    not show the old one, `settled` are the settlements of dead-letter records of a row that had no key.
    """

    before: Row | None
    after: Row | None
    refused: RefusedImage | None
    unknown: bool
    settled: list[Record]


def check_images(writer: TableWriter, before: Image | None, after: Image | None) -> CheckedImages:
    """Judge both images of one change. An old image that is refused was never published, so nothing becomes of it."""
    old = None if before is None else tellable(represented(before, writer, counted=False))
    new = None if after is None else tellable(represented(after, writer))
    settled: list[Record] = []
    if isinstance(old, RefusedImage):
        key = writer.shown_key(old.values)
        if key is not None and (after is None or key != _shown_key(writer, new)):
            settled = writer.refused.published(writer.topic, key)
        return CheckedImages(None, _row(new), _refused(new), False, settled)
    if old is not None and isinstance(new, dict) and len(old) < len(new) and writer.key(old) == writer.key(new):
        old = None  # it tells no more than the key: the log does not show the old row
    return CheckedImages(old, _row(new), _refused(new), old is None, settled)


def _row(image: Image | None) -> Row | None:
    return None if isinstance(image, RefusedImage) else image


def _refused(image: Image | None) -> RefusedImage | None:
    return image if isinstance(image, RefusedImage) else None


def _shown_key(writer: TableWriter, image: Image | None) -> bytes | None:
    return None if image is None else writer.shown_key(image.values if isinstance(image, RefusedImage) else image)
