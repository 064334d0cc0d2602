"""Read a table in ranges, as a capture does, and check that they contain each row once."""

from __future__ import annotations

import time
from typing import Any

import orjson

from cdc.model.event import Position
from cdc.model.schema import TableSchema
from ingest.events.log_events import RefusedImage
from ingest.records.chunk_requests import Chunk, ChunkReader, ChunkRequest, advanced, ranges_of
from ingest.records.row_json import EncodedRow


def sizes_of_ranges(
    reader: ChunkReader, schema: TableSchema, start: Position, wanted: int
) -> tuple[list[int], list[Any]]:
    """Return the number of rows of each range of a table, and the keys of all rows in the order of the ranges."""
    number, entry, keys, sizes = 0, {"rows": 0}, list[Any](), list[int]()
    first = _read(reader, _request(schema, start, number, None, None, divide=wanted))
    found: dict[int, list[Chunk]] = {0: [first]}
    following = advanced(entry, first)
    for part, after, last in ranges_of(following) if following is not None else ():
        chunks = found.setdefault(part, [])
        while after is not None:
            number += 1
            chunks.append(_read(reader, _request(schema, start, number, after, last, part=part)))
            after = chunks[-1].after
    for _, chunks in sorted(found.items()):
        rows = [_key(schema, row) for chunk in chunks for row in chunk.images]
        sizes.append(len(rows))
        keys += rows
    return sizes, keys


def _request(
    schema: TableSchema, start: Position, number: int, after: Any, last: Any, *, part: int = 0, divide: int = 1
) -> ChunkRequest:
    return ChunkRequest(
        number=number, schema=schema, position=start, after=after, last=last, where="", part=part, divide=divide
    )


def _read(reader: ChunkReader, request: ChunkRequest) -> Chunk:
    reader.request(request)
    deadline = time.monotonic() + 60
    while not (found := reader.ready()):
        assert time.monotonic() < deadline, "no chunk"
        time.sleep(0.002)
    assert found[0].failed is None, found[0].failed
    return found[0]


def _key(schema: TableSchema, row: Any) -> Any:
    values = orjson.loads(row.image) if isinstance(row, EncodedRow) else row
    assert not isinstance(values, RefusedImage)
    return tuple(values[name] for name in schema.primary_key)


def check_ranges(sizes: list[int], keys: list[Any], rows: int, wanted: int) -> None:
    """Assert that the ranges contain each of the rows once, and that none has more than three times the mean."""
    assert len(set(keys)) == len(keys) == rows
    assert len(sizes) == wanted, sizes
    assert max(sizes) < 3 * rows / wanted, sizes
