"""Prepare row images for records: mask, measure and check them. Also build the records of a snapshot's rows."""

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

# Limit of a row image's JSON in bytes. An envelope holds two; Kafka limits records to `kafka_topics.MAX_MESSAGE`.
MAX_IMAGE = 7_500_000
_dumps = orjson.dumps


def snapshot_records(
    recorder: Recorder, writer: TableWriter, images: list[Image], low: Position, now_ms: int
) -> list[Record]:
    """Return the records of a snapshot's rows. They have the low watermark's sequence, so every logged change wins."""
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
    """Remove and mask columns of all images, before any other step sees them."""
    for change in event.rows:
        for image in change if event.operation == "update" else (change,):
            if image is None:  # not logged
                continue
            shape(image.values if isinstance(image, RefusedImage) else image)


def represented(image: Image, writer: TableWriter, *, counted: bool = True) -> Image:
    """Apply the source's `unrepresentable` setting to a shaped image. The image stays refused if no row can be
    published.

    Columns that are not published have no effect and are not mentioned in refusals. For masked columns, the mask of the
    server's text is published. A key value is never replaced, because rows would be mistaken for one another. `counted`
    is False for images that are not the newest.
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
    """Return a wholly refused row without values that may contain a column that must not be published."""
    if image.values.keys() <= {column.name for column in writer.schema.columns}:
        return image
    why = "not a valid row; its content is withheld because columns of its table are ignored or masked"
    return RefusedImage(values={}, why=why)


def tellable(image: Image) -> Image:
    """Return the image, or its refusal if no record can hold it.

    Only its size decides, for before and after images alike.
    """
    if isinstance(image, RefusedImage):
        return image
    size = image_size(image)
    if size < MAX_IMAGE:
        return image
    shown = {name: value[:200] if isinstance(value, str) else value for name, value in image.items()}
    return RefusedImage(values=shown, why=f"the row has {size} bytes, but a record holds at most {MAX_IMAGE}")


def events(
    writer: TableWriter, before: Row | None, after: Row | None, *, unknown: bool = False
) -> list[tuple[bytes, Row | None, Row | None]]:
    """Return the events of one changed row: none if both images are refused.

    `unknown`: the row existed before, although the log lacks its old image.
    """
    if before is None:
        return [] if after is None else [(b"u" if unknown else b"c", None, after)]
    if after is None:
        return [(b"d", before, None)]
    if writer.key(before) != writer.key(after):
        return [(b"d", before, None), (b"c", None, after)]
    return [(b"u", before, after)]


class CheckedImages(NamedTuple):
    """Images of one change as they are published.

    `refused`: the new image if it cannot be published. `unknown`: the log lacks the old image. `settled`: settlements
    of dead-letter records for the old key.
    """

    before: Row | None
    after: Row | None
    refused: RefusedImage | None
    unknown: bool
    settled: list[Record]


def check_images(writer: TableWriter, before: Image | None, after: Image | None) -> CheckedImages:
    """Check both images of one change. A refused old image was never published, so it is not retracted."""
    old = None if before is None else tellable(represented(before, writer, counted=False))
    new = None if after is None else tellable(represented(after, writer))
    settled: list[Record] = []
    if isinstance(old, RefusedImage):
        key = writer.shown_key(old.values)
        if key is not None and (after is None or key != _shown_key(writer, new)):
            settled = writer.refused.published(writer.topic, key)
        return CheckedImages(None, _row(new), _refused(new), False, settled)
    if old is not None and isinstance(new, dict) and len(old) < len(new) and writer.key(old) == writer.key(new):
        old = None  # contains only the key: the log lacks the old row
    return CheckedImages(old, _row(new), _refused(new), old is None, settled)


def _row(image: Image | None) -> Row | None:
    return None if isinstance(image, RefusedImage) else image


def _refused(image: Image | None) -> RefusedImage | None:
    return image if isinstance(image, RefusedImage) else None


def _shown_key(writer: TableWriter, image: Image | None) -> bytes | None:
    return None if image is None else writer.shown_key(image.values if isinstance(image, RefusedImage) else image)
