"""What travels between the steps: a handful of facts, each encoded as one JSON array that begins with its tag.

Tuples and not dataclasses, since every change makes several of them and building a frozen dataclass costs four times as
much. A row's columns travel as a list in the order of its `Project`, canonical values as in the envelope.

`version` orders the changes of one key: (sequence of the source, offset in the topic). Sequences alone would tie for a
row that a snapshot read while its table changed. `key` and `row` are the JSON text of a join key and of a primary key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import orjson

from cdc.types import Canonical

Version = tuple[int, int]
Values = list[Canonical]


class FactSeen(NamedTuple):
    """The fact's row `row` now has `values`, or is gone (None). To the assembling step, past the hops."""

    row: str
    version: Version
    ts_ms: int
    values: Values | None


class Pointed(NamedTuple):
    """The fact's row points at `key` of a hop (`live`), or no longer does. To the hop."""

    hop: int
    key: str
    row: str
    version: Version
    live: bool


class DimensionSeen(NamedTuple):
    """The dimension row `key` of a hop now has `values`, or is gone (None). To the hop."""

    hop: int
    key: str
    version: Version
    ts_ms: int
    values: Values | None


class Part(NamedTuple):
    """What hop `hop` supplies to the row that points at `key`: the dimension's values, None if there is no such row."""

    row: str
    hop: int
    key: str
    ts_ms: int
    values: Values | None


class RowPut(NamedTuple):
    """A whole row of the result, in the order of the layout's columns; `ts_ms` of the newest change it shows."""

    values: Values
    ts_ms: int


class RowGone(NamedTuple):
    """A row of the result is gone; the values of its row key columns, in the order of `row_key`."""

    row_key: Values


class Refused(NamedTuple):
    """A record of the log that could not be read, or a row that could not be stored; key and value in base64."""

    topic: str
    partition: int
    offset: int
    reason: str
    key: str | None
    value: str | None


class Halted(NamedTuple):
    """The join must not go on: what was met, and where."""

    reason: str


Record = FactSeen | Pointed | DimensionSeen | Part | RowPut | RowGone | Refused | Halted

_TAGS: dict[type[Any], str] = {
    FactSeen: "fact",
    Pointed: "pointed",
    DimensionSeen: "dimension",
    Part: "part",
    RowPut: "put",
    RowGone: "gone",
    Refused: "refused",
    Halted: "halted",
}


_MAKERS: dict[str, Callable[..., Record]] = {
    "fact": lambda row, version, ts_ms, values: FactSeen(row, tuple(version), ts_ms, values),
    "pointed": lambda hop, key, row, version, live: Pointed(hop, key, row, tuple(version), live),
    "dimension": lambda hop, key, version, ts_ms, values: DimensionSeen(hop, key, tuple(version), ts_ms, values),
    "part": Part,
    "put": RowPut,
    "gone": RowGone,
    "refused": Refused,
    "halted": Halted,
}


def dump_record(record: Record) -> bytes:
    """One record as JSON; inverse of `load_record`."""
    return orjson.dumps((_TAGS[type(record)], *record))


def load_record(stored: bytes) -> Record:
    """Read a record of `dump_record`."""
    tag, *fields = orjson.loads(stored)
    return _MAKERS[tag](*fields)


def text_of(value: Canonical | Values) -> str:
    """JSON text of a join key or a primary key: equal exactly when the values are."""
    return orjson.dumps(value).decode()
