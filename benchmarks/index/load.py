"""Write a random load to a world's table, and check the collection during the load and after it."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import pysolr
import requests
from thriftpy2.thrift import TException

from benchmarks.index.world import World, row
from cdc.model.errors import Retriable
from cdc.model.naming import hbase_table
from indexer.table.hbase_rows import scan_rows
from joins.stores.hbase_table import JoinedTable
from tailorbird.devtools.demo.run_demo_index import shown_documents


class Load:
    """Inserts, updates and deletes in a range of keys, written like the join's sink; knows the expected table."""

    def __init__(self, world: World, *, keys: int, deleted: float = 0.05, seed: int = 7) -> None:
        self._world, self._random, self._keys, self._deleted = world, random.Random(seed), keys, deleted
        self.expected: dict[int, int] = {}
        self.poisoned: set[bytes] = set()
        self.written = 0
        # batch timestamp → some keys and the least revision that they have from then on, 0 for deleted ones
        self.promised: dict[int, dict[int, int]] = {}
        # key → the last revision that deletes it, recorded before anything of that batch is written
        self.deleted: dict[int, int] = {}
        self._revision = 0
        self._lock = threading.Lock()

    def batch(self, sink: JoinedTable, size: int) -> None:
        """Write one batch of the sink."""
        self._write(sink, *self._drawn(size))

    def write_until_accepted(self, size: int, *, poison: bool = False) -> None:
        """Write one batch; repeat the whole batch with a new timestamp until HBase has accepted all of it."""
        puts, deletes = self._drawn(size)
        if poison:
            self.poisoned.add(self._world.codec.row_key({"id": self._keys + len(self.poisoned)}))
        while True:
            try:
                if poison:
                    self._poison(self._keys + len(self.poisoned) - 1)
                with self._world.sink() as sink:
                    self._write(sink, puts, deletes)
                return
            except (Retriable, TException, OSError):
                time.sleep(0.5)

    def _drawn(self, size: int) -> tuple[list[int], list[int]]:
        """Return random keys to put and keys to delete."""
        self._revision += 1
        keys = self._random.sample(range(self._keys), size)
        deletes = [key for key in keys if self._random.random() < self._deleted]
        gone = set(deletes)
        return [key for key in keys if key not in gone], deletes

    def _write(self, sink: JoinedTable, puts: list[int], deletes: list[int]) -> None:
        """Write a batch; record its deletes before anything is written, and its puts before its barriers."""
        with self._lock:
            self.deleted.update(dict.fromkeys(deletes, self._revision))
        self._world.write(sink, [row(key, self._revision) for key in puts], deletes, barrier=False)
        with self._lock:
            self.promised[self._world.timestamp] = dict.fromkeys(puts[:20], self._revision)
            while len(self.promised) > 400:
                self.promised.pop(next(iter(self.promised)))
        self._world.write_barriers(sink)
        self.expected.update(dict.fromkeys(puts, self._revision))
        for key in deletes:
            self.expected.pop(key, None)
        self.written += len(puts) + len(deletes)

    def _poison(self, key: int) -> None:
        """Write a row with a layout that is not stored."""
        cells = self._world.codec.cells(row(key), batch=1, ts_ms=1)
        cells[b"_layout"] = (77).to_bytes(4, "big")
        row_key = self._world.codec.row_key({"id": key})
        with self._world.hbase() as connection:
            table = connection.table(hbase_table(self._world.name, "wide"))
            table.put(
                row_key, {b"d:" + q: value for q, value in cells.items()}, timestamp=self._world.next_timestamp() + 1
            )

    def gone_since(self, key: int, revision: int) -> bool:
        """Return True if a later batch than that of a revision deletes the key."""
        with self._lock:
            return self.deleted.get(key, 0) > revision

    def recent(self, batch_timestamp: int) -> dict[int, int]:
        """Return keys of the newest batches up to a timestamp, with the least revision that each must show.

        A key that is deleted later need not be shown.
        """
        with self._lock:
            timestamps = [each for each in self.promised if each <= batch_timestamp][-5:]
            return {key: revision for each in timestamps for key, revision in self.promised[each].items()}


class BarrierWatch(threading.Thread):
    """Checks repeatedly whether all rows up to the visible timestamp are visible; `early` lists those that are not."""

    def __init__(self, world: World, load: Load) -> None:
        super().__init__(daemon=True)
        self._world, self._load, self._stopped = world, load, threading.Event()
        self.early: list[str] = []
        self.looked = 0

    def run(self) -> None:
        """Check until `stop`; retry while Solr is unavailable."""
        solr = self._world.solr()
        while not self._stopped.wait(0.1):
            try:
                batch_timestamp = self._world.visible_timestamp(solr)
                wanted = self._load.recent(batch_timestamp)
                if not wanted:
                    continue
                shown = self._shown(solr, list(wanted))
            except (pysolr.SolrError, requests.RequestException):
                continue
            self.looked += 1
            for key, revision in wanted.items():
                # rows that a batch after the barrier deleted or replaced are correct; older or missing rows are not
                if shown.get(key, 0) < revision and not (key not in shown and self._load.gone_since(key, revision)):
                    self.early.append(
                        f"row {key} shows {shown.get(key)}, the barrier at {batch_timestamp} promised {revision}"
                    )

    def stop(self) -> None:
        """Stop the thread."""
        self._stopped.set()
        self.join(30)

    def _shown(self, solr: pysolr.Solr, keys: list[int]) -> dict[int, int]:
        ids = ",".join(self._world.codec.row_key({"id": key}).hex() for key in keys)
        found = solr.search("*:*", fq=["_kind:row", f"{{!terms f=_id}}{ids}"], fl="id,revision", rows=len(keys))
        return {document["id"]: document["revision"] for document in found}


def differences(world: World, load: Load) -> list[str]:
    """Return the differences of the table from what was written, and of the collection from the table, by field."""
    stored = scan_rows_but(world, load.poisoned)
    shown: dict[Any, dict[str, Any]] = {
        document["id"]: {name: value for name, value in document.items() if not name.startswith("_")}
        for document in shown_documents(world.topology, world.index)
    }
    wrong = []
    lost = [
        k for k in stored.keys() | load.expected.keys() if stored.get(k, {}).get("revision") != load.expected.get(k)
    ]
    if lost:
        wrong.append(f"{len(lost)} rows of the table differ from what was written, e.g. {lost[0]}")
    different = [key for key in stored.keys() | shown.keys() if stored.get(key) != shown.get(key)]
    if different:
        key = different[0]
        wrong.append(f"{len(different)} documents differ: {key}: {shown.get(key)} instead of {stored.get(key)}")
    return wrong


def scan_rows_but(world: World, poisoned: set[bytes]) -> dict[Any, dict[str, Any]]:
    """Return the table's rows by id, without NULLs; first delete the poisoned rows, which cannot be decoded."""
    with world.hbase() as connection:
        table = connection.table(hbase_table(world.name, "wide"))
        for key in poisoned:
            table.delete(key, columns=[b"d"])
    return {
        found.values["id"]: {name: value for name, value in found.values.items() if value is not None}
        for found in scan_rows(world.topology, world.topology.tables["wide"]).values()
    }
