"""`tailorbird verify --stage index` on the real servers: faults planted in HBase and in Solr are found and repaired
during live writes.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import happybase
import pytest
import requests

from cdc.stored.cells import RowCodec, document_id
from tailorbird.verify.findings import Verdict
from tailorbird.verify.index import run_index_stage
from tailorbird.verify.index.run_index_stage import verify_indexes
from tailorbird.verify.request import StageResult, parse_request
from tests.integration.test_index import TYPES, World, a_world, equal, row

pytestmark = pytest.mark.integration

KEPT = 400  # the traffic writes no keys from here on


@contextmanager
def live_writes(world: World, codec: RowCodec) -> Iterator[None]:
    """Write batches as the join does, one after the other: rows are inserted, changed and deleted."""
    stop = threading.Event()

    def write() -> None:
        revision = 0
        while not stop.wait(0.03):
            revision += 1
            some = [(revision * 37 + n * 11) % KEPT for n in range(12)]
            world.write(codec, [row(n, revision) for n in some[:9]], deletes=some[9:])

    with ThreadPoolExecutor(1, "writes") as pool:
        writing = pool.submit(write)
        try:
            yield
        finally:
            stop.set()
        writing.result()


class PlantedWrites:
    """Writes that bypass the pipeline: in HBase without the WAL, so that nothing is replicated; in Solr past the
    version fence.
    """

    def __init__(self, world: World, codec: RowCodec) -> None:
        self._world, self._codec = world, codec
        self._connection = happybase.Connection("127.0.0.1", int(os.environ["TAILORBIRD_PORT_THRIFT"]), timeout=30_000)
        self._table = self._connection.table(f"{world.topology.name}:wide")
        self._update = f"{world.url}/{world.topology.name}_wide/update?commit=true&update.chain=conditional"

    def close(self) -> None:
        self._connection.close()

    def id(self, key: int) -> str:
        return document_id(self._codec.row_key({"id": key}))

    def put(self, key: int, **changed: Any) -> None:
        cells = self._codec.cells(row(key, **changed), batch=1, ts_ms=1)
        values = {b"d:" + q: value for q, value in cells.items()}
        self._table.put(self._codec.row_key({"id": key}), values, timestamp=time.time_ns() // 1_000_000, wal=False)

    def delete(self, key: int) -> None:
        with self._table.batch(timestamp=time.time_ns() // 1_000_000, wal=False) as batch:
            batch.delete(self._codec.row_key({"id": key}))

    def post(self, what: object) -> None:
        requests.post(self._update, json=what, timeout=30).raise_for_status()

    def document(self, key: int) -> dict[str, Any]:
        return {name: value for name, value in self._world.documents()[key].items() if not name.startswith("_v")}


class YesPrompt:
    """Answers yes to every question."""

    @contextmanager
    def progress(self, title: str, total: int | None) -> Iterator[Callable[[int], None]]:
        yield lambda rows: None

    def notify(self, text: str) -> None: ...

    def ask(self, question: str) -> bool:
        return True

    def sure(self, question: str) -> bool:
        return True


def said(world: World, *, dry_run: bool = False) -> StageResult:
    """Run `verify --stage index` within this process, which saves its start; return its output."""
    [one] = verify_indexes(parse_request(world.topology, ["index"], None, repair=True, dry_run=dry_run), YesPrompt())
    return one


def kinds(verdict: Verdict) -> dict[Any, str]:
    return {finding.key["id"]: finding.kind for finding in verdict.findings}


def test_planted_faults_are_found_and_repaired_during_live_writes(
    stack: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is reported by key, column and both values, and no other row; --dry-run writes nothing; after the repair it
    is clean.
    """
    monkeypatch.setattr(run_index_stage, "_BETWEEN_LOOKS", 0.3)
    with a_world(tmp_path) as world:
        codec = world.store_layout(1, **TYPES)
        world.start()
        world.write(codec, [row(n) for n in range(KEPT + 100)])
        equal(world)
        with live_writes(world, codec), closing(PlantedWrites(world, codec)) as plant:
            plant.post([{**plant.document(KEPT + 1), "amount": "12.34"}])  # with the fence of the row itself
            plant.post({"delete": {"id": plant.id(KEPT + 2)}})
            plant.post([{**plant.document(KEPT + 3), "_id": plant.id(9_003), "id": 9_003}])
            plant.put(KEPT + 4, name="written directly")
            plant.put(9_005)
            plant.delete(KEPT + 6)
            faults = {
                KEPT + 1: "different", KEPT + 2: "missing", 9_003: "extra",
                KEPT + 4: "different", 9_005: "missing", KEPT + 6: "extra",
            }  # fmt: skip
            rehearsed = said(world, dry_run=True)
            assert (kinds(rehearsed.verdict), rehearsed.verdict.unknown) == (faults, ())
            columns = {finding.key["id"]: finding.columns for finding in rehearsed.verdict.findings}
            assert columns[KEPT + 1] == {"amount": (f"{KEPT + 1}.00", "12.34")}
            assert columns[KEPT + 4]["name"] == ("written directly", f"Ada {KEPT + 4} #0")
            assert rehearsed.repair.startswith("would repair 6 documents")
            done = said(world)
            assert (kinds(done.verdict), done.repair) == (faults, "repaired 6 of 6: 4 written, 2 removed")
            assert (done.last.outcome, done.last.rows) == ("equal", 6)
        # repaired documents have the usual fence: later writes of those rows arrive
        world.write(codec, [row(KEPT + 1, 5), row(9_003, 5)], deletes=[KEPT + 4])
        equal(world)
        verdict = world.reported("verify", "--stage", "index", "--json")
        assert (verdict["outcome"], verdict["differing"], verdict["moving"]) == ("equal", 0, 0)
        assert verdict["rows"] == len(world.documents()) > 400
        sampled = world.reported("verify", "--stage", "index", "--sample", "1/8", "--json")
        assert (sampled["outcome"], sampled["rows"]) == ("equal", verdict["rows"])
