"""Encode cuts as the bytes of a file or as the records of a topic, by format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal

import orjson

from cdc.formats.avro_rows import AvroRows
from cdc.formats.debezium import key_of, to_envelope
from cdc.formats.maxscale import number_of
from cdc.formats.maxwell import MaxwellWriter
from cdc.formats.parquet import ParquetRows
from cdc.model.naming import TRUNCATE_KEY
from ingest.export.cuts import ExportCut

ExportFormat = Literal["avro", "parquet", "maxwell", "debezium", "debezium-avro"]
ExportRecord = tuple[bytes | None, bytes | None]
RecordEncoder = Callable[[ExportCut, str], Iterator[ExportRecord]]  # of a cut and the topology's name
IN_REGISTRY: Final = "debezium-avro"  # the format whose schemas are in a registry (`ingest.export.kafka_registry`)
_BLOCK = 1000  # maximum rows per block of an Avro file


def _avro(cut: ExportCut, topology: str) -> bytes:
    writer = AvroRows(cut.schema)
    rows = [row for event in cut.events if (row := writer.row(event))]
    blocks = (writer.block(rows[at : at + _BLOCK]) for at in range(0, len(rows), _BLOCK))
    return writer.header(number_of(cut.events[0])) + b"".join(blocks)


def _parquet(cut: ExportCut, topology: str) -> bytes:
    return ParquetRows(cut.schema).file(cut.events)


def _lines(form: RecordEncoder) -> Callable[[ExportCut, str], bytes]:
    return lambda cut, topology: b"".join(value + b"\n" for _, value in form(cut, topology) if value is not None)


def maxwell_records(cut: ExportCut, topology: str) -> Iterator[ExportRecord]:
    """Yield (key, value) of a cut's changes in Maxwell's format, without those that it cannot represent."""
    writer = MaxwellWriter(cut.schema)
    for event in cut.events:
        if (value := writer.value(event)) is not None:
            yield orjson.dumps(writer.key(event)), orjson.dumps(value)


def debezium_records(cut: ExportCut, topology: str) -> Iterator[ExportRecord]:
    """Yield (key, value) of a cut's changes in Debezium's format. A tombstone follows each delete."""
    for event in cut.events:
        row = event.after if event.after is not None else event.before
        key = TRUNCATE_KEY if row is None else orjson.dumps(key_of(cut.schema, row))
        yield key, orjson.dumps(to_envelope(event, topology))
        if event.op == "d":
            yield key, None


FILES: Mapping[ExportFormat, tuple[str, Callable[[ExportCut, str], bytes]]] = {
    "avro": ("avro", _avro),
    "parquet": ("parquet", _parquet),
    "maxwell": ("maxwell.jsonl", _lines(maxwell_records)),
    "debezium": ("debezium.jsonl", _lines(debezium_records)),
}
RECORDS: Mapping[ExportFormat, RecordEncoder] = {
    "maxwell": maxwell_records,
    "debezium": debezium_records,
}
