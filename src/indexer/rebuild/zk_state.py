"""What is kept of an index beside its data, in ZooKeeper below its peer's node: targets, how far a rebuild is, and how
far batches are."""

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
    """The targets of one index; those of an index that was never rebuilt are its one collection."""

    def __init__(self, client: KazooClient, peer: str, *, collection: str) -> None:
        self._client, self._collection = client, collection
        self._node = f"{parent_node(peer)}/targets"

    def read(self) -> Targets:
        """As all writes before this call have left them; Retriable while ZooKeeper is away."""
        with answering():
            # Without sync a follower may answer with what it has not heard of yet.
            # Bounded: kazoo keeps calls while it has no connection, and batches must go back to HBase in time.
            self._client.sync_async("/").get(timeout=ANSWER_SECONDS)
            try:
                stored, _ = self._client.get_async(self._node).get(timeout=ANSWER_SECONDS)
            except NoNodeError:
                return Targets(epoch=0, collections=(self._collection,))
        try:
            return load_targets(stored)
        except (KeyError, ValueError, TypeError) as error:
            raise Fatal(f"ZooKeeper's {self._node} can not be read: {error!r}") from error

    def write(self, targets: Targets) -> None:
        """Replace the targets; one writer at a time, who holds `RebuildState.lock`."""
        with answering():
            _put(self._client, self._node, targets.to_json())


class RebuildState:
    """How far a rebuild of one index is, as JSON, and the lock of the one process that rebuilds. `of` names another
    work on it, whose state is kept likewise."""

    def __init__(self, client: KazooClient, peer: str, of: str = "rebuild") -> None:
        self._client, self._parent = client, parent_node(peer)
        self._node = f"{self._parent}/{of}"

    def read(self) -> dict[str, Any] | None:
        """What `write` stored; None where there is nothing to go on with."""
        with answering():
            try:
                stored, _ = self._client.get(self._node)
            except NoNodeError:
                return None
        value: dict[str, Any] = json.loads(stored)
        return value

    def write(self, state: dict[str, Any]) -> None:
        """Store how far it is."""
        with answering():
            _put(self._client, self._node, json.dumps(state).encode())

    def clear(self) -> None:
        """Nothing is left to go on with."""
        with answering(), contextlib.suppress(NoNodeError):
            self._client.delete(self._node)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the index against other rebuilds; UsageError when one runs. A dead holder's lock ends with its
        session, after some seconds."""
        node = f"{self._parent}/rebuild-lock"
        with answering():
            try:
                self._client.create(node, ephemeral=True, makepath=True)
            except NodeExistsError:
                raise UsageError(
                    "another process rebuilds this index",
                    "wait until it ends; after kill -9 of it ten seconds are enough",
                ) from None
        try:
            yield
        finally:
            with contextlib.suppress(KazooException, KazooTimeoutError):
                self._client.delete(node)


class StoredProgress:
    """How far the batches of a foreign table's regions are, in one epoch of the targets: another one has other
    collections, into which everything is indexed anew."""

    def __init__(self, client: KazooClient, peer: str, *, epoch: int) -> None:
        self._client, self._epoch = client, epoch
        self._node = f"{parent_node(peer)}/progress"

    def read(self, region: bytes) -> RegionProgress | None:
        """What `write` stored of a region; None where no batch is under way."""
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
            raise Fatal(f"ZooKeeper's {node} can not be read: {error!r}", f"delete it: {node}") from error

    def write(self, region: bytes, progress: RegionProgress) -> None:
        """Store how far a region's batch is."""
        node = f"{self._node}/{region.decode()}"
        value = json.dumps({"epoch": self._epoch, "progress": progress._asdict()}).encode()
        with answering():
            _put(self._client, node, value)

    def clear(self, region: bytes) -> None:
        """No batch of a region is under way."""
        with answering(), contextlib.suppress(NoNodeError):
            self._client.delete_async(f"{self._node}/{region.decode()}").get(timeout=ANSWER_SECONDS)


class Generations:
    """The number in the name of each index's peer; it grows when an index is removed, and is never forgotten."""

    def __init__(self, client: KazooClient) -> None:
        self._client = client

    def current(self, topology: str, index: str) -> int:
        """1 for an index that was never removed."""
        with answering():
            try:
                stored, _ = self._client.get(f"{_GENERATIONS}/{topology}_{index}")
            except NoNodeError:
                return 1
        return int(stored)

    def advance(self, topology: str, index: str) -> int:
        """The next generation, stored."""
        number = self.current(topology, index) + 1
        with answering():
            _put(self._client, f"{_GENERATIONS}/{topology}_{index}", str(number).encode())
        return number

    def was_made(self, peer: str) -> bool:
        """Whether HBase has had a peer of this name."""
        with answering():
            return self._client.exists(f"{_MADE}/{peer}") is not None

    def mark_made(self, peer: str) -> None:
        """Note that HBase has a peer of this name; never taken back."""
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
        except NodeExistsError:  # made meanwhile, or by a call of ours whose answer was lost
            client.set_async(node, value).get(timeout=ANSWER_SECONDS)
