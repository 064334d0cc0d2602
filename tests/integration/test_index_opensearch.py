"""An index in OpenSearch ends equal to its table, whatever dies under traffic, and a rebuild swaps without a gap."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from benchmarks.index.load import Load, differences
from benchmarks.index.world import World
from cdc.model.errors import Retriable
from indexer.engine.engine import SearchCollection, open_collection, visible_timestamp
from tailorbird.devtools.demo.run_demo_index import shown_versions
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.verify.findings import Verdict
from tailorbird.verify.index.run_index_stage import verify_indexes
from tailorbird.verify.request import SilentTerminal, parse_request
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.matrix, pytest.mark.timeout(600)]


@pytest.fixture
def world(stack: Stack) -> Iterator[World]:
    if os.environ.get("TAILORBIRD_TESTS_USE_RUNNING_STACK") == "1":
        pytest.skip("it kills servers; unset TAILORBIRD_TESTS_USE_RUNNING_STACK to run it")
    stack.start("opensearch")
    with World(engine="opensearch") as made:
        yield made
    stack.stop("opensearch")


def reported(*arguments: str, code: int = 0) -> str:
    command = [sys.executable, "-m", "tailorbird", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == code, (arguments, done.stderr)
    return done.stdout


class Watch(threading.Thread):
    """Searches the rows that the visible barriers promise, all the time. `early` lists rows that are not visible,
    `unavailable` when OpenSearch did not answer."""

    def __init__(self, world: World, load: Load, collection: SearchCollection) -> None:
        super().__init__(daemon=True)
        self._load, self._collection, self._over = load, collection, threading.Event()
        self._look = shown_versions(world.topology, world.index, key="id", version="revision")
        self.early: list[str] = []
        self.unavailable: list[float] = []
        self.looked = 0

    def run(self) -> None:
        while not self._over.wait(0.05):
            try:
                timestamp = self._collection.visible_timestamp() or 0
                wanted = self._load.recent(timestamp)
                shown = self._look(list(wanted)) if wanted else {}
            except Retriable:
                self.unavailable.append(time.monotonic())
                continue
            self.looked += bool(wanted)
            self.early += [
                f"row {key} shows {shown.get(key)}, the barrier at {timestamp} promised {revision}"
                for key, revision in wanted.items()
                if shown.get(key, 0) < revision and not (key not in shown and self._load.gone_since(key, revision))
            ]

    def stop(self) -> None:
        self._over.set()
        self.join(30)


def visible(world: World) -> int:
    """Return the timestamp of the visible barrier; 0 if there is none, or OpenSearch does not answer."""
    try:
        return visible_timestamp(world.topology, world.index) or 0
    except Retriable:
        return 0


def verified(world: World) -> list[Verdict]:
    asked = parse_request(world.topology, ["index"], [])
    return [one.last for one in verify_indexes(asked, SilentTerminal())]


def test_kills_and_a_rebuild_under_traffic(world: World, stack: Stack) -> None:
    """Indexers and OpenSearch are killed while rows are written; then the index is rebuilt, swapped and rolled back.
    It equals the table each time, `verify` agrees, and no search misses a row that a barrier promises."""
    file, processes = str(world.file), [world.start(), world.start()]
    load = Load(world, keys=1500)

    def equal() -> None:
        for _ in range(4):
            load.write_until_accepted(300)
        wait_for(lambda: visible(world) >= world.timestamp, "not visible", 180)
        assert differences(world, load) == []

    with closing(open_collection(world.topology, world.index)) as collection:
        watch = Watch(world, load, collection)
        watch.start()
        equal()
        for turn in range(3):
            load.write_until_accepted(300, poison=turn == 1)
            stack.kill("opensearch")
            load.write_until_accepted(300)
            world.kill(processes.pop())
            stack.start("opensearch")
            load.write_until_accepted(300)
            processes.append(world.start())
        equal()
        assert watch.unavailable
        dead = [json.loads(line) for line in reported("dead-letters", "list", file, "--json").splitlines()]
        assert [one["stage"] for one in dead] == ["indexer"]
        watch.unavailable.clear()
        before = reported("status", file, "--json", code=1)  # no join runs
        assert world.index.collection in before
        writing = threading.Event()

        def write() -> None:
            while not writing.is_set():
                load.write_until_accepted(200)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            assert json.loads(reported("index", "reindex", file, "--json"))["swapped"]
            reported("index", "reindex", file, "--rollback")
            [verdict] = [
                one.last for one in verify_indexes(parse_request(world.topology, ["index"], []), SilentTerminal())
            ]
        finally:
            writing.set()
            writer.join(60)
        assert (verdict.outcome, verdict.findings) == ("equal", ()), verdict
        equal()
        reported("index", "reindex", file, "--finish")
        equal()
        watch.stop()
        assert (watch.early, watch.unavailable) == ([], [])
        assert watch.looked > 50
    with closing(open_collection(world.topology, world.index)) as collection:
        key = next(iter(load.expected))
        row_key = world.codec.row_key({"id": key}).hex()
        stored = collection.stored([row_key])[row_key]
        version = int(str(stored["_fence"]))
        assert collection.post([{**stored, "_fence": version + 1, "revision": 0}]) == []
        [verdict] = verified(world)
        assert (verdict.outcome, verdict.differing) == ("different", 1)
