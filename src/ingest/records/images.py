"""Prepare row images for publication: mask them, check their values and size, and build the records of snapshot
rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import orjson

from cdc.formats.debezium_bytes import NULL
from cdc.model.event import Position
from ingest.events.log_events import Image, RefusedImage, Row, RowsLogged
from ingest.events.stand_in import replaced
from ingest.records.capture_interfaces import Record
from ingest.records.records import Recorder, TableWriter, image_size
from ingest.records.row_json import EncodedRow

# Limit of a row image's JSON in bytes. An envelope holds two; Kafka limits records to `kafka_topics.MAX_MESSAGE`.
MAX_IMAGE = 7_500_000
_dumps, _loads = orjson.dumps, orjson.loads
_HERE = b"\0"  # stands for an image: JSON never contains this byte


def snapshot_records(
    recorder: Recorder, writer: TableWriter, rows: Sequence[Image | EncodedRow], low: Position, now_ms: int
) -> list[Record]:
    """Return the records of rows that a snapshot has read up to the position `low`.

    They have the sequence number of `low`, so that every change of the row in the log is newer.
    """
    source, topic, shape = writer.read(now_ms, low), writer.topic, writer.shape
    whole = writer.format.alone(b"r", NULL, _HERE, source, 0, low.sequence, now_ms)
    begin, _, end = whole.partition(_HERE)
    records: list[Record] = []
    for row in rows:
        if isinstance(row, EncodedRow):
            if shape is None and len(row.image) < MAX_IMAGE:
                records.append(Record(topic, row.key, begin + row.image + end))
                continue
            row = _loads(row.image)
        if shape:
            shape(row.values if isinstance(row, RefusedImage) else row)
        image = tellable(represented(row, writer))
        if isinstance(image, RefusedImage):
            records.append(recorder.unread(image, writer, low, now_ms))
        else:
            records.append(Record(topic, writer.key(image), begin + _dumps(image) + end))
    return records


def shaped(shape: Callable[[Row], None], event: RowsLogged) -> None:
    """Apply `shape` to all images of an event, in place: it removes ignored columns and masks others."""
    for change in event.rows:
        for image in change if event.operation == "update" else (change,):
            if image is None:  # not logged
                continue
            shape(image.values if isinstance(image, RefusedImage) else image)


def represented(image: Image, writer: TableWriter, *, counted: bool = True) -> Image:
    """Apply the source's `unrepresentable` setting to an image whose columns were already removed and masked.

    Returns a row, or a RefusedImage if the row cannot be published. Columns that are not published have no effect, and
    are not named in the reason. A masked column gets the mask of the server's text. A value of a key column is never
    replaced, because rows would be confused with one another. `counted` False does not count replaced values again.
    """
    if not isinstance(image, RefusedImage):
        return image
    values = image.values
    columns = {name: why for name, why in image.columns.items() if name in values and not writer.masks(name)}
    if image.why:
        return _withheld(replace(image, columns=columns), writer) if writer.shape else image
    if not columns:
        return values
    if writer.unrepresentable == "dead_letter" or not columns.keys().isdisjoint(writer.schema.primary_key):
        return RefusedImage(values=values, columns=columns)
    if counted:
        table = writer.schema.table_id
        for name in columns:
            writer.refused.count(f"{table.database}.{table.table}", name)
    return replaced(values, columns, writer.schema, writer.unrepresentable)


def _withheld(image: RefusedImage, writer: TableWriter) -> RefusedImage:
    """Return a refused image, without its values if one of them might belong to a column that must not be published."""
    if not image.raw and image.values.keys() <= {column.name for column in writer.schema.columns}:
        return image
    why = "not a valid row; its content is withheld because columns of its table are ignored or masked"
    return RefusedImage(values={}, why=why)


def tellable(image: Image) -> Image:
    """Return the image, or a RefusedImage if it is too large for a record.

    Before and after images have the same limit.
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
    """Return the events (op, before, after) of one changed row; none if both images are refused.

    `unknown`: the row existed before the change, although the log does not contain its old image.
    """
    if before is None:
        return [] if after is None else [(b"u" if unknown else b"c", None, after)]
    if after is None:
        return [(b"d", before, None)]
    if writer.key(before) != writer.key(after):
        return [(b"d", before, None), (b"c", None, after)]
    return [(b"u", before, after)]


class CheckedImages(NamedTuple):
    """The images of one change after all checks.

    `refused` is the new image if it cannot be published. `unknown`: the log does not contain the old image. `settled`
    are records that settle dead letters of the old key.
    """

    before: Row | None
    after: Row | None
    refused: RefusedImage | None
    unknown: bool
    settled: list[Record]


def check_images(writer: TableWriter, before: Image | None, after: Image | None) -> CheckedImages:
    """Check both images of one change. An old image that is refused was never published, so it needs no retraction."""
    old = None if before is None else tellable(represented(before, writer, counted=False))
    new = None if after is None else tellable(represented(after, writer))
    settled: list[Record] = []
    if isinstance(old, RefusedImage):
        key = writer.shown_key(old.values)
        if key is not None and (after is None or key != _shown_key(writer, new)):
            settled = writer.refused.published(writer.topic, key)
        return CheckedImages(None, _row(new), _refused(new), False, settled)
    if old is not None and isinstance(new, dict) and len(old) < len(new) and writer.key(old) == writer.key(new):
        old = None  # the old image has only the key
    return CheckedImages(old, _row(new), _refused(new), old is None, settled)


def _row(image: Image | None) -> Row | None:
    return None if isinstance(image, RefusedImage) else image


def _refused(image: Image | None) -> RefusedImage | None:
    return image if isinstance(image, RefusedImage) else None


def _shown_key(writer: TableWriter, image: Image | None) -> bytes | None:
    return None if image is None else writer.shown_key(image.values if isinstance(image, RefusedImage) else image)
