"""State of an index in ZooKeeper, below the node of its replication peer: targets, and progress of rebuilds and
batches."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import orjson
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from cdc.model.errors import Fatal, UsageError
from indexer.foreign.foreign import RegionProgress
from indexer.peer.zk_registration import ANSWER_SECONDS, answering, parent_node
from indexer.rebuild.targets import Targets, load_targets

_GENERATIONS = "/tailorbird/generations"
_MADE = "/tailorbird/peers"


class StoredTargets:
    """The stored targets of one index. Without a stored value, the target is the index's only collection."""

    def __init__(self, client: KazooClient, peer: str, *, collection: str) -> None:
        self._client, self._collection = client, collection
        self._node = f"{parent_node(peer)}/targets"

    def stored(self) -> bytes | None:
        """Return the stored value, including all earlier writes; None if there is none."""
        with answering():
            # Without sync a follower may return an old value. Bounded: kazoo holds calls while it has no connection,
            # and batches must go back to HBase in time.
            self._client.sync_async("/").get(timeout=ANSWER_SECONDS)
            try:
                value: bytes = self._client.get_async(self._node).get(timeout=ANSWER_SECONDS)[0]
            except NoNodeError:
                return None
            return value

    def read(self) -> Targets:
        """Return the targets, including all earlier writes. Raises Retriable while ZooKeeper is unavailable."""
        if (stored := self.stored()) is None:
            return Targets(epoch=0, collections=(self._collection,))
        try:
            return load_targets(stored)
        except (KeyError, ValueError, TypeError) as error:
            raise Fatal(f"ZooKeeper's {self._node} cannot be read: {error!r}") from error

    def write(self, targets: Targets) -> None:
        """Replace the targets. The caller must hold `RebuildState.lock`, so that there is one writer at a time."""
        with answering():
            _put(self._client, self._node, targets.to_json())


class RebuildState:
    """Progress of the rebuild of one index, as JSON, and a lock that admits one rebuilding process.

    `of` names another kind of job on the index. It has its own progress, but the same lock."""

    def __init__(self, client: KazooClient, peer: str, of: str = "rebuild") -> None:
        self._client, self._parent = client, parent_node(peer)
        self._node = f"{self._parent}/{of}"

    def read(self) -> dict[str, Any] | None:
        """Return what `write` stored; None if there is nothing to resume."""
        with answering():
            try:
                stored, _ = self._client.get(self._node)
            except NoNodeError:
                return None
        value: dict[str, Any] = orjson.loads(stored)
        return value

    def write(self, state: dict[str, Any]) -> None:
        """Store the progress."""
        with answering():
            _put(self._client, self._node, json.dumps(state).encode())

    def clear(self) -> None:
        """Remove the progress."""
        with answering(), contextlib.suppress(NoNodeError):
            self._client.delete(self._node)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Context manager: lock the index against other rebuilds. Raises UsageError if another process has the lock.

        If the holder is killed, the lock ends with its ZooKeeper session, after some seconds."""
        node = f"{self._parent}/rebuild-lock"
        with answering():
            try:
                self._client.create(node, ephemeral=True, makepath=True)
            except NodeExistsError:
                raise UsageError(
                    "another process rebuilds this index",
                    "wait until it ends, or ten seconds after it was killed",
                ) from None
        try:
            yield
        finally:
            with contextlib.suppress(KazooException, KazooTimeoutError):
                self._client.delete(node)


class StoredProgress:
    """Progress of the batches of an external table's regions, valid for one epoch of the targets.

    After a change of the targets the progress is ignored, because the new collections need every row again."""

    def __init__(self, client: KazooClient, peer: str, *, epoch: int) -> None:
        self._client, self._epoch = client, epoch
        self._node = f"{parent_node(peer)}/progress"

    def read(self, region: bytes) -> RegionProgress | None:
        """Return the progress that `write` stored for a region. None if there is none, or only one of another epoch.

        Raises Fatal if the stored value is malformed, Retriable while ZooKeeper is unavailable."""
        node = f"{self._node}/{region.decode()}"
        with answering():
            try:
                stored, _ = self._client.get_async(node).get(timeout=ANSWER_SECONDS)
            except NoNodeError:
                return None
        try:
            value = orjson.loads(stored)
            return RegionProgress(**value["progress"]) if value["epoch"] == self._epoch else None
        except (KeyError, ValueError, TypeError) as error:
            raise Fatal(f"ZooKeeper's {node} cannot be read: {error!r}", f"delete it: {node}") from error

    def write(self, region: bytes, progress: RegionProgress) -> None:
        """Store the progress of a region's batch."""
        node = f"{self._node}/{region.decode()}"
        value = json.dumps({"epoch": self._epoch, "progress": progress._asdict()}).encode()
        with answering():
            _put(self._client, node, value)

    def clear(self, region: bytes) -> None:
        """Remove the progress of a region."""
        with answering(), contextlib.suppress(NoNodeError):
            self._client.delete_async(f"{self._node}/{region.decode()}").get(timeout=ANSWER_SECONDS)


class Generations:
    """A number per index that is a part of its peer's name. It increases when an index is removed, and is never
    reset."""

    def __init__(self, client: KazooClient) -> None:
        self._client = client

    def current(self, topology: str, index: str) -> int:
        """Return the generation; 1 for an index that was never removed."""
        with answering():
            try:
                stored, _ = self._client.get(f"{_GENERATIONS}/{topology}_{index}")
            except NoNodeError:
                return 1
        return int(stored)

    def advance(self, topology: str, index: str) -> int:
        """Store and return the next generation."""
        number = self.current(topology, index) + 1
        with answering():
            _put(self._client, f"{_GENERATIONS}/{topology}_{index}", str(number).encode())
        return number

    def was_made(self, peer: str) -> bool:
        """Return whether HBase has ever had a replication peer of this name."""
        with answering():
            return self._client.exists(f"{_MADE}/{peer}") is not None

    def mark_made(self, peer: str) -> None:
        """Record permanently that HBase has had a replication peer of this name."""
        with answering():
            self._client.ensure_path(f"{_MADE}/{peer}")

    def announced(self, peer: str) -> list[str]:
        """Return the names of the indexer processes that are registered for a peer now."""
        with answering(), contextlib.suppress(NoNodeError):
            found: list[str] = self._client.get_children(f"{parent_node(peer)}/rs")
            return found
        return []


def _put(client: KazooClient, node: str, value: bytes) -> None:
    """Replace a node's value, or create the node together with its value.

    A node that is created empty first could be read in between, or stay empty after kill -9."""
    try:
        client.set_async(node, value).get(timeout=ANSWER_SECONDS)
    except NoNodeError:
        try:
            client.create_async(node, value, makepath=True).get(timeout=ANSWER_SECONDS)
        except NodeExistsError:  # created concurrently, or by an earlier call whose answer was lost
            client.set_async(node, value).get(timeout=ANSWER_SECONDS)
