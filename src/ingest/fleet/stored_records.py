"""Send the schema history and the schemas of a source to its agent as records, in messages of limited size.

An answer in one piece would have more than 200 MB with 20,000 tables: neither side could hold it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import orjson

from cdc.model.errors import Fatal
from cdc.model.history import Record as HistoryRecord
from cdc.model.schema import TableId, TableSchema, schema_from_json
from cdc.packed import PackedJson, json_bytes
from ingest.fleet.answers import checkpoint_bytes, checkpoint_of
from ingest.fleet.fleet_pb2 import Records
from ingest.fleet.frames import PIECE, SAME, FrameReader, FrameWriter, unzipped, zipped
from ingest.records.capture_interfaces import Record, Recovered

_HISTORY, _SCHEMAS = "history", "schemas"  # the topics of the frames


def sent(history: Iterable[HistoryRecord], schemas: Iterable[TableSchema] = ()) -> Iterator[Records]:
    """Yield the messages that contain a history and schemas."""
    writer = FrameWriter()
    stored = (Record(_HISTORY, key.encode(), None if value is None else json_bytes(value)) for key, value in history)
    pieces = writer.write(chain(stored, (Record(_SCHEMAS, b"", orjson.dumps(one.to_json())) for one in schemas)))
    for piece in chain(pieces, writer.rest()):
        yield Records(frames=zipped(piece), size=len(piece))


def received(pieces: Iterable[Records]) -> tuple[tuple[HistoryRecord, ...], dict[TableId, TableSchema]]:
    """Return the history and the schemas of such messages. Raises Fatal if they are malformed."""
    history, schemas, reader = list[HistoryRecord](), dict[TableId, TableSchema](), FrameReader()
    try:
        for piece in pieces:
            for topic, key, value, _ in reader.read(unzipped(piece.frames, min(piece.size, PIECE))):
                if topic == _SCHEMAS:
                    schema = schema_from_json(orjson.loads(value or b""))
                    schemas[schema.table_id] = schema
                else:
                    history.append((key.decode(), None if value is None else _object(value)))
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise Fatal(f"the gateway's records of the history are malformed: {error!r}"[:300], SAME) from error
    if not reader.complete:
        raise Fatal("the gateway's records of the history are incomplete", SAME)
    return tuple(history), schemas


def _object(value: bytes) -> PackedJson:
    if not isinstance(orjson.loads(value), dict):
        raise TypeError("a record that is no JSON object")
    return PackedJson(value)


def rest_json(found: Recovered, source: str) -> Mapping[str, Any]:
    """Return the committed state of a source as JSON, without its history and schemas."""
    at = found.checkpoint
    return {
        "checkpoint": None if at is None else checkpoint_bytes(at, source).decode(),
        "behind": sorted(found.behind),
    }


def recovered_from(rest: Mapping[str, Any], pieces: Iterable[Records]) -> Recovered:
    """Return the committed state of a source, from `rest_json` and the messages of `sent`."""
    history, schemas = received(pieces)
    at = rest["checkpoint"]
    return Recovered(
        checkpoint=None if at is None else checkpoint_of(at.encode()), history=history, schemas=schemas,
        behind=frozenset(rest["behind"]),
    )  # fmt: skip
