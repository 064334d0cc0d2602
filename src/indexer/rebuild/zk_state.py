"""State of an index in ZooKeeper below its peer's node: targets, and the progress of rebuilds and batches."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

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
    """The targets of one index. An index that was never rebuilt has its one collection as target."""

    def __init__(self, client: KazooClient, peer: str, *, collection: str) -> None:
        self._client, self._collection = client, collection
        self._node = f"{parent_node(peer)}/targets"

    def read(self) -> Targets:
        """Return the targets after all earlier writes. Raises Retriable while ZooKeeper is unavailable."""
        with answering():
            # Without sync a follower may return an old value. Bounded: kazoo holds calls while it has no connection,
            # and batches must go back to HBase in time.
            self._client.sync_async("/").get(timeout=ANSWER_SECONDS)
            try:
                stored, _ = self._client.get_async(self._node).get(timeout=ANSWER_SECONDS)
            except NoNodeError:
                return Targets(epoch=0, collections=(self._collection,))
        try:
            return load_targets(stored)
        except (KeyError, ValueError, TypeError) as error:
            raise Fatal(f"ZooKeeper's {self._node} cannot be read: {error!r}") from error

    def write(self, targets: Targets) -> None:
        """Replace the targets. There is one writer at a time, which holds `RebuildState.lock`."""
        with answering():
            _put(self._client, self._node, targets.to_json())


class RebuildState:
    """Progress of a rebuild of one index, as JSON, and the lock of the one process that rebuilds. `of` names another
    job for it, whose state is kept likewise."""

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
        value: dict[str, Any] = json.loads(stored)
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
        """Lock the index against other rebuilds. Raises UsageError if one runs. A dead holder's lock ends with its
        session, after some seconds."""
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
    """Progress of the batches of an external table's regions, in one epoch of the targets. Another epoch has other
    collections, into which everything is indexed again."""

    def __init__(self, client: KazooClient, peer: str, *, epoch: int) -> None:
        self._client, self._epoch = client, epoch
        self._node = f"{parent_node(peer)}/progress"

    def read(self, region: bytes) -> RegionProgress | None:
        """Return what `write` stored of a region; None if no batch is running."""
        node = f"{self._node}/{region.decode()}"
        with answering():
            try:
                stored, _ = self._client.get_async(node).get(timeout=ANSWER_SECONDS)
            except NoNodeError:
                return None
        try:
            value = json.loads(stored)
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
    """Number in the name of each index's peer. It increases when an index is removed, and is never forgotten."""

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
        """Return whether HBase has ever had a peer of this name."""
        with answering():
            return self._client.exists(f"{_MADE}/{peer}") is not None

    def mark_made(self, peer: str) -> None:
        """Record that HBase has a peer of this name; never revoked."""
        with answering():
            self._client.ensure_path(f"{_MADE}/{peer}")

    def announced(self, peer: str) -> list[str]:
        """The indexer processes that serve a peer now."""
        with answering(), contextlib.suppress(NoNodeError):
            found: list[str] = self._client.get_children(f"{parent_node(peer)}/rs")
            return found
        return []


def _put(client: KazooClient, node: str, value: bytes) -> None:
    """Replace a node's value, or make the node with it: a node made empty first could be read in between, or stay
    empty after kill -9."""
    try:
        client.set_async(node, value).get(timeout=ANSWER_SECONDS)
    except NoNodeError:
        try:
            client.create_async(node, value, makepath=True).get(timeout=ANSWER_SECONDS)
        except NodeExistsError:  # created concurrently, or by an earlier call whose answer was lost
            client.set_async(node, value).get(timeout=ANSWER_SECONDS)
