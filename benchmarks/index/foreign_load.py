"""Write a random load to a foreign table, and compute the expected contents of its index.

The load is that of an external application: single cells encoded with `Bytes`, deletes of cells, families and rows.
"""

from __future__ import annotations

import random
import struct
import time
from typing import Any

import happybase
from thriftpy2.thrift import TException

from benchmarks.index.world import World
from indexer.solr.solr_rows import all_documents

Cells = dict[bytes, bytes]
INDEX = "people"


class ForeignLoad:
    """Writes to `people` of a world; knows the expected contents of the table, and which rows cannot be decoded."""

    def __init__(self, world: World, *, keys: int, seed: int = 5) -> None:
        self._world, self._random, self._keys = world, random.Random(seed), keys
        self.expected: dict[bytes, Cells] = {}
        self.poisoned: set[bytes] = set()
        self.written = 0
        self._clock = 0

    def write_until_accepted(self, size: int, *, poison: bool = False) -> None:
        """Write one batch; repeat the whole batch with a later timestamp until HBase has accepted all of it."""
        puts: dict[bytes, Cells] = {}
        deletes: dict[bytes, list[bytes] | None] = {}
        for number in self._random.sample(range(self._keys), size):
            row = f"person-{number:06d}".encode()
            if self._random.random() < 0.15 and row in self.expected:
                deletes[row] = self._drawn_delete()
            else:
                puts[row] = self._drawn_cells(number)
        if poison:
            row = f"poison-{len(self.poisoned):06d}".encode()
            self.poisoned.add(row)
            puts[row] = {b"d:age": b"no four bytes", b"d:name": b"Mallory"}
        while True:
            try:
                with self._world.hbase() as connection:
                    self._write(connection.table(self._name), puts, deletes)
                break
            except (TException, OSError):
                time.sleep(0.5)
        self._note(puts, deletes)

    @property
    def _name(self) -> str:
        return f"{self._world.name}_people"

    def _drawn_cells(self, number: int) -> Cells:
        """Return some cells of a row; the others remain unchanged."""
        revision = self._random.randrange(1_000_000)
        made: Cells = {
            b"d:name": f"Grace Hopper {number}, {revision} – ž".encode(),
            b"d:age": struct.pack(">i", revision - 500_000),
            b"d:big": struct.pack(">q", revision * 9_000_000_007),
            b"d:rate": struct.pack(">d", revision / 7),
            b"t:tag_%d" % (revision % 5): b"",
            b"t:other": b"no field names it",
        }
        wanted = self._random.sample(sorted(made), self._random.randint(1, len(made)))
        return {column: made[column] for column in wanted}

    def _drawn_delete(self) -> list[bytes] | None:
        """Return a random delete: columns, a family, or the whole row (None)."""
        return self._random.choice([[b"d:age"], [b"d:name", b"d:big"], [b"t"], None])

    def _write(
        self, table: happybase.Table, puts: dict[bytes, Cells], deletes: dict[bytes, list[bytes] | None]
    ) -> None:
        self._clock = max(self._clock + 1, time.time_ns() // 1_000_000)
        with table.batch(timestamp=self._clock, batch_size=500) as batch:
            for row, cells in puts.items():
                batch.put(row, cells)
            for row, columns in deletes.items():
                batch.delete(row, columns=columns or [b"d", b"t"])

    def _note(self, puts: dict[bytes, Cells], deletes: dict[bytes, list[bytes] | None]) -> None:
        for row, cells in puts.items():
            self.expected[row] = {**self.expected.get(row, {}), **cells}
        for row, columns in deletes.items():
            kept = {
                column: value
                for column, value in self.expected.pop(row, {}).items()
                if columns and column not in columns and column.partition(b":")[0] not in columns
            }
            if kept:
                self.expected[row] = kept
        self.written += len(puts) + len(deletes)

    def differences(self) -> list[str]:
        """Return the differences of the table from what was written, and of the collection from the table, by field."""
        with self._world.hbase() as connection:
            stored: dict[bytes, Cells] = dict(connection.table(self._name).scan(batch_size=1000))
        wrong = []
        lost = [row for row in stored.keys() | self.expected.keys() if stored.get(row) != self.expected.get(row)]
        if lost:
            wrong.append(f"{len(lost)} rows of people differ from what was written, e.g. {lost[0]!r}")
        wanted = {row.decode(): _document(row, cells) for row, cells in stored.items() if row not in self.poisoned}
        wanted = {key: document for key, document in wanted.items() if document is not None}
        shown = {
            document["_id"]: {name: value for name, value in document.items() if not name.startswith("_")}
            for document in all_documents(self._world.topology.solr.url, self._world.topology.indexes[INDEX].collection)
        }
        different = [key for key in wanted.keys() | shown.keys() if wanted.get(key) != shown.get(key)]
        if different:
            key = different[0]
            wrong.append(f"{len(different)} people differ: {key}: {shown.get(key)} instead of {wanted.get(key)}")
        return wrong


def _document(row: bytes, cells: Cells) -> dict[str, Any] | None:
    """Return a row's document by an independent reading of the fields; None if no field names any of its cells."""
    document: dict[str, Any] = {}
    if b"d:name" in cells:
        document["name"] = cells[b"d:name"].decode()
    for column, name, form in ((b"d:age", "age", ">i"), (b"d:big", "big", ">q"), (b"d:rate", "rate", ">d")):
        if column in cells:
            document[name] = struct.unpack(form, cells[column])[0]
    tags = sorted(column.decode()[len("t:tag_") :] for column in cells if column.startswith(b"t:tag_"))
    if tags:
        document["tags"] = tags
    return {"key": row.decode(), **document} if document else None
